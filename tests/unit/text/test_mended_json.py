"""Lines that are not quite JSON say after their mending what a lenient reader takes from them as a whole."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.stream.framing import Malformed, decode_leniently
from claudeops.text.mended_json import mended

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
    return Malformed if isinstance(found, Malformed) else found and found.body


@pytest.mark.parametrize("before", PADDING)
@pytest.mark.parametrize("after", PADDING)
def test_padding_around_a_value_goes(before: str, after: str) -> None:
    assert mended(f'{before}{{"a": "\x00b "}}{after}'.encode()) == b'{"a": " b "}'
    assert mended(f"{before}{after}".encode()) == b""


@pytest.mark.parametrize("long", ["", LONG])
@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\ud83d\\ude00 \\\\ud83d \\uDE00"', "\U0001f600 \\ud83d \ufffd"),
        (b'"tab\there\x1b[0m"', "tab here [0m"),
        (b'"caf\xe9 \xf0\x9f"', "caf? ?"),
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
    assert len(mended(line)) <= len(line) + line.count(b"NaN,")


@pytest.mark.parametrize("size", range(262_130, 262_150))
def test_no_escape_is_mended_in_two_halves(size: int) -> None:
    line = json.dumps({"a": "x" * size + "\U0001f600\ud83d é" * 9}).encode()
    assert strictly(line) == {"a": "x" * size + "\U0001f600\ufffd é" * 9}


def test_a_string_of_quotes_without_an_end_is_gone_through_once() -> None:
    assert mended(b'"' + b'\\"' * 1_000_000) == b'"' + b'\\"' * 1_000_000


@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]",:\\ud83e0NaN1 \x00\ufeff'), max_size=30).map(str.encode))
def test_nothing_is_json_by_mending_that_a_lenient_reader_refuses(content: bytes) -> None:
    line = b'{"a":' + content + b"}"
    assert (strictly(line) is Malformed) == (leniently(line) is Malformed)
