"""A daemon that is one no longer stops what it runs, and itself."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import anyio
import pytest

from claudeops import logs
from claudeops.domain.outcome import StopCause
from claudeops.engine.control import Control
from claudeops.engine.pulse import Pulse
from claudeops.errors import AlreadyRunningError, DatabaseUnavailableError
from claudeops.store.in_memory import InMemoryStore
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, check, ending, report, started

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.model import Owner, Session

pytestmark = pytest.mark.anyio


class StandingClock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class SometimesAway(InMemoryStore):
    away = False

    async def keep(self, owner: Owner, *, now: datetime) -> frozenset[tuple[int, int]]:
        if self.away:
            raise DatabaseUnavailableError("the database is locked.")
        return await super().keep(owner, now=now)


def held() -> None:
    """Find the lock where it was."""


def taken() -> None:
    raise AlreadyRunningError("another claudeops daemon holds the lock.")


@pytest.fixture
def store() -> SometimesAway:
    return SometimesAway(now=lambda: NOW)


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def pulse(store: SometimesAway, running: dict[int, tuple[Session, Control]], **changes: object) -> Pulse:
    given: dict[str, object] = {
        "store": store,
        "owner": OWNER,
        "clock": StandingClock(),
        "running": running,
        "check_lock": held,
        "lost": lambda: None,
        "log": logs.get_logger(),
        **changes,
    }
    return Pulse(**given)  # type: ignore[arg-type]  # a test names its fields


async def test_a_session_that_somebody_else_took_over_is_stopped(store: SometimesAway, logged: io.StringIO) -> None:
    running = {session.id: (session, Control()) for session in (await started(store), await started(store))}
    beating = pulse(store, running)
    await beating.beat()
    assert {control.cause for _, control in running.values()} == {None}
    taken_over = await store.reconcile(OTHER_OWNER, now=after(hours=1), alive=lambda _: False)
    assert len(taken_over) == 2

    await beating.beat()
    await beating.beat()
    await beating.beat()

    assert {control.cause for _, control in running.values()} == {StopCause.CANCELLED}
    assert logged.getvalue().count('"stale_attempt"') == 2


async def test_a_session_whose_end_was_just_written_is_not_taken_for_a_stale_one(
    store: SometimesAway, logged: io.StringIO
) -> None:
    session = await started(store)
    running = {session.id: (session, Control())}
    beating = pulse(store, running)
    await store.finish(ending(session, report(check("web"))), rules=RULES)

    await beating.beat()
    del running[session.id]
    await beating.beat()

    assert "stale_attempt" not in logged.getvalue()


async def test_an_absent_database_stops_nothing(store: SometimesAway, logged: io.StringIO) -> None:
    session = await started(store)
    running = {session.id: (session, Control())}
    beating = pulse(store, running)
    store.away = True

    for _ in range(3):
        await beating.beat()

    assert running[session.id][1].cause is None
    assert logged.getvalue().count('"database_unavailable"') == 3


async def test_a_lock_that_is_somebody_elses_ends_the_daemon(store: SometimesAway, logged: io.StringIO) -> None:
    told = anyio.Event()

    with anyio.fail_after(20):
        await pulse(store, {}, check_lock=taken, lost=told.set).run()

    assert told.is_set()
    assert '"lock_lost"' in logged.getvalue()
