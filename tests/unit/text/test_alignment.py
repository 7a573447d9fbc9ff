"""Two sequences beside each other: none of their entries may be lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from claudeops.text.alignment import align

TEXTS = st.lists(st.sampled_from("abcd"), max_size=12)


@given(TEXTS, TEXTS)
def test_every_entry_of_both_stands_once_and_in_order(first: Sequence[str], second: Sequence[str]) -> None:
    pairs = align(first, second)
    assert [left for left, _ in pairs if left is not None] == list(range(len(first)))
    assert [right for _, right in pairs if right is not None] == list(range(len(second)))


@given(TEXTS, TEXTS)
def test_only_equal_entries_are_put_beside_each_other(first: Sequence[str], second: Sequence[str]) -> None:
    for left, right in align(first, second):
        assert left is None or right is None or first[left] == second[right]


@given(TEXTS)
def test_a_sequence_differs_from_itself_in_nothing(texts: Sequence[str]) -> None:
    assert align(texts, texts) == tuple((place, place) for place in range(len(texts)))


@given(TEXTS, TEXTS)
def test_which_one_comes_first_changes_no_pair(first: Sequence[str], second: Sequence[str]) -> None:
    mirrored = {(right, left) for left, right in align(second, first)}
    assert mirrored == set(align(first, second))


@given(TEXTS, TEXTS)
def test_as_much_as_possible_is_common(first: Sequence[str], second: Sequence[str]) -> None:
    common = sum(None not in pair for pair in align(first, second))
    assert common == _longest(tuple(first), tuple(second))


def test_what_only_one_has_stands_between_what_both_have() -> None:
    assert align("axd", "aybd") == ((0, 0), (1, None), (None, 1), (None, 2), (2, 3))


def _longest(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Return the length of a longest common subsequence, by trying all of them that the shorter one has."""
    shorter, longer = sorted((first, second), key=len)
    best: dict[tuple[str, ...], int] = {(): 0}
    for text in shorter:
        best |= {(*kept, text): length + 1 for kept, length in best.items() if _is_within((*kept, text), longer)}
    return max(best.values())


def _is_within(wanted: tuple[str, ...], texts: tuple[str, ...]) -> bool:
    left = iter(texts)
    return all(any(text == each for each in left) for text in wanted)
