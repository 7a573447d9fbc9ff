"""Questions to people: those that wait, and those that were answered."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select

from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import page, within
from claudeops.store.tables import approvals
from claudeops.store.verdicts import answers_of, to_approval


def listed(connection: Connection, wanted: Listing, *, everything: bool = False) -> Page[Approval]:
    """Return the questions that wait for an answer, or all of them, newest first."""
    query = within(select(approvals), approvals.c.requested_at, wanted)
    if not everything:
        query = query.where(approvals.c.status == ApprovalStatus.PENDING.value)
    if wanted.tier is not None:
        query = query.where(approvals.c.tier == wanted.tier)
    found = page(connection, query, approvals.c.id, wanted, to_approval)
    said = answers_of(connection, [approval.id for approval in found.items])
    return replace(found, items=tuple(replace(each, answers=said.get(each.id, ())) for each in found.items))
