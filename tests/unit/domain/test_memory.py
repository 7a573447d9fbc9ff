"""Confidence, merging, and what a prompt has room for."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain import memory
from claudeops.domain.memory import ChangeKind, KnownMemory, MemoryChange
from claudeops.domain.model import Memory, ReportedMemory
from support.store_values import NOW, after


def known(observation: str = "starts within 30 s", **changes: object) -> KnownMemory:
    values: dict[str, object] = {
        "id": 1,
        "service": "web",
        "category": "timing",
        "observation": observation,
        "confidence": 0.7,
        "active": True,
        "updated_at": NOW,
        **changes,
    }
    return KnownMemory(**values)  # type: ignore[arg-type]


def said(
    observation: str = "starts within 30 s", *, service: str | None = "web", category: str = "timing"
) -> ReportedMemory:
    return ReportedMemory(category=category, observation=observation, service=service)


def stored(number: int, confidence: float, observation: str = "x" * 32, **changes: object) -> Memory:
    values: dict[str, object] = {"updated_at": NOW, "service": "web", "category": "timing", **changes}
    return Memory(id=number, confidence=confidence, observation=observation, **values)  # type: ignore[arg-type]


def kinds(changes: tuple[MemoryChange, ...]) -> list[tuple[ChangeKind, float, bool]]:
    return [(change.kind, change.confidence, change.active) for change in changes]


def test_new_memory_is_active_at_seven_tenths() -> None:
    (change,) = memory.merge((), [said(service=None)], now=NOW)

    assert change == MemoryChange(
        kind=ChangeKind.ADDED,
        id=None,
        service=None,
        category="timing",
        observation="starts within 30 s",
        confidence=0.7,
        active=True,
    )


@pytest.mark.parametrize(
    "observation",
    ["starts within 30 s", "Starts  within 30 s.", " STARTS within: 30 s! ", "starts within 3\uff10 s"],
)
def test_same_words_reinforce(observation: str) -> None:
    assert kinds(memory.merge((known(),), [said(observation)], now=NOW)) == [(ChangeKind.REINFORCED, 0.8, True)]


def test_confidence_ends_at_one() -> None:
    assert kinds(memory.merge((known(confidence=0.95),), [said()], now=NOW)) == [(ChangeKind.REINFORCED, 1.0, True)]


@pytest.mark.parametrize(
    "other", [said(service="db"), said(service=None), said(category="speed")], ids=["service", "no service", "category"]
)
def test_same_words_under_another_key_are_another_memory(other: ReportedMemory) -> None:
    assert kinds(memory.merge((known(),), [other], now=NOW)) == [(ChangeKind.ADDED, 0.7, True)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("starts within 30 s", "starts within 60 s", id="another number"),
        pytest.param("starts within 30s", "starts within 90s", id="a number with its unit"),
        pytest.param("restarts are safe", "restarts are not safe", id="a negation"),
        pytest.param("it isn't behind the proxy", "it is behind the proxy", id="a short negation"),
    ],
)
def test_contradiction_weakens_the_old_one_and_stands_beside_it(old: str, new: str) -> None:
    changes = memory.merge((known(old),), [said(new)], now=NOW)

    assert kinds(changes) == [(ChangeKind.ADDED, 0.7, True), (ChangeKind.CONTRADICTED, 0.5, True)]


def test_two_true_facts_in_one_category_leave_each_other_alone() -> None:
    changes = memory.merge((known(),), [said("its library scan takes twenty minutes")], now=NOW)

    assert kinds(changes) == [(ChangeKind.ADDED, 0.7, True)]


def test_facts_that_only_look_alike_do_not_wear_each_other_down() -> None:
    first, second = known("port 80 is http"), known("port 443 is http", id=2)

    assert kinds(memory.merge((first, second), [said("port 443 is http")], now=NOW)) == [
        (ChangeKind.REINFORCED, 0.8, True)
    ]


def test_contradicted_too_often_is_given_up() -> None:
    assert kinds(memory.merge((known(confidence=0.4),), [said("starts within 60 s")], now=NOW)) == [
        (ChangeKind.ADDED, 0.7, True),
        (ChangeKind.CONTRADICTED, 0.2, False),
    ]


def test_memory_is_contradicted_once_a_report_and_not_by_what_confirms_it() -> None:
    twice = memory.merge((known(),), [said("starts within 60 s"), said("starts within 90 s")], now=NOW)
    both = memory.merge((known(),), [said("starts within 60 s"), said()], now=NOW)

    assert [change.kind for change in twice].count(ChangeKind.CONTRADICTED) == 1
    assert [change.kind for change in both] == [ChangeKind.ADDED, ChangeKind.REINFORCED]


@pytest.mark.parametrize(("confidence", "back_at"), [(0.25, 0.35), (0.0, 0.3), (0.1, 0.3)])
def test_memory_that_was_given_up_comes_back_when_it_is_seen_again(confidence: float, back_at: float) -> None:
    given_up = known(confidence=confidence, active=False)

    assert kinds(memory.merge((given_up,), [said()], now=NOW)) == [(ChangeKind.REVIVED, back_at, True)]


def test_what_comes_back_contradicts_what_took_its_place() -> None:
    given_up, successor = known(active=False, confidence=0.2), known("starts within 60 s", id=2)

    changes = memory.merge((given_up, successor), [said()], now=NOW)

    assert [(change.id, change.kind) for change in changes] == [(1, ChangeKind.REVIVED), (2, ChangeKind.CONTRADICTED)]


def test_blank_and_repeated_observations_change_nothing_more() -> None:
    changes = memory.merge((), [said(" "), said("a fact"), said("A fact."), said("")], now=NOW)

    assert [change.observation for change in changes] == ["a fact"]


@pytest.mark.parametrize(
    ("now", "left"),
    [
        pytest.param(after(), 0.7, id="at once"),
        pytest.param(after(days=36.9), 0.7, id="before a full week after thirty days"),
        pytest.param(after(days=37), 0.6, id="a week after"),
        pytest.param(after(days=58), 0.3, id="four weeks after: not a hair below"),
        pytest.param(after(days=65), 0.2, id="five weeks after"),
        pytest.param(after(days=900), 0.0, id="never below nothing"),
        pytest.param(after(days=-5), 0.7, id="the clock was set back"),
    ],
)
def test_memory_fades_by_a_tenth_a_week_after_thirty_days(now: datetime, left: float) -> None:
    assert memory.faded(0.7, NOW, now) == left


def test_four_weeks_of_fading_leave_a_memory_just_active() -> None:
    assert not memory.has_faded(known(), after(days=58))
    assert memory.has_faded(known(), after(days=65))
    assert not memory.has_faded(known(active=False), after(days=65))


def test_reinforcement_starts_from_what_is_left() -> None:
    assert kinds(memory.merge((known(),), [said()], now=after(days=44))) == [(ChangeKind.REINFORCED, 0.6, True)]


def test_what_is_believed_now_comes_best_first() -> None:
    old = known(id=1, confidence=0.9, updated_at=after(days=-44))
    memories = (old, known(id=2, confidence=0.8), known(id=3, active=False), known(id=4, confidence=0.29))

    assert [(item.id, item.confidence) for item in memory.believed(memories, NOW, 10)] == [(2, 0.8), (1, 0.7)]
    assert [item.id for item in memory.believed(memories, NOW, 1)] == [2]


def test_prompt_takes_the_best_first_and_the_newest_among_equals() -> None:
    memories = [stored(1, 0.5), stored(2, 0.9), stored(3, 0.5, updated_at=after(days=1)), stored(4, 0.29)]

    assert [chosen.id for chosen in memory.select(memories, 2000)] == [2, 3, 1]


@pytest.mark.parametrize(("budget", "chosen"), [(0, []), (-1, []), (16, []), (17, [1]), (32, [1]), (33, [1, 2])])
def test_budget_is_four_characters_a_token(budget: int, chosen: list[int]) -> None:
    memories = [stored(1, 0.9), stored(2, 0.8)]  # a line of 65 characters each

    assert [item.id for item in memory.select(memories, budget)] == chosen


def test_memory_that_is_too_long_does_not_keep_the_others_out() -> None:
    memories = [stored(1, 1.0, "x" * 5000), stored(2, 0.5)]

    assert [item.id for item in memory.select(memories, 100)] == [2]


@given(
    st.lists(st.tuples(st.text(max_size=20), st.floats(0, 1), st.booleans()), max_size=8),
    st.lists(st.text(max_size=20), max_size=8),
    st.integers(-100, 1000),
)
def test_confidence_stays_within_bounds_and_activity_follows_it(
    existing: list[tuple[str, float, bool]], reported: list[str], days: int
) -> None:
    memories = tuple(
        known(text, id=number, confidence=confidence, active=active)
        for number, (text, confidence, active) in enumerate(existing)
    )

    changes = memory.merge(memories, [said(text) for text in reported], now=after(days=days))

    touched = [change.id for change in changes if change.id is not None]
    assert len(touched) == len(set(touched))
    for change in changes:
        assert 0 <= change.confidence <= 1
        assert change.active == (change.confidence >= memory.ACTIVE_FROM)


@given(st.lists(st.tuples(st.text(max_size=60), st.floats(0, 1)), max_size=12), st.integers(0, 100))
def test_selection_fits_the_budget(texts: list[tuple[str, float]], budget: int) -> None:
    memories = [stored(number, confidence, text) for number, (text, confidence) in enumerate(texts)]

    chosen = memory.select(memories, budget)

    lines = "".join(
        f"- [{item.service}/{item.category}, confidence {item.confidence:.2f}] {item.observation}\n" for item in chosen
    )
    assert len(lines) <= budget * memory.CHARACTERS_PER_TOKEN
    assert all(item.confidence >= memory.ACTIVE_FROM for item in chosen)
