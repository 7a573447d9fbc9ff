"""A secret with signs in it that nobody sees is a secret, in whichever order texts are redacted and made visible."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.senders.common import shown
from claudeops.text import signs
from claudeops.text.escapes import unmistakable, visible
from claudeops.text.redact import MASK, Redactor, has_shape
from claudeops.wording.notices.texts import Wording, safe

SECRET = "hunter2-is-it"
REDACTOR = Redactor([SECRET])
EDGES = sorted({chr(edge) for edges in signs.WIDTHLESS for edge in edges})


@pytest.mark.parametrize("sign", EDGES, ids=lambda sign: f"{ord(sign):x}")
def test_no_sign_within_a_secret_keeps_it(sign: str) -> None:
    for hidden in (f"{SECRET[:4]}{sign}{SECRET[4:]}", sign.join(SECRET), f"{SECRET[:-1]}{sign * 3}{SECRET[-1]}"):
        text = f"it is {hidden}, {hidden}"
        assert REDACTOR.text(text) == f"it is {MASK}, {MASK}"
        for show in (visible, unmistakable, shown):
            assert REDACTOR.text(show(text)) == f"it is {MASK}, {MASK}"
        assert safe(text, Wording(redact=REDACTOR.text)) == f"it is {MASK}, {MASK}"
        for ascii_only in (True, False):
            line = json.dumps({"a": text, "b": json.dumps({"c": text})}, ensure_ascii=ascii_only)
            redacted = json.loads(REDACTOR.line(line.encode()))
            assert redacted["a"] == f"it is {MASK}, {MASK}"
            assert json.loads(redacted["b"]) == {"c": f"it is {MASK}, {MASK}"}


def test_what_stands_around_a_secret_stays() -> None:
    assert REDACTOR.text(f"\u200b{SECRET}\u200b") == f"\u200b{MASK}\u200b"
    assert REDACTOR.text("a\u200bb\\u200b\u2800") == "a\u200bb\\u200b\u2800"
    assert REDACTOR.line(b'{"a":"x\\u200by"}') == b'{"a":"x\\u200by"}'


def test_words_of_several_lines_are_no_secret_together() -> None:
    for between in ("\n", "\t", "\0", "\r", "\x1b[1m", " "):
        text = f"{SECRET[:4]}{between}{SECRET[4:]}"
        assert REDACTOR.text(text) == text


@pytest.mark.parametrize(
    "text", ["x-api\u200b-key: abcdefgh", "a;tok\u034fen=b", "sk-ant-\U000e0100api03-abcdefghijkl"]
)
def test_a_shape_with_such_a_sign_in_it_is_one(text: str) -> None:
    assert MASK in Redactor(()).text(text)
    assert has_shape(text)
    assert has_shape(visible(text))
    assert Redactor(()).hides_unknown(json.dumps({"a": text}).encode())


def test_a_known_secret_is_known_with_such_a_sign_in_it() -> None:
    line = json.dumps({"a": f"docker login -p {SECRET[:4]}\u200b{SECRET[4:]}"}).encode()

    assert not REDACTOR.hides_unknown(line)
    assert MASK.encode() in REDACTOR.line(line)


@given(st.lists(st.sampled_from([*EDGES, *SECRET, SECRET, "[redacted]", "\\u200b", ";token=", " ", "\n"]), max_size=40))
def test_redacting_twice_is_redacting_once(parts: list[str]) -> None:
    text = "".join(parts)

    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once
    bare = "".join(sign for sign in once.replace("\\u200b", "") if sign not in EDGES)
    assert SECRET not in bare.replace("[redacted]", "\n")


def test_what_is_unseen_is_found_exactly() -> None:
    """Every sign of the ranges and none beside them, as it is and escaped."""
    for first, last in signs.WIDTHLESS:
        for code in {first, last, (first + last) // 2}:
            for form in (chr(code), f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08X}"):
                assert REDACTOR.text(f"hunter2{form}-is-it") == MASK, hex(code)
        for code in {first - 1, last + 1} - {0xD7FF, 0xE000, 0xDFFF}:
            if not any(low <= code <= high for low, high in signs.WIDTHLESS):
                assert REDACTOR.text(f"hunter2{chr(code)}-is-it") != MASK, hex(code)
