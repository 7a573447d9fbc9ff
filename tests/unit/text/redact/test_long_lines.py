"""Long lines are redacted in segments: nothing of a secret is left at a cut, and no more than two lines are held."""

from __future__ import annotations

import base64
import json
import tracemalloc
from urllib.parse import quote

import pytest

from claudeops.text.redact import MASK, Redactor, _until_stable
from claudeops.text.redact.segments import AROUND_BYTES, SEGMENT_BYTES

SECRET = 'hunter2"hunter2/of the operators'
KEY = "-----BEGIN PRIVATE KEY-----\n" + ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" + "\n") * 40
KEY += "-----END PRIVATE KEY-----"
FORMS = {
    "as it is": SECRET,
    "escaped": json.dumps(SECRET)[1:-1],
    "as numbers": "".join(f"\\u{ord(character):04x}" for character in SECRET),
    "percent": quote(SECRET, safe=""),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "wrapped": "\n".join(base64.b64encode(SECRET.encode()).decode()),
    "hexadecimal": SECRET.encode().hex(),
    "with signs that nobody sees": "\u200b".join(SECRET),
    "by its shape": "password=correcthorsebatterystaple",
    "a token": "Bearer abcdefghijklmnopqrstuvwxyz0123456789",
    "a private key": KEY,
    "a private key without its beginning": KEY.partition("\n")[2],
    "an address": "postgres://ops:correcthorse@db/main",
}
FILLINGS = {"words": "some words of a log, as tools print them; ", "no blanks": "0123456789abcdef,", "letters": "зн "}
BYTES = SEGMENT_BYTES + 400_000
REDACTOR = Redactor([SECRET])


def filled(filling: str, size: int) -> str:
    return (filling * (size // len(filling.encode()) + 1)).encode()[:size].decode("utf-8", "ignore")


def reference(line: bytes) -> object:
    """Return what a line says whose strings are redacted as wholes."""
    return json.loads(_until_stable(line, REDACTOR._line_once))


@pytest.mark.parametrize("filling", FILLINGS.values(), ids=list(FILLINGS))
@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_a_secret_at_a_cut_leaves_nothing_of_itself(form: str, filling: str) -> None:
    for before in (SEGMENT_BYTES - len(form) // 2 - 12, SEGMENT_BYTES - 12):
        text = f"{filled(filling, before)} {form} "
        text += filled(filling, BYTES - len(text.encode()))
        line = json.dumps({"type": "user", "text": text, "n": 1}, ensure_ascii=False).encode()
        redacted = REDACTOR.line(line)
        assert MASK.encode() in redacted
        assert json.loads(redacted) == reference(line)
        assert REDACTOR.line(redacted) == redacted


@pytest.mark.parametrize("form", ["as it is", "base64", "by its shape", "a private key"])
def test_a_long_line_that_is_no_json_is_redacted_at_its_cuts_as_well(form: str) -> None:
    words = FILLINGS["words"]
    for before in (SEGMENT_BYTES - len(FORMS[form]) // 2, SEGMENT_BYTES - 1):
        line = f"{filled(words, before)} {FORMS[form]} {filled(words, SEGMENT_BYTES // 2)}".encode()
        assert REDACTOR.line(line) == _until_stable(line, REDACTOR._line_once)


@pytest.mark.parametrize("sign", [b"\xe9", b"\x1b", b"\\ud83d", b'", "n": NaN, "m": "'], ids=repr)
def test_a_long_line_that_is_not_quite_json_is_redacted_as_one_that_is(sign: bytes) -> None:
    secret = FORMS["by its shape"].replace("p", "\\u0070", 1)  # which is one in JSON alone
    line = b'{"a": "%s%s", "text": "%s"}' % (b"x" * BYTES, sign, secret.encode())
    assert REDACTOR.line(line) == _until_stable(line, REDACTOR._line_once)
    assert b"correcthorse" not in REDACTOR.line(line)


def test_secrets_everywhere_in_a_long_line_are_all_masked() -> None:
    text = f"{FORMS['as it is']} and {FORMS['by its shape']} " * (BYTES // 60)
    line = json.dumps({"text": text, "more": [text, {"deep": text}]}).encode()
    redacted = REDACTOR.line(line)
    assert b"hunter2" not in redacted
    assert b"correcthorse" not in redacted
    assert json.loads(redacted) == reference(line)


def test_a_secret_that_goes_over_strings_leaves_nothing_of_a_long_line() -> None:
    redactor = Redactor(['one","two","three'])
    line = b'["' + b"x " * SEGMENT_BYTES + b'","one","two","three"]'
    assert redactor.line(line) == json.dumps(MASK).encode()


def test_what_a_mask_covers_may_be_longer_than_a_segment() -> None:
    endless = "-----BEGIN PRIVATE KEY-----" + "A" * (2 * SEGMENT_BYTES)
    line = json.dumps({"text": f"{filled(FILLINGS['words'], SEGMENT_BYTES - 100)} {endless}"}).encode()
    redacted = REDACTOR.line(line)
    assert b"AAAA" not in redacted
    assert json.loads(redacted) == reference(line)


def test_what_is_held_of_a_long_line_with_a_secret_is_the_line_and_what_comes_of_it() -> None:
    text = "password=correcthorsebatterystaple " + FILLINGS["words"] * 400_000
    line = json.dumps({"text": text}).encode()
    tracemalloc.start()
    try:
        redacted = REDACTOR.line(line)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert b"correcthorse" not in redacted
    assert most < 1.13 * len(line) + 12 * SEGMENT_BYTES


def test_a_key_of_the_longest_kind_is_shorter_than_what_is_looked_at_around_a_cut() -> None:
    assert AROUND_BYTES > 2 * 14_000
