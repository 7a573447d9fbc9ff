"""Questions to people in a store, for tests of how they are answered."""

from __future__ import annotations

from claudeops.domain.gate.approval import Approval, NewApproval
from claudeops.store.store import Store
from support.store_values import NOW, after, call, started, wanted


async def asked_of_people(store: Store, needed: int = 2) -> Approval:
    """Let a session ask for the yes of some people, for a quarter of an hour."""
    session = await started(store, wanted(3))
    new = NewApproval(
        session=session,
        call=call("toolu_1"),
        call_hash="0123",
        workdir="/work",
        redacted_input="{}",
        scripts=(),
        reason="drops the database",
        requested_at=NOW,
        expires_at=after(minutes=15),
        needed=needed,
    )
    return await store.approvals.request_approval(new)
