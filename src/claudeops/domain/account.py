"""What the database tells of a session that its log cannot: what the gate answered, and which events were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.domain.live import EventRaised
    from claudeops.domain.model import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """What is on record about a session so far."""

    verdicts: Mapping[str, Verdict]  # by ``tool_use_id``
    events: tuple[EventRaised, ...]  # those that the session opened, or counted up last; oldest first
