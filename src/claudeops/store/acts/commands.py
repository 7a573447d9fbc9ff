"""A command to the running daemon, from another process: written, waited for, and answered truthfully.

Whoever asks learns one of six things: there is no daemon, so nothing was written; the daemon has not taken it up, so it
was withdrawn; it is under way; it is done; nothing came of it; the daemon ended before it was done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from claudeops.domain.commands import Command, CommandName
from claudeops.store.commands import Commands
from claudeops.store.locks import claim_watch
from claudeops.structs import replace

Served = Callable[[], Awaitable[bool]]
"""Returns whether a daemon runs on the database."""

FIRST_LOOK_SECONDS: Final = 0.01
LOOK_SECONDS: Final = 0.1
"""The time between two looks at what has become of a command: it doubles from the first value up to the other one."""

TAKEN_SECONDS: Final = 10.0
"""How long a daemon may take to take a command up: a wake-up reaches it at once, but it may be starting."""

DONE_SECONDS: Final = 45.0
"""How long the asker waits for the end of a command that was taken: a session that is stopped gets its grace."""


class ShellAnswer(StrEnum):
    """What the asker learns."""

    NO_DAEMON = "no_daemon"  # nothing was asked
    NOT_TAKEN = "not_taken"  # withdrawn: it will not be done later either
    UNDER_WAY = "under_way"  # taken; the end was not waited for
    DONE = "done"
    FAILED = "failed"  # the daemon says why
    DAEMON_GONE = "daemon_gone"  # it ended after it was asked; the next one does it, or says that it is lost


_FROM_WORST: Final = (
    *(ShellAnswer.NO_DAEMON, ShellAnswer.NOT_TAKEN, ShellAnswer.DAEMON_GONE),
    *(ShellAnswer.UNDER_WAY, ShellAnswer.FAILED, ShellAnswer.DONE),
)


class ShellRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a command when its asker goes on."""

    answer: ShellAnswer
    says: str  # one sentence
    command_id: int | None = None  # None: nothing was written

    @property
    def acknowledged(self) -> bool:
        """Tell whether the daemon has taken the command up."""
        return self.answer in {ShellAnswer.UNDER_WAY, ShellAnswer.DONE, ShellAnswer.FAILED}


@asynccontextmanager
async def served_by_another(url: str) -> AsyncIterator[Served]:
    """Yield what says whether another process's daemon runs on a database; its own process must not run one there."""
    with claim_watch(url) as look:

        async def is_served() -> bool:
            return await anyio.to_thread.run_sync(look)

        yield is_served


async def ask_daemon(
    commands: Commands,
    name: CommandName,
    *,
    by: str,
    served: Served,
    now: Callable[[], datetime],
    arguments: Mapping[str, object] | None = None,
    taken_seconds: float = TAKEN_SECONDS,
    done_seconds: float = DONE_SECONDS,
) -> ShellRequest:
    """Send a command to the daemons on the database that it is for, and wait for what comes of it.

    A command that was not taken in time is withdrawn, so that it surprises nobody later. Raises `StoreError`.
    """
    if not await served():
        return ShellRequest(
            answer=ShellAnswer.NO_DAEMON, says="No daemon runs on this database: nothing was asked of it."
        )
    ids = await commands.request(name, by=by, now=now(), arguments=arguments or {})
    found = await _until(commands, ids, lambda command: command.taken_at is not None, served, taken_seconds)
    withdrawn = set[int]()
    for command in found:
        if command is not None and command.taken_at is None:
            why = f"withdrawn: no daemon took it up within {taken_seconds:g} s"
            if await commands.withdraw(command.id, why=why, now=now()):
                withdrawn.add(command.id)
    left = [command_id for command_id in ids if command_id not in withdrawn]
    found = await _until(commands, left, lambda command: command.ended_at is not None, served, done_seconds)
    is_served = await served()
    answers = [_not_taken(command_id, served=is_served, seconds=taken_seconds) for command_id in sorted(withdrawn)]
    answers += [_answer(command, command_id, served=is_served) for command_id, command in zip(left, found, strict=True)]
    return _all_of(answers)


async def _until(
    commands: Commands, ids: Sequence[int], holds: Callable[[Command], bool], is_served: Served, seconds: float
) -> Sequence[Command | None]:
    """Return the commands once all are as wanted, or as they are when time is up or no daemon is left."""
    found: list[Command | None] = [None for _ in ids]
    pause = FIRST_LOOK_SECONDS
    with anyio.move_on_after(seconds):
        while ids:
            served = await is_served()  # before the look, so that the look sees the daemon's last word
            found = [await commands.find(command_id) for command_id in ids]
            if all(command is None or holds(command) for command in found) or not served:
                break
            await anyio.sleep(pause)
            pause = min(pause * 2, LOOK_SECONDS)
    return found


def _all_of(answers: Sequence[ShellRequest]) -> ShellRequest:
    """Return one answer for those of several daemons: as good as the worst, with the words of each."""
    worst = min(answers, key=lambda each: _FROM_WORST.index(each.answer))
    return replace(worst, says=" ".join(each.says for each in answers)) if len(answers) > 1 else worst


def _not_taken(command_id: int, *, served: bool, seconds: float) -> ShellRequest:
    if not served:
        says = "The daemon ended before it had taken this up: nothing was done."
    else:
        says = (
            f"The daemon has not taken this up within {seconds:g} s, so it was withdrawn and nothing was done: "
            "the daemon is still starting, its database is away, or it hangs (`claudeops health` says which)."
        )
    return ShellRequest(answer=ShellAnswer.NOT_TAKEN, says=says, command_id=command_id)


def _answer(found: Command | None, command_id: int, *, served: bool) -> ShellRequest:
    if found is None or found.ended_at is None:
        if served:
            says = "The daemon has taken this up and is still at it."
            return ShellRequest(answer=ShellAnswer.UNDER_WAY, says=says, command_id=command_id)
        says = "The daemon ended before it was done: the next one does it when it starts, or says that it is lost."
        return ShellRequest(answer=ShellAnswer.DAEMON_GONE, says=says, command_id=command_id)
    if found.error is not None:
        return ShellRequest(answer=ShellAnswer.FAILED, says=found.error, command_id=command_id)
    return ShellRequest(answer=ShellAnswer.DONE, says=found.result or "done", command_id=command_id)
