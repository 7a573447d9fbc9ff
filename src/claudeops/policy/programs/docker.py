"""What an allowed command changes of docker on this machine: the grants for the filter before its engine."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Final

from claudeops.domain.gate.docker_grants import EXEC, VERBS, Execution, Grant
from claudeops.policy.identity import located
from claudeops.policy.paths import PathContext
from claudeops.policy.rule_book import RuleMatch
from claudeops.policy.rules import Arguments, Given
from claudeops.policy.shell.language import Literal, Word

_COMPOSE: Final = "docker compose "
_DIRECTORY, _FILE, _NAME = "--project-directory", "--file", "--project-name"


def grants_of(
    found: RuleMatch, arguments: Arguments, place: PathContext, inner: Sequence[Word] = ()
) -> tuple[Grant, ...]:
    """Return the grants of one command; ``arguments``: its own, ``inner``: what an exec runs in the container.

    What is not known before it runs is not granted.
    """
    program, verb = found.path.partition(" ")[0], found.path.rpartition(" ")[2]
    if program != "docker" or verb not in {*VERBS, EXEC} or not place.local:
        return ()
    call = place.call
    options = (*located(found, place).given, *arguments.options)
    is_compose = found.path.startswith(_COMPOSE)
    execution = _execution(options, inner, is_compose=is_compose) if verb == EXEC else None
    if verb == EXEC and execution is None:
        return ()
    names = [word.text for word in arguments.positionals if isinstance(word, Literal)]
    signal = _value(options, "--signal")
    if not is_compose:
        return tuple(Grant(call=call, verb=verb, container=name, signal=signal, execution=execution) for name in names)
    files = _value(options, _FILE)
    directory = _value(options, _DIRECTORY) or (posixpath.dirname(files) if files else "")
    return tuple(
        Grant(
            call=call,
            verb=verb,
            service=name,
            number=_value(options, "--index"),
            project=_value(options, _NAME),
            directory=directory,
            execution=execution,
        )
        for name in names
    )


def _execution(options: Given, inner: Sequence[Word], *, is_compose: bool) -> Execution | None:
    command = tuple(word.text for word in inner if isinstance(word, Literal))
    if not command or len(command) < len(inner):
        return None
    return Execution(
        command=command,
        user=_value(options, "--user"),
        directory=_value(options, "--workdir"),
        # compose passes its own input on, whether it is given -i or not
        takes_input=is_compose or _has(options, "-i"),
    )


def _value(options: Given, name: str) -> str:
    return next((value for option, value in options if value is not None and name in option.names), "")


def _has(options: Given, name: str) -> bool:
    return any(name in option.names for option, _ in options)
