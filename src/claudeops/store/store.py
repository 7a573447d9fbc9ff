"""The engine's Store port over SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

import anyio
from sqlalchemy import Connection
from sqlalchemy.engine import URL

from claudeops.domain.backfill import Backfilled, BackfillRejected
from claudeops.domain.chain_record import ChainRecord, SessionPosition, SessionRecord
from claudeops.domain.commands import Command, CommandName
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.gate.approval import Answer, Approval, NewApproval
from claudeops.domain.holds import ONE_SLOT, ApiRefusal, Capacity, Hold, HoldKind
from claudeops.domain.live import EventRaised
from claudeops.domain.model import (
    Ending,
    Finished,
    Memory,
    NewSession,
    Owner,
    Session,
    SkipReason,
    Suppressed,
    ToolCall,
    Verdict,
)
from claudeops.domain.spending.budget import BudgetDenied, CallBegun, CallWaits
from claudeops.domain.spending.tokens import CallState
from claudeops.errors import DatabaseUnavailableError
from claudeops.store import approvals, calls, holds, queries, queue, spend
from claudeops.store import queue as queueing
from claudeops.store.database import BUSY_SECONDS, border, parse_url, reading_engine, writing_engine
from claudeops.store.events import noticing, tell
from claudeops.store.finish import finish
from claudeops.store.keeping import SqlRetention
from claudeops.store.migrate import require_head
from claudeops.store.orphans import backfill
from claudeops.store.owners import SqlOwners
from claudeops.store.queries import chain_record
from claudeops.store.verify import Logged, Verified, verify
from claudeops.store.writer import Writer

T = TypeVar("T")

WAIT_SECONDS: Final = 30.0
"""How long a caller waits for its turn and its answer together."""

_READERS: Final = 4  # reads at the same time; they never wait behind the writer
_wall_clock: Final = partial(datetime.now, UTC)


def _nobody(_: EventRaised) -> None:
    return


def open_store(
    url: str,
    *,
    busy_seconds: float = BUSY_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    now: Callable[[], datetime] = _wall_clock,
    raised: Callable[[EventRaised], None] = _nobody,
) -> SqlStore:
    """Open a database that has been migrated.

    ``busy_seconds`` bounds the wait for another process's lock, ``wait_seconds`` any call as a whole;
    ``now`` says how much memories have faded by the time they are read; ``raised`` hears, in the writer's thread,
    of every event that was committed.
    Raises `DatabaseUnavailableError`, `NewerDatabaseError`, or `ConfigurationError` where the address is
    wrong or the database was not migrated.
    """
    parsed = parse_url(url)
    require_head(parsed, busy_seconds=busy_seconds)
    return SqlStore(parsed, busy_seconds=busy_seconds, wait_seconds=wait_seconds, now=now, raised=raised)


class SqlStore(SqlRetention, SqlOwners):
    """Writes go through one thread and one connection; verdicts overtake what waits there.

    Reads have connections of their own. What a method promises stands in ``engine.ports.Store``.
    """

    def __init__(
        self,
        url: URL,
        *,
        busy_seconds: float,
        wait_seconds: float,
        now: Callable[[], datetime],
        raised: Callable[[EventRaised], None],
    ) -> None:
        self._url = url
        self._wait_seconds = wait_seconds
        self._now = now
        self._raised = raised
        self._writing = writing_engine(url, busy_seconds=busy_seconds)
        self._reading = reading_engine(url, size=_READERS, busy_seconds=busy_seconds)
        self._readers = anyio.CapacityLimiter(_READERS)
        self._writer = Writer(wait_seconds=wait_seconds)
        self._more = False  # the last claim took something, so there may be more

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless the rules forbid it."""
        return await self._write(partial(queueing.enqueue, new=new, rules=rules, now=now))

    async def fire(
        self, schedule: str, due_at: datetime, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record a due time and queue its chain."""
        return await self._write(
            partial(queueing.fire, schedule=schedule, due_at=due_at, new=new, rules=rules, now=now)
        )

    async def claim(
        self,
        owner: Owner,
        *,
        rules: EscalationRules,
        now: datetime,
        cli_session_id: Callable[[], str],
        log_path: Callable[[int], str],
        chain: int | None = None,
        room: Capacity = ONE_SLOT,
    ) -> Sequence[Session]:
        """Take the oldest sessions that are due; the callables are called in the writer's thread.

        Claimers look often and mostly in vain, so they look without the write lock first, unless there was something
        the last time.
        """
        look = partial(queueing.anything_claimable, rules=rules, now=now, chain=chain, room=room)
        if not self._more and not await self._read(look):
            return ()
        claim = partial(
            queueing.claim,
            owner=owner,
            rules=rules,
            now=now,
            cli_session_id=cli_session_id,
            log_path=log_path,
            chain=chain,
            room=room,
        )

        def give_back(connection: Connection, taken: Sequence[Session]) -> None:
            queueing.give_back(connection, taken, now=now)

        # Sessions of a claim that nobody was told of would be nobody's, and run by their rows until the next start.
        taken = await self._write(claim, undo=give_back)
        self._more = bool(taken)
        return taken

    async def hold(self, hold: Hold, *, now: datetime) -> None:
        """Stop claims, in the place of a hold of the same kind."""
        await self._write(partial(holds.set_hold, hold=hold, now=now))

    async def release(self, kind: HoldKind, *, now: datetime) -> bool:
        """Lift a hold."""
        return await self._write(partial(holds.release, kind=kind, now=now))

    async def holds(self, now: datetime) -> Sequence[Hold]:
        """Return the holds that stand."""
        return await self._read(partial(holds.standing, now=now))

    async def refused(self, refusal: ApiRefusal, *, now: datetime) -> None:
        """Write what follows from a refusal of the model API."""
        await self._write(partial(holds.refused, refusal=refusal, now=now))

    async def answered(self, session_id: int, *, now: datetime) -> Sequence[HoldKind]:
        """Release what a session was the probe of; mostly there is nothing, so that is looked for first."""
        if not any(hold.trial == session_id for hold in await self.holds(now)):
            return ()
        return await self._write(partial(holds.answered, session_id=session_id, now=now))

    async def record_call(
        self,
        session: Session,
        call: ToolCall,
        verdict: Verdict,
        *,
        redacted_input: str,
        rules: EscalationRules,
        requested_at: datetime,
        now: datetime,
        redacted_ran: str | None = None,
        approval: Approval | None = None,
    ) -> Verdict:
        """Write a call with its verdict, ahead of other writes; return the verdict that counts."""
        record = partial(
            calls.record_call,
            session=session,
            call=call,
            verdict=verdict,
            redacted_input=redacted_input,
            rules=rules,
            requested_at=requested_at,
            now=now,
            redacted_ran=redacted_ran,
            approval=approval,
        )

        def take_back(connection: Connection, _verdict: Verdict) -> None:
            calls.deny_late(
                connection, session, call, redacted_input=redacted_input, requested_at=requested_at, now=now
            )

        return await self._write(record, urgent=True, undo=take_back)

    async def request_approval(self, new: NewApproval) -> Approval:
        """Write a question to people; it overtakes like a verdict, for somebody waits."""
        return await self._write(partial(approvals.request, new=new), urgent=True)

    async def approval(self, approval_id: int) -> Approval | None:
        """Return a question as it stands now."""
        return await self._read(partial(approvals.find, approval_id=approval_id))

    async def close_approval(self, approval_id: int, *, now: datetime) -> Approval:
        """End a question that still waits."""
        return await self._write(partial(approvals.close, approval_id=approval_id, at=now), urgent=True)

    async def approvals(self, *, everything: bool = False, limit: int = 100) -> Sequence[Approval]:
        """Return questions, oldest first."""
        return await self._read(partial(approvals.listed, everything=everything, limit=limit))

    async def answer_approval(self, approval_id: int, said: Answer) -> bool:
        """Write a person's answer."""
        return await self._write(partial(approvals.give_answer, approval_id=approval_id, said=said))

    async def begin_model_call(
        self,
        session: Session,
        *,
        model: str,
        worst_usd: float,
        rules: EscalationRules,
        now: datetime,
        owed: Sequence[CallState] = (),
    ) -> CallBegun | CallWaits | BudgetDenied:
        """Put a model call on record before it starts, ahead of other writes."""

        def begin(connection: Connection) -> CallBegun | CallWaits | BudgetDenied:
            return spend.begin_call(
                connection, session, model=model, worst_usd=worst_usd, rules=rules, now=now, owed=owed
            )

        def withdraw(connection: Connection, answer: CallBegun | CallWaits | BudgetDenied) -> None:
            if isinstance(answer, CallBegun):
                spend.withdraw_call(connection, answer.id, at=self._now())

        return await self._write(begin, urgent=True, undo=withdraw)

    async def book_model_call(self, state: CallState) -> None:
        """Write what is known of a model call, ahead of other writes."""
        await self._write(partial(spend.book_call, state=state), urgent=True)

    async def request_command(self, name: CommandName, *, by: str, now: datetime) -> None:
        """Ask something of the running daemon."""
        await self._write(partial(queue.give, name=name, by=by, now=now))

    async def take_commands(self, *, now: datetime) -> Sequence[Command]:
        """Take what was asked; without anything nothing is written, for it is asked every second."""
        return await self._write(partial(queue.take, now=now)) if await self._read(queue.waiting) else ()

    async def finish_command(self, order_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
        """Write what came of an order."""
        await self._write(partial(queue.end, order_id=order_id, result=result, error=error, now=now))

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself."""
        await self._write(partial(queueing.identify, session=session, cli_session_id=cli_session_id))

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it."""
        return await self._write(partial(finish, ending=ending, rules=rules))

    async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:
        """Write what a session's log says and the database does not know yet."""
        return await self._write(partial(backfill, ending=ending))

    async def allowed_calls(self, session_id: int) -> frozenset[str]:
        """Return the ids of a session's calls that the gate allowed."""
        return await self._read(partial(queries.allowed_calls, session_id=session_id))

    async def verify_audit(
        self, *, session_id: int | None = None, logged: Mapping[int, Logged] | None = None
    ) -> Verified:
        """Check the audit trail of one session or of all; for operators, no part of the engine's port."""
        return await self._read(partial(verify, session_id=session_id, logged=logged))

    async def memories(self, limit: int = 500) -> Sequence[Memory]:
        """Return active memories with the confidence they have now, best first."""
        return await self._read(partial(queries.believed, now=self._now(), limit=limit))

    async def session(self, session_id: int) -> Session | None:
        """Return one row."""
        return await self._read(partial(queries.session, session_id=session_id))

    async def newest(self) -> Session | None:
        """Return the running session that was queued last, else the newest."""
        return await self._read(queries.newest)

    async def under_way(self, after: int) -> Sequence[SessionPosition]:
        """Return the sessions that have not ended, and later ones."""
        return await self._read(partial(queries.under_way, after=after))

    async def session_record(self, session_id: int) -> SessionRecord:
        """Return a session's verdicts and events."""
        return await self._read(partial(queries.account, session_id=session_id))

    async def chain(self, root_session_id: int) -> Sequence[Session]:
        """Return a chain's sessions, oldest first."""
        return await self._read(partial(queries.chain, root_session_id=root_session_id))

    async def chain_record(self, root_session_id: int) -> ChainRecord:
        """Return a chain's tool calls, actions and events."""
        return await self._read(partial(chain_record, root_session_id=root_session_id))

    async def last_fire(self, schedule: str) -> datetime | None:
        """Return the latest recorded due time of a schedule."""
        return await self._read(partial(queries.last_fire, schedule=schedule))

    async def close(self) -> None:
        """Write what was handed in, then let go of the database; bounded, and safe to call twice."""
        await self._writer.close()
        with anyio.CancelScope(shield=True):
            # In a thread: SQLite's last connection writes its log back into the file.
            await anyio.to_thread.run_sync(self._writing.dispose)
            await anyio.to_thread.run_sync(self._reading.dispose)

    async def _write(
        self,
        job: Callable[[Connection], T],
        *,
        urgent: bool = False,
        undo: Callable[[Connection, T], None] | None = None,
    ) -> T:
        """Run a job as one transaction in the writer's thread.

        ``undo`` is another transaction, which gets the job's result, for a job that came too late.
        """
        if undo is None:
            return await self._writer.run(partial(self._transaction, job), urgent=urgent)
        take_back = undo

        def taken_back(result: T) -> None:
            self._transaction(lambda connection: take_back(connection, result))

        return await self._writer.run(partial(self._transaction, job), urgent=urgent, undo=taken_back)

    def _transaction(self, job: Callable[[Connection], T]) -> T:
        with border(self._url), self._writing.begin() as connection, noticing(connection) as noticed:
            result = job(connection)
        for event in noticed:
            tell(event, self._raised)
        return result

    async def _read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread of its own; one that does not come back in time is left to itself."""

        def snapshot() -> T:
            with border(self._url), self._reading.connect() as connection:
                return query(connection)

        with anyio.move_on_after(self._wait_seconds):
            return await anyio.to_thread.run_sync(snapshot, abandon_on_cancel=True, limiter=self._readers)
        raise DatabaseUnavailableError(f"the database gave no answer within {self._wait_seconds:g} s.")
