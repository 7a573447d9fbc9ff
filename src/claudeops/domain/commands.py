"""Commands of operators to a running daemon: rows of ``commands``, written by another process.

A command is asked for, taken by the daemon, and ended with its result or with the reason why there is none. A daemon
may die between any two of these: `lost_because` says what another one makes of what it finds.

One that is about whatever runs is written once for every daemon that lives. One that names a session or a chain is for
the daemon that runs it, which passes it on to others that run what is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from claudeops.closed_set import ClosedSet


class CommandName(ClosedSet):
    """What an operator can ask for."""

    STOP_SESSIONS = "stop_sessions", "stop every running session now; they end as `cancelled`"
    STOP = "stop", "end one session, or all that is left of one chain"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One request to the daemon, as its row has it."""

    id: int
    name: str  # a `CommandName`, or one that only a newer release knows
    arguments: Mapping[str, object] = msgspec.field(default_factory=dict)
    requested_by: str | None
    requested_at: datetime
    for_owner: str | None = None  # the daemon that it is for; None: any
    taken_at: datetime | None = None  # by a daemon; in what a daemon takes: by an earlier one that never ended it
    ended_at: datetime | None = None
    result: str | None = None  # what came of it, one sentence
    error: str | None = None  # why nothing came of it, one sentence


class StopTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be stopped: one session, or everything of a chain that has not ended."""

    session_id: int | None = None
    chain: int | None = None  # the id of its first session

    def __str__(self) -> str:
        """Return it as a person would name it."""
        return f"chain {self.chain}" if self.session_id is None else f"session {self.session_id}"

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of the command that stops it."""
        return {"chain": self.chain} if self.session_id is None else {"session_id": self.session_id}


def stop_target(arguments: Mapping[str, object]) -> StopTarget | None:
    """Return what a command's arguments name; ``None``: not exactly one session or chain."""
    match dict(arguments):
        case {"session_id": int(session_id)} if len(arguments) == 1:
            return StopTarget(session_id=session_id)
        case {"chain": int(chain)} if len(arguments) == 1:
            return StopTarget(chain=chain)
        case _:
            return None


def lost_because(command: Command, *, daemon: str, daemon_started_at: datetime) -> str | None:
    """Return why a daemon must not carry out a command that it has found; ``None``: it carries it out.

    A command that names what it is about means the same under another daemon, and is done, or done again. One that is
    about whatever ran at that moment would hit sessions that nobody meant.
    """
    came_later = command.for_owner is None and command.requested_at >= daemon_started_at
    is_for_this_one = came_later or command.for_owner == daemon
    if command.name != CommandName.STOP_SESSIONS or (command.taken_at is None and is_for_this_one):
        return None
    return "the daemon that it was meant for ended first, and the sessions of that daemon with it"
