"""What the database tells of a session that its log cannot: what the gate answered, and which events were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from claudeops.domain.live import EventRaised
    from claudeops.domain.model import Status, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One answer of the gate. A call that is put to people has two: the question, and what came of it."""

    verdict: Verdict
    at: datetime  # UTC; when it was decided


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What is on record about a session so far."""

    verdicts: Mapping[str, tuple[Judged, ...]]  # by ``tool_use_id``, oldest first
    events: tuple[EventRaised, ...]  # those that the session opened, or counted up last; oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a session stands, for who wants to know which chains are under way."""

    session_id: int
    chain: int  # the root session's id
    status: Status
