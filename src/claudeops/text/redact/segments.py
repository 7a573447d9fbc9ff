"""A long text in segments, each of which is redacted by itself, so that no more than one of them is held beside it.

A text is cut where redaction shows that nothing goes over the cut: what is around it gives the same in one piece and
in two. No secret is as long as what is looked at of each side. Where that holds nowhere, a segment is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

SEGMENT_BYTES: Final = 1024 * 1024
AROUND_BYTES: Final = 32 * 1024
"""What is looked at of each side of a cut. A private key of 16,384 bits has 13 KB, in JSON within JSON 14."""

_TRIES: Final = 20
_STEP_BYTES: Final = 1024

_HIGH_BEGINS: Final = (b"\\ud8", b"\\ud9", b"\\uda", b"\\udb")  # the first half of a surrogate pair
_ESCAPE_BYTES: Final = 6
_CONTINUES: Final = 0x80  # the two highest bits of a byte that is not a character's first
_MOST_BYTES: Final = 4  # of a character


def redacted_segments(text: bytes, begin: int, end: int, redact: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield a part of a text redacted, segment by segment; ``redact`` takes what may stand in a JSON string alone."""
    while end - begin > SEGMENT_BYTES + AROUND_BYTES:
        cut = _cut(text, begin, end, redact)
        yield redact(text[begin:cut])
        begin = cut
    yield redact(text[begin:end])


def cut_before(raw: bytes | memoryview, at: int, end: int) -> int:
    """Return the last place up to ``end`` between two characters of a JSON string, where no escape goes on."""
    # Of more bytes that go on than a character has, the last is none of a character's: the cut may go before it.
    behind = next((back for back in range(_MOST_BYTES) if end - back > at and raw[end - back] & 0xC0 != _CONTINUES), 0)
    end -= behind
    escape = _last_escape(raw, at, end)
    if escape is not None:
        length = _ESCAPE_BYTES if raw[escape + 1] == ord("u") else 2
        end = escape if escape + length > end else end
        escape = _last_escape(raw, at, end)
    if escape is not None and bytes(raw[escape:end]).lower().startswith(_HIGH_BEGINS):  # the other half follows
        end = escape
    return end


def _last_escape(raw: bytes | memoryview, at: int, end: int) -> int | None:
    """Return where the last escape of some bytes begins, if it goes on to their end or beyond."""
    before = bytes(raw[at:end])
    backslash = before.rfind(b"\\", -_ESCAPE_BYTES)
    if backslash < 0:
        return None
    first = len(before[: backslash + 1].rstrip(b"\\"))  # of a row of them, each second one is what the first escapes
    return at + backslash - (backslash - first) % 2


def _cut(text: bytes, begin: int, end: int, redact: Callable[[bytes], bytes]) -> int:
    size = SEGMENT_BYTES
    while begin + size + AROUND_BYTES < end:
        for place in _places(text, begin, begin + size):
            near = begin if place - begin <= AROUND_BYTES else cut_before(text, begin, place - AROUND_BYTES)
            if _is_apart(text, near, place, end, redact):
                if _is_apart(text, begin, place, end, redact):
                    return place
                break  # what began further away goes on here: a key without an end
        size *= 2
    return end


def _places(text: bytes, begin: int, high: int) -> Iterator[int]:
    """Yield places where a text may be cut: behind blanks, and then anywhere."""
    low = high - SEGMENT_BYTES // 2
    place = high
    for _ in range(_TRIES):
        if (blank := text.rfind(b" ", low, place - 1)) < 0:
            break
        place = blank + 1
        yield place
    for number in range(_TRIES):
        yield cut_before(text, begin, high - number * _STEP_BYTES)


def _is_apart(text: bytes, begin: int, place: int, end: int, redact: Callable[[bytes], bytes]) -> bool:
    """Return whether nothing that is redacted from ``begin`` on goes over a place."""
    last = end if end - place <= AROUND_BYTES else cut_before(text, place, place + AROUND_BYTES)
    return redact(text[begin:last]) == redact(text[begin:place]) + redact(text[place:last])


__all__ = ["AROUND_BYTES", "SEGMENT_BYTES", "cut_before", "redacted_segments"]
