"""Actions as values: what a call changes, the cooldown ledger's record of it, and what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet

NO_RESULT_SEEN: Final = "no result seen"  # stored rows are compared with it
TOO_LATE: Final = "denied: the verdict before this row was written too late to be told"  # likewise


class Recheck(ClosedSet):
    """Whether what an action was for still held at a later look."""

    HELD = "held", "the service is healthy"
    RELAPSED = "relapsed", "it is down, unreachable or flapping"
    UNKNOWN = "unknown", "not known: it is degraded, there was no look at it, or the look failed"


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would change: one entry of the cooldown ledger."""

    kind: str  # ``restart``, ``redeployment``
    service: str


class PastAction(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the cooldown ledger. Rules and limits need no more than its kind, service and time."""

    kind: str
    service: str
    at: datetime
    id: int = 0
    session_id: int = 0
    chain: int | None = None  # the root of that session; None: not read
    tier: int = 0  # of that session
    tool_use_id: str = ""
    success: bool | None = None  # None: no result yet
    error: str | None = None  # `NO_RESULT_SEEN`, `TOO_LATE`, or how the call ended
    held: Recheck | None = None  # by a later look
    held_at: datetime | None = None  # when that was found
    follow_up_at: datetime | None = None  # when a look at it is due; None: none is planned

    @property
    def is_denied(self) -> bool:
        """Whether the gate's yes came too late for the CLI, so that nothing was done."""
        return self.error == TOO_LATE

    @property
    def worked(self) -> bool | None:
        """Whether the call succeeded; None: its result was not seen, and it may have."""
        return None if self.error == NO_RESULT_SEEN else self.success


class ServiceLease(msgspec.Struct, frozen=True, kw_only=True):
    """A service under repair: one chain alone may act on it."""

    service: str
    chain: int  # by its first session
    since: datetime | None  # its first action on the service; None: not on record
    ends_at: datetime  # if the chain gives no more sign


class ActionLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most ``count`` actions of a kind on one service within a sliding window."""

    count: int
    window_seconds: float
