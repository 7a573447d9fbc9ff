"""What is not in the language, and how to write it instead."""

from __future__ import annotations

from typing import Final

from claudeops.policy.shell.language import ForbiddenError, UnclearError
from claudeops.text import regex

_TEST: Final = "[[ … ]] and (( … )) are not taken: use [ … ] with =, !=, -eq and the like, or grep -Eq for patterns"
_LOOP: Final = "is not taken: pipe the names into xargs -n 1 COMMAND, or write for NAME in VALUE VALUE; do …; done"
_SET: Final = "is not taken: write NAME=VALUE alone, or in front of the command that needs it"
_CASE: Final = "case is not taken: write if [ WORD = VALUE ]; then …; fi"
_READ: Final = "is not taken: pipe the lines into xargs -n 1 COMMAND, or run the look first and write its words out"
_LEAVE: Final = "is not taken: leave it out, and write only the rounds of the loop that are needed"

INSTEAD: Final = {
    "&": "a command in the background is not allowed: run it in the foreground with timeout",
    "[[": _TEST,
    "while_statement": f"while or until {_LOOP}",
    "c_style_for_statement": "write the loop as: for i in 1 2 3; do …; done",
    "case_statement": _CASE,
    "function_definition": "a function is not taken: write its commands out where it is called",
    "declaration_command": f"export, declare or local {_SET}",
    "unset_command": "unset is not taken: leave the variable as it is",
}
"""By the type of a node."""

INSTEAD_OF_COMMANDS: Final = {
    "coproc": "coproc is not taken: use a pipe",
    "alias": "alias is not taken: write the command out",
    "let": "let is not taken: write the number out",
    "trap": "trap is not taken: write the command at the end",
    "exec": "exec is not taken: write the command without it",
    **{name: f"{name} is not taken: write its commands out" for name in ("eval", "source", ".")},
    **{name: f"{name} {_READ}" for name in ("read", "mapfile", "readarray")},
    **{name: f"{name} {_SET}" for name in ("export", "declare", "typeset", "local", "readonly", "unset")},
    **{name: f"{name} {_LEAVE}" for name in ("break", "continue", "return", "shift")},
}
"""Builtins, by their names."""

_INFLUENTIAL: Final = regex.Pattern(
    r"PATH|HOME|IFS|ENV|PWD|OLDPWD|CDPATH|(?:LD|BASH|GIT|DOCKER|KUBE|COMPOSE|SSH)_?.*|.*_(?:PROXY|proxy)"
)
_LEFT_OUT: Final = regex.Pattern(
    r"LANG|LANGUAGE|LC_[A-Z]+|TERM|COLUMNS|LINES|NO_COLOR|DEBIAN_FRONTEND|(?:[A-Z]+_)?PAGER"
)


def is_left_out(name: str) -> bool:
    """Whether setting a variable changes nothing: what runs has LC_ALL=C, no terminal and no pager."""
    return bool(_LEFT_OUT.fullmatch(name))


def refuse_name(name: str) -> None:
    """Raise `UnclearError` for a variable whose value would mean something to the commands that follow."""
    if _INFLUENTIAL.fullmatch(name):
        raise ForbiddenError(f"setting {name} could change what other commands do: use another name")
    if name == "TZ":
        raise UnclearError("put TZ in front of the command that needs it: TZ=UTC date")
