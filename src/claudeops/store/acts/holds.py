"""Pause and resume: whether sessions start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from claudeops.domain.commands import CommandName
from claudeops.domain.holds import Hold, HoldKind
from claudeops.store.acts.commands import Served, ShellAnswer, ask_daemon
from claudeops.store.commands import Commands
from claudeops.store.holds import Holds


class HoldEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Why no session starts."""

    kind: HoldKind
    reason: str
    until: datetime | None


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Whether sessions start."""

    paused: bool  # by a person
    holds: tuple[HoldEntry, ...]  # all that stand; none: sessions start


class PauseAct(msgspec.Struct, frozen=True, kw_only=True):
    """No session starts; whether those that run were stopped."""

    paused: bool = True
    reason: str
    stopping: bool
    daemon_running: bool
    acknowledged: bool | None  # by the daemon; None: it was asked nothing
    result: str | None = None  # what the daemon says, where it was to stop what runs
    handled: bool = True


class ResumeAct(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions start again, unless something else holds them."""

    paused: bool = False
    handled: bool  # False: it was not paused
    holds: tuple[HoldEntry, ...]  # that stand all the same


async def pause(
    holds: Holds, commands: Commands, *, reason: str, stop: bool, by: str, served: Served, now: Callable[[], datetime]
) -> PauseAct:
    """Start no sessions from now on; running ones finish, or are stopped with ``stop``."""
    at, said = now(), " ".join(reason.split())
    why = f"paused by {by}: {said}" if said else f"paused by {by}"
    await holds.hold(Hold(kind=HoldKind.PAUSED, reason=why, since=at, by=by), now=at)
    is_served = await served()
    if not (stop and is_served):
        return PauseAct(reason=why, stopping=False, daemon_running=is_served, acknowledged=None)
    asked = await ask_daemon(commands, CommandName.STOP_SESSIONS, by=by, served=served, now=now)
    return PauseAct(
        reason=why,
        stopping=asked.acknowledged,
        daemon_running=asked.answer is not ShellAnswer.NO_DAEMON,
        acknowledged=asked.acknowledged,
        result=asked.says,
    )


async def resume(holds: Holds, *, now: datetime) -> ResumeAct:
    """Start sessions again after a pause."""
    released = await holds.release(HoldKind.PAUSED, now=now)
    left = [hold for hold in await holds.standing(now) if hold.kind is not HoldKind.PAUSED]
    return ResumeAct(handled=released, holds=_entries(left))


def holding(found: Sequence[Hold]) -> Holding:
    """Return whether sessions start while some holds stand."""
    return Holding(paused=any(hold.kind is HoldKind.PAUSED for hold in found), holds=_entries(found))


def _entries(found: Sequence[Hold]) -> tuple[HoldEntry, ...]:
    return tuple(HoldEntry(kind=hold.kind, reason=hold.reason, until=hold.until) for hold in found)
