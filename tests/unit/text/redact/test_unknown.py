"""Whether redaction takes more out of a call than what is known: people answer for what they cannot see otherwise."""

from __future__ import annotations

import json

import pytest

from claudeops.text.redact import MASK, Redactor, has_shape

SECRET = "hunter2-is-it"
KNOWING = Redactor([SECRET, 'with"quote,', "long " * 60])

ALONE = (
    "docker restart web",
    f"docker login -p {SECRET}",
    f"curl -H 'x-api-key: {SECRET}' http://web",
    f"psql postgres://u:{SECRET}@db/shop",
    f"curl 'http://web/?token={SECRET}&x=1'",
    f"echo {SECRET}{SECRET}",
    "aHVudGVyMi1pcy1pdA==",  # the secret in base64
    "echo %68unter2-is-it",
    'TOKEN=$TOKEN curl -H "Authorization: Bearer $TOKEN" http://web',
)
MORE = (
    f"psql postgres://u:{SECRET}`reboot`@db/shop",
    f"curl 'http://web/?token={SECRET}+x'",
    f"x-api-key: {SECRET}.exec",
    "a;token=exec(1)",
    "a://b:c@d",
    "ghp_" + "a1B2" * 9,
    f"{SECRET};token={SECRET}{SECRET}x",
    f"echo {SECRET} [redacted] ;token=[redacted]",  # a mask that nobody has put there
)


@pytest.mark.parametrize("command", ALONE)
def test_known_secrets_alone_hide_nothing_else(command: str) -> None:
    assert not KNOWING.hides_unknown(line(command))


@pytest.mark.parametrize("command", MORE)
@pytest.mark.parametrize("key", ["command", "description"])
def test_whatever_else_is_taken_out_is_noticed(command: str, key: str) -> None:
    given = line(command, key)

    assert KNOWING.hides_unknown(given)
    assert MASK.encode() in KNOWING.line(given)


def test_a_name_and_what_lies_deep_are_noticed_too() -> None:
    for given in ({"a;token=exec(1)": 1}, {"a": [{"b": ["a;token=exec(1)"]}]}, {"a": json.dumps({"b": "c;token=x"})}):
        assert KNOWING.hides_unknown(json.dumps(given).encode())


def test_a_line_of_which_nothing_can_be_kept_hides_everything() -> None:
    crossing = b'{"a": "with", "quote,": 1}'
    split = Redactor(['with", "quote'])

    assert split.line(crossing) == b'"[redacted]"'
    assert split.hides_unknown(crossing)


def test_without_secrets_only_shapes_are_taken_out() -> None:
    nothing = Redactor(())

    assert not nothing.hides_unknown(line("docker restart web"))
    assert nothing.hides_unknown(line("a;token=exec(1)"))
    assert nothing.hides_unknown(line("docker restart web; sh [redacted]"))  # a pattern of file names


@pytest.mark.parametrize(("text", "has"), [("a;token=b", True), (";token=[redacted]", False), ("token", False)])
def test_a_mask_has_no_shape(text: str, has: bool) -> None:
    assert has_shape(text) is has


def line(command: str, key: str = "command") -> bytes:
    return json.dumps({key: command}).encode()
