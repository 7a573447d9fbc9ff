"""What an error tells programs: its kind, whether it may pass, and what helps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from claudeops.cli.reply import body_of
from claudeops.errors import ClaudeopsError, ConfigurationError, DatabaseUnavailableError, ErrorKind
from claudeops.store.connection.engines import missing, parse_url


def tree(error: type[ClaudeopsError] = ClaudeopsError) -> Iterator[type[ClaudeopsError]]:
    yield error
    for below in error.__subclasses__():
        yield from tree(below)


@pytest.mark.parametrize("error", list(tree()))
def test_every_error_has_a_hint_and_all_but_the_root_a_kind(error: type[ClaudeopsError]) -> None:
    raised = error("it went wrong.")
    assert raised.hint.endswith(".")
    assert (raised.kind is ErrorKind.UNKNOWN) is (error is ClaudeopsError)
    assert raised.kind is error.kind


def test_what_is_known_where_it_is_raised_counts_more_than_the_class() -> None:
    raised = ConfigurationError("no key", kind=ErrorKind.AUTH, operation="ask", target="KEY", hint="Set KEY.")
    told = body_of(raised, operation="start", target="bootstrap")["error"]
    assert told == {
        "kind": "auth",
        "operation": "ask",
        "target": "KEY",
        "retryable": False,
        "message": "no key",
        "hint": "Set KEY.",
    }


def test_what_the_error_does_not_know_the_command_does() -> None:
    told = body_of(DatabaseUnavailableError("away"), operation="start", target="pause")["error"]
    assert isinstance(told, dict)
    assert (told["kind"], told["operation"], told["target"], told["retryable"]) == (
        "runtime",
        "db.connect",
        "pause",
        True,
    )


def test_a_missing_database_is_named_without_its_password() -> None:
    target = missing(parse_url("postgresql://ada:secret@nowhere/ops")).target
    assert target is not None
    assert "nowhere" in target
    assert "secret" not in target
