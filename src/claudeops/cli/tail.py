"""``claudeops tail``: what sessions do or did, told from their log files; a chain is told to its end.

Of a named session: it and those that follow from it. Else of all chains that run, and of those that start later. The
daemon is not asked, so a daemon that hangs can be watched too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import click
import msgspec

from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.cli.log_follower import LogFollower, in_order
from claudeops.cli.start import read_settings
from claudeops.cli.tail_chains import Chains, begun
from claudeops.cli.telling import Teller
from claudeops.domain.account import Account
from claudeops.domain.live import EventRaised, SessionEnded
from claudeops.domain.model import DecisionReason, Level, Outcome, Status
from claudeops.domain.redact import Redactor
from claudeops.engine.broadcast import session_began
from claudeops.errors import ClaudeopsError, DatabaseUnavailableError
from claudeops.harness.registry import HARNESSES
from claudeops.store.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.domain.activity import Redact
    from claudeops.domain.live import LiveFact
    from claudeops.domain.model import Session
    from claudeops.engine.ports import Store

LOOK_SECONDS: Final = 0.2
"""Between two looks at a log that is followed."""

_NAME: Final = "tail"
_NOTHING_KNOWN: Final = Account(verdicts={}, events=())


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
            sink = Teller(sys.stdout, times=True)
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
        if isinstance(sink, Teller):
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

    async def _account(self, session_id: int) -> Account:
        with contextlib.suppress(DatabaseUnavailableError):
            return await self.store.account(session_id)
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
