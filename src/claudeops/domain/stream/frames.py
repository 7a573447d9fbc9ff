"""One line into one frame: JSON objects as they come, whatever they hold.

Two passes. The fast one takes every line that is JSON. What it refuses goes through a lenient one that reads
what other JSON writers produce (``NaN``, lone surrogates, control characters, broken UTF-8, padding), so that a
result line is not lost for one bad character in a tool's output.

Two readers. orjson is the faster one, but needs many times the memory of a long line, and makes a float of an integer
beyond 64 bits. msgspec reads long lines, and once more what is answered: that goes back to the CLI as it came.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from claudeops.domain import regex
from claudeops.domain.stream.framing import is_dropped

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXACT: Final = msgspec.json.Decoder()
_ANSWERED: Final = "control_request"
_LONG: Final = 1 << 20  # bytes of a line
_PADDING: Final = " \t\r\n\v\f\x00\ufeff"  # NUL: a file system's trace of a crash; U+FEFF: a byte order mark
_REPLACEMENT: Final = "\\ufffd"
_MAX_DIGITS: Final = 4000  # int() refuses longer ones (sys.int_info.default_max_str_digits is 4300)

# Every escape is consumed in order, so that the backslash of an escaped backslash starts nothing.
_ESCAPE: Final = regex.Pattern(
    r"(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One JSON object of the stream."""

    type: str  # "" when absent or no string
    subtype: str  # same
    body: Mapping[str, object]  # the whole object
    size: int  # bytes of its line


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is no JSON. The reason holds nothing of what the line said."""

    reason: str


def decode(line: bytes) -> Frame | Malformed | None:
    """Return what a line holds; ``None`` for a blank line and for JSON that is no object. Never raises."""
    try:
        value = orjson.loads(line) if len(line) < _LONG else _EXACT.decode(line)
        if isinstance(value, dict) and value.get("type") == _ANSWERED:
            value = _EXACT.decode(line)
    except (orjson.JSONDecodeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(line)
    return _frame(value, len(line))


def _frame(value: object, size: int) -> Frame | None:
    if not isinstance(value, dict):
        return None
    kind = value.get("type")
    subtype = value.get("subtype")
    return Frame(
        type=kind if isinstance(kind, str) else "",
        subtype=subtype if isinstance(subtype, str) else "",
        body=value,
        size=size,
    )


def _decode_leniently(line: bytes) -> Frame | Malformed | None:
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
        # Our own words, not the line's: nothing is repeated of what a CLI printed.
        return Malformed(reason="longer than a line may be" if is_dropped(line) else str(error))
    return _frame(value, len(line))


def _whole_characters(escape: regex.Match[str]) -> str:
    """Replace half of a surrogate pair: a string that holds one cannot be written anywhere."""
    return _REPLACEMENT if escape["lone"] else escape[0]


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf
