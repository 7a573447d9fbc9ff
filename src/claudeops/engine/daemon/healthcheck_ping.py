"""Pings a monitor outside after each whole healthy cycle, so that silence pages somebody.

A chain counts if somebody could rely on it: it began at the lowest tier as the usual look, and ended *healthy*, which
takes evidence. A chain that only answered an operator's question says nothing about the rest.

A monitor that knows more than that it was pinged is told more: healthchecks hears when a cycle starts and when it ends
with nobody following, both with the run's id, and Uptime Kuma's push monitor hears of such an end.
"""

from __future__ import annotations

import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from http.client import HTTPException
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import anyio.to_thread

from claudeops.domain.sessions import DecisionReason, Ending, Finished, Session
from claudeops.engine.ports import SessionListener
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.store.sessions import Records
from claudeops.tasks import DatabaseTrouble

TRIES: Final = 4
WAIT_SECONDS: Final = 2.0
"""The pause after the first failure; it doubles after each further one."""

ANSWER_SECONDS: Final = 10.0
"""How long the monitor may take for each step of an answer."""

_UNRESOLVED: Final = frozenset(
    {
        DecisionReason.MAX_TIER,
        DecisionReason.COOLDOWN,
        DecisionReason.BUDGET,
        DecisionReason.NO_REPORT,
        DecisionReason.NO_EVIDENCE,
        DecisionReason.SESSION_FAILED,
    }
)
_PUSH: Final = "/api/push/"  # of Uptime Kuma
_SLUGGED: Final = 3  # steps of healthchecks' other form: /ping/<key>/<slug>

_TRY_SECONDS: Final = 30.0  # for one try as a whole, whatever its steps take
_READ_BYTES: Final = 1024  # of an answer that is thrown away; enough to let the connection end cleanly


class MonitorVerb(StrEnum):
    """What a monitor is told of a cycle."""

    START = "start"
    SUCCESS = "success"
    FAIL = "fail"


@dataclass(kw_only=True)
class HealthcheckPing(SessionListener):
    """Pings in its own task; nothing waits for it. The end of a newer chain replaces one that is still waiting."""

    records: Records
    ping: Callable[[], None]  # called on a thread; raises `OSError`
    lowest_tier: int
    log: Logger
    wait_seconds: float = WAIT_SECONDS
    signal: Callable[[MonitorVerb, int], None] | None = (
        None  # instead of ``ping``, with the chain; None: it knows no verbs
    )
    _healthy: Session | None = None
    _others: dict[MonitorVerb, Session] = field(default_factory=dict)  # the newest of each that waits
    _due: anyio.Event = field(default_factory=anyio.Event)
    _at_work: bool = False
    _idle: anyio.Event = field(default_factory=anyio.Event)  # set, and replaced, whenever it has nothing left to do
    _one_thread: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def started(self, session: Session) -> None:
        """Take the start of a cycle, where the monitor wants to know."""
        if self.signal is not None and session.id == session.root_session_id:
            self._take(MonitorVerb.START, session)

    def ended(self, session: Session, ending: Ending, finished: Finished) -> None:  # noqa: ARG002 - it may be none
        """Take the end of a session, and ping soon if it was healthy, or if a cycle ended with nobody following."""
        if finished.decision.reason is DecisionReason.HEALTHY:
            self._healthy, self._at_work = session, True
            self._others.pop(MonitorVerb.FAIL, None)
            self._due.set()
        elif self.signal is not None and finished.next_session_id is None and finished.decision.reason in _UNRESOLVED:
            self._healthy = None
            self._take(MonitorVerb.FAIL, session)

    async def run(self) -> None:
        """Ping after each chain that deserves it, until cancelled."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            for verb, session in self._drained():
                if await self._was_the_usual_look(session):
                    await self._ping(session, verb)
            if not self._due.is_set():
                self._at_work = False
                idle, self._idle = self._idle, anyio.Event()
                idle.set()

    def _take(self, verb: MonitorVerb, session: Session) -> None:
        self._others[verb], self._at_work = session, True
        self._due.set()

    def _drained(self) -> list[tuple[MonitorVerb, Session]]:
        """Return what waits: an end before the start of a later chain, and after that of its own."""
        ends = [(MonitorVerb.FAIL, self._others.pop(MonitorVerb.FAIL))] if MonitorVerb.FAIL in self._others else []
        ends += [(MonitorVerb.SUCCESS, self._healthy)] if self._healthy is not None else []
        self._healthy = None
        starts = [(MonitorVerb.START, self._others.pop(MonitorVerb.START))] if MonitorVerb.START in self._others else []
        return sorted((*starts, *ends), key=lambda each: each[1].root_session_id)  # stable: a start before its end

    async def settled(self) -> None:
        """Return once every pending ping was sent or given up. The caller bounds the wait."""
        while self._at_work:
            await self._idle.wait()

    async def _was_the_usual_look(self, session: Session) -> bool:
        trouble, why = DatabaseTrouble(self.log, "watchdog"), ""
        for _ in range(TRIES):
            try:
                root = await self.records.session(session.root_session_id)
            except StoreError as error:
                why = str(error)
                await anyio.sleep(trouble.failed(error))
            else:
                trouble.over()
                return root is not None and root.tier == self.lowest_tier and root.prompt_text is None
        self.log.error(LogEvent.HEARTBEAT_FAILED, chain=session.root_session_id, error=why)
        return False

    async def _ping(self, session: Session, verb: MonitorVerb) -> None:
        wait, why = self.wait_seconds, ""
        ping = self.ping if self.signal is None else partial(self.signal, verb, session.root_session_id)
        attempt = partial(_try, ping)
        for number in range(1, TRIES + 1):
            why = f"no answer within {_TRY_SECONDS:g} s"
            with anyio.move_on_after(_TRY_SECONDS):
                why = await anyio.to_thread.run_sync(attempt, abandon_on_cancel=True, limiter=self._one_thread)
            if not why:
                told = {"chain": session.root_session_id, "verb": verb.value, "tries": number}
                self.log.info(LogEvent.HEARTBEAT_SENT, **told)
                return
            if number < TRIES:
                await anyio.sleep(wait)
                wait *= 2
        self.log.error(LogEvent.HEARTBEAT_FAILED, chain=session.root_session_id, error=why)


def _try(ping: Callable[[], None]) -> str:
    """Ping; return what went wrong, or "". The URL is a secret, and the messages of libraries may repeat it."""
    try:
        ping()
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP status {error.code}"
    except urllib.error.URLError as error:
        reason = error.reason
        return reason.strerror or type(reason).__name__ if isinstance(reason, OSError) else type(error).__name__
    except (OSError, HTTPException) as error:
        return type(error).__name__
    return ""


def pinging(url: str, *, proxies: Mapping[str, str]) -> Callable[[], None]:
    """Return a function that requests ``url`` once, through its scheme's proxy unless NO_PROXY names the host."""
    opener = urllib.request.build_opener(_Proxies(dict(proxies)))

    def ping() -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "claudeops"})  # noqa: S310 - the settings took http and https only
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            answer.read(_READ_BYTES)

    return ping


def signalling(url: str, *, proxies: Mapping[str, str]) -> Callable[[MonitorVerb, int], None] | None:
    """Return a function that tells a monitor a verb about a chain; ``None`` where it knows none."""
    if address(url, MonitorVerb.SUCCESS, 0) is None:
        return None

    def signal(verb: MonitorVerb, chain: int) -> None:
        wanted = address(url, verb, chain)
        if wanted:
            pinging(wanted, proxies=proxies)()

    return signal


def address(url: str, verb: MonitorVerb, chain: int) -> str | None:
    """Return where a monitor is told a verb about a chain; "": it has no such verb; ``None``: it knows no verbs."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if _PUSH in parts.path:
        told = {"status": "up", "msg": "OK"} if verb is MonitorVerb.SUCCESS else {"status": "down", "msg": "unresolved"}
        return "" if verb is MonitorVerb.START else urlunsplit(parts._replace(query=urlencode({**query, **told})))
    if not _is_healthchecks(parts.path):
        return None
    run = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{url}#{chain}"))
    path = parts.path.rstrip("/") + ("" if verb is MonitorVerb.SUCCESS else f"/{verb}")
    return urlunsplit(parts._replace(path=path, query=urlencode({**query, "rid": run})))


def _is_healthchecks(path: str) -> bool:
    """Tell whether a path is one of healthchecks' ping addresses: it ends with a check's UUID, or with key and slug."""
    steps = [step for step in path.split("/") if step]
    try:
        uuid.UUID(steps[-1] if steps else "")
    except ValueError:
        return len(steps) >= _SLUGGED and steps[-3] == "ping"
    return True


class _Proxies(urllib.request.ProxyHandler):
    """Uses the given proxies and exceptions, and ignores the environment."""

    def __init__(self, proxies: dict[str, str]) -> None:
        self._exceptions = {"no": proxies.pop("no", "")}
        super().__init__(proxies)

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> object:  # noqa: A002 - its name there
        bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # the stubs leave it out
        if bypass(req.host, self._exceptions):
            return None
        return super().proxy_open(req, proxy, type)
