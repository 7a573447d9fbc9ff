"""A stream is redacted as its whole is, wherever it is cut, and nothing is held back that need not be."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.text.redact import Redactor
from claudeops.text.redact.streaming import KnownSecrets, StreamRedactor

SECRETS = ("glsa_Ab3+/x%41\\u0041\"'=", "hush-hush", "0123456789" * 31)
KNOWN = KnownSecrets(SECRETS)
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    lambda secret: json.dumps(json.dumps(secret)),
    lambda secret: quote(quote(secret, safe=""), safe=""),
    lambda secret: secret.encode().hex(),
    lambda secret: base64.b64encode(secret.encode()).decode(),
    lambda secret: base64.encodebytes(b"xy" + secret.encode()).decode(),
    lambda secret: "".join(f"\\u{ord(sign):04x}" for sign in secret),
)
PIECES = st.one_of(
    st.builds(lambda form, secret: form(secret), st.sampled_from(FORMS), st.sampled_from(SECRETS)),
    st.builds(lambda secret, end: secret[:end], st.sampled_from(SECRETS), st.integers(1, 12)),
    st.sampled_from(["", " ", "\n", "a", "%", "%2", "\\", "\\u00", "=", "[redacted]", "Z3"]),
)


def streamed(text: bytes, cuts: list[int]) -> bytes:
    stream, edges = StreamRedactor(KNOWN), sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    parts = [stream.feed(text[start:end]) for start, end in pairwise(edges)]
    return b"".join([*parts, stream.end()])


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 5000), max_size=40))
def test_wherever_a_stream_is_cut_it_is_redacted_as_the_whole_is(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces).encode()
    assert streamed(text, cuts) == KNOWN.masked(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_every_form_is_found_byte_by_byte_as_the_redactor_finds_it(form: Callable[[str], str], secret: str) -> None:
    text = f"<{form(secret)}>"
    masked = streamed(text.encode(), list(range(len(text)))).decode()
    assert "[redacted]" in masked
    assert Redactor(SECRETS).text(masked) == masked


def test_what_cannot_begin_a_secret_is_passed_on_at_once() -> None:
    stream = StreamRedactor(KNOWN)
    assert stream.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert stream.feed(b"data: hush-hus") == b"data: "
    assert stream.feed(b"!\n") == b"hush-hus!\n"
    assert stream.feed(b"data: hush-hush") == b"data: "
    assert stream.feed(b".\n\n") == b"[redacted].\n\n"


def test_blanks_without_end_in_a_secret_fill_no_memory() -> None:
    stream = StreamRedactor(KNOWN)
    half = base64.b64encode(SECRETS[1].encode())[:6]
    passed = stream.feed(half) + b"".join(stream.feed(b"\n" * 4096) for _ in range(20))
    assert len(passed) > 10 * 4096
