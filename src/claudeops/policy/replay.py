"""What another policy would have said to calls on record: what is judged, and how the verdicts are added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.calls import VerdictKind

MOST_CALLS: Final = 5000
"""That are replayed, the newest ones."""

MOST_CHANGES: Final = 200
"""That are listed of those that the edit makes, and as many of those that it does not make."""

_MOST_TEXT: Final = 500  # characters of a call


class ReplayBound(StrEnum):
    """Why not all calls on record were replayed."""

    COUNT = "count"
    TIME = "time"


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it is on record, with the verdict that it got before any person answered."""

    call_id: int
    session_id: int
    tier: int
    tool_name: str
    input: Mapping[str, object] | None  # redacted; None: it is no object
    text: str  # the command, or the input as JSON
    verdict: VerdictKind
    reason: str
    requested_at: datetime


class ReplayChange(msgspec.Struct, frozen=True, kw_only=True):
    """A call to which the policy says something else than what is on record."""

    call_id: int
    session_id: int
    tier: int
    tool_name: str
    text: str  # at most 500 characters
    requested_at: datetime
    recorded: VerdictKind
    recorded_reason: str
    verdict: VerdictKind
    reason: str  # by which rule
    in_force: VerdictKind | None  # what the policy in force says today; None: it was not judged
    by_edit: bool  # the policy in force says otherwise than this one


class PolicyReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says to the calls on record."""

    since: datetime
    on_record: int  # calls since then
    replayed: int  # of those, the newest ones
    bound: ReplayBound | None  # None: all were replayed
    unchanged: int
    newly_allowed: int
    newly_asked: int
    newly_denied: int
    by_edit: int  # of the three before: the others would get this verdict by the policy in force, too
    not_judged: int  # too slow to judge, of a tier that there is not, or no calls that can be read
    changes: tuple[ReplayChange, ...]  # newest first; of very many some


class ReplayCount(msgspec.Struct, kw_only=True):
    """Adds up verdicts, in the order of the calls."""

    kinds: Counter[VerdictKind] = msgspec.field(default_factory=Counter)  # of calls whose verdict is another
    unchanged: int = 0
    not_judged: int = 0
    by_edit: int = 0
    changes: list[ReplayChange] = msgspec.field(default_factory=list)

    @property
    def replayed(self) -> int:
        """How many calls were replayed."""
        return self.unchanged + self.not_judged + self.kinds.total()

    def skip(self) -> None:
        """Count a call that cannot be judged."""
        self.not_judged += 1

    def keep(self) -> None:
        """Count a call whose verdict stays as it is on record."""
        self.unchanged += 1

    def change(self, call: RecordedCall, verdict: VerdictKind, reason: str, *, in_force: VerdictKind | None) -> None:
        """Count a call whose verdict is another than the one on record."""
        by_edit = in_force is not verdict
        listed = self.by_edit if by_edit else self.kinds.total() - self.by_edit
        self.kinds[verdict] += 1
        self.by_edit += by_edit
        if listed < MOST_CHANGES:
            self.changes.append(_change(call, verdict, reason, in_force=in_force, by_edit=by_edit))

    def sum(self, *, since: datetime, on_record: int, bound: ReplayBound | None) -> PolicyReplay:
        """Return what was counted."""
        return PolicyReplay(
            since=since,
            on_record=on_record,
            replayed=self.replayed,
            bound=bound,
            unchanged=self.unchanged,
            newly_allowed=self.kinds[VerdictKind.ALLOW],
            newly_asked=self.kinds[VerdictKind.ASK],
            newly_denied=self.kinds[VerdictKind.DENY],
            by_edit=self.by_edit,
            not_judged=self.not_judged,
            changes=tuple(self.changes),
        )


def _change(
    call: RecordedCall, verdict: VerdictKind, reason: str, *, in_force: VerdictKind | None, by_edit: bool
) -> ReplayChange:
    return ReplayChange(
        call_id=call.call_id,
        session_id=call.session_id,
        tier=call.tier,
        tool_name=call.tool_name,
        text=call.text[:_MOST_TEXT],
        requested_at=call.requested_at,
        recorded=call.verdict,
        recorded_reason=call.reason,
        verdict=verdict,
        reason=reason,
        in_force=in_force,
        by_edit=by_edit,
    )
