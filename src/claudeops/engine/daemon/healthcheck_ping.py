"""Pings a monitor outside after each whole healthy cycle, so that silence pages somebody.

A chain counts if somebody could rely on it: it began at the lowest tier as the usual look, and ended *healthy*, which
takes evidence. A chain that only answered an operator's question says nothing about the rest.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final

import anyio
import anyio.to_thread

from claudeops.domain.model import DecisionReason, Finished, Session
from claudeops.engine.ports import Records, SessionListener
from claudeops.errors import StoreError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import DatabaseTrouble

TRIES: Final = 4
WAIT_SECONDS: Final = 2.0
"""The pause after the first failure; it doubles after each further one."""

ANSWER_SECONDS: Final = 10.0
"""How long the monitor may take for each step of an answer."""

_TRY_SECONDS: Final = 30.0  # for one try as a whole, whatever its steps take
_READ_BYTES: Final = 1024  # of an answer that is thrown away; enough to let the connection end cleanly


@dataclass(kw_only=True)
class HealthcheckPing(SessionListener):
    """Pings in its own task; nothing waits for it. The end of a newer chain replaces one that is still waiting."""

    records: Records
    ping: Callable[[], None]  # called on a thread; raises `OSError`
    lowest_tier: int
    log: Logger
    wait_seconds: float = WAIT_SECONDS
    _healthy: Session | None = None
    _due: anyio.Event = field(default_factory=anyio.Event)
    _at_work: bool = False
    _idle: anyio.Event = field(default_factory=anyio.Event)  # set, and replaced, whenever it has nothing left to do
    _one_thread: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))

    def ended(self, session: Session, finished: Finished) -> None:
        """Take the end of a session, and ping soon if it was healthy."""
        if finished.decision.reason is DecisionReason.HEALTHY:
            self._healthy, self._at_work = session, True
            self._due.set()

    async def run(self) -> None:
        """Ping after each chain that deserves it, until cancelled."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            session, self._healthy = self._healthy, None
            if session is not None and await self._was_the_usual_look(session):
                await self._ping(session)
            if not self._due.is_set():
                self._at_work = False
                idle, self._idle = self._idle, anyio.Event()
                idle.set()

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

    async def _ping(self, session: Session) -> None:
        wait, why = self.wait_seconds, ""
        for number in range(1, TRIES + 1):
            why = f"no answer within {_TRY_SECONDS:g} s"
            with anyio.move_on_after(_TRY_SECONDS):
                why = await anyio.to_thread.run_sync(self._try, abandon_on_cancel=True, limiter=self._one_thread)
            if not why:
                self.log.info(LogEvent.HEARTBEAT_SENT, chain=session.root_session_id, tries=number)
                return
            if number < TRIES:
                await anyio.sleep(wait)
                wait *= 2
        self.log.error(LogEvent.HEARTBEAT_FAILED, chain=session.root_session_id, error=why)

    def _try(self) -> str:
        """Ping; return what went wrong, or "". The URL is a secret, and the messages of libraries may repeat it."""
        try:
            self.ping()
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
