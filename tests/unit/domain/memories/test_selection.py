"""What a prompt has room for, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.memories.confidence import ACTIVE_FROM
from claudeops.domain.memories.memory import Memory, Trust
from claudeops.domain.memories.selection import CHARACTERS_PER_TOKEN, LONGEST, MARK, OPERATORS_TOKENS, line, select
from claudeops.domain.report.evidence import KnownServices
from support.store_values import NOW, after


def stored(number: int, confidence: float, observation: str = "x" * 32, **changes: object) -> Memory:
    values: dict[str, object] = {"updated_at": NOW, "service": "web", "category": "timing", **changes}
    return Memory(id=number, confidence=confidence, observation=observation, **values)  # type: ignore[arg-type]


def ids(memories: tuple[Memory, ...]) -> list[int]:
    return [memory.id for memory in memories]


def test_prompt_takes_the_best_first_and_the_newest_among_equals() -> None:
    memories = [stored(1, 0.5), stored(2, 0.9), stored(3, 0.5, updated_at=after(days=1)), stored(4, 0.29)]

    assert [chosen.id for chosen in select(memories, 2000).chosen] == [2, 3, 1]


@pytest.mark.parametrize(("budget", "chosen"), [(0, []), (-1, []), (16, []), (17, [1]), (33, [1]), (34, [1, 2])])
def test_budget_is_four_characters_a_token(budget: int, chosen: list[int]) -> None:
    memories = [stored(1, 0.9), stored(2, 0.8)]  # a line of 68 characters each, with its id

    assert [item.id for item in select(memories, budget).chosen] == chosen


def test_memory_that_is_too_long_does_not_keep_the_others_out() -> None:
    memories = [stored(1, 1.0, "x" * 5000), stored(2, 0.5)]

    assert [item.id for item in select(memories, 100).chosen] == [2]


def test_what_was_left_out_is_counted() -> None:
    chosen = select([stored(1, 0.9), stored(2, 0.8), stored(3, 0.1)], 17)

    assert (chosen.counted, chosen.total, chosen.left_out) == ("1 of 2", 2, 1)


def test_short_and_certain_goes_before_long() -> None:
    memories = [stored(1, 0.9, "long " * 20), stored(2, 0.8, "short"), stored(3, 0.8, "brief")]

    assert ids(select(memories, 25).chosen) == [2, 3]


def test_services_of_the_chain_come_first_then_what_is_about_none() -> None:
    memories = [
        stored(1, 1.0, service="app"),
        stored(2, 0.4, service="web"),
        stored(3, 0.5, service=None),
        stored(4, 0.6, service="db"),
        stored(5, 0.9, service="web"),
    ]
    names = KnownServices({"webserver": "web"})

    assert ids(select(memories, 2000, first=["db", "WEBSERVER"], names=names).chosen) == [4, 5, 2, 3, 1]
    assert ids(select(memories, 40, first=["db", "webserver"], names=names).chosen) == [4, 5]


def test_operators_come_first_and_do_not_count_against_the_budget() -> None:
    stated = [stored(number, 1.0, "s" * 500, trust=Trust.OPERATOR) for number in range(10, 14)]

    chosen = select([*stated, stored(1, 0.9)], 17)

    assert ids(chosen.chosen) == [10, 11, 12, 13, 1]
    assert "an operator's" in line(chosen.chosen[0])


def test_what_operators_say_is_bounded_too() -> None:
    stated = [stored(number, 1.0, "s" * 2000, trust=Trust.OPERATOR) for number in range(20)]

    chosen = select(stated, 10)

    assert sum(len(line(one)) + 1 for one in chosen.chosen) <= OPERATORS_TOKENS * CHARACTERS_PER_TOKEN
    assert chosen.counted == "7 of 20"
    assert all(one.observation.endswith(MARK) for one in chosen.chosen)


def test_what_is_in_quarantine_is_neither_shown_nor_counted() -> None:
    assert select([stored(1, 1.0, trust=Trust.QUARANTINED)], 2000).total == 0


def test_a_long_observation_is_cut_between_two_characters() -> None:
    (chosen,) = select([stored(1, 1.0, "e\u0301" * 400)], 2000).chosen

    assert len(chosen.observation) <= LONGEST
    assert chosen.observation.endswith(f"e\u0301{MARK}")


TRUSTED = st.sampled_from([Trust.CONFIRMED, Trust.OPERATOR])


@given(st.lists(st.tuples(st.text(max_size=600), st.floats(0, 1), TRUSTED), max_size=8), st.integers(0, 400))
def test_selection_fits_the_budget_and_is_valid_text(texts: list[tuple[str, float, Trust]], budget: int) -> None:
    memories = [stored(number, sure, text, trust=trust) for number, (text, sure, trust) in enumerate(texts)]

    chosen = select(memories, budget).chosen

    learnt = "".join(f"{line(item)}\n" for item in chosen if item.trust is Trust.CONFIRMED)
    stated = "".join(f"{line(item)}\n" for item in chosen if item.trust is Trust.OPERATOR)
    assert len(learnt) <= budget * CHARACTERS_PER_TOKEN
    assert len(stated) <= OPERATORS_TOKENS * CHARACTERS_PER_TOKEN
    assert all("\n" not in line(item) for item in chosen)
    assert (learnt + stated).encode().decode() == learnt + stated
    assert all(item.confidence >= ACTIVE_FROM for item in chosen)
