"""Bytes of a child's stdout into lines, lines into frames, and typed reading of the untrusted values in them.

A frame is one JSON object as it came, whatever it holds. Lines are decoded in two passes. The fast one takes every line
that is JSON. What it refuses goes through a lenient one that reads what other JSON writers produce (``NaN``, lone
surrogates, control characters, broken UTF-8, padding), so that a result line is not lost for one bad character in a
tool's output.

There are two JSON readers. orjson is faster, but needs many times the memory of a long line, and turns an integer
beyond 64 bits into a float. msgspec reads long lines, and reads control requests once more, because their values go
back to the CLI as they came.

Every ``as_…`` function takes anything and returns a value of its type.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Final

import msgspec
import orjson

from claudeops.text import regex

_INT64: Final = 2**63  # what a database column holds


def as_text(value: object) -> str | None:
    """Return ``value`` if it is a string that is not empty."""
    return value if isinstance(value, str) and value else None


def as_object(value: object) -> Mapping[str, object]:
    """Return ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return ``value`` if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_texts(value: object) -> tuple[str, ...]:
    """Return the strings of a JSON array, in order."""
    return tuple(item for item in as_list(value) if isinstance(item, str))


def as_int(value: object) -> int | None:
    """Return a whole number that fits a database column; a boolean is not a number, a fraction is cut off."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_INT64 <= value < _INT64 else None


def as_money(value: object) -> float | None:
    """Return an amount: a finite, non-negative number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


def as_count(value: object) -> int:
    """Return a token count as clauditor reads it: ``int(x or 0)``, and 0 for what cannot be converted.

    ``"12"`` is 12, ``1.9`` is 1; ``null``, words, containers, infinities and numbers too large for a database column
    are 0.
    """
    if not value or not isinstance(value, str | int | float):
        return 0
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return 0
    return number if -_INT64 <= number < _INT64 else 0


# --- bytes to lines -----------------------------------------------------------------------------------


_NEWLINE: Final = b"\n"
_BOM: Final = b"\xef\xbb\xbf"
LINE_BYTES: Final = 16 * 1024 * 1024
"""The longest line; a longer one is dropped. The CLI itself cuts tool results down to kilobytes, but lines of 5 to
10 MB have been seen, from MCP servers and subagents. Of a line with a secret that is not quite JSON three are held."""

_DROPPED: Final = b"[line dropped: "


def dropped_line(size: int, limit: int = LINE_BYTES) -> bytes:
    """Return the replacement for a line of ``size`` bytes that is too long.

    It is not JSON, so it counts as a malformed line, live and whenever the log is read again. Nothing of the line
    itself is kept: the cut could run through a secret, and redaction would not find the half that is left.
    """
    return _DROPPED + b"%d bytes, of which %d can be taken]" % (size, limit)


def is_dropped(line: bytes) -> bool:
    """Say whether a line is the replacement for one that was dropped."""
    return line.startswith(_DROPPED)


class LineSplitter:
    """Takes chunks as they arrive and returns whole lines; of a line longer than ``limit`` bytes it keeps the size.

    A line ends at LF or CR LF and is returned without it; a lone CR does not end a line. A byte order mark at the
    start of the stream is dropped. Everything else, including NUL bytes, passes through as it came. `dropped_line`
    replaces a line that is too long.
    """

    __slots__ = ("_begun", "_limit", "_pending", "_started")

    def __init__(self, limit: int = LINE_BYTES) -> None:
        self._limit = limit
        self._begun = io.BytesIO()  # the line that has not ended yet; empty once it is too long
        self._pending = 0
        self._started = False

    @property
    def pending(self) -> int:
        """Return the size in bytes of the line that has not ended yet."""
        return self._pending

    def push(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, in order."""
        lines: list[bytes] = []
        start = 0
        # Not split, which compares byte by byte and is ten times slower on the long lines that matter.
        while (end := chunk.find(_NEWLINE, start)) >= 0:
            line = chunk[start:end]
            lines.append(self._clean(self._completed(line) if self._pending else self._bounded(line)))
            start = end + 1
        if start < len(chunk):
            self._keep(chunk[start:] if start else chunk)
        return lines

    def flush(self) -> bytes | None:
        """Return the last line if the stream ended without a newline, else ``None``."""
        return self._clean(self._completed(b"")) if self._pending else None

    def _keep(self, piece: bytes) -> None:
        self._pending += len(piece)
        if self._pending <= self._limit:
            self._begun.write(piece)
        elif self._pending - len(piece) <= self._limit:  # now it is too long
            self._begun = io.BytesIO()

    def _completed(self, end: bytes) -> bytes:
        size = self._pending + len(end)
        begun, self._begun, self._pending = self._begun, io.BytesIO(), 0
        if size > self._limit:
            return dropped_line(size, self._limit)
        begun.write(end)
        return begun.getvalue()  # what was written, and no copy of it

    def _bounded(self, line: bytes) -> bytes:
        return line if len(line) <= self._limit else dropped_line(len(line), self._limit)

    def _clean(self, line: bytes) -> bytes:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        return line.removesuffix(b"\r")


# --- lines to frames ----------------------------------------------------------------------------------


_EXACT: Final = msgspec.json.Decoder()
_ANSWERED: Final = "control_request"
_LONG: Final = 1 << 20  # bytes of a line
_PADDING: Final = " \t\r\n\v\f\x00\ufeff"  # NUL: a file system's trace of a crash; U+FEFF: a byte order mark
_REPLACEMENT: Final = "\\ufffd"
_MAX_DIGITS: Final = 4000  # int() refuses longer ones (sys.int_info.default_max_str_digits is 4300)

# Every escape is consumed in order, so that the second backslash of an escaped one does not start another.
_ESCAPE: Final = regex.Pattern(
    r"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class StreamFrame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One JSON object of the stream."""

    type: str  # "" when absent or not a string
    subtype: str  # likewise
    body: Mapping[str, object]  # the whole object
    size: int  # bytes of its line


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not JSON. The reason repeats nothing of the line."""

    reason: str


def decode(line: bytes) -> StreamFrame | Malformed | None:
    """Return what a line holds; ``None`` for a blank line and for JSON that is not an object. Never raises."""
    try:
        value = orjson.loads(line) if len(line) < _LONG else _EXACT.decode(line)
        if isinstance(value, dict) and value.get("type") == _ANSWERED:
            value = _EXACT.decode(line)
    except (orjson.JSONDecodeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return decode_leniently(line)
    return _frame(value, len(line))


def _frame(value: object, size: int) -> StreamFrame | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    subtype = value.get("subtype")
    return StreamFrame(
        type=kind if isinstance(kind, str) else "",
        subtype=subtype if isinstance(subtype, str) else "",
        body=value,
        size=size,
    )


def decode_leniently(line: bytes) -> StreamFrame | Malformed | None:
    """Return what a line holds that is not quite JSON."""
    text = line.decode("utf-8", "replace").strip(_PADDING)
    if not text:
        return None
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(_whole_characters, text)
    try:
        value = json.loads(text, strict=False, parse_int=_integer)
    except RecursionError:
        return Malformed(reason="nested too deeply")
    except ValueError as error:
        # Our own words, not the line's: nothing that a CLI printed is repeated.
        return Malformed(reason="longer than a line may be" if is_dropped(line) else str(error))
    return _frame(value, len(line))


def _whole_characters(escape: regex.Match[str]) -> str:
    """Replace half of a surrogate pair: a string that holds one cannot be encoded as UTF-8."""
    return _REPLACEMENT if escape["lone"] else escape[0]


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf
