"""The engine's Store port without a database, for tests of what stands on it and for rehearsals.

What follows from what is decided by the same functions as for SQLite and PostgreSQL; here is only how facts
are found and answers are kept, for as long as the object lives.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio.lowlevel

from claudeops.domain import memory
from claudeops.domain.budget import metered
from claudeops.domain.model import Finished, Owner, Status, VerdictKind
from claudeops.domain.refusals import when_answered, when_ended, when_refused
from claudeops.domain.room import ONE
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store import in_memory_calls, orders
from claudeops.store import in_memory_holds as holds
from claudeops.store import in_memory_queueing as queueing
from claudeops.store import in_memory_spend as spend
from claudeops.store.accounts import account_in_memory, newest_in_memory, under_way_in_memory
from claudeops.store.chain_records import to_chain_record
from claudeops.store.consequences import conclude
from claudeops.store.events import tell
from claudeops.store.in_memory_amend import amend
from claudeops.store.in_memory_approvals import InMemoryApprovals, close_of_session
from claudeops.store.in_memory_keeping import InMemoryKeeping
from claudeops.store.in_memory_owners import InMemoryOwners
from claudeops.store.in_memory_tables import PlainTables
from claudeops.store.in_memory_writes import (
    add_session,
    facts,
    write_consequences,
)
from claudeops.store.rows import (
    ended_values,
    to_known_memory,
    to_session,
)
from claudeops.store.spend import NOT_SEEN_TO_END

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from types import SimpleNamespace

    from claudeops.domain.account import Account, Place
    from claudeops.domain.amendment import Amended, Refused
    from claudeops.domain.approval import Approval
    from claudeops.domain.budget import CallBegun, CallRefused, CallState, CallWaits
    from claudeops.domain.chain_record import ChainRecord
    from claudeops.domain.holds import Hold, HoldKind
    from claudeops.domain.live import EventRaised
    from claudeops.domain.model import (
        Ending,
        EscalationRules,
        Memory,
        NewSession,
        Session,
        SkipReason,
        Suppressed,
        ToolCall,
        Verdict,
    )
    from claudeops.domain.orders import Order, OrderName
    from claudeops.domain.refusals import Refusal
    from claudeops.domain.room import Room


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _nobody(_: EventRaised) -> None:
    return


class InMemoryStore(InMemoryApprovals, InMemoryKeeping, InMemoryOwners):
    """Everything in ``tables``, which a test may look at."""

    def __init__(
        self, *, now: Callable[[], datetime] = _wall_clock, raised: Callable[[EventRaised], None] = _nobody
    ) -> None:
        self.tables = PlainTables()
        self._now = now
        self._raised = raised
        self._closed = False

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless the rules forbid it."""
        async with self._transaction():
            return queueing.enqueue(self.tables, new, rules=rules, now=now)

    async def fire(
        self, schedule: str, due_at: datetime, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record a due time and queue its chain."""
        async with self._transaction():
            return queueing.fire(self.tables, schedule, due_at, new, rules=rules, now=now)

    async def claim(
        self,
        owner: Owner,
        *,
        rules: EscalationRules,
        now: datetime,
        cli_session_id: Callable[[], str],
        log_path: Callable[[int], str],
        chain: int | None = None,
        room: Room = ONE,
    ) -> Sequence[Session]:
        """Take the oldest sessions that are due."""
        async with self._transaction():
            return queueing.claim(
                self.tables,
                owner,
                rules=rules,
                now=now,
                cli_session_id=cli_session_id,
                log_path=log_path,
                chain=chain,
                room=room,
            )

    async def hold(self, hold: Hold, *, now: datetime) -> None:
        """Stop claims, in the place of a hold of the same kind."""
        async with self._transaction():
            holds.set_hold(self.tables, hold, now=now)

    async def release(self, kind: HoldKind, *, now: datetime) -> bool:
        """Lift a hold."""
        async with self._transaction():
            return holds.release(self.tables, kind, now=now)

    async def holds(self, now: datetime) -> Sequence[Hold]:
        """Return the holds that stand."""
        async with self._transaction():
            return holds.standing(self.tables, now)

    async def refused(self, refusal: Refusal, *, now: datetime) -> None:
        """Write what follows from a refusal of the model API."""
        async with self._transaction():
            holds.apply(self.tables, when_refused(holds.standing(self.tables, now), refusal, now), now=now)

    async def answered(self, session_id: int, *, now: datetime) -> Sequence[HoldKind]:
        """Release what a session was the probe of."""
        async with self._transaction():
            changes = when_answered(holds.standing(self.tables, now), session_id)
            holds.apply(self.tables, changes, now=now)
            return tuple(changes)

    async def record_call(
        self,
        session: Session,
        call: ToolCall,
        verdict: Verdict,
        *,
        shown_input: str,
        rules: EscalationRules,
        requested_at: datetime,
        now: datetime,
        shown_ran: str | None = None,
        approval: Approval | None = None,
    ) -> Verdict:
        """Write a call with its verdict; return the verdict that counts."""
        async with self._transaction():
            row = self._running(session.id, session.attempt)
            return in_memory_calls.record_call(
                self.tables,
                row,
                session,
                call,
                verdict,
                shown_input=shown_input,
                rules=rules,
                requested_at=requested_at,
                now=now,
                shown_ran=shown_ran,
                approval=approval,
            )

    async def begin_model_call(
        self,
        session: Session,
        *,
        model: str,
        worst_usd: float,
        rules: EscalationRules,
        now: datetime,
        owed: Sequence[CallState] = (),
    ) -> CallBegun | CallWaits | CallRefused:
        """Put a model call on record before it starts."""
        async with self._transaction():
            self._running(session.id, session.attempt)
            for state in owed:
                spend.book_call(self.tables, state)
            return spend.begin_call(self.tables, session, model=model, worst_usd=worst_usd, rules=rules, now=now)

    async def book_model_call(self, state: CallState) -> None:
        """Write what is known of a model call."""
        async with self._transaction():
            spend.book_call(self.tables, state)

    async def order(self, name: OrderName, *, by: str, now: datetime) -> None:
        """Ask something of the running daemon."""
        async with self._transaction():
            self.tables.insert("commands", orders.order_values(name, by, now))

    async def take_orders(self, *, now: datetime) -> Sequence[Order]:
        """Take what was asked."""
        async with self._transaction():
            return orders.take_in_memory(self.tables, now)

    async def end_order(self, order_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
        """Write what came of an order."""
        async with self._transaction():
            self.tables.change("commands", order_id, {"ended_at": now, "result": result, "error": error})

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself."""
        async with self._transaction():
            row = self._running(session.id, session.attempt)
            self.tables.update("sessions", row, {"cli_session_id": cli_session_id})

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it."""
        async with self._transaction():
            row = self._running(ending.session_id, ending.attempt)
            session = to_session(row)
            ending, spent = self._booked(ending)
            chain_usd = spend.chain_spent(self.tables, session.root_session_id) + (spent or 0.0)
            known = facts(self.tables, session, ending, rules, chain_usd=chain_usd)
            outcome = conclude(ending, known, rules=rules)
            decision = outcome.decision
            ended = ended_values(
                ending, cli_session_id=session.cli_session_id, reason=decision.reason, warnings=outcome.warnings
            )
            self.tables.update("sessions", row, ended)
            spend.settle(self.tables, session.id, spent, at=ending.ended_at)
            write_consequences(self.tables, session, ending, outcome)
            in_memory_calls.add_refusals(self.tables, row, ending.refusals)
            in_memory_calls.seal_results(self.tables, row.id)
            close_of_session(self.tables, session.id, ending.ended_at)
            at = ending.ended_at
            holds.apply(self.tables, when_ended(holds.standing(self.tables, at), ending, at), now=at)
            following = None if decision.next is None else add_session(self.tables, decision.next, ending.ended_at)
            return Finished(
                decision=decision,
                next_session_id=following.id if following else None,
                audit_head=row.audit_head,
                audit_results=row.audit_results,
            )

    async def amend(self, ending: Ending) -> Amended | Refused:
        """Write what a session's log says and the tables do not know yet."""
        async with self._transaction():
            return amend(self.tables, ending)

    async def allowed_calls(self, session_id: int) -> frozenset[str]:
        """Return the ids of a session's calls that the gate allowed."""
        async with self._transaction():
            calls = self.tables.rows("tool_calls", lambda row: row.session_id == session_id)
            return frozenset(row.tool_use_id for row in calls if row.verdict == VerdictKind.ALLOW)

    async def memories(self, limit: int = 500) -> Sequence[Memory]:
        """Return active memories, best first."""
        async with self._transaction():
            return memory.believed(map(to_known_memory, self.tables.rows("memories")), self._now(), limit)

    async def session(self, session_id: int) -> Session | None:
        """Return one row."""
        async with self._transaction():
            row = self.tables.row("sessions", session_id)
            return None if row is None else to_session(row)

    async def newest(self) -> Session | None:
        """Return the running session that was queued last, else the newest."""
        async with self._transaction():
            return newest_in_memory(self.tables)

    async def under_way(self, after: int) -> Sequence[Place]:
        """Return the sessions that have not ended, and later ones."""
        async with self._transaction():
            return under_way_in_memory(self.tables, after)

    async def account(self, session_id: int) -> Account:
        """Return a session's verdicts and events."""
        async with self._transaction():
            return account_in_memory(self.tables, session_id)

    async def chain(self, root_session_id: int) -> Sequence[Session]:
        """Return a chain's sessions, oldest first."""
        async with self._transaction():
            rows = self.tables.rows("sessions", lambda row: row.root_session_id == root_session_id)
            return tuple(map(to_session, rows))

    async def chain_record(self, root_session_id: int) -> ChainRecord:
        """Return a chain's tool calls, actions and events."""
        async with self._transaction():
            chain = {row.id for row in self.tables.rows("sessions", lambda row: row.root_session_id == root_session_id)}
            tables = ("tool_calls", "cooldown_actions", "events")
            found = [self.tables.rows(name, lambda row: row.session_id in chain) for name in tables]
            return to_chain_record(calls=found[0], actions=found[1], events=found[2])

    async def last_fire(self, schedule: str) -> datetime | None:
        """Return the latest recorded due time of a schedule."""
        async with self._transaction():
            fires = self.tables.rows("schedule_fires", lambda row: row.schedule == schedule)
            return max((row.due_at for row in fires), default=None)

    async def queued(self) -> int:
        """Return the number of sessions that wait."""
        async with self._transaction():
            return len(queueing.in_status(self.tables, Status.QUEUED))

    async def close(self) -> None:
        """Refuse everything from here on."""
        self._closed = True

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """Take a turn as a database would; a caller that was cancelled before has written nothing."""
        if self._closed:
            raise StoreError("the database is closed: the daemon is shutting down.")
        await anyio.lowlevel.checkpoint()
        with self.tables.transaction():
            yield
        for event in self.tables.noticed:
            tell(event, self._raised)

    def _booked(self, ending: Ending) -> tuple[Ending, float | None]:
        """Return the ending with what was booked, and what budgets count for it."""
        for state in ending.unbooked:
            spend.book_call(self.tables, state)
        spend.close_calls(self.tables, ending.session_id, at=ending.ended_at, error=NOT_SEEN_TO_END)
        calls = spend.booked_calls(self.tables, ending.session_id)
        return metered(ending, calls), calls.charged_usd if calls.count else ending.cost_usd

    def _running(self, session_id: int, attempt: int) -> SimpleNamespace:
        row = self.tables.row("sessions", session_id)
        if row is None or row.status != Status.RUNNING or row.attempt != attempt:
            raise StaleAttemptError(f"session {session_id} is no longer running as attempt {attempt}.")
        return row
