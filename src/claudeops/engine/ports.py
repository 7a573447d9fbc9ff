"""Every port of the engine, with what its adapters promise.

Each port has its contract suites in ``tests/contract``.

The database stands behind seven of them, from `Queue` to `Housekeeping`; `Store` holds them together. There every
method is one transaction, or a read. It may raise `DatabaseUnavailableError` (locked, full, unreachable: the same call
may work later) and bounds its own wait. A cancelled caller never cuts a transaction: it is committed whole or not at
all. Methods that take ``attempt``, or a session that runs, raise `StaleAttemptError`, and write nothing, when the row's
attempt is another one or the row has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from claudeops.domain.backfill import Backfilled, BackfillRejected
from claudeops.domain.chain_record import ChainRecord, SessionPosition, SessionRecord
from claudeops.domain.commands import Command, CommandName
from claudeops.domain.escalation import EscalationRules
from claudeops.domain.gate.approval import Answer, Approval, NewApproval
from claudeops.domain.holds import ONE_SLOT, ApiRefusal, Capacity, Hold, HoldKind
from claudeops.domain.model import (
    Ending,
    Finished,
    Memory,
    NewEvent,
    NewSession,
    Owner,
    Session,
    SkipReason,
    Suppressed,
    ToolCall,
    ToolEnd,
    Verdict,
)
from claudeops.domain.retention import Aged, Cutoffs, Expired
from claudeops.domain.spending.budget import BudgetDenied, CallBegun, CallWaits
from claudeops.domain.spending.tokens import CallState


class Clock(Protocol):
    """Time, injected so that tests own it."""

    def now(self) -> datetime:
        """Return the wall clock, timezone-aware UTC. May jump."""

    def monotonic(self) -> float:
        """Return seconds that never go back; durations come from here."""


class Queue(Protocol):
    """Sessions into the queue, out of it, and to their ends; and what operators ask of the daemon."""

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless maximum tier, dry run or cooldown forbid it.

        What is suppressed leaves an event and no row. A root's ``root_session_id`` is its own id.
        """

    async def fire(
        self, schedule: str, due_at: datetime, new: NewSession, *, rules: EscalationRules, now: datetime
    ) -> Session | SkipReason | None:
        """Record that ``schedule`` was due and queue its chain, in one transaction.

        Returns the queued session; or the reason why none was queued (a chain that this schedule started
        has a session that has not ended), which is recorded; or ``None`` when this very fire
        (``schedule``, ``due_at``) was recorded before, in which case nothing is written.
        """

    async def last_fire(self, schedule: str) -> datetime | None:
        """Return the latest recorded due time of a schedule."""

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
        """Take the oldest queued sessions that are due: ``running``, attempt + 1, owner, ids, ``started_at``.

        As many as there is ``room`` for, in one transaction; none: there is nothing to do. What each may spend is
        reserved for it, and told by ``allowance_usd``. Two claimers never get the same one. ``chain`` restricts to one
        root. ``log_path`` may ask a file system: it is called in a thread, before the transaction, also for sessions
        that are not taken then. A row that the rules forbid by now (dry run switched on, maximum tier lowered) ends as
        ``blocked`` with its reason and event, and the next one is tried.

        What was taken when its claimer waited no longer (cancelled, or out of time) is given back: it waits again as
        it did before, its attempt raised.

        While a hold stands nothing is taken, and what is queued stays so; a hold that is over by itself is
        cleared on the way. Where a probe may go (``domain.holds``), one session of the lowest tier is taken
        and noted as the probe; one is queued for it, as ``retry``, if only higher tiers wait. With ``chain``
        none is queued.
        """

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself, as soon as it says it.

        After a crash a log is taken for a row's only where both name the same session.
        """

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it, in one transaction.

        Session row, events, memories merged, service checks, tool ends, calls that the CLI refused, ledger settled,
        spend booked, open questions to people expired, decision, and the next tier's queued session, or the
        retry's; and what the end means for holds.
        """

    async def request_command(self, name: CommandName, *, by: str, now: datetime) -> None:
        """Ask something of the running daemon."""

    async def take_commands(self, *, now: datetime) -> Sequence[Command]:
        """Return what was asked and not taken yet, oldest first; it is taken now, and given to nobody else."""

    async def finish_command(self, command_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
        """Write what came of a command."""


class Holds(Protocol):
    """What stops claims."""

    async def hold(self, hold: Hold, *, now: datetime) -> None:
        """Stop claims, in the place of a hold of the same kind.

        The first of its kind leaves one event (its ``reason``), which is resolved when it is released or over.
        """

    async def release(self, kind: HoldKind, *, now: datetime) -> bool:
        """Lift a hold; ``False``: none of this kind stood."""

    async def standing(self, now: datetime) -> Sequence[Hold]:
        """Return the holds that are not over by ``now``, the longest standing first."""

    async def refused(self, refusal: ApiRefusal, *, now: datetime) -> None:
        """Write what follows from a refusal of the model API: a hold begins, or lasts longer (``domain.holds``)."""

    async def answered(self, session_id: int, *, now: datetime) -> Sequence[HoldKind]:
        """Release the holds whose probe a session is, because the model API has answered it; return their kinds."""


class Verdicts(Protocol):
    """Tool calls with the answers that the gate and people gave them."""

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
        """Write a tool call with its verdict before the answer goes out; return the verdict that counts.

        An allow or ask that carries actions is checked in the same transaction, against what the chain has found and
        against the cooldown ledger: what is not granted becomes a deny (recorded as such; over a limit with a warning
        event). The actions of an allow are reserved (``success`` null until `Queue.finish` settles them).
        ``redacted_input`` is the redacted JSON to store, ``redacted_ran`` that of the input that runs in its place,
        if another one does. With an ``approval``, whose proof the caller has checked, the allow uses it up, and is a
        deny when it is not approved any more.
        """

    async def allowed_calls(self, session_id: int) -> frozenset[str]:
        """Return the ``tool_use_id`` of every call of a session that the gate allowed."""

    async def request_approval(self, new: NewApproval) -> Approval:
        """Write a question to people, with the event that tells of it."""

    async def approval(self, approval_id: int) -> Approval | None:
        """Return a question as it stands now."""

    async def close_approval(self, approval_id: int, *, now: datetime) -> Approval:
        """End a question that still waits as ``expired``; return the row, which may have been answered meanwhile."""

    async def approvals(self, *, everything: bool = False, limit: int = 100) -> Sequence[Approval]:
        """Return the questions that wait, or all of them, the newest ``limit``, oldest first."""

    async def answer_approval(self, approval_id: int, said: Answer) -> bool:
        """Write a person's answer; ``False``, and nothing written, when the question does not wait any more."""


class Spending(Protocol):
    """What model calls cost, and whether that may be spent."""

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
        """Put a model call on record before it starts, unless a budget forbids it.

        ``worst_usd`` is the most that it can cost; budgets count it for as long as the call is open. Calls that begin
        at the same time are asked one after the other, so they cannot spend the same money. ``owed`` are ends of
        calls, which are written before budgets are looked at. A call that was put on record after its caller had
        stopped waiting is ended again, and cost nothing.
        """

    async def book_model_call(self, state: CallState) -> None:
        """Write what is known of a call that was begun; one that is over is not changed any more."""


class Recovery(Protocol):
    """Who runs what, and what the dead have left."""

    async def reconcile(self, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]) -> Sequence[Session]:
        """Register ``owner`` and take over the running sessions of dead owners.

        Their attempt is raised, so that the dead write no more. Returns what was taken over, still ``running``:
        to be ended by `Queue.finish` or `mark_lost`. A breaker that stands is tried at once.
        """

    async def mark_lost(
        self,
        session: Session,
        *,
        rules: EscalationRules,
        now: datetime,
        tool_ends: Sequence[ToolEnd] = (),
        events: Sequence[NewEvent] = (),
    ) -> Session:
        """End a session whose daemon is gone as ``lost``, with an event, and queue what follows, in one transaction.

        ``tool_ends`` are the results that its log shows, ``events`` what else there is to say about it. A session of
        the lowest tier is followed by its like (``recovery``), unless it was one; a higher one by a look of the lowest
        tier that is told what was under way. Returns the row as it is then.
        """

    async def unrecovered_sessions(self) -> Sequence[Session]:
        """Return lost sessions whose log was not taken up as a complete one, newest first; at most some hundreds."""

    async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:
        """Write what a session's log says and the database does not know yet, in one transaction.

        For a session that has ended without its log having been taken up (a ``lost`` one), or not wholly.
        ``ending.ended_at`` is the time that everything gets which is written; later than the row's own end it
        is that. Each part is written once, however often this is called:

        - the report (method, summary, events, memories, service checks), when the row has none;
        - cost and settled spend, when the row's cost is unknown;
        - with either of them, or when the row was never told of its stream: response, tokens, turns,
          counters, warnings;
        - results of tool calls that show none, and the actions that were settled as never seen to end.

        What was settled stays: outcome, error, decision, end, exit. Nothing follows: no decision, no next
        session, no cooldown counter cleared. What is known from later sessions outranks what is told late:
        it moves no ``last_seen`` or ``updated_at`` back, reopens no condition that is over and contradicts no
        memory that was confirmed since.

        Refuses with `UNKNOWN_SESSION`, `NOT_ENDED` or `OTHER_SESSION` (``ending.cli_session_id`` is not the
        row's). After a `Queue.finish` with the same ending it changes nothing.
        """

    async def renew_lease(self, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
        """Note that ``owner`` lives and renew its leases; return what it runs by the rows, as id and attempt."""

    async def skip_ids(self, highest: int) -> None:
        """Give no session to come an id up to ``highest``: a restored database does not know which ids have logs."""

    async def depart(self, owner: Owner) -> None:
        """Remove ``owner`` from the running instances."""


class Records(Protocol):
    """What is on record, for those who read and write nothing."""

    async def session(self, session_id: int) -> Session | None:
        """Return one row."""

    async def newest(self) -> Session | None:
        """Return the running session that was queued last, else the newest of all; ``None``: there is none."""

    async def under_way(self, after: int) -> Sequence[SessionPosition]:
        """Return the sessions that have not ended, and all with a higher id than ``after``, oldest first."""

    async def session_record(self, session_id: int) -> SessionRecord:
        """Return what is on record about a session beside its row."""

    async def chain(self, root_session_id: int) -> Sequence[Session]:
        """Return a chain's sessions, oldest first."""

    async def chain_record(self, root_session_id: int) -> ChainRecord:
        """Return a chain's tool calls, its actions, and the events that its sessions were the first to write."""

    async def memories(self, limit: int = 500) -> Sequence[Memory]:
        """Return active memories, best first."""


class Housekeeping(Protocol):
    """What keeps the database small and quick."""

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> Expired:
        """Remove what is older than ``cutoffs`` of a kind, in one short transaction that gives way to verdicts.

        About ``rows`` rows are written, or fewer; to be called again for as long as there is more. A chain goes with
        everything that hangs on it once all its sessions ended before ``cutoffs.audit``, over several calls where it
        is long; of its tool calls tombstones stay. Sessions that ended before ``cutoffs.details`` lose their long
        texts. The latest check of a service, the latest fire of a schedule and open events always stay.
        """

    async def checkpoint(self) -> bool:
        """Write the database's own log back into it; ``False``: somebody was in the way, so try again."""

    async def make_room(self) -> None:
        """Do what makes the first writes as quick as later ones; where that cannot be now, they are slower."""


class Store(Protocol):
    """The ports to one database, for those who hand them on; who works with one of them asks for that one."""

    @property
    def queue(self) -> Queue:
        """What is queued."""

    @property
    def holds(self) -> Holds:
        """What stops claims."""

    @property
    def verdicts(self) -> Verdicts:
        """Tool calls and their verdicts."""

    @property
    def spending(self) -> Spending:
        """Model calls and their costs."""

    @property
    def recovery(self) -> Recovery:
        """Who runs what."""

    @property
    def records(self) -> Records:
        """What is on record."""

    @property
    def housekeeping(self) -> Housekeeping:
        """What keeps it small."""


class Dispatcher(Protocol):
    """Tells a node that there may be something to claim. The row is the truth, this is only the wake-up."""

    async def announce(self) -> None:
        """Say that a session was queued. Never raises for a lost wake-up: a waiter looks again by itself."""

    async def wait(self) -> None:
        """Return soon after an `announce`, and at the latest after the dispatcher's own interval (1 s)."""


class SessionListener(Protocol):
    """Hears of sessions, on the event loop, and must not wait. What it raises is logged and undoes nothing."""

    def started(self, session: Session) -> None:  # noqa: ARG002 - who overrides it may use it
        """Hear that a session is about to run."""
        return

    def ended(self, session: Session, finished: Finished) -> None:  # noqa: ARG002 - as above
        """Hear of an end that the database has taken, and of what follows."""
        return

    def left(self, session: Session) -> None:  # noqa: ARG002 - as above
        """Hear that a session is no longer among those that run, whether or not its end could be written."""
        return
