"""Questions to people: those that wait, and those that were answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from claudeops.domain.chains.cooldown import Left
from claudeops.domain.gate.approval import Approval, ApprovalStatus, CalledScript
from claudeops.domain.listing import Listing, Page
from claudeops.store.approvals import answers_of, to_approval
from claudeops.store.reading import page, within
from claudeops.store.reading.calls_made import ToolCallEntry, same_before
from claudeops.store.tables.approvals import approvals
from claudeops.structs import replace
from claudeops.text.escapes import unmistakable


class ScriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A script that a call would run; path and text are as `unmistakable` makes them."""

    path: str  # absolute
    sha256: str  # of its contents, in hex
    text: str  # redacted and cut
    hidden: bool  # parts of the text are hidden that only have the shape of a secret
    cut: bool  # the file goes on after the text


class ApprovalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person: a call in full, as whoever lets it run must see it."""

    approval_id: int
    session_id: int
    tier: int | None
    status: ApprovalStatus
    tool_use_id: str
    tool_name: str
    agent_id: str | None  # the subagent that calls; None: the session itself
    workdir: str
    input: Mapping[str, Any]  # of the call, redacted; every text and key as `unmistakable` makes it
    hidden: bool  # parts of the input are hidden that only have the shape of a secret, and may be anything
    scripts: tuple[ScriptEntry, ...]
    reason: str  # why the policy wants a person to decide
    call_hash: str  # what an answer is bound to
    requested_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None  # everybody who said yes, or who said no
    answers: int  # how many people have said yes
    needed: int  # how many different people must
    agreed: tuple[str, ...]  # who has
    unheard: str | None  # set once it is known to have reached no target: which failed, and how
    passkey: bool  # a yes counts with a passkey's signature alone


class ApprovalStory(ApprovalEntry, frozen=True, kw_only=True):
    """A question to a person, with what the call reaches and what the same one did before."""

    services: tuple[str, ...] | None  # that the call changes; None: the gate does not know all of them
    commands: tuple[str, ...] = ()  # the simple commands of its text, one a line; none where it is no shell's
    unclear: str | None = None  # why the text cannot be taken apart
    hosts: tuple[str, ...] = ()  # other ones on which it would look
    limits: tuple[Left, ...] = ()  # of the actions that it is, as they are after a yes
    before: tuple[ToolCallEntry, ...]  # calls with the same tool and input among the 10,000 before it, newest first


def story(connection: Connection, approval_id: int) -> ApprovalStory | None:
    """Return a question with what the same call did before; None: there is none of this id."""
    row = connection.execute(select(approvals).where(approvals.c.id == approval_id)).one_or_none()
    if row is None:
        return None
    approval = replace(to_approval(row), answers=answers_of(connection, [approval_id]).get(approval_id, ()))
    entry = to_entry(approval)
    return ApprovalStory(
        **{name: getattr(entry, name) for name in entry.__struct_fields__},
        services=_services(approval),
        before=same_before(
            connection, approval.session_id, approval.tool_use_id, tool=entry.tool_name, given=approval.input or ""
        ),
    )


def _services(approval: Approval) -> tuple[str, ...] | None:
    try:
        return msgspec.json.decode(approval.services or "null", type=tuple[str, ...] | None)
    except msgspec.MsgspecError:
        return None


def listed(connection: Connection, wanted: Listing, *, everything: bool = False) -> Page[Approval]:
    """Return the questions that wait for an answer, or all of them, newest first; `to_entry` makes an entry of each."""
    query = within(select(approvals), approvals.c.requested_at, wanted)
    if not everything:
        query = query.where(approvals.c.status == ApprovalStatus.PENDING.value)
    if wanted.tier is not None:
        query = query.where(approvals.c.tier == wanted.tier)
    found = page(connection, query, approvals.c.id, wanted, to_approval)
    said = answers_of(connection, [approval.id for approval in found.items])
    return replace(found, items=tuple(replace(each, answers=said.get(each.id, ())) for each in found.items))


def to_entry(approval: Approval) -> ApprovalEntry:
    """Return a question as an entry, with its input and scripts as people may read them."""
    return ApprovalEntry(
        approval_id=approval.id,
        session_id=approval.session_id,
        tier=approval.tier,
        status=approval.status,
        tool_use_id=approval.tool_use_id,
        tool_name=approval.tool_name or "",
        agent_id=approval.agent_id,
        workdir=approval.workdir or "",
        input={unmistakable(name): _shown(value) for name, value in input_of(approval).items()},
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
        passkey=approval.passkey,
    )


def input_of(approval: Approval) -> dict[str, Any]:
    """Return the input of a call as it is kept; what is no object is one with the key ``input``."""
    try:
        given = json.loads(approval.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": approval.input or ""}


_SCRIPTS: Final = msgspec.json.Decoder(tuple[CalledScript, ...])


def scripts_of(approval: Approval) -> tuple[CalledScript, ...]:
    """Return the scripts of a call as they are kept; none where they cannot be read."""
    try:
        return _SCRIPTS.decode(approval.scripts or "[]")
    except msgspec.MsgspecError:
        return ()


def _shown(value: Any) -> Any:
    """Return a value of a call's input with nothing in it that hides, however deep it lies."""
    if isinstance(value, str):
        return unmistakable(value)
    if isinstance(value, dict):
        return {unmistakable(name): _shown(each) for name, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list) else value
