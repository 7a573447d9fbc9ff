"""What the database alone knows of how the daemon stands, as figures of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from claudeops.domain.events import EventLevel


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is on record, at one moment."""

    at: datetime
    queued: int  # sessions
    queued_since: datetime | None  # since when the first of them that is due could have begun; None: none is due
    approvals: int  # questions that wait for a person
    incidents: Mapping[EventLevel, int]  # that are not over
    outbox: int  # notices that are not delivered yet
    outbox_since: datetime | None  # as for `queued_since`
    memories: int  # that are active
    spent_usd: float | None  # since midnight in the budgets' time zone; None: no budgets
    is_paused: bool  # by an operator
    parked_until: datetime | None  # the model API serves no session until then; None: it does
    healthy_at: datetime | None  # when the last usual round ended healthy, within `HEALTHY_WITHIN`
