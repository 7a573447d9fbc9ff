"""What somebody who wants a chain now is told while a hold stands: why nothing starts, not a wait for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.domain.holds import Admission, HoldKind, admission
from claudeops.domain.model import DecisionReason, Suppressed

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.engine.ports import Store

_REMEDY: Final = {HoldKind.PAUSED: " (`claudeops resume` lifts it)"}


async def held(store: Store, now: datetime) -> Suppressed | None:
    """Return why no chain can start now, if nothing can; the holds' own events say so already."""
    holds = await store.holds(now)
    if admission(holds, now) is not Admission.CLOSED:
        return None
    spent = all(hold.kind is HoldKind.BUDGET for hold in holds)
    told = "; ".join(f"{hold.reason.rstrip('.')}{_REMEDY.get(hold.kind, '')}" for hold in holds)
    return Suppressed(
        reason=DecisionReason.BUDGET if spent else DecisionReason.PAUSED, message=f"no session is started: {told}."
    )
