"""Asks people whether a call may run, and waits for them: in the permission request, never in the hook.

The hook has to be answered within a minute; a permission request may wait as long as it takes. While somebody is asked
the session's wall clock stands still and the session holds no slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.approval import ApprovalStatus, NewApproval, call_hash, proven
from claudeops.engine.scripts import named_scripts
from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import LogEvent
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from claudeops.domain.approval import Approval, Script
    from claudeops.domain.model import Session, ToolCall
    from claudeops.engine.kit import Kit
    from claudeops.engine.ports import Clock, Store
    from claudeops.engine.workspace import Workspace
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 0.5
"""How long an answer goes unnoticed: it is written by another process."""

READ_SECONDS: Final = 10.0
"""How long reading the files that a call names may take; the agent chose them, and their disk may hang."""

_READERS: Final = Threads(most=16)

ASK_SECONDS: Final = 5.0
"""A question that is not written by then is a no."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """Nobody said yes; the reason is for the model and the record."""

    reason: str


@dataclass(kw_only=True, slots=True)
class ApprovalDesk:
    """Where the calls of one session wait for people."""

    session: Session
    store: Store
    clock: Clock
    key: bytes = field(repr=False)
    timeout_seconds: float
    workdir: str
    own: tuple[str, ...]  # directories in which the session can write
    shown: Callable[[str], str]  # redacts
    waiting: Callable[[], AbstractContextManager[None]]  # the session holds no slot and its clock stands still
    log: Logger
    read_seconds: float = READ_SECONDS

    async def ask(self, call: ToolCall, *, shown_input: str, reason: str) -> Approval | Refused:
        """Ask, and return the approved question with its proof checked, or why nothing came of it.

        Bounded by the approval timeout, by the clocks that do not depend on the wall clock, and by the caller.
        """
        if (scripts := await self._scripts(call)) is None:
            return Refused(reason=_UNREAD)
        bound_to = self._hash(call, scripts)
        now = self.clock.now()
        new = NewApproval(
            session=self.session,
            call=call,
            call_hash=bound_to,
            workdir=self.workdir,
            shown_input=shown_input,
            scripts=scripts,
            reason=reason,
            requested_at=now,
            expires_at=now + timedelta(seconds=self.timeout_seconds),
        )
        try:
            with anyio.fail_after(ASK_SECONDS):
                asked = await self.store.request_approval(new)
        except (DatabaseUnavailableError, TimeoutError):
            return Refused(reason="needs approval, and the question could not be written; try again later")
        log = self.log.bind(approval_id=asked.id, tool_use_id=call.tool_use_id)
        log.warning(LogEvent.APPROVAL_REQUESTED, tool=call.tool_name, reason=reason)
        try:
            with self.waiting():
                answered = await self._wait(asked)
        except anyio.get_cancelled_exc_class():
            # Nobody waits for the answer any more: the question must not stand open for people.
            with anyio.CancelScope(shield=True):
                await self._close(asked)
            raise
        said = _verdict_of(answered, self.key) if answered is not None else Refused(reason=_NOBODY)
        if isinstance(said, Refused):
            log.warning(LogEvent.APPROVAL_REFUSED, reason=said.reason)
            return said
        again = await self._scripts(call)
        if again is None or self._hash(call, again) != bound_to:
            log.warning(LogEvent.APPROVAL_REFUSED, reason=_CHANGED)
            return Refused(reason=_CHANGED)
        log.info(LogEvent.APPROVAL_GIVEN, decided_by=said.decided_by)
        return said

    async def _wait(self, asked: Approval) -> Approval | None:
        """Return the row once it has been answered or its time is over; ``None``: that cannot be told."""
        row: Approval | None = asked
        with anyio.move_on_after(self.timeout_seconds):
            while row is None or row.status is ApprovalStatus.PENDING:
                await anyio.sleep(LOOK_SECONDS)
                row = await self._look(asked.id)
        if row is not None and row.status is not ApprovalStatus.PENDING:
            return row
        return await self._close(asked)

    async def _close(self, asked: Approval) -> Approval | None:
        try:
            with anyio.fail_after(ASK_SECONDS):
                return await self.store.close_approval(asked.id, now=self.clock.now())
        except (DatabaseUnavailableError, TimeoutError):
            return None

    async def _look(self, approval_id: int) -> Approval | None:
        try:
            return await self.store.approval(approval_id)
        except DatabaseUnavailableError:
            return None  # it is looked again: the answer is not lost

    async def _scripts(self, call: ToolCall) -> tuple[Script, ...] | None:
        """Return the scripts that a call names; ``None`` when their disk does not answer."""
        try:
            return await _READERS.run(
                lambda: named_scripts(call.input, own=self.own, workdir=self.workdir, shown=self.shown),
                seconds=self.read_seconds,
                what="reading the files that a call names",
            )
        except TimeoutError:
            return None

    def _hash(self, call: ToolCall, scripts: tuple[Script, ...]) -> str:
        return call_hash(session=self.session, workdir=self.workdir, call=call, scripts=scripts)


_NOBODY: Final = "needs approval, and nobody answered in time"
_UNREAD: Final = "needs approval, and the files that it names could not be read in time"
_CHANGED: Final = "needs approval, and a script that it names was changed since people were asked"


def _verdict_of(row: Approval, key: bytes) -> Approval | Refused:
    if row.status is ApprovalStatus.APPROVED:
        return row if proven(key, row) else Refused(reason="needs approval, and the answer carries no operator's proof")
    if row.status is ApprovalStatus.DENIED:
        return Refused(reason=f"needs approval, and {row.decided_by or 'somebody'} said no")
    return Refused(reason=_NOBODY)


def desk_of(
    session: Session,
    kit: Kit,
    workspace: Workspace,
    *,
    waiting: Callable[[], AbstractContextManager[None]],
    log: Logger,
) -> ApprovalDesk | None:
    """Return the desk of a session; ``None`` where nobody can prove to be an operator."""
    if kit.approval_key is None:
        return None
    return ApprovalDesk(
        session=session,
        store=kit.store,
        clock=kit.clock,
        key=kit.approval_key,
        timeout_seconds=kit.approval_seconds,
        workdir=str(workspace.workdir),
        own=(str(workspace.root),),
        shown=kit.redactor.text,
        waiting=waiting,
        log=log,
    )
