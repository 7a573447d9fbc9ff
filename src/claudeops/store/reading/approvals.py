"""Questions to people: those that wait, and those that were answered."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.gate.approval import Approval, ApprovalStatus, Script, unmistakable
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import page, within
from claudeops.store.tables import approvals
from claudeops.store.verdicts import answers_of, to_approval


class ScriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A script that a call would run, as it was when the question was put."""

    path: str
    sha256: str
    text: str
    hidden: bool  # parts that look like secrets are left out of the text
    cut: bool  # it goes on after the text


class ApprovalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question to people, as a list shows it."""

    approval_id: int
    session_id: int
    tier: int | None
    status: ApprovalStatus
    tool_use_id: str
    tool_name: str
    agent_id: str | None  # the subagent that calls
    workdir: str
    input: object
    hidden: bool  # parts of the input that look like secrets are left out
    scripts: tuple[ScriptEntry, ...]
    reason: str
    call_hash: str
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    answers: int  # people who said yes
    needed: int  # people who must
    agreed: tuple[str, ...]
    unheard: str | None  # why it has reached nobody


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


def entry(approval: Approval) -> ApprovalEntry:
    """Return a question as a list shows it: in full, with nothing in it that hides."""
    return ApprovalEntry(
        approval_id=approval.id,
        session_id=approval.session_id,
        tier=approval.tier,
        status=approval.status,
        tool_use_id=approval.tool_use_id,
        tool_name=approval.tool_name or "",
        agent_id=approval.agent_id,
        workdir=approval.workdir or "",
        input=_shown(input_of(approval)),
        hidden=approval.hidden,
        scripts=tuple(
            ScriptEntry(
                path=unmistakable(script.path),
                sha256=script.sha256,
                text=unmistakable(script.text),
                hidden=script.hidden,
                cut=script.cut,
            )
            for script in scripts_of(approval)
        ),
        reason=approval.reason or "",
        call_hash=approval.call_hash,
        requested_at=approval.requested_at,
        expires_at=approval.expires_at,
        decided_at=approval.decided_at,
        decided_by=approval.decided_by,
        answers=len(approval.agreed),
        needed=approval.needed,
        agreed=approval.agreed,
        unheard=approval.unheard,
    )


def input_of(approval: Approval) -> dict[str, object]:
    """Return the input of the call that waits."""
    try:
        given = json.loads(approval.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": approval.input or ""}


def scripts_of(approval: Approval) -> tuple[Script, ...]:
    """Return the scripts that the call would run."""
    try:
        return msgspec.json.decode(approval.scripts or "[]", type=tuple[Script, ...])
    except msgspec.MsgspecError:
        return ()


def _shown(value: object) -> object:
    """Return a value of a call's input with nothing in it that hides, however deep it lies."""
    if isinstance(value, str):
        return unmistakable(value)
    if isinstance(value, dict):
        return {unmistakable(name): _shown(each) for name, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list) else value
