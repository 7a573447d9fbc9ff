"""Approvals: the questions to people that some verdicts need, and their answers.

An approval is requested, answered once by each person who must say yes, decided once and used once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, or_, select, update

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.gate.approval import (
    Answer,
    Answered,
    Approval,
    ApprovalStatus,
    NewApproval,
    join_people,
    people,
    person,
)
from claudeops.domain.gate.passkey import Assertion
from claudeops.domain.notices.notice import Announcement, Topic
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store.access.signatures import keep_signature
from claudeops.store.database import Database
from claudeops.store.events import raise_event, tell
from claudeops.store.rows import TableRow
from claudeops.store.tables.approvals import approval_answers, approval_messages, approvals
from claudeops.store.tables.events import events
from claudeops.store.tables.sessions import runs_as
from claudeops.structs import replace
from claudeops.text import json_text
from claudeops.text.redact import MASK
from claudeops.wording.notices.texts import call_in_words, of_event, reminder

_OPEN: Final = (ApprovalStatus.PENDING.value, ApprovalStatus.APPROVED.value)
"""An approved question is open until its call has used it: nothing else may close it."""

_HAS_TOKEN: Final = or_(
    approval_messages.c.yes_digest == bindparam("token"), approval_messages.c.no_digest == bindparam("token")
)
_BY_TOKEN: Final = select(approval_messages).where(_HAS_TOKEN)
_USE_TOKEN: Final = update(approval_messages).where(_HAS_TOKEN)

_ALL_OPEN: Final = select(approvals.c.id).where(approvals.c.status.in_(_OPEN))
_OPEN_OF_SESSION: Final = _ALL_OPEN.where(approvals.c.session_id == bindparam("session"))

_BY_RESTART: Final = "restart of the daemon"


def _nobody_waits(_approval_id: int) -> None:
    return


class Approvals:
    """Questions to people, and their answers. Calls wait for these writes, so most overtake others queued."""

    def __init__(self, database: Database, *, answered: Callable[[int], None] = _nobody_waits) -> None:
        self._database = database
        self._answered = answered

    async def request_approval(self, new: NewApproval) -> Approval:
        """Write a question to people, with the event that announces it.

        Raises `StaleAttemptError`, with nothing written, when the session no longer runs as the attempt that asks.
        """
        asker = {"session": new.session.id, "attempt": new.session.attempt}

        def request(connection: Connection) -> Approval:
            if connection.execute(runs_as, asker).first() is None:
                raise StaleAttemptError(
                    f"session {new.session.id} is no longer running as attempt {new.session.attempt}."
                )
            key = connection.execute(insert(approvals).values(_new_values(new))).inserted_primary_key
            if key is None:
                raise StoreError("the database gave a new approval no id.")
            _ask(connection, key.id, new)
            return _existing(connection, key.id)

        return await self._database.write(request, urgent=True)

    async def approval(self, approval_id: int) -> Approval | None:
        """Return a question as it is now; ``None`` if there is none."""
        return await self._database.read(partial(_find, approval_id=approval_id))

    async def close_approval(self, approval_id: int, *, now: datetime) -> Approval:
        """End a question that still waits as ``expired``; return the row, which may have been answered meanwhile."""

        def close(connection: Connection) -> Approval:
            connection.execute(
                update(approvals)
                .where(approvals.c.id == approval_id, approvals.c.status == ApprovalStatus.PENDING.value)
                .values(status=ApprovalStatus.EXPIRED.value, decided_at=now)
            )
            row = _existing(connection, approval_id)
            if row.status not in {ApprovalStatus.PENDING, ApprovalStatus.APPROVED}:
                _resolve_their_events(connection, [approval_id], at=now)
            return row

        return await self._database.write(close, urgent=True)

    async def answer_approval(
        self, approval_id: int, said: Answer, *, token: str | None = None, assertion: Assertion | None = None
    ) -> Answered:
        """Write a person's answer, and decide the question if it is a no, or the last yes that was needed.

        Answers that come at the same time are taken one after the other: each counts once a person, and one decides.
        Nothing is written but for `Answered.DECIDED` and `Answered.COUNTED`.

        ``token`` is the digest of the button by which the answer came. It is used up with the answer that decides, in
        the same transaction; after a counted yes the next person may use it. Where it says something else, or belongs
        to another question, the answer is `Answered.UNKNOWN`.

        ``assertion`` is the passkey's signature that the answer names, kept in the same transaction. A yes without one
        is `Answered.NEEDS_PASSKEY` where the question demands it; one that was kept before, or of a passkey that is
        gone or has signed since, is `Answered.SIGNED_BEFORE`.
        """
        answer = partial(_answer, approval_id=approval_id, said=said, token=token, assertion=assertion)
        answered = await self._database.write(answer, urgent=True)
        if answered in {Answered.DECIDED, Answered.COUNTED}:
            self._answered(approval_id)
        return answered


def close_approvals(connection: Connection, session_id: int, *, at: datetime) -> None:
    """Expire the open questions of a session that has ended."""
    found = connection.execute(_OPEN_OF_SESSION, {"session": session_id}).scalars().all()
    _close_all(connection, found, status=ApprovalStatus.EXPIRED, by=None, at=at)


def deny_approvals(connection: Connection, session_ids: Collection[int], *, at: datetime) -> None:
    """Deny the open questions of sessions that are taken over: the calls that waited for them are gone."""
    found = connection.execute(_ALL_OPEN.where(approvals.c.session_id.in_(session_ids))).scalars().all()
    _close_all(connection, found, status=ApprovalStatus.DENIED, by=_BY_RESTART, at=at)


def use_approval(connection: Connection, approval: Approval, *, at: datetime) -> bool:
    """Use up an approved question; return ``False`` if it has changed since its proof was checked."""
    used = connection.execute(
        update(approvals)
        .where(
            approvals.c.id == approval.id,
            approvals.c.status == ApprovalStatus.APPROVED.value,
            approvals.c.call_hash == approval.call_hash,
            approvals.c.mac == approval.mac,
        )
        .values(status=ApprovalStatus.USED.value)
    )
    _resolve_their_events(connection, [approval.id], at=at)
    return used.rowcount == 1


def _answer(
    connection: Connection, approval_id: int, said: Answer, *, token: str | None, assertion: Assertion | None
) -> Answered:
    row = _find(connection, approval_id)
    if row is None:
        return Answered.UNKNOWN
    is_signed = assertion is not None and assertion.digest == said.assertion
    refusal = _refusal(row, said, is_signed=is_signed)
    if refusal is None and token is not None:
        refusal = _refusal_of_token(connection, token, row, said)
    if refusal is None and assertion is not None and not keep_signature(connection, row, said, assertion):
        refusal = Answered.SIGNED_BEFORE
    if refusal is not None:
        return refusal
    connection.execute(insert(approval_answers).values(_answer_values(approval_id, said)))
    agreed = people((*row.agreed, said.decided_by))
    if said.status is ApprovalStatus.APPROVED and len(agreed) < row.needed:
        return Answered.COUNTED
    by = join_people(agreed) if said.status is ApprovalStatus.APPROVED else said.decided_by
    decided = {"status": said.status.value, "decided_by": by, "decided_at": said.decided_at, "mac": said.mac}
    connection.execute(update(approvals).where(approvals.c.id == approval_id).values(decided))
    if token is not None:
        connection.execute(_USE_TOKEN, {"token": token, "used_at": said.decided_at})
    return Answered.DECIDED


def _refusal(row: Approval, said: Answer, *, is_signed: bool) -> Answered | None:
    """Return why an answer counts for nothing, as far as its question says."""
    waits = row.status is ApprovalStatus.PENDING
    if row.status is ApprovalStatus.EXPIRED or (waits and row.expires_at <= said.decided_at):
        return Answered.EXPIRED
    if not waits:
        return Answered.ALREADY
    is_yes = said.status is ApprovalStatus.APPROVED
    if is_yes and row.passkey and not is_signed:
        return Answered.NEEDS_PASSKEY
    return Answered.SAME_PERSON if is_yes and len(people((*row.agreed, said.decided_by))) == len(row.agreed) else None


def _refusal_of_token(connection: Connection, token: str, row: Approval, said: Answer) -> Answered | None:
    """Return why an answer counts for nothing, as far as the button says by which it came."""
    message = connection.execute(_BY_TOKEN, {"token": token}).one_or_none()
    if message is None or (message.approval_id, message.call_hash) != (row.id, row.call_hash):
        return Answered.UNKNOWN
    if token != (message.yes_digest if said.status is ApprovalStatus.APPROVED else message.no_digest):
        return Answered.UNKNOWN
    return None if message.used_at is None else Answered.TOKEN_USED


def _answer_values(approval_id: int, said: Answer) -> dict[str, object]:
    return {
        "approval_id": approval_id,
        "person": person(said.decided_by),
        "status": said.status.value,
        "decided_by": said.decided_by,
        "decided_at": said.decided_at,
        "mac": said.mac,
        "assertion": said.assertion or None,
    }


def _close_all(
    connection: Connection, found: Sequence[int], *, status: ApprovalStatus, by: str | None, at: datetime
) -> None:
    if found:
        closed = (
            update(approvals).where(approvals.c.id.in_(found)).values(status=status.value, decided_by=by, decided_at=at)
        )
        connection.execute(closed)
        _resolve_their_events(connection, found, at=at)


def _resolve_their_events(connection: Connection, approval_ids: Sequence[int], *, at: datetime) -> None:
    names = [question_key(approval_id) for approval_id in approval_ids]
    connection.execute(
        update(events).where(events.c.fingerprint.in_(names), events.c.resolved_at.is_(None)).values(resolved_at=at)
    )


def _find(connection: Connection, approval_id: int) -> Approval | None:
    row = connection.execute(select(approvals).where(approvals.c.id == approval_id)).one_or_none()
    if row is None:
        return None
    return replace(to_approval(row), answers=answers_of(connection, [approval_id]).get(approval_id, ()))


def answers_of(connection: Connection, approval_ids: Sequence[int]) -> Mapping[int, tuple[Answer, ...]]:
    """Return what people have answered, by question, the first one first."""
    query = select(approval_answers).where(approval_answers.c.approval_id.in_(approval_ids))
    found: dict[int, tuple[Answer, ...]] = {}
    for row in connection.execute(query.order_by(approval_answers.c.id)):
        said = Answer(
            status=ApprovalStatus(row.status),
            decided_by=row.decided_by,
            decided_at=row.decided_at,
            mac=row.mac,
            assertion=row.assertion or "",
        )
        found[row.approval_id] = (*found.get(row.approval_id, ()), said)
    return found


def _existing(connection: Connection, approval_id: int) -> Approval:
    row = _find(connection, approval_id)
    if row is None:
        raise StoreError(f"approval {approval_id} does not exist.")
    return row


def to_approval(row: TableRow) -> Approval:
    """Return an ``approvals`` row as a value, without its answers."""
    return Approval(
        id=row.id,
        session_id=row.session_id,
        tool_use_id=row.tool_use_id,
        call_hash=row.call_hash,
        status=ApprovalStatus(row.status),
        requested_at=row.requested_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        agent_id=row.agent_id,
        tool_name=row.tool_name,
        tier=row.tier,
        workdir=row.workdir,
        input=row.input,
        scripts=row.scripts,
        reason=row.reason,
        mac=row.mac,
        services=row.services,
        needed=row.needed,
        # A row of an earlier version does not say: what is masked in it may be anything.
        hidden=MASK in (row.input or "") if row.hidden is None else row.hidden,
        unheard=row.unheard,
        passkey=bool(row.passkey),
    )


def _new_values(new: NewApproval) -> dict[str, object]:
    """Return the columns of a new question."""
    return {
        "session_id": new.session.id,
        "tool_use_id": new.call.tool_use_id,
        "call_hash": new.call_hash,
        "status": ApprovalStatus.PENDING.value,
        "requested_at": new.requested_at,
        "expires_at": new.expires_at,
        "agent_id": new.call.agent_id,
        "tool_name": new.call.tool_name,
        "tier": new.session.tier,
        "workdir": new.workdir,
        "input": new.redacted_input,
        "scripts": msgspec.json.encode(new.scripts).decode(),
        "reason": new.reason,
        "services": None if new.services is None else json_text(new.services),
        "needed": new.needed,
        "hidden": new.hidden,
        "passkey": new.passkey,
    }


def _ask(connection: Connection, approval_id: int, new: NewApproval) -> None:
    """Tell people of a question, and remind them when half of its time is over."""
    about = Announcement(
        topic=Topic.APPROVAL,
        tier=new.session.tier,
        key=question_key(approval_id),
        approval_id=approval_id,
        call=call_in_words(new.call.tool_name, new.redacted_input, hidden=new.hidden),
    )
    event = _request_event(approval_id, new)
    raise_event(connection, event, session_id=new.session.id, at=new.requested_at, about=about)
    half = new.requested_at + (new.expires_at - new.requested_at) / 2
    notice = of_event(event, event_id=approval_id, session_id=new.session.id, about=about)
    tell(connection, reminder(notice, needed=new.needed), at=new.requested_at, not_before=half)


def _request_event(approval_id: int, new: NewApproval) -> NewEvent:
    """Return the event that tells people of a question."""
    of_whom = f" by {new.needed} people" if new.needed > 1 else ""
    by_page = f"then say yes with a passkey on the page /approvals/{approval_id},"
    yes = by_page if new.passkey else f"then `claudeops approve {approval_id}`"
    return NewEvent(
        level=EventLevel.WARNING,
        message=(
            f"approval {approval_id} is needed{of_whom} until {new.expires_at:%H:%M:%S} UTC ({new.reason}): see "
            f"`claudeops list-approvals`, {yes} or `claudeops deny {approval_id}`."
        ),
        fingerprint=question_key(approval_id),
    )


def question_key(approval_id: int) -> str:
    """Return the key of what is told of a question; its event has it as fingerprint."""
    return f"approval:{approval_id}"
