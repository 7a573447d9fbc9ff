"""What a report changes: the contract's numbers, echoes, quarantine, replacement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.looks import EvidenceLook
from claudeops.domain.memories.confidence import ACTIVE_FROM
from claudeops.domain.memories.memory import ChangeKind, Evidence, KnownMemory, Learner, MemoryChange, Trust
from claudeops.domain.memories.merge import Merged
from claudeops.domain.memories.merge import merge as merged
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import ReportedMemory
from support.memories import known
from support.store_values import NOW, after

CHAIN = 40
AT_WEB = (EvidenceLook(names=frozenset({"web"}), tool_use_id="toolu_9"),)
AT_DB = (EvidenceLook(names=frozenset({"db"})),)


def merge(
    existing: Sequence[KnownMemory], reported: Iterable[ReportedMemory], *, now: datetime, by: Learner | None = None
) -> tuple[MemoryChange, ...]:
    return merged(existing, reported, now=now, by=by or Learner(chain=CHAIN)).changes


def learner(trust: Trust = Trust.CONFIRMED, **changes: object) -> Learner:
    values: dict[str, object] = {"chain": CHAIN, "trust": trust, **changes}
    return Learner(**values)  # type: ignore[arg-type]


def said(
    observation: str = "starts within 30 s",
    *,
    service: str | None = "web",
    category: str = "timing",
    supersedes: int | None = None,
) -> ReportedMemory:
    return ReportedMemory(category=category, observation=observation, service=service, supersedes=supersedes)


def kinds(changes: tuple[MemoryChange, ...]) -> list[tuple[ChangeKind, float, bool]]:
    return [(change.kind, change.confidence, change.active) for change in changes]


def test_new_memory_is_active_at_seven_tenths() -> None:
    (change,) = merge((), [said(service=None)], now=NOW)

    assert change == MemoryChange(
        kind=ChangeKind.ADDED,
        id=None,
        service=None,
        category="timing",
        observation="starts within 30 s",
        confidence=0.7,
        active=True,
        evidence=Evidence(root_session_id=CHAIN, chains=(CHAIN,)),
    )


@pytest.mark.parametrize(
    "observation",
    ["starts within 30 s", "Starts  within 30 s.", " STARTS within: 30 s! ", "starts within 3\uff10 s"],
)
def test_same_words_reinforce(observation: str) -> None:
    assert kinds(merge((known(),), [said(observation)], now=NOW)) == [(ChangeKind.REINFORCED, 0.8, True)]


def test_confidence_ends_at_one() -> None:
    assert kinds(merge((known(confidence=0.95),), [said()], now=NOW)) == [(ChangeKind.REINFORCED, 1.0, True)]


@pytest.mark.parametrize(
    "other",
    [said(service="db"), said(service=None), said(category="capacity")],
    ids=["service", "no service", "category"],
)
def test_same_words_under_another_key_are_another_memory(other: ReportedMemory) -> None:
    assert kinds(merge((known(),), [other], now=NOW)) == [(ChangeKind.ADDED, 0.7, True)]


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
    changes = merge((known(old),), [said(new)], now=NOW)

    assert kinds(changes) == [(ChangeKind.ADDED, 0.7, True), (ChangeKind.CONTRADICTED, 0.5, True)]


def test_two_true_facts_in_one_category_leave_each_other_alone() -> None:
    changes = merge((known(),), [said("its library scan takes twenty minutes")], now=NOW)

    assert kinds(changes) == [(ChangeKind.ADDED, 0.7, True)]


def test_facts_that_only_look_alike_do_not_wear_each_other_down() -> None:
    first, second = known("port 80 is http"), known("port 443 is http", id=2)

    assert kinds(merge((first, second), [said("port 443 is http")], now=NOW)) == [(ChangeKind.REINFORCED, 0.8, True)]


def test_contradicted_too_often_is_given_up() -> None:
    assert kinds(merge((known(confidence=0.4),), [said("starts within 60 s")], now=NOW)) == [
        (ChangeKind.ADDED, 0.7, True),
        (ChangeKind.CONTRADICTED, 0.2, False),
    ]


def test_memory_is_contradicted_once_a_report_and_not_by_what_confirms_it() -> None:
    twice = merge((known(),), [said("starts within 60 s"), said("starts within 90 s")], now=NOW)
    both = merge((known(),), [said("starts within 60 s"), said()], now=NOW)

    assert [change.kind for change in twice].count(ChangeKind.CONTRADICTED) == 1
    assert [change.kind for change in both] == [ChangeKind.ADDED, ChangeKind.REINFORCED]


@pytest.mark.parametrize(("confidence", "back_at"), [(0.25, 0.35), (0.0, 0.3), (0.1, 0.3)])
def test_memory_that_was_given_up_comes_back_when_it_is_seen_again(confidence: float, back_at: float) -> None:
    given_up = known(confidence=confidence, active=False)

    assert kinds(merge((given_up,), [said()], now=NOW)) == [(ChangeKind.REVIVED, back_at, True)]


def test_what_comes_back_contradicts_what_took_its_place() -> None:
    given_up, successor = known(active=False, confidence=0.2), known("starts within 60 s", id=2)

    changes = merge((given_up, successor), [said()], now=NOW)

    assert [(change.id, change.kind) for change in changes] == [(1, ChangeKind.REVIVED), (2, ChangeKind.CONTRADICTED)]


def test_blank_and_repeated_observations_change_nothing_more() -> None:
    changes = merge((), [said(" "), said("a fact"), said("A fact."), said("")], now=NOW)

    assert [change.observation for change in changes] == ["a fact"]


def test_reinforcement_starts_from_what_is_left() -> None:
    assert kinds(merge((known(),), [said()], now=after(days=44))) == [(ChangeKind.REINFORCED, 0.6, True)]


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

    changes = merge(memories, [said(text) for text in reported], now=after(days=days))

    touched = [change.id for change in changes if change.id is not None]
    assert len(touched) == len(set(touched))
    for change in changes:
        assert 0 <= change.confidence <= 1
        assert change.active == (change.confidence >= ACTIVE_FROM)


# --- echoes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "looks", "after_it"),
    [
        pytest.param(True, (), [], id="shown and not looked"),
        pytest.param(True, AT_DB, [], id="shown, and looked at another service"),
        pytest.param(True, AT_WEB, [(ChangeKind.REINFORCED, 0.8, True)], id="shown, and looked at"),
        pytest.param(False, (), [(ChangeKind.REINFORCED, 0.8, True)], id="not shown"),
    ],
)
def test_what_a_session_was_shown_it_confirms_only_by_looking(
    shown: bool,
    looks: tuple[EvidenceLook, ...],
    after_it: list[object],
) -> None:
    by = learner(shown=frozenset({1} if shown else ()), looks=looks)

    assert kinds(merge((known(),), [said()], now=NOW, by=by)) == after_it


def test_a_memory_about_no_service_is_confirmed_by_any_look() -> None:
    general = known(service=None)
    by = learner(shown=frozenset({1}), looks=AT_DB)

    assert kinds(merge((general,), [said(service=None)], now=NOW, by=by)) == [(ChangeKind.REINFORCED, 0.8, True)]


def test_another_name_of_a_service_is_the_same_service() -> None:
    by = learner(
        shown=frozenset({1}),
        looks=(EvidenceLook(names=frozenset({"Webserver"})),),
        names=KnownServices({"webserver": "web"}),
    )

    assert kinds(merge((known(),), [said(service="WebServer")], now=NOW, by=by)) == [(ChangeKind.REINFORCED, 0.8, True)]


def test_a_chain_counts_once_for_a_memory() -> None:
    of_the_chain = known(evidence=Evidence(root_session_id=3, chains=(3, CHAIN)))

    assert merge((of_the_chain,), [said()], now=NOW, by=learner(looks=AT_WEB)) == ()


def test_chains_that_have_said_it_are_kept_within_bounds() -> None:
    evidence = Evidence(root_session_id=1)
    for chain in range(1, 100):
        evidence = evidence.said_by(chain)

    assert len(evidence.chains) == 20
    assert (evidence.chains[0], evidence.chains[-1]) == (1, 99)


def test_an_old_category_counts_as_what_it_means() -> None:
    assert kinds(merge((known(category="duration"),), [said()], now=NOW)) == [(ChangeKind.REINFORCED, 0.8, True)]


@given(st.floats(0, 1), st.integers(0, 400), st.integers(1, 6), st.sampled_from([Trust.CONFIRMED, Trust.QUARANTINED]))
def test_an_echo_never_raises(confidence: float, days: int, times: int, trust: Trust) -> None:
    memory = known(confidence=confidence)

    for chain in range(50, 50 + times):
        assert (
            merge((memory,), [said()], now=after(days=days), by=learner(trust, chain=chain, shown=frozenset({1}))) == ()
        )


# --- quarantine ---------------------------------------------------------------------------------------


def test_what_an_unclean_session_has_learnt_waits() -> None:
    (change,) = merge((), [said()], now=NOW, by=learner(Trust.QUARANTINED, looks=AT_WEB))

    assert (change.kind, change.trust) == (ChangeKind.ADDED, Trust.QUARANTINED)
    assert change.evidence == Evidence(
        root_session_id=CHAIN, tool_use_ids=("toolu_9",), looked_at=("web",), chains=(CHAIN,)
    )


WAITING = known(trust=Trust.QUARANTINED, evidence=Evidence(root_session_id=3, chains=(3,)))


@pytest.mark.parametrize(
    ("by", "comes_out"),
    [
        pytest.param(learner(looks=AT_WEB), True, id="another clean chain that has looked"),
        pytest.param(learner(), False, id="has not looked"),
        pytest.param(learner(Trust.QUARANTINED, looks=AT_WEB), False, id="is not clean itself"),
        pytest.param(learner(looks=AT_WEB, chain=3), False, id="the same chain"),
    ],
)
def test_another_clean_chain_brings_it_out(by: Learner, comes_out: bool) -> None:
    changes = merge((WAITING,), [said()], now=NOW, by=by)

    expected = [(ChangeKind.CONFIRMED, Trust.CONFIRMED, 0.8)] if comes_out else []
    assert [(change.kind, change.trust, change.confidence) for change in changes] == expected


def test_what_waits_contradicts_and_revives_nothing() -> None:
    by = learner(Trust.QUARANTINED, looks=AT_WEB)
    given_up = known("is slow on Mondays", id=2, active=False, confidence=0.2)

    changes = merge((known(), given_up), [said("starts within 60 s"), said("is slow on Mondays")], now=NOW, by=by)

    assert [(change.kind, change.trust) for change in changes] == [(ChangeKind.ADDED, Trust.QUARANTINED)]


def test_what_comes_out_contradicts_from_then_on() -> None:
    other = known("starts within 60 s", id=2)

    changes = merge((WAITING, other), [said()], now=NOW, by=learner(looks=AT_WEB))

    assert [(change.id, change.kind) for change in changes] == [
        (1, ChangeKind.CONFIRMED),
        (2, ChangeKind.CONTRADICTED),
    ]


# --- operators ----------------------------------------------------------------------------------------

STATED = known(trust=Trust.OPERATOR, confidence=1.0, tier=0)


def test_a_report_changes_nothing_of_what_an_operator_said() -> None:
    by = learner(looks=AT_WEB, shown=frozenset({1}))
    result = merged(
        (STATED,), [said(), said("starts within 60 s"), said("is fast", supersedes=1)], now=after(days=900), by=by
    )

    assert [change.id for change in result.changes] == [None, None]
    assert [change.trust for change in result.changes] == [Trust.QUARANTINED, Trust.CONFIRMED]
    assert [change.supersedes for change in result.changes] == [None, None]
    assert [note.partition(":")[0] for note in result.notes] == ["memory-disputed", "memory-supersedes"]


def test_what_contradicts_an_operator_does_not_come_out_of_quarantine() -> None:
    disputed = known("starts within 60 s", id=2, trust=Trust.QUARANTINED)

    assert merge((STATED, disputed), [said("starts within 60 s")], now=NOW, by=learner(looks=AT_WEB)) == ()


def test_what_an_operator_had_forgotten_stays_forgotten() -> None:
    result = merged((known(active=False, forgotten_at=NOW),), [said()], now=NOW, by=learner(looks=AT_WEB))

    assert result.changes == ()
    assert "memories restore" in result.notes[0]


# --- replacement --------------------------------------------------------------------------------------

SHOWN = frozenset({1})
NEWER = said("is ready when the log says so", supersedes=1)


def changed(result: Merged) -> list[tuple[ChangeKind, int | None, bool, int | None]]:
    return [(change.kind, change.id, change.active, change.supersedes) for change in result.changes]


def test_a_memory_stands_in_the_place_of_the_one_it_names() -> None:
    result = merged((known(),), [NEWER], now=NOW, by=learner(shown=SHOWN))

    assert changed(result) == [(ChangeKind.ADDED, None, True, 1), (ChangeKind.SUPERSEDED, 1, False, None)]
    assert (result.changes[1].confidence, result.changes[1].keeps_time) == (0.7, True)


@pytest.mark.parametrize(
    ("existing", "newer", "shown", "why"),
    [
        pytest.param((known(),), NEWER, frozenset[int](), "not shown", id="not shown"),
        pytest.param((), NEWER, SHOWN, "not shown", id="no such memory"),
        pytest.param((known(service="db"),), NEWER, SHOWN, "another service", id="another service"),
        pytest.param(
            (known(),), said("is fine", service=None, supersedes=1), SHOWN, "another service", id="no service"
        ),
    ],
)
def test_what_may_not_be_replaced_stays(
    existing: tuple[KnownMemory, ...], newer: ReportedMemory, shown: frozenset[int], why: str
) -> None:
    result = merged(existing, [newer], now=NOW, by=learner(shown=shown))

    assert changed(result) == [(ChangeKind.ADDED, None, True, None)]
    assert why in result.notes[0]


def test_a_memory_about_no_service_may_be_replaced_by_one_about_a_service() -> None:
    result = merged((known(service=None),), [NEWER], now=NOW, by=learner(shown=SHOWN))

    assert [change.kind for change in result.changes] == [ChangeKind.ADDED, ChangeKind.SUPERSEDED]


def test_what_waits_replaces_nothing_until_it_comes_out() -> None:
    unclean = merged((known(),), [NEWER], now=NOW, by=learner(Trust.QUARANTINED, shown=SHOWN))
    waiting = known(NEWER.observation, id=2, trust=Trust.QUARANTINED, supersedes=1)
    confirmed = merged((known(), waiting), [said(NEWER.observation)], now=NOW, by=learner(looks=AT_WEB))

    assert changed(unclean) == [(ChangeKind.ADDED, None, True, 1)]
    assert changed(confirmed) == [(ChangeKind.CONFIRMED, 2, True, 1), (ChangeKind.SUPERSEDED, 1, False, None)]


def test_a_report_that_confirms_a_memory_does_not_replace_it() -> None:
    result = merged((known(),), [NEWER, said()], now=NOW, by=learner(shown=SHOWN, looks=AT_WEB))

    assert sorted(change.kind.value for change in result.changes) == ["added", "reinforced"]


# --- order --------------------------------------------------------------------------------------------

TEXTS = ("starts within 30 s", "starts within 60 s", "is slow on Mondays", "needs db", "does not need db")


@given(
    st.lists(st.sampled_from(TEXTS), max_size=6).flatmap(
        lambda texts: st.tuples(st.just(texts), st.permutations(texts))
    ),
    st.lists(st.tuples(st.sampled_from(TEXTS), st.floats(0, 1), st.sampled_from(Trust)), max_size=4),
    st.sampled_from([Trust.CONFIRMED, Trust.QUARANTINED]),
)
def test_order_of_a_report_means_nothing(
    orders: tuple[list[str], list[str]], rows: list[tuple[str, float, Trust]], trust: Trust
) -> None:
    existing = [
        known(text, id=number, confidence=confidence, trust=its, active=confidence >= ACTIVE_FROM)
        for number, (text, confidence, its) in enumerate(rows)
    ]
    by = learner(trust, looks=AT_WEB, shown=frozenset({0, 1}))

    first, second = (
        {(change.id, change.observation): change for change in merge(existing, map(said, texts), now=NOW, by=by)}
        for texts in orders
    )

    assert first == second
