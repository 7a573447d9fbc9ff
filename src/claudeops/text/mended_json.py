"""Long lines that are not quite JSON, made strict JSON, so that they need not be read as a whole to be read at all.

What other JSON writers produce is mended: padding around the value, control characters and broken UTF-8 in strings,
halves of surrogate pairs, ``NaN`` and infinities, integers of thousands of digits. Strings say afterwards what a
lenient reader takes from them: a control character is an escape, and U+FFFD stands for bytes that are no character.
"""

from __future__ import annotations

from typing import Final

from claudeops.text import regex
from claudeops.text.redact.segments import cut_before

_PIECE_BYTES: Final = 256 * 1024
_TAIL_BYTES: Final = 4096
_PADDING: Final = b" \t\r\n\v\f\x00"  # NUL: a file system's trace of a crash
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE: Final = ord('"')
_DIGITS: Final = b"0123456789"
_MOST_DIGITS: Final = 4000  # as many as `int` takes
_MOST_GROWTH: Final = 1024 * 1024  # an escape has six times the bytes of a control character

# A string that does not end goes on to the end of the line: were it no match, each quote in it would be tried in turn.
_PART: Final = regex.Pattern(rb'(?s)"(?:[^"\\]|\\.)*(?:"|\\?\z)|-?Infinity|NaN|-?[0-9]+')
_CONTROL: Final = regex.Pattern(rb"[\x00-\x1f]")
_CONTROL_OR_ESCAPE: Final = regex.Pattern(rb"(?s)\\.|([\x00-\x1f])")  # none that is escaped: that is no JSON
# Every escape is consumed in order, so that the second backslash of an escaped one does not start another.
_ESCAPE: Final = regex.Pattern(
    rb"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


def mended(line: bytes) -> bytes | bytearray:
    """Return a line as strict JSON where it is nearly that; the same object where nothing is mended.

    Of one of padding alone nothing is left. One that would grow by more than 1 MiB stays as it is, which is no JSON.
    """
    begin, end = _without_padding(line)
    view, made, done = memoryview(line), bytearray(), begin
    grown = 0
    for match in _PART.finditer(line):
        start, stop = match.span()
        if line[start] != _QUOTE:
            if line[stop - 1] in _DIGITS and stop - start <= _MOST_DIGITS:
                continue
            made += view[done:start]
            made += b"null"
            done = stop
            continue
        while start < stop:
            cut = cut_before(line, start, start + _PIECE_BYTES) if stop - start > _PIECE_BYTES else stop
            piece = line[start:cut]
            if (whole := _mended_string(piece)) != piece:
                if (grown := grown + max(0, len(whole) - len(piece))) > _MOST_GROWTH:
                    return line
                made += view[done:start]
                made += whole
                done = cut
            start = cut
    if (done, end) == (0, len(line)):  # no copy
        return line
    made += view[done:end]
    return made


def _without_padding(line: bytes) -> tuple[int, int]:
    begin, end = 0, len(line)
    while begin < end:
        head = line[begin : begin + _TAIL_BYTES]
        rest = head.lstrip(_PADDING).removeprefix(_BOM)
        begin += len(head) - len(rest)
        if len(rest) == len(head):
            break
    while begin < end:
        tail = line[max(begin, end - _TAIL_BYTES) : end]
        rest = tail.rstrip(_PADDING).removesuffix(_BOM)
        end -= len(tail) - len(rest)
        if len(rest) == len(tail):
            break
    return begin, end


def _mended_string(piece: bytes) -> bytes:
    """Return a piece of a JSON string that a strict reader takes."""
    if _CONTROL.search(piece) is not None:
        piece = _CONTROL_OR_ESCAPE.sub(_without_control, piece)
    if b"\\ud" in piece or b"\\uD" in piece:
        piece = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], piece)
    return piece if piece.isascii() else piece.decode("utf-8", "replace").encode()


def _without_control(part: regex.Match[bytes]) -> bytes:
    return rb"\u%04x" % part[0][0] if part[1] else part[0]
