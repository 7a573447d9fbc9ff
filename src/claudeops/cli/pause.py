"""``claudeops pause`` and ``resume``: whether sessions are started at all. Works beside a daemon and without one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from claudeops.cli.operator import Answered, answer, now, operators_name
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.orders import OrderName
from claudeops.store.locks import is_claimed

if TYPE_CHECKING:
    from claudeops.settings import Settings
    from claudeops.store.store import SqlStore


def pause(*, reason: str | None, stop: bool, as_json: bool) -> int:
    """Start nothing from now on; running sessions end by themselves, or are stopped."""
    return answer("pause", partial(_pause, reason, stop), as_json=as_json)


def resume(*, as_json: bool) -> int:
    """Go on."""
    return answer("resume", _resume, as_json=as_json)


async def _pause(reason: str | None, stop: bool, settings: Settings, store: SqlStore) -> Answered:  # noqa: FBT001 - bound
    at, who = now(), operators_name()
    told = f"paused by {who}: {' '.join(reason.split())}" if reason and reason.strip() else f"paused by {who}"
    await store.hold(Hold(kind=HoldKind.PAUSED, reason=told, since=at, by=who), now=at)
    running = is_claimed(settings.database_url)
    # Without a daemon there is no session to stop, and an order would meet the next daemon's.
    stopping = stop and running
    if stopping:
        await store.order(OrderName.STOP_SESSIONS, by=who, now=at)
    if stopping:
        after = "running sessions are stopped"
    elif running:
        after = "running sessions end by themselves"
    else:
        after = "no daemon runs"
    return Answered(
        text=f"{told}; {after}",
        body={"paused": True, "reason": told, "stopping": stopping, "daemon_running": running, "handled": True},
    )


async def _resume(_settings: Settings, store: SqlStore) -> Answered:
    released = await store.release(HoldKind.PAUSED, now=now())
    left = [hold for hold in await store.holds(now()) if hold.kind is not HoldKind.PAUSED]
    lines = ["sessions are started again" if released else "it was not paused"]
    lines += [f"still held ({hold.kind.value}): {hold.reason}" for hold in left]
    return Answered(
        text="\n".join(lines),
        body={
            "paused": False,
            "handled": released,
            "holds": [{"kind": hold.kind.value, "reason": hold.reason, "until": hold.until} for hold in left],
        },
    )
