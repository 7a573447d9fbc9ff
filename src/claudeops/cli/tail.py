"""``claudeops tail``: prints what sessions do or did, read from their log files and the database.

For a named session it prints that session and those that follow from it in its chain. Otherwise it prints every running
chain and every chain that starts later, side by side, each to its end. It never asks the daemon, so a daemon that hangs
can be watched too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

import anyio
import click
import msgspec

from claudeops.cli.reply import CommandResult, Exit, not_found, print_failure, print_result
from claudeops.cli.text.terminal import LivePrinter
from claudeops.cli.with_settings import read_settings
from claudeops.domain.actions import PastAction
from claudeops.domain.chains.chain_record import SessionPosition, SessionRecord
from claudeops.domain.events import EventLevel
from claudeops.domain.listing import Reference
from claudeops.domain.live import ActionFollowedUp, EventRaised, LiveFact, SessionEnded
from claudeops.domain.sessions import DecisionReason, Outcome, Session, Status, log_elsewhere
from claudeops.engine.live.follower import LogFollower, in_order
from claudeops.engine.live.hub import session_began
from claudeops.errors import ClaudeopsError, DatabaseUnavailableError
from claudeops.harness import HARNESSES
from claudeops.store.reading import session_ids
from claudeops.store.sessions import Records
from claudeops.store.store import Store, open_store
from claudeops.text.redact import Redactor
from claudeops.wording.live import Redact

LOOK_SECONDS: Final = 0.2
"""Between two looks at a followed log."""

CHAINS_LOOK_SECONDS: Final = 1.0
"""Between two looks for chains that have started."""

_NAME: Final = "tail"
_NO_RECORD: Final = SessionRecord(verdicts={}, events=())


class Sink(Protocol):
    """Where live facts are written."""

    broken: bool  # a write has failed, or nobody reads any more

    def write(self, facts: Sequence[LiveFact] = ()) -> None:
        """Write facts; called without any when a moment has passed."""


def print_sessions(*, session: tuple[str, Reference] | None, follow: bool | None, output_format: str) -> int:
    """Print one session and those that follow from it, or every running chain; return the exit status.

    ``follow`` waits for more; ``None`` does so unless a session is named or one document is wanted.
    """
    as_json = output_format == "json"
    follow = (session is None and not as_json) if follow is None else follow
    sink: Sink
    match output_format:
        case "text":
            sink = LivePrinter(sys.stdout, times=True)
        case "json":
            sink = Collected()
        case _:
            sink = JsonLines()
    try:
        settings = read_settings()
        redact = Redactor(settings.secrets).text
        tail = partial(_tail, settings.places.database_url, session, sink, follow=follow, redact=redact)
        found = anyio.run(partial(tail, node=settings.node.name))
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, operation="start")
    except KeyboardInterrupt:
        return Exit.OK
    finally:
        if isinstance(sink, LivePrinter):
            sink.close()
        if sink.broken:
            _discard_stdout()
    if found is None:
        return Exit.OK if follow and session is None else _not_found(session, as_json=as_json)
    return _document(found, sink.facts) if isinstance(sink, Collected) else Exit.OK


async def follow(database_url: str, session: Session, sink: Sink, *, redact: Redact, node: str) -> None:
    """Print a running session and those that follow from it; a database that goes away ends the printing."""
    store = open_store(database_url)
    try:
        with contextlib.suppress(DatabaseUnavailableError):
            await ChainTail(records=store.records, sink=sink, redact=redact, follow=True, node=node).run(session)
    finally:
        await store.close()


async def _tail(
    database_url: str, session: tuple[str, Reference] | None, sink: Sink, *, follow: bool, redact: Redact, node: str
) -> Session | None:
    """Print what was asked for; return the first session printed, ``None`` when there was none."""
    store = open_store(database_url)
    try:
        tail = ChainTail(records=store.records, sink=sink, redact=redact, follow=follow, node=node)
        if session is None and follow:
            await ChainsTail(tail=tail, on_idle=_say_that_nothing_runs).run()
            return None
        first = await (current_roots(store.records) if session is None else _named(store, session[1]))
        for one in first:
            await tail.run(one)
    finally:
        await store.close()
    return first[0] if first else None


async def _named(store: Store, wanted: Reference) -> list[Session]:
    """Return the one session that a person named; none where several fit."""
    found = await store.database.read(partial(session_ids, wanted=wanted))
    session = await store.records.session(found[0]) if len(found) == 1 else None
    return [] if session is None else [session]


async def current_roots(records: Records) -> list[Session]:
    """Return the first sessions of the running chains, oldest first; of the newest chain when none runs."""
    newest = await records.newest()
    if newest is None:
        return []
    running = [place.chain for place in await records.under_way(newest.id) if place.status is Status.RUNNING]
    roots = sorted(set(running)) or [newest.root_session_id]
    return [root for number in roots if (root := await records.session(number)) is not None]


def _say_that_nothing_runs() -> None:
    """Explain the silence to a person at a terminal; files and pipes get nothing but the sessions."""
    if sys.stdout.isatty():
        click.echo(
            "claudeops: nothing runs now; the next sessions are printed here as they start. Ctrl-C ends this.", err=True
        )


# --- one chain ----------------------------------------------------------------------------------------


class ChainTail(msgspec.Struct, frozen=True, kw_only=True):
    """Prints the sessions of one chain, one after the other."""

    records: Records
    sink: Sink
    redact: Redact
    follow: bool  # wait for more; else print what is there
    node: str = ""  # this machine

    async def run(self, session: Session) -> int:
        """Print a session and the later ones of its chain; with ``follow``, until all of them have ended.

        Returns the id of the last session printed. Raises `DatabaseUnavailableError` when the database is away at the
        beginning; later on, waits for it.
        """
        current: Session | None = session
        last = session
        while current is not None and not self.sink.broken:
            last = await self._print_session(current)
            current = await self._after(last.root_session_id, last.id) if last.status is Status.ENDED else None
        return last.id

    async def _after(self, root: int, session_id: int) -> Session | None:
        return next((later for later in await self._chain(root) if later.id > session_id), None)

    async def _print_session(self, session: Session) -> Session:
        """Print one session; return it as it stood at the end."""
        session = await self._started(session)
        if session.status is Status.QUEUED:
            return session
        self.sink.write([session_began(session, self.redact, session.started_at or session.created_at)])
        session = await self._with_log(session)
        with self._follower(session) as follower:
            session = await self._print_log(session, follower)
        if session.status is Status.ENDED:
            chain = await self._chain(session.root_session_id)
            following = next((later for later in chain if later.parent_session_id == session.id), None)
            actions = (await self._record(session.id)).actions
            self.sink.write([*_ended(session, following), *_followed_up(session, actions, self.redact)])
        return session

    async def _started(self, session: Session) -> Session:
        while self.follow and session.status is Status.QUEUED and not self.sink.broken:
            await self._moment()
            session = await self._again(session)
        return session

    async def _with_log(self, session: Session) -> Session:
        """Wait until the session's log is there: the claim names it, and it is opened a moment later."""
        while self.follow and session.status is Status.RUNNING and not self.sink.broken:
            if await anyio.Path(session.log_path or "").exists() or log_elsewhere(session, self.node):
                break
            await self._moment()
            session = await self._again(session)
        return session

    async def _print_log(self, session: Session, follower: LogFollower | None) -> Session:
        printed: Counter[tuple[EventLevel, str | None, str]] = Counter()  # events; an equal one may come again
        while not self.sink.broken:
            session = await self._again(
                session
            )  # before the look, so that the log of an ended session is complete by then
            last = session.status is Status.ENDED or not self.follow
            while follower is not None and follower.look():
                pass
            record = await self._record(session.id)
            facts = [] if follower is None else follower.facts(record.verdicts, ended=last)
            in_order(facts, _unprinted(record.events, printed))
            self.sink.write(facts)
            if last:
                break
            await self._moment()
        return session

    def _follower(self, session: Session) -> contextlib.AbstractContextManager[LogFollower | None]:
        try:
            # When the index of an ended session is lost, its lines are dated by its end: none came later.
            now = _wall_clock if session.ended_at is None else partial(_then, session.ended_at)
            return LogFollower(session, HARNESSES[session.harness], redact=self.redact, now=now)
        except OSError as error:
            where = log_elsewhere(session, self.node) if isinstance(error, FileNotFoundError) else ""
            message = where or f"the log {session.log_path} cannot be read: {error.strerror or error}"
            at = session.started_at or session.created_at
            self.sink.write([EventRaised(at=at, level=EventLevel.WARNING, message=message, session_id=session.id)])
            return contextlib.nullcontext()

    async def _moment(self) -> None:
        self.sink.write()
        await anyio.sleep(LOOK_SECONDS)

    # --- the database, which may be away for a while -----------------------------------------------------

    async def _again(self, session: Session) -> Session:
        with contextlib.suppress(DatabaseUnavailableError):
            return await self.records.session(session.id) or session
        return session

    async def _record(self, session_id: int) -> SessionRecord:
        with contextlib.suppress(DatabaseUnavailableError):
            return await self.records.session_record(session_id)
        return _NO_RECORD

    async def _chain(self, root: int) -> Sequence[Session]:
        while True:
            try:
                return await self.records.chain(root)
            except DatabaseUnavailableError:
                if not self.follow:
                    raise
            await self._moment()


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _then(moment: datetime) -> datetime:
    return moment


def _unprinted(
    events: Sequence[EventRaised], printed: Counter[tuple[EventLevel, str | None, str]]
) -> list[EventRaised]:
    """Return the events that were not printed yet, and count them as printed."""
    seen: Counter[tuple[EventLevel, str | None, str]] = Counter()
    new = []
    for event in events:
        key = (event.level, event.service, event.message)
        seen[key] += 1
        if seen[key] > printed[key]:
            printed[key] += 1
            new.append(event)
    return new


def _ended(session: Session, following: Session | None) -> list[LiveFact]:
    if session.outcome is None or session.ended_at is None:
        return []
    ran = session.ended_at - (session.started_at or session.ended_at)
    # No decision was made about a lost session.
    fact = SessionEnded(
        at=session.ended_at,
        session_id=session.id,
        chain=session.root_session_id,
        tier=session.tier,
        outcome=session.outcome,
        decision=session.decision_reason or DecisionReason.SESSION_FAILED,
        cost_usd=session.cost_usd,
        duration_ms=ran // timedelta(milliseconds=1),
        num_turns=session.num_turns,
        summary=session.summary,
        error=session.error if session.outcome is not Outcome.SUCCESS else None,
        next_session_id=None if following is None else following.id,
        next_tier=None if following is None else following.tier,
    )
    return [fact]


def _followed_up(session: Session, actions: Sequence[PastAction], redact: Redact) -> Iterator[ActionFollowedUp]:
    """Yield what became of what a session did, as far as anybody looks at it."""
    for action in actions:
        if (at := action.held_at or action.follow_up_at) is not None:
            yield ActionFollowedUp(
                at=at,
                session_id=session.id,
                chain=session.root_session_id,
                tier=session.tier,
                action=action.kind,
                service=redact(action.service),
                held=action.held,
            )


# --- all chains ---------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ChainsTail:
    """Follows every running chain, and every chain that starts later, side by side."""

    tail: ChainTail  # one with ``follow``
    on_idle: Callable[[], None]  # called whenever no chain is left to follow for the moment
    _followed: dict[int, int] = field(default_factory=dict)  # chain: the session with which following began
    _printed: dict[int, int] = field(default_factory=dict)  # chain: the last session printed
    _after: int = 0  # every session up to this id was printed, or was over before the first look

    async def run(self) -> None:
        """Follow until cancelled, or until nobody reads any more.

        Raises `DatabaseUnavailableError` when the database is away at the beginning; later on, waits for it.
        """
        await self._skip_ended()
        roots = await current_roots(self.tail.records)
        async with anyio.create_task_group() as tasks:
            for root in roots:
                self._followed[root.id] = root.id
                tasks.start_soon(self._follow, root)
            if not roots:
                self.on_idle()
            while not self.tail.sink.broken:
                await anyio.sleep(CHAINS_LOOK_SECONDS)
                with suppress(DatabaseUnavailableError):
                    for session in await self._started(await self.tail.records.under_way(self._after)):
                        self._followed[session.root_session_id] = session.id
                        tasks.start_soon(self._follow, session)

    async def _skip_ended(self) -> None:
        """Count as printed what has ended by now, even if something older still waits in the queue."""
        newest = await self.tail.records.newest()
        self._after = 0 if newest is None else newest.id
        self._advance(await self.tail.records.under_way(self._after), {})
        for place in await self.tail.records.under_way(self._after):
            if place.status is Status.ENDED:
                self._printed[place.chain] = place.session_id

    async def _started(self, places: Sequence[SessionPosition]) -> list[Session]:
        """Return where to begin in each chain that has something new and is not followed yet."""
        new: dict[int, int] = {}
        for place in places:
            is_new = place.session_id > self._printed.get(place.chain, 0)
            if place.status is not Status.QUEUED and is_new and place.chain not in self._followed:
                new.setdefault(place.chain, place.session_id)
        self._advance(places, new)
        found = [await self.tail.records.session(number) for number in new.values()]
        return [session for session in found if session is not None]

    def _advance(self, places: Sequence[SessionPosition], new: dict[int, int]) -> None:
        """Advance ``_after``, but never past a queued session: it may have run and ended by the next look."""
        queued = [place.session_id for place in places if place.status is Status.QUEUED]
        pending = [*queued, *self._followed.values(), *new.values()]
        last = max([self._after, *(place.session_id for place in places)])
        self._after = min(pending) - 1 if pending else last
        self._printed = {chain: last for chain, last in self._printed.items() if last > self._after}

    async def _follow(self, session: Session) -> None:
        chain = session.root_session_id
        self._printed[chain] = await self.tail.run(session)
        del self._followed[chain]
        if not self._followed and not self.tail.sink.broken:
            self.on_idle()


# --- output -------------------------------------------------------------------------------------------
class JsonLines:
    """Writes one JSON object a fact to standard output."""

    def __init__(self) -> None:
        self.broken = False

    def write(self, facts: Sequence[LiveFact] = ()) -> None:
        """Write facts, a line each."""
        try:
            for fact in facts:
                sys.stdout.write(msgspec.json.encode(fact).decode() + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            self.broken = True


class Collected:
    """Keeps all facts, for one document."""

    def __init__(self) -> None:
        self.broken = False
        self.facts: list[LiveFact] = []

    def write(self, facts: Sequence[LiveFact] = ()) -> None:
        """Keep facts."""
        self.facts += facts


def _discard_stdout() -> None:
    """Keep the interpreter from complaining at exit that nobody reads what is left in the buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _document(session: Session, facts: Sequence[LiveFact]) -> int:
    body: dict[str, object] = {
        "session_id": session.id,
        "found": True,
        "path": session.log_path,
        "lines": msgspec.to_builtins(facts),
    }
    return print_result(_NAME, CommandResult(text="", body=body), as_json=True)


def _not_found(session: tuple[str, Reference] | None, *, as_json: bool) -> int:
    written = "" if session is None else session[0]
    message = "no session has run yet" if session is None else f"session {written} does not exist"
    missing = not_found("session_not_found", written, message)
    return print_result(_NAME, missing._replace(text=f"{missing.text}."), as_json=as_json)
