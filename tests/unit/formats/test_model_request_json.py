"""JSON that goes on to somebody else: what it means survives, what two readers could read differently does not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from claudeops.formats.model_request import MOST_DIGITS, MOST_PARTS, NotReadableError, decode, encode

TEXTS = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs too


def documents() -> SearchStrategy[object]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30)


@given(document=documents(), ascii_only=st.booleans())
def test_every_document_comes_out_as_it_went_in(document: object, *, ascii_only: bool) -> None:
    # Halves of pairs can be written as escapes only.
    body = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "backslashreplace")
    ours = encode(decode(body))
    assert repr(json.loads(ours.decode())) == repr(json.loads(body.decode()))
    assert encode(decode(ours)) == ours


@pytest.mark.parametrize(
    ("body", "ours"),
    [
        (b'{"a":123456789012345678901234567890}', b'{"a":123456789012345678901234567890}'),
        (
            b'{"a":18446744073709551616,"b":-9223372036854775809}',
            b'{"a":18446744073709551616,"b":-9223372036854775809}',
        ),
        (b"[1.0,0.1,-0.0,5e-324]", b"[1.0,0.1,-0.0,5e-324]"),
        ('["é😀\\ud83d\\ude00\\u0000"]'.encode(), '["é😀😀\\u0000"]'.encode()),
        (b'["cut in two: \\uD83D"]', b'["cut in two: \\ud83d"]'),
        (b'["\\udc00", 123456789012345678901234567890, 1e2]', b'["\\udc00",123456789012345678901234567890,100.0]'),
    ],
)
def test_numbers_and_texts_survive(body: bytes, ours: bytes) -> None:
    assert encode(decode(body)) == ours


@pytest.mark.parametrize(
    ("body", "ours"),
    [
        (b'{"max_tokens":1,"max_tokens":100000}', b'{"max_tokens":100000}'),
        (b'{"max_tokens":1,"m\\u0061x_tokens":2}', b'{"max_tokens":2}'),
        (b'{"a":[{"b":1,"c":{"d":2,"d":3},"b":4}]}', b'{"a":[{"b":4,"c":{"d":3}}]}'),
        (b'{"a":"\\ud800","a":{"b":1,"b":2}}', b'{"a":{"b":2}}'),
    ],
)
def test_a_name_that_stands_twice_goes_on_once(body: bytes, ours: bytes) -> None:
    assert encode(decode(body)) == ours


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"{} {}", b"[NaN]", b"[Infinity]", b"[1e400]", b"[01]", b"[1.]", b'["\t"]', b"\xef\xbb\xbf{}"),
        *(b'["\xff"]', b'["\xed\xa0\x80"]', b'"\\ud800" 1', b'["\\ud800",NaN]', b'["\\ud800",-1e400]', b"// no\n1"),
        '{"a": 1}'.encode("utf-16"),
        b"[" * 100_000,
        b'["\\ud800",' + b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(NotReadableError, match="is not JSON"):
        decode(body)


def test_a_body_of_nothing_but_small_parts_is_not_even_read() -> None:
    with pytest.raises(NotReadableError, match=f"more than {MOST_PARTS} parts"):
        decode(b"[" + b"{}," * MOST_PARTS + b"{}]")


def test_thousands_of_numbers_with_thousands_of_digits_are_not_even_read() -> None:
    longest = b"9" * MOST_DIGITS
    assert encode(decode(b"[" + longest + b"]")) == b"[" + longest + b"]"
    with pytest.raises(NotReadableError, match=f"more than {MOST_DIGITS} digits"):
        decode(b"[" + (b" -" + b"9" * 4000 + b",") * 100 + b"1]")


def test_digits_within_a_text_are_no_number() -> None:
    body = b'["' + b"0" * 200_000 + b'"]'
    assert encode(decode(body)) == body
