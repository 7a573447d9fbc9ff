"""Two sequences beside each other: what they have in common, in order, and what only one of them has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Pair = tuple[int | None, int | None]
"""Places in the first and in the second sequence; None: only the other one has it."""


def align(first: Sequence[str], second: Sequence[str]) -> tuple[Pair, ...]:
    """Return the places of two sequences in pairs, by a longest common subsequence.

    Each place appears once, in order. Between two common texts the first sequence's own come before the second's. With
    the sequences exchanged the pairs are exchanged too. Takes time and memory by the product of the lengths.
    """
    common = [*_common(first, second), (len(first), len(second))]
    found: list[Pair] = []
    at, other = 0, 0
    for left, right in common:
        found += [(place, None) for place in range(at, left)]
        found += [(None, place) for place in range(other, right)]
        found += [(left, right)]
        at, other = left + 1, right + 1
    return tuple(found[:-1])


def _common(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of a longest common subsequence; where there are several, which one depends on no side."""
    longest = _longest(first, second)
    left, right = 0, 0
    while left < len(first) and right < len(second):
        below, beside = longest[left + 1][right], longest[left][right + 1]
        if first[left] == second[right]:
            yield left, right
            left, right = left + 1, right + 1
        elif below > beside or (below == beside and first[left] < second[right]):
            left += 1
        else:
            right += 1


def _longest(first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
    """Return how long a common subsequence from each pair of places on can be."""
    rows = [[0] * (len(second) + 1)]
    for text in reversed(first):
        below, row = rows[-1], [0] * (len(second) + 1)
        for place in range(len(second) - 1, -1, -1):
            row[place] = below[place + 1] + 1 if text == second[place] else max(below[place], row[place + 1])
        rows.append(row)
    return rows[::-1]
