"""Every port of the engine, with what its adapters promise.

Each port has its contract suites in ``tests/contract``.

The database stands behind twelve of them, from `Queue` to `Housekeeping`; `Store` holds them together. Each of their
methods is one transaction, or a read. It may raise `DatabaseUnavailableError` (locked, full, unreachable: the same call
may work later) and bounds its own wait. A cancelled caller never cuts a transaction: it is committed whole or not at
all. Methods that take ``attempt``, or a session that runs, raise `StaleAttemptError`, and write nothing, if the row has
another attempt or has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, Protocol

from claudeops.domain.briefing import BriefingText
from claudeops.domain.calls import ToolCall, ToolEnd, Verdict
from claudeops.domain.chains.backfill import Backfilled, BackfillRejected
from claudeops.domain.chains.chain_record import ChainRecord, SessionPosition, SessionRecord
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.commands import Command, CommandName, StopTarget
from claudeops.domain.events import NewEvent
from claudeops.domain.gate.approval import Answer, Answered, Approval, NewApproval
from claudeops.domain.gate.passkey import Assertion
from claudeops.domain.holds import ONE_SLOT, ApiRefusal, Capacity, Hold, HoldKind
from claudeops.domain.memories.memory import Memory
from claudeops.domain.owner import Owner
from claudeops.domain.retention import Aged, Cutoffs, Expired
from claudeops.domain.sessions import Ending, Finished, NewSession, Session, Suppressed
from claudeops.domain.spending.budget import BudgetDenied, CallBegun, CallWaits
from claudeops.domain.spending.tokens import CallState
from claudeops.engine.ports.alerting import Alerts
from claudeops.engine.ports.telling import Outbox, Questions
from claudeops.engine.ports.watching import FollowUps, Probes, Schedules
from claudeops.wording.prompt.knowledge import OnRecord

NO_ARGUMENTS: Final[Mapping[str, object]] = MappingProxyType({})


class Clock(Protocol):
    """Time, injected so that tests own it."""

    def now(self) -> datetime:
        """Return the wall clock, timezone-aware UTC. May jump."""

    def monotonic(self) -> float:
        """Return seconds that never go back; durations come from here."""


class Queue(Protocol):
    """Sessions from the queue to their ends."""

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless maximum tier, dry run or cooldown forbid it.

        A suppressed session leaves an event and no row. A root's ``root_session_id`` is its own id.
        """

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
        """Claim the oldest queued sessions that are due; sets ``running``, attempt + 1, owner, ids, ``started_at``.

        Claims as many as there is ``room`` for, in one transaction; returns none if there is nothing to do. What each
        may spend is reserved for it, as ``allowance_usd``. Two claimers never get the same session. ``chain`` restricts
        the claim to one root. ``log_path`` may ask a file system: it is called in a thread, before the transaction, and
        also for sessions that are not taken then. A row that the rules forbid by now (dry run switched on, maximum tier
        lowered) ends as ``blocked`` with its reason and event, and the next one is tried.

        Sessions that were claimed for a claimer that no longer waits (cancelled, or out of time) are given back: they
        wait again as before, with their attempt raised.

        While a hold stands nothing is claimed, and queued sessions stay queued; a hold that has expired is cleared on
        the way. If a trial session may start (``domain.holds``), one session of the lowest tier is claimed and noted as
        the trial; if only higher tiers wait, one is queued for it, as ``retry``, but not with ``chain``.
        """

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself, as soon as the CLI reports it.

        After a crash a log counts as a row's only if both name the same session.
        """

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it, in one transaction.

        Session row, events, memories merged, service checks, tool ends, calls that the CLI refused, ledger settled,
        spend booked, open questions to people expired, decision, and the next tier's queued session, or the
        retry's; and what the end means for holds.
        """

    async def end_queued(
        self, target: StopTarget, *, why: str, rules: EscalationRules, now: datetime
    ) -> tuple[Sequence[int], Sequence[int]]:
        """End what is queued of a session or chain, as ``cancelled`` with ``why`` as its error, in one transaction.

        Returns the ids of the sessions that it has ended, and of those that run.
        """


class Commands(Protocol):
    """What operators ask of the running daemon, from other processes."""

    async def request(
        self, name: CommandName, *, by: str, now: datetime, arguments: Mapping[str, object] = NO_ARGUMENTS
    ) -> int:
        """Write a command to the daemon; return its id."""

    async def find(self, command_id: int) -> Command | None:
        """Return a command as it stands."""

    async def withdraw(self, command_id: int, *, why: str, now: datetime) -> bool:
        """End a command that no daemon has taken, with ``why`` as its error; ``False``: one was faster."""

    async def take(self, *, now: datetime, again: bool = False) -> Sequence[Command]:
        """Take the commands that were not taken yet, oldest first; no other caller gets them.

        ``again`` also takes those that an earlier daemon took and never ended; in them ``taken_at`` is set.
        """

    async def finish(self, command_id: int, *, result: str | None, error: str | None, now: datetime) -> None:
        """Write what came of a command, or why nothing did."""


class Holds(Protocol):
    """What stops claims."""

    async def hold(self, hold: Hold, *, now: datetime) -> None:
        """Stop claims; replaces a hold of the same kind.

        The first hold of its kind writes one event (its ``reason``), which is resolved when the hold is released or
        over.
        """

    async def release(self, kind: HoldKind, *, now: datetime) -> bool:
        """Lift a hold; ``False`` if there was none of this kind."""

    async def standing(self, now: datetime) -> Sequence[Hold]:
        """Return the holds that are not over at ``now``, the oldest first."""

    async def refused(self, refusal: ApiRefusal, *, now: datetime) -> None:
        """Write what follows from a refusal of the model API: a hold begins, or lasts longer (``domain.holds``)."""

    async def answered(self, session_id: int, *, now: datetime) -> Sequence[HoldKind]:
        """Release the holds whose trial a session is, because the model API has answered it; return their kinds."""


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

        An allow or ask that carries actions is checked in the same transaction, against the chain's findings and the
        cooldown ledger: an action that is not granted makes it a deny (recorded as such; over a limit with a warning
        event). The actions of an allow are reserved (``success`` null until `Queue.finish` settles them).
        ``redacted_input`` is the redacted JSON to store, ``redacted_ran`` that of the input that runs instead, if it
        differs. With an ``approval``, whose proof the caller has checked, the allow uses it up; it becomes a deny if
        the row is no longer approved.
        """

    async def allowed_calls(self, session_id: int) -> frozenset[str]:
        """Return the ``tool_use_id`` of every call of a session that the gate allowed."""

    async def request_approval(self, new: NewApproval) -> Approval:
        """Write a question to people, with the event that announces it."""

    async def approval(self, approval_id: int) -> Approval | None:
        """Return a question as it is now."""

    async def close_approval(self, approval_id: int, *, now: datetime) -> Approval:
        """End a question that still waits as ``expired``; return the row, which may have been answered meanwhile."""

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
        """Record a model call before it starts, unless a budget forbids it.

        ``worst_usd`` is the most that it can cost; budgets count it while the call is open. Calls that begin at the
        same time are checked one after the other, so they cannot spend the same money. ``owed`` are ends of calls,
        which are written before budgets are checked. A call that was recorded after its caller had stopped waiting is
        ended again, and costs nothing.
        """

    async def book_model_call(self, state: CallState) -> None:
        """Write what is known of a call that was begun; a call that is over is not changed any more."""


class Recovery(Protocol):
    """Which daemon runs what, and the sessions that dead daemons have left."""

    async def reconcile(self, owner: Owner, *, now: datetime, alive: Callable[[Owner], bool]) -> Sequence[Session]:
        """Register ``owner`` and take over the running sessions of dead owners.

        Their attempt is raised, so that the old owners can write no more. Returns the sessions taken over, still
        ``running``; end them with `Queue.finish` or `mark_lost`. A standing breaker may be probed at once.
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

        ``tool_ends`` are the results that its log shows, ``events`` further events about it. A session of the lowest
        tier is followed by the same look once more (``recovery``), unless it was a recovery itself; a session of a
        higher tier by a look of the lowest tier, whose handover says what was under way. Returns the row as it is then.
        """

    async def unrecovered_sessions(self) -> Sequence[Session]:
        """Return lost sessions that were not backfilled from a complete log, newest first; at most some hundreds."""

    async def backfill(self, ending: Ending) -> Backfilled | BackfillRejected:
        """Write what a session's log says and the database does not know yet, in one transaction.

        For a session that has ended before its log was read (a ``lost`` one), or before it was read completely.
        Everything that is written gets the time ``ending.ended_at``, or the row's own end if that is earlier. Each
        part is written once, however often this is called:

        - the report (method, summary, events, memories, service checks), when the row has none;
        - cost and settled spend, when the row's cost is unknown;
        - with either of them, or if the row has nothing from its stream yet: response, tokens, turns,
          counters, warnings;
        - results of tool calls that have none, and the actions that were settled as never seen to end.

        What was settled stays: outcome, error, decision, end, exit. Nothing follows: no decision, no next
        session, no cooldown counter cleared. What is known from later sessions takes precedence: a backfill
        moves no ``last_seen`` or ``updated_at`` back, reopens no condition that is over and contradicts no
        memory that was confirmed since.

        Refuses with `UNKNOWN_SESSION`, `NOT_ENDED` or `OTHER_SESSION` (``ending.cli_session_id`` is not the
        row's). After a `Queue.finish` with the same ending it changes nothing.
        """

    async def renew_lease(self, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
        """Note that ``owner`` lives and renew its leases; return the id and attempt of each session it runs."""

    async def skip_ids(self, highest: int) -> None:
        """Give new sessions only ids above ``highest``: a restored database does not know which ids have logs."""

    async def depart(self, owner: Owner) -> None:
        """Remove ``owner`` from the running instances."""


class Records(Protocol):
    """What is on record, read-only."""

    async def session(self, session_id: int) -> Session | None:
        """Return one row."""

    async def newest(self) -> Session | None:
        """Return the running session that was queued last, else the newest of all; ``None`` if there is none."""

    async def under_way(self, after: int) -> Sequence[SessionPosition]:
        """Return the sessions that have not ended and all sessions with an id above ``after``, oldest first."""

    async def session_record(self, session_id: int) -> SessionRecord:
        """Return what is on record about a session besides its row."""

    async def chain(self, root_session_id: int) -> Sequence[Session]:
        """Return a chain's sessions, oldest first."""

    async def chain_record(self, root_session_id: int) -> ChainRecord:
        """Return a chain's tool calls, its actions, and the events first written by its sessions."""

    async def memories(self, limit: int = 500) -> Sequence[Memory]:
        """Return the memories that prompts may show, best first: active, not faded, not in quarantine."""


class Briefings(Protocol):
    """What sessions are given to read."""

    async def record(
        self, session_id: int, *, attempt: int, memory_ids: Iterable[int], texts: Sequence[BriefingText]
    ) -> None:
        """Write which memories and texts a session is given, in one transaction, before it starts.

        An earlier record of the same session is replaced. Ids of no memory are left out.
        """

    async def on_record(
        self, session: Session, *, about: Sequence[str], kinds: Iterable[str], rules: EscalationRules, now: datetime
    ) -> OnRecord:
        """Return what a session that is about to start should know of the past.

        ``about`` are the services of its chain; without any, cases are told of those that are unwell or were acted
        upon lately. ``kinds`` are the kinds of action that its tier grants.
        """


class Housekeeping(Protocol):
    """What keeps the database small and quick."""

    async def expire(self, aged: Aged, cutoffs: Cutoffs, *, now: datetime, rows: int) -> Expired:
        """Remove what is older than ``cutoffs`` of a kind, in one short transaction that gives way to verdicts.

        At most about ``rows`` rows are written; call it again for as long as there is more. A chain is removed with
        everything that belongs to it once all its sessions ended before ``cutoffs.audit``, over several calls if it is
        long; of its tool calls tombstones stay. Sessions that ended before ``cutoffs.details`` lose their long texts.
        The latest check of a service, the latest fire of a schedule and open events always stay.
        """

    async def checkpoint(self) -> bool:
        """Write the database's own log back into it; ``False`` if another connection was in the way, so try again."""

    async def make_room(self) -> None:
        """Prepare the database so that the first writes are as quick as later ones; failing that, they are slower."""


class Store(Protocol):
    """The ports to one database, for code that passes them on; code that needs one port takes that port only."""

    @property
    def queue(self) -> Queue:
        """What is queued."""

    @property
    def commands(self) -> Commands:
        """What operators ask for."""

    @property
    def schedules(self) -> Schedules:
        """What became of due times."""

    @property
    def follow_ups(self) -> FollowUps:
        """Looks at what actions have left."""

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
        """Which daemon runs what."""

    @property
    def probes(self) -> Probes:
        """How services are seen."""

    @property
    def alerts(self) -> Alerts:
        """What monitoring systems say, and what became of it."""

    @property
    def records(self) -> Records:
        """What is on record."""

    @property
    def briefings(self) -> Briefings:
        """What sessions were given."""

    @property
    def outbox(self) -> Outbox:
        """What people are told."""

    @property
    def questions(self) -> Questions:
        """What people are asked in chats."""

    @property
    def housekeeping(self) -> Housekeeping:
        """What keeps the database small."""


class Dispatcher(Protocol):
    """Wakes a node when there may be something to claim. The row is the truth; this is only the wake-up."""

    async def announce(self) -> None:
        """Announce that a session was queued. Never raises for a lost wake-up: waiters look again by themselves."""

    async def wait(self) -> None:
        """Return soon after an `announce`, and at the latest after the dispatcher's own interval (1 s)."""


class SessionListener(Protocol):
    """Is called about sessions, on the event loop, and must not block. What it raises is logged and undoes nothing."""

    def started(self, session: Session) -> None:  # noqa: ARG002 - overrides may use it
        """Take notice that a session is about to run."""
        return

    def ended(self, session: Session, ending: Ending, finished: Finished) -> None:  # noqa: ARG002 - as above
        """Take an end that the database has taken, and what follows from it."""
        return

    def left(self, session: Session) -> None:  # noqa: ARG002 - as above
        """Take notice that a session no longer runs, whether or not its end could be written."""
        return
