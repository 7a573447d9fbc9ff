"""``claudeops tail``: what sessions do or did, told from their log files; a chain is told to its end.

Of a named session: it and those that follow from it. Else of all chains that run, and of those that start later. The
daemon is not asked, so a daemon that hangs can be watched too.

Every chain that runs, and every one that starts later: told side by side until somebody has seen enough.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

import anyio
import click
import msgspec

from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import read_settings
from claudeops.cli.terminal import LivePrinter
from claudeops.domain.chain_record import SessionPosition, SessionRecord
from claudeops.domain.live import EventRaised, LiveFact, Redact, SessionEnded
from claudeops.domain.model import DecisionReason, Level, Outcome, Session, Status
from claudeops.domain.redact import Redactor
from claudeops.engine.live.follower import LogFollower, in_order
from claudeops.engine.live.hub import session_began
from claudeops.engine.ports import Store
from claudeops.errors import ClaudeopsError, DatabaseUnavailableError
from claudeops.harness import HARNESSES
from claudeops.store.store import open_store

LOOK_SECONDS: Final = 0.2
"""Between two looks at a log that is followed."""

_NAME: Final = "tail"
_NOTHING_KNOWN: Final = SessionRecord(verdicts={}, events=())


class Sink(Protocol):
    """Where facts go."""

    broken: bool  # nobody reads any more

    def tell(self, facts: Sequence[LiveFact] = ()) -> None:
        """Take facts; with none, a moment has passed."""


def tail(*, session_id: int | None, follow: bool | None, output_format: str) -> int:
    """Tell one session and those that follow from it, or every chain that runs; return the exit status.

    ``follow``: wait for what is yet to come; ``None``: where that is not one session, and not one document.
    """
    as_json = output_format == "json"
    follow = (session_id is None and not as_json) if follow is None else follow
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
        told = partial(_tail, settings.database_url, session_id, sink, follow=follow)
        found = anyio.run(partial(told, redact=Redactor(settings.secrets).text))
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, operation="start")
    except KeyboardInterrupt:
        return Exit.OK
    finally:
        if isinstance(sink, LivePrinter):
            sink.close()
        if sink.broken:
            _forget_stdout()
    if found is None:
        return Exit.OK if follow and session_id is None else _not_found(session_id, as_json=as_json)
    return _document(found, sink.facts) if isinstance(sink, Collected) else Exit.OK


async def _tail(
    database_url: str, session_id: int | None, sink: Sink, *, follow: bool, redact: Redact
) -> Session | None:
    """Return the session that was told first; ``None``: there was none."""
    store = open_store(database_url)
    try:
        tail = Tail(store=store, sink=sink, redact=redact, follow=follow)
        if session_id is None and follow:
            await Chains(tail=tail, idle=_say_that_nothing_runs).run()
            return None
        first = await (begun(tail) if session_id is None else _named(store, session_id))
        for session in first:
            await tail.run(session)
    finally:
        await store.close()
    return first[0] if first else None


async def _named(store: Store, session_id: int) -> list[Session]:
    session = await store.session(session_id)
    return [] if session is None else [session]


def _say_that_nothing_runs() -> None:
    """Tell whoever sits there why nothing more comes; files and pipes get the sessions alone."""
    if sys.stdout.isatty():
        click.echo("claudeops: nothing runs; what starts next is told here. Ctrl-C ends this.", err=True)


async def follow(database_url: str, session: Session, sink: Sink, *, redact: Redact) -> None:
    """Tell a session and what follows from it while it runs; a database that is away ends the telling."""
    store = open_store(database_url)
    try:
        with contextlib.suppress(DatabaseUnavailableError):
            await Tail(store=store, sink=sink, redact=redact, follow=True).run(session)
    finally:
        await store.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Tail:
    """Tells sessions of one chain, one after the other."""

    store: Store
    sink: Sink
    redact: Redact
    follow: bool  # wait for what is yet to come; else tell what is there

    async def run(self, session: Session) -> int:
        """Tell a session and the later ones of its chain; following, until all of them have ended.

        Returns the id of the last one that was told.
        Raises `DatabaseUnavailableError` where the database is away at the beginning; later on it is waited for.
        """
        current: Session | None = session
        told = session.id
        while current is not None and not self.sink.broken:
            ended = await self._session(current)
            told = ended.id
            current = await self._after(current.root_session_id, told) if ended.status is Status.ENDED else None
        return told

    async def _after(self, root: int, session_id: int) -> Session | None:
        return next((later for later in await self._chain(root) if later.id > session_id), None)

    async def _session(self, session: Session) -> Session:
        """Tell one session; return it as it stood at the end."""
        session = await self._started(session)
        if session.status is Status.QUEUED:
            return session
        self.sink.tell([session_began(session, self.redact, session.started_at or session.created_at)])
        session = await self._with_log(session)
        with self._follower(session) as follower:
            session = await self._told(session, follower)
        if session.status is Status.ENDED:
            chain = await self._chain(session.root_session_id)
            following = next((later for later in chain if later.parent_session_id == session.id), None)
            self.sink.tell(_ended(session, following))
        return session

    async def _started(self, session: Session) -> Session:
        while self.follow and session.status is Status.QUEUED and not self.sink.broken:
            await self._moment()
            session = await self._again(session)
        return session

    async def _with_log(self, session: Session) -> Session:
        """Return it when its log is there: it is named by the claim, and opened a moment later."""
        while self.follow and session.status is Status.RUNNING and not self.sink.broken:
            if await anyio.Path(session.log_path or "").exists():
                break
            await self._moment()
            session = await self._again(session)
        return session

    async def _told(self, session: Session, follower: LogFollower | None) -> Session:
        events: Counter[tuple[Level, str | None, str]] = Counter()  # told so far; the same again is another one
        while not self.sink.broken:
            session = await self._again(session)  # before the look: what an ended session wrote is then there
            last = session.status is Status.ENDED or not self.follow
            while follower is not None and follower.look():
                pass
            account = await self._account(session.id)
            facts = [] if follower is None else follower.facts(account.verdicts, ended=last)
            in_order(facts, _untold(account.events, events))
            self.sink.tell(facts)
            if last:
                break
            await self._moment()
        return session

    def _follower(self, session: Session) -> contextlib.AbstractContextManager[LogFollower | None]:
        try:
            # Of an ended session whose index is lost, no line came later than its end.
            now = _wall_clock if session.ended_at is None else partial(_then, session.ended_at)
            return LogFollower(session, HARNESSES[session.harness], redact=self.redact, now=now)
        except OSError as error:
            message = f"the log {session.log_path} cannot be read: {error.strerror or error}"
            at = session.started_at or session.created_at
            self.sink.tell([EventRaised(at=at, level=Level.WARNING, message=message, session_id=session.id)])
            return contextlib.nullcontext()

    async def _moment(self) -> None:
        self.sink.tell()
        await anyio.sleep(LOOK_SECONDS)

    # --- the database, which may be away for a while -----------------------------------------------------

    async def _again(self, session: Session) -> Session:
        with contextlib.suppress(DatabaseUnavailableError):
            return await self.store.session(session.id) or session
        return session

    async def _account(self, session_id: int) -> SessionRecord:
        with contextlib.suppress(DatabaseUnavailableError):
            return await self.store.session_record(session_id)
        return _NOTHING_KNOWN

    async def _chain(self, root: int) -> Sequence[Session]:
        while True:
            try:
                return await self.store.chain(root)
            except DatabaseUnavailableError:
                if not self.follow:
                    raise
            await self._moment()


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _then(moment: datetime) -> datetime:
    return moment


def _untold(events: Sequence[EventRaised], told: Counter[tuple[Level, str | None, str]]) -> list[EventRaised]:
    """Return the events that were not told yet, and note that they are now."""
    seen: Counter[tuple[Level, str | None, str]] = Counter()
    new = []
    for event in events:
        key = (event.level, event.service, event.message)
        seen[key] += 1
        if seen[key] > told[key]:
            told[key] += 1
            new.append(event)
    return new


def _ended(session: Session, following: Session | None) -> list[LiveFact]:
    if session.outcome is None or session.ended_at is None:
        return []
    ran = session.ended_at - (session.started_at or session.ended_at)
    # A lost session was never decided about.
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


# --- what the caller gets -----------------------------------------------------------------------------


class JsonLines:
    """One JSON object a fact, on standard output."""

    def __init__(self) -> None:
        self.broken = False

    def tell(self, facts: Sequence[LiveFact] = ()) -> None:
        """Write facts."""
        try:
            for fact in facts:
                sys.stdout.write(msgspec.json.encode(fact).decode() + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            self.broken = True


class Collected:
    """All facts, for one document."""

    def __init__(self) -> None:
        self.broken = False
        self.facts: list[LiveFact] = []

    def tell(self, facts: Sequence[LiveFact] = ()) -> None:
        """Keep facts."""
        self.facts += facts


def _forget_stdout() -> None:
    """Keep the interpreter from complaining at its end that nobody reads what is still in a buffer."""
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
    return print_document(_NAME, body, Exit.OK)


def _not_found(session_id: int | None, *, as_json: bool) -> int:
    message = "no session has run yet" if session_id is None else f"session {session_id} does not exist"
    if not as_json:
        click.echo(f"claudeops: {message}.", err=True)
        return Exit.UNRESOLVED
    error = {"kind": "session_not_found", "message": message, "retryable": False}
    return print_document(_NAME, {"name": str(session_id or ""), "found": False, "error": error}, Exit.UNRESOLVED)


CHAINS_LOOK_SECONDS: Final = 1.0
"""Between two looks for what has started."""


async def begun(tail: Tail) -> list[Session]:
    """Return the first sessions of the chains that run, oldest first; of the newest chain where none does."""
    newest = await tail.store.newest()
    if newest is None:
        return []
    running = [place.chain for place in await tail.store.under_way(newest.id) if place.status is Status.RUNNING]
    roots = sorted(set(running)) or [newest.root_session_id]
    return [root for number in roots if (root := await tail.store.session(number)) is not None]


@dataclass(kw_only=True)
class Chains:
    """Follows what there is and what is to come."""

    tail: Tail  # that follows
    idle: Callable[[], None]  # called whenever nothing is left to tell for the moment
    _followed: dict[int, int] = field(default_factory=dict)  # chain: the session with which its telling began
    _told: dict[int, int] = field(default_factory=dict)  # chain: the last session that was told
    _after: int = 0  # everything up to this id has been told, or had begun before the first look

    async def run(self) -> None:
        """Follow until cancelled, or nobody reads any more.

        Raises `DatabaseUnavailableError` where the database is away at the beginning; later on it is waited for.
        """
        await self._leave_out_what_is_over()
        roots = await begun(self.tail)
        async with anyio.create_task_group() as tasks:
            for root in roots:
                self._followed[root.id] = root.id
                tasks.start_soon(self._follow, root)
            if not roots:
                self.idle()
            while not self.tail.sink.broken:
                await anyio.sleep(CHAINS_LOOK_SECONDS)
                with suppress(DatabaseUnavailableError):
                    for session in await self._started(await self.tail.store.under_way(self._after)):
                        self._followed[session.root_session_id] = session.id
                        tasks.start_soon(self._follow, session)

    async def _leave_out_what_is_over(self) -> None:
        """Count as told what had ended by now, also where it is younger than what still waits in the queue."""
        newest = await self.tail.store.newest()
        self._after = 0 if newest is None else newest.id
        self._forget(await self.tail.store.under_way(self._after), {})
        for place in await self.tail.store.under_way(self._after):
            if place.status is Status.ENDED:
                self._told[place.chain] = place.session_id

    async def _started(self, places: Sequence[SessionPosition]) -> list[Session]:
        """Return where to begin in each chain that has something new to tell and is not followed yet."""
        new: dict[int, int] = {}
        for place in places:
            untold = place.session_id > self._told.get(place.chain, 0)
            if place.status is not Status.QUEUED and untold and place.chain not in self._followed:
                new.setdefault(place.chain, place.session_id)
        self._forget(places, new)
        found = [await self.tail.store.session(number) for number in new.values()]
        return [session for session in found if session is not None]

    def _forget(self, places: Sequence[SessionPosition], new: dict[int, int]) -> None:
        """Move on behind what was told: what waits in the queue may have come and gone by the next look."""
        queued = [place.session_id for place in places if place.status is Status.QUEUED]
        pending = [*queued, *self._followed.values(), *new.values()]
        last = max([self._after, *(place.session_id for place in places)])
        self._after = min(pending) - 1 if pending else last
        self._told = {chain: told for chain, told in self._told.items() if told > self._after}

    async def _follow(self, session: Session) -> None:
        chain = session.root_session_id
        self._told[chain] = await self.tail.run(session)
        del self._followed[chain]
        if not self._followed and not self.tail.sink.broken:
            self.idle()
