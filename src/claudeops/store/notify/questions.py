"""Messages that ask people in chats: their tokens as digests, and what each of them shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, insert, or_, select, update

from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.errors import StoreError
from claudeops.store.approvals import to_approval
from claudeops.store.database import Database
from claudeops.store.rows import TableRow
from claudeops.store.tables.approvals import approval_messages, approvals
from claudeops.wording.notices.approving import NO, YES, QuestionRow, Unedited

_GIVEN_UP: Final = timedelta(days=1)
"""How old a message may be that is still edited: a chat that refuses for so long does so for good."""

_MOST: Final = 100  # messages of one look


class Questions:
    """Messages that ask people in chats whether a call may run.

    A message has a token for each of its buttons, of which only digests are stored. They are used up together, by the
    answer that decides the question (`Approvals.answer_approval`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(
        self, approval: Approval, *, target: str, chat: str, yes: str | None, no: str | None, now: datetime
    ) -> int:
        """Write that a message is about to ask, before it is sent; ``yes`` and ``no`` are digests. Return its id."""
        values = {
            "session_id": approval.session_id,
            "approval_id": approval.id,
            "call_hash": approval.call_hash,
            "target": target,
            "chat": chat,
            "yes_digest": yes,
            "no_digest": no,
            "sent_at": now,
        }

        def write(connection: Connection) -> int:
            key = connection.execute(insert(approval_messages).values(values)).inserted_primary_key
            if key is None:
                raise StoreError("the database gave a new message no id.")
            return int(key[0])

        return await self._database.write(write, urgent=True)

    async def sent(self, message_id: int, external_id: str) -> bool:
        """Write what a message is called in its chat, unless that is known; tell whether it is called so now.

        It is not if another message of its target is.
        """
        columns = approval_messages.c
        # By target: two bots count the messages of their chats with one person each for itself.
        target = select(columns.target).where(columns.id == message_id).scalar_subquery()
        so_called = select(columns.id).where(columns.target == target, columns.external_id == external_id)
        named = (
            update(approval_messages)
            .where(columns.id == message_id, columns.external_id.is_(None))
            .values(external_id=external_id)
        )

        def write(connection: Connection) -> bool:
            found = connection.execute(so_called).scalars().all()
            if not found:
                return connection.execute(named).rowcount == 1
            return message_id in found

        return await self._database.write(write, urgent=True)

    async def by_token(self, digest: str) -> QuestionRow | None:
        """Return the message with a token, and what the token says."""
        columns = approval_messages.c
        query = select(approval_messages).where(or_(columns.yes_digest == digest, columns.no_digest == digest))

        def find(connection: Connection) -> QuestionRow | None:
            row = connection.execute(query.limit(1)).first()
            return None if row is None else _to_asked(row, says=YES if row.yes_digest == digest else NO)

        return await self._database.read(find)

    async def asking(self, approval_id: int, targets: Collection[str]) -> Sequence[QuestionRow]:
        """Return the messages of some targets that ask one question and are known to have arrived."""
        columns = approval_messages.c
        query = select(approval_messages).where(
            columns.approval_id == approval_id, columns.target.in_(targets), columns.external_id.is_not(None)
        )

        def find(connection: Connection) -> Sequence[QuestionRow]:
            return [_to_asked(row) for row in connection.execute(query.order_by(columns.id))]

        return await self._database.read(find)

    async def unedited(self, targets: Collection[str], *, now: datetime) -> Sequence[Unedited]:
        """Return the messages of some targets that do not show that their question is over, oldest first."""
        shown, status = approval_messages.c.shown, approvals.c.status
        waits = ApprovalStatus.PENDING.value
        # What a question has expired as is written by whoever waits for it, which may take a moment.
        over = or_(status != waits, approvals.c.expires_at <= now)
        query = (
            select(approval_messages)
            .join(approvals, approvals.c.id == approval_messages.c.approval_id)
            .where(
                or_(shown.is_(None), shown == ApprovalStatus.APPROVED.value),
                approval_messages.c.sent_at > now - _GIVEN_UP,
                approval_messages.c.external_id.is_not(None),
                approval_messages.c.target.in_(targets),
                over,
                or_(shown.is_(None), and_(status != shown, status != waits)),
            )
            .order_by(approval_messages.c.id)
            .limit(_MOST)
        )

        def find(connection: Connection) -> Sequence[Unedited]:
            found = [_to_asked(row) for row in connection.execute(query).all()]
            wanted = select(approvals).where(approvals.c.id.in_([asked.approval_id for asked in found]))
            about = {row.id: to_approval(row) for row in connection.execute(wanted)}
            return [
                Unedited(row=asked, approval=about[asked.approval_id]) for asked in found if asked.approval_id in about
            ]

        return await self._database.read(find)

    async def edited(self, message_id: int, status: ApprovalStatus, *, now: datetime) -> None:
        """Write that a message shows how its question stands; once that is final, nobody edits it any more."""
        values = {"shown": status.value, "edited_at": now}
        done = update(approval_messages).where(approval_messages.c.id == message_id).values(values)
        await self._database.write(lambda connection: connection.execute(done), urgent=True)


def _to_asked(row: TableRow, *, says: ApprovalStatus | None = None) -> QuestionRow:
    return QuestionRow(
        id=row.id,
        approval_id=row.approval_id,
        call_hash=row.call_hash,
        target=row.target,
        chat=row.chat,
        external_id=row.external_id,
        used_at=row.used_at,
        says=says,
    )
