"""JSON as it may go on to somebody else: read strictly, written anew. Bytes in, one document out, and bytes again.

What is written is what was read, and nothing that a second reader could read otherwise: of a name that an object has
twice the last value is kept, which is what all readers here take. Integers and texts stay what they are, and floats
what every reader makes of them.

msgspec and not orjson: that one turns integers beyond 64 bits into floats. Neither takes half of a surrogate pair,
which JavaScript writes where it has cut a text in two: those documents are read and written by the standard library,
four times as slowly.
"""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn

import msgspec
import re2

MOST_PARTS: Final = 2_000_000
"""Members of objects and arrays together, counted generously: so many take about 100 ms, and 100 MB of memory.

A prompt that fits into a model's window has fewer: each takes a token, more or less.
"""

MOST_DIGITS: Final = 309
"""Of a number: with more, no float holds it. Thousands of numbers with thousands of digits take seconds."""

_SHORT: Final = 65_536  # bytes that can hold nothing that takes long
_SEPARATORS: Final = (b"{", b"[", b",")
_LONG_NUMBER: Final = re2.compile(rb"[\[,:][ \t\r\n]*-?[0-9]{%d}" % (MOST_DIGITS + 1))
_HALF_PAIRS: Final = (b"\\ud", b"\\uD")
_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()


class NotReadableError(ValueError):
    """A body is no JSON, or more than is read; ``str()`` says which, as the end of a sentence."""


def decode(body: bytes) -> object:
    """Return the document of a body.

    Raises `NotReadableError`.
    """
    if len(body) > _SHORT:
        _bounded(body)
    try:
        return _DECODER.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's errors, and those of UTF-8, are values' errors
        if any(half in body for half in _HALF_PAIRS):
            return _decoded_with_half_pairs(body)
        raise NotReadableError("is no JSON") from error


def encode(document: object) -> bytes:
    """Return a document that `decode` gave as bytes of our own.

    Raises `NotReadableError`.
    """
    try:
        return _ENCODER.encode(document)
    except UnicodeEncodeError:
        pass
    except RecursionError as error:
        raise NotReadableError("is nested too deep") from error
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as error:
        raise NotReadableError("is nested too deep") from error
    return text.encode("utf-8", "backslashreplace")  # of half a pair, that is what JSON writes too


def _bounded(body: bytes) -> None:
    # Counted in the whole text, also within its strings: that is more than there are, and needs no reader.
    if len(body) > MOST_PARTS and sum(map(body.count, _SEPARATORS)) > MOST_PARTS:
        raise NotReadableError(f"has more than {MOST_PARTS} parts")
    if _LONG_NUMBER.search(body) is not None:
        raise NotReadableError(f"has a number of more than {MOST_DIGITS} digits")


def _decoded_with_half_pairs(body: bytes) -> object:
    try:
        return json.loads(body.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotReadableError("is no JSON") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)
