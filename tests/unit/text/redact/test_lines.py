"""Lines that arrive together are scanned in one go and redacted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.text.redact import Redactor

FEW = Redactor(["hunter2hunter2", "begin\nmiddle\nend", "correct horse"])
# So many characters that they are looked for by several expressions.
MANY = Redactor([*(f"secret-{number:05d}-{'x' * 180}" for number in range(60)), "hunter2hunter2", "hunter3hunter3"])
REDACTORS = [pytest.param(FEW, id="few-secrets"), pytest.param(MANY, id="several-expressions")]

PIECES = [
    *(b"", b"plain", b'{"a": "b"}', b"hunter2hunter2", b'{"a":"hunter2hunter2"}', b"hunter2", b"correct"),
    *(
        b" horse",
        b"begin",
        b"middle",
        b"end",
        b"begin\\nmiddle\\nend",
        b"Authorization:",
        b"Bearer",
        b"password=",
        b"\r",
    ),
    *(b"sk-ant-", b"abcdefghijklmnopqrstuvwxyz012345", b"AKIAABCDEFGHIJKLMNOP", b"postgres://u:", b"p@host", b"\xff"),
    *(b"-----BEGIN RSA PRIVATE KEY-----", b"MIIEpAIBAAKCAQEA", b"-----END RSA PRIVATE KEY-----", b"hunter3hunter3"),
]
some_lines = st.lists(st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join), max_size=8)


@pytest.mark.parametrize("redactor", REDACTORS)
@given(lines=some_lines)
def test_together_is_the_same_as_one_by_one(redactor: Redactor, lines: list[bytes]) -> None:
    assert redactor.lines(lines) == [redactor.line(line) for line in lines]


@pytest.mark.parametrize("redactor", REDACTORS)
@given(lines=some_lines)
def test_lines_without_a_secret_are_the_same_objects(redactor: Redactor, lines: list[bytes]) -> None:
    kept = redactor.lines(lines)

    assert len(kept) == len(lines)
    assert all(one is other for one, other in zip(kept, lines, strict=True) if one == other)


def test_a_secret_in_every_line_is_found_in_every_line() -> None:
    assert FEW.lines([b"hunter2hunter2"] * 3) == [b"[redacted]"] * 3


def test_what_begins_in_one_line_does_not_hide_a_secret_in_the_next() -> None:
    redactor = Redactor(["one line\nand another", "another"])

    assert redactor.lines([b"one line", b"and another"]) == [b"one line", b"and [redacted]"]


def test_no_lines_are_no_lines() -> None:
    assert FEW.lines([]) == []
