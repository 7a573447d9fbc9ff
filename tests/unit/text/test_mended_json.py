"""Lines that are not quite JSON say after their mending what a lenient reader takes from them as a whole."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claudeops.formats.stream.framing import Malformed, decode_leniently
from claudeops.text.mended_json import mended
from claudeops.text.redact.segments import cut_before

PADDING = ["", " ", "\x00\x00", "\ufeff", "\r", "\x0b\x0c", "\x00" * 9000]
LONG = "x" * 600_000


def strictly(line: bytes) -> object:
    """Return what a strict reader takes from a mended line."""
    try:
        return msgspec.json.decode(mended(line))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Malformed


def leniently(line: bytes) -> object:
    found = decode_leniently(line)
    return Malformed if isinstance(found, Malformed) else found and numbers_only(found.body)


def numbers_only(value: object) -> object:
    """Return a value without those numbers that strict JSON does not have."""
    if isinstance(value, dict):
        return {name: numbers_only(each) for name, each in value.items()}
    if isinstance(value, list):
        return [numbers_only(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.parametrize("before", PADDING)
@pytest.mark.parametrize("after", PADDING)
def test_padding_around_a_value_goes(before: str, after: str) -> None:
    assert mended(f'{before}{{"a": "\x00b "}}{after}'.encode()) == b'{"a": "\\u0000b "}'
    assert mended(f"{before}{after}".encode()) == b""


@pytest.mark.parametrize("long", ["", LONG])
@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\ud83d\\ude00 \\\\ud83d \\uDE00"', "\U0001f600 \\ud83d \ufffd"),
        (b'"tab\there\x1b[0m\\n"', "tab\there\x1b[0m\n"),
        (b'"caf\xe9 \xf0\x9f"', "caf\ufffd \ufffd"),
        ('"é\ufffd"'.encode(), "é\ufffd"),
        (b"NaN", None),
        (b"-Infinity", None),
        (b"9" * 4001, None),
        (b"-12", -12),
        (b"1.5e3", 1500.0),
        (b'"NaN Infinity \\" 5"', 'NaN Infinity " 5'),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_others_write_is_read(written: bytes, read: object, long: str) -> None:
    line = b'{"long":"%s","a":%s,"b":"%s"}' % (long.encode(), written, long.encode())
    assert strictly(line) == {"long": long, "a": read, "b": long}


@pytest.mark.parametrize("size", range(262_130, 262_150))
def test_no_escape_is_mended_in_two_halves(size: int) -> None:
    line = json.dumps({"a": "x" * size + "\U0001f600\ud83d é" * 9}).encode()
    assert strictly(line) == {"a": "x" * size + "\U0001f600\ufffd é" * 9}


def test_a_string_of_quotes_without_an_end_is_gone_through_once() -> None:
    assert mended(b'"' + b'\\"' * 1_000_000) == b'"' + b'\\"' * 1_000_000


@pytest.mark.parametrize("sign", [b"\x01", b"\xe9"])
def test_a_line_that_would_grow_beyond_its_bound_is_no_json(sign: bytes) -> None:
    line = b'{"a":"%s"}' % (sign * 600_000)
    assert mended(line) is line
    assert strictly(b'{"a":"%s"}' % (sign * 9)) == {"a": (sign * 9).decode("utf-8", "replace")}


def test_bytes_that_only_go_on_are_cut_where_they_stand() -> None:
    assert cut_before(b"x" + b"\x80" * 900, 0, 800) == 800
    assert [cut_before("x😀😀".encode(), 0, end) for end in range(1, 9)] == [1, 1, 1, 1, 5, 5, 5, 5]


WRITTEN = st.binary(max_size=40) | st.text(st.sampled_from('{}[]",:\\ud83e0NaN1 \x00\t\ufeff')).map(str.encode)


@given(WRITTEN, st.booleans())
@example(content=b"\\\t", is_text=True)  # an escape of a control character, which is none
def test_a_mended_line_says_what_a_lenient_reader_takes_from_it(content: bytes, is_text: bool) -> None:
    line = b'{"a":"%s"}' % content if is_text else b'{"a":%s}' % content
    assert strictly(line) == leniently(line)
