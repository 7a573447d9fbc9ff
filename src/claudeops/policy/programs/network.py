"""Looks at the network of the machine, and at its other processes: what no session in a cell sees.

A session has a network of its own, in which ``ss`` would find its own sockets, ``ping`` nothing, and ``nc -z``
would find every listed port open, before anything is connected outside. So the daemon runs these programs for it, each
call once, with the machine's network and without any files (`claudeops.engine.cell.network`). What they are given has
been judged like every other command, and is literal.
"""

from __future__ import annotations

from typing import Final

from claudeops.domain.looks import LookCall
from claudeops.policy.paths import PathContext
from claudeops.policy.shell.language import Literal, Word, shown

PROGRAMS: Final = frozenset(
    {"ss", "netstat", "ip", "ifconfig", "route", "arp", "bridge", "hostname"}
    | {"ping", "ping6", "traceroute", "traceroute6", "tracepath", "mtr", "nc", "ncat", "netcat"}
)
"""What the daemon runs so, where it is installed."""


def network_look(
    program: str, given: tuple[Word, ...], words: tuple[Word, ...], place: PathContext
) -> LookCall | str | None:
    """Return what the daemon runs, or why it cannot; None where the command runs in its own place.

    ``given`` are the words as they were written, ``words`` those of the canonical form.
    """
    if not place.local or program not in place.scope.looks:
        return None
    if place.user:
        return "it is run by the daemon, as nobody else: leave sudo out"
    if reason := place.scope.looks[program]:
        return reason
    if unknown := next((word for word in (*given, *words) if not isinstance(word, Literal)), None):
        return f"{shown(unknown)} is not known before it runs: write it out, in quotes"
    return LookCall(program=program, arguments=tuple(shown(word) for word in words))


def refuse_processes(place: PathContext) -> str | None:
    """Return why a look at the machine's other processes is refused, or None: in a cell it would find none."""
    if not place.local or PROGRAMS.isdisjoint(place.scope.looks):
        return None
    return "it would list nothing, because a session sees no processes but its own: ss -tuln lists the open ports"
