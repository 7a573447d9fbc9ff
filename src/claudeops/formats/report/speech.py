"""What a model says itself, without what it quotes, in Markdown as models write it.

Quoted is what stands in fenced code, in a block quote or in back-ticks: a log line in there is no statement of the
model. Where it speaks itself it may put bullets, numbers, boxes, emphasis, headings, table bars and signs such as ✅ in
front of its words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import msgspec

from claudeops.text import regex

_LINE_END: Final = regex.Pattern(r"\r?\n")  # not splitlines(): U+2028 in a quoted text does not begin a line
_BULLET: Final = r"(?:[-*+•]|[0-9]{1,3}[.)]|\([0-9]{1,3}\))[ \t]+"
_FENCE: Final = regex.Pattern(rf"[ \t]*(?:{_BULLET})*(`{{3,}}|~{{3,}})([^`]*)")  # not ```inline```
_SIGN: Final = (
    r"[\x{B7}\x{2013}\x{2014}\x{2022}\x{2139}\x{2190}-\x{21FF}\x{25A0}-\x{2767}\x{2776}-\x{27BF}\x{27F0}-\x{27FF}"
    r"\x{2B00}-\x{2BFF}\x{1F000}-\x{1FAFF}\x{200D}\x{20E3}\x{FE0F}]"
)
_BEFORE: Final = regex.Pattern(
    rf"(?:[ \t]|#{{1,6}}[ \t]|{_BULLET}|\[[ xX\x{{2713}}\x{{2714}}]\][ \t]|[*_~]|(?:-{{1,2}}|={{1,2}})>[ \t]"
    rf"|[0-9]\x{{FE0F}}?\x{{20E3}}|{_SIGN})*"
)
_EMPHASIS: Final = "*_~"
_MOST_EMPHASIS: Final = 5  # signs together
_MASK: Final = "\x00"


class SpeechLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a text."""

    text: str
    fenced: bool  # in fenced code, or a fence itself

    @property
    def parts(self) -> tuple[str, ...]:
        """The cells of a table's row, or the whole line."""
        if not self.text.lstrip().startswith("|"):
            return (self.text,)
        cells, start, speech = [], 0, unquoted(self.text)
        for at, sign in enumerate(speech):
            if sign == "|" and speech[at - 1 : at] != "\\":
                cells.append(self.text[start:at])
                start = at + 1
        return (*cells[1:], self.text[start:])


def lines_of(text: str) -> Iterator[SpeechLine]:
    """Yield the lines of a text. An unclosed fence quotes nothing."""
    lines = _LINE_END.split(text)
    fenced: set[int] = set()
    closings = _closings(lines)
    after = -1
    for number, closing in closings:
        if number > after:
            fenced.update(range(number, closing + 1))
            after = closing
    return (SpeechLine(text=line, fenced=number in fenced) for number, line in enumerate(lines))


def is_fence(line: str) -> bool:
    """Return whether a line begins or ends fenced code."""
    return _FENCE.fullmatch(line) is not None


def words_begin(text: str) -> int:
    """Return where the words of a line begin, after all that Markdown puts in front of them."""
    found = _BEFORE.match(text)
    return found.end() if found else 0


def emphasis_before(text: str, at: int) -> str:
    """Return the signs of emphasis that open directly before a place."""
    near = text[max(0, at - _MOST_EMPHASIS) : at]
    return near[len(near.rstrip(_EMPHASIS)) :]


def unquoted(line: str) -> str:
    """Return a line of the same length in which what stands in back-ticks is masked."""
    if "`" not in line:
        return line
    runs = _runs(line)
    following: dict[int, int] = {}  # length of a run → the next run of that length
    closes: list[int | None] = [None] * len(runs)
    for index in range(len(runs) - 1, -1, -1):
        _, length = runs[index]
        closes[index] = following.get(length)
        following[length] = index
    pieces, done, index = [], 0, 0
    while index < len(runs):
        closing = closes[index]
        if closing is None:
            index += 1
            continue
        start, end = runs[index][0], sum(runs[closing])
        pieces += [line[done:start], _MASK * (end - start)]
        done, index = end, closing + 1
    return "".join((*pieces, line[done:]))


def _runs(line: str) -> list[tuple[int, int]]:
    """Return where back-ticks stand in a line, and how many together."""
    runs: list[tuple[int, int]] = []
    at = line.find("`")
    while at >= 0:
        end = at
        while end < len(line) and line[end] == "`":
            end += 1
        runs.append((at, end - at))
        at = line.find("`", end)
    return runs


def _closings(lines: list[str]) -> list[tuple[int, int]]:
    """Return each line that may open a fence with the line that closes it: of the same sign, as long, with no words.

    Read from the end, with those closing fences that a later opening could still find: nearer ones hide what is
    farther and not longer.
    """
    found: list[tuple[int, int]] = []
    nearest: dict[str, tuple[list[int], list[int]]] = {"`": ([], []), "~": ([], [])}  # lengths, negative; and lines
    for number in range(len(lines) - 1, -1, -1):
        fence = _FENCE.fullmatch(lines[number]) if "```" in lines[number] or "~~~" in lines[number] else None
        if fence is None:
            continue
        signs = str(fence[1])
        lengths, places = nearest[signs[0]]
        # Lengths fall towards the end of the lists, where the nearest stand: the last that is long enough.
        last = _last_long_enough(lengths, len(signs))
        if last >= 0:
            found.append((number, places[last]))
        if not str(fence[2]).strip():
            while lengths and -lengths[-1] <= len(signs):
                lengths.pop()
                places.pop()
            lengths.append(-len(signs))
            places.append(number)
    return found[::-1]


def _last_long_enough(lengths: list[int], length: int) -> int:
    """Return the last place in negative lengths, which rise, whose length is at least ``length``; -1: none."""
    return bisect_left(lengths, -length + 1) - 1
