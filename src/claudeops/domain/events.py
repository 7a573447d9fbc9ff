"""Events as values."""

from __future__ import annotations

import msgspec

from claudeops.closed_set import ClosedSet


class EventLevel(ClosedSet):
    """Weight of an event."""

    INFO = "info", "worth knowing"
    WARNING = "warning", "worth a look in working hours"
    CRITICAL = "critical", "worth waking somebody"


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be written; the same fingerprint again raises the count of the open one."""

    level: EventLevel
    message: str
    service: str | None = None
    fingerprint: str = ""  # "" = derived from level, service and message
