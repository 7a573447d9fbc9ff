"""The watchdog hears of every whole cycle that ended healthy, and of nothing else; its address is told to nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from claudeops.domain.sessions import Decision, DecisionReason, Finished, Session
from claudeops.engine.control import StopControl
from claudeops.engine.daemon.healthcheck_ping import TRIES, HealthcheckPing, MonitorVerb, address, pinging, signalling
from claudeops.engine.session.runner import SessionRunner
from support.estate import Estate, deliver, look, report
from support.store_values import ending
from support.waiting import until

TOKEN = "0123456789abcdef-of-the-watchdog"


@dataclass
class Watchdog:
    """An HTTP server that counts, and answers what it is told to."""

    statuses: list[int] = field(default_factory=list)  # of the next answers; then 200
    asked: list[str] = field(default_factory=list)  # as the request line has it
    url: str = ""


@contextmanager
def serving() -> Iterator[Watchdog]:
    watchdog = Watchdog()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            watchdog.asked.append(self.path)
            self.send_response(watchdog.statuses.pop(0) if watchdog.statuses else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        watchdog.url = f"http://127.0.0.1:{server.server_port}/ping/{TOKEN}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield watchdog
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    with serving() as served:
        yield served


def beating(estate: Estate, ping: Callable[[], None]) -> HealthcheckPing:
    return HealthcheckPing(
        records=estate.store.records, ping=ping, lowest_tier=1, log=estate.context.log, wait_seconds=0.01
    )


async def beats(estate: Estate, ping: Callable[[], None], *ends: tuple[Session, DecisionReason]) -> None:
    """Tell of some ends, one after the other, and wait until what follows from them has been logged."""
    beat = beating(estate, ping)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat.run)
        for number, (session, reason) in enumerate(ends, 1):
            beat.ended(session, ending(session), Finished(decision=Decision(reason=reason)))
            await until(lambda number=number: estate.logged.getvalue().count('"heartbeat_') >= number)  # type: ignore[misc]
        tasks.cancel_scope.cancel()


async def test_a_healthy_cycle_is_told_once(estate: Estate, watchdog: Watchdog) -> None:
    session = await estate.queue()

    await beats(estate, pinging(watchdog.url, proxies={}), (session, DecisionReason.HEALTHY))

    assert watchdog.asked == [f"/ping/{TOKEN}"]
    assert "heartbeat_sent" in estate.logged.getvalue()


async def test_a_watchdog_that_stumbles_is_asked_again(estate: Estate, watchdog: Watchdog) -> None:
    watchdog.statuses = [503] * (TRIES - 1)
    session = await estate.queue()

    await beats(estate, pinging(watchdog.url, proxies={}), (session, DecisionReason.HEALTHY))

    assert len(watchdog.asked) == TRIES
    assert "heartbeat_sent" in estate.logged.getvalue()


@pytest.mark.parametrize("broken", ["status", "refused"])
async def test_a_watchdog_that_is_gone_is_given_up_and_its_address_is_not_told(
    estate: Estate, watchdog: Watchdog, broken: str
) -> None:
    watchdog.statuses = [500] * TRIES
    url = watchdog.url if broken == "status" else f"http://127.0.0.1:1/ping/{TOKEN}"
    session = await estate.queue()

    await beats(estate, pinging(url, proxies={}), (session, DecisionReason.HEALTHY))

    assert "heartbeat_failed" in estate.logged.getvalue()
    assert ("HTTP status 500" in estate.logged.getvalue()) == (broken == "status")
    assert TOKEN not in estate.logged.getvalue()


@pytest.mark.parametrize("reason", [reason for reason in DecisionReason if reason is not DecisionReason.HEALTHY])
async def test_no_other_end_is_told(estate: Estate, watchdog: Watchdog, reason: DecisionReason) -> None:
    session = await estate.queue()
    beat = beating(estate, pinging(watchdog.url, proxies={}))

    beat.ended(session, ending(session), Finished(decision=Decision(reason=reason)))

    assert beat._healthy is None
    assert not beat._due.is_set()


@pytest.mark.parametrize("how", ["question", "tier 2"])
async def test_a_chain_that_was_not_the_usual_look_is_not_told(estate: Estate, watchdog: Watchdog, how: str) -> None:
    odd = await (estate.queue(prompt_text="is db all right?") if how == "question" else estate.queue(tier=2))
    usual = await estate.queue()
    asked: list[int] = []

    def ping() -> None:
        asked.append(1)

    beat = beating(estate, ping)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat.run)
        beat.ended(odd, ending(odd), Finished(decision=Decision(reason=DecisionReason.HEALTHY)))
        await anyio.wait_all_tasks_blocked()
        await until(lambda: beat._healthy is None)
        beat.ended(usual, ending(usual), Finished(decision=Decision(reason=DecisionReason.HEALTHY)))
        await until(lambda: "heartbeat_sent" in estate.logged.getvalue())
        tasks.cancel_scope.cancel()

    assert asked == [1]
    assert watchdog.asked == []


async def test_a_cycle_that_was_mended_at_a_higher_tier_is_told(estate: Estate, watchdog: Watchdog) -> None:
    """The chain as a whole counts: what ends healthy is its last session, what began it was the usual look."""
    first = await estate.run(look(), deliver(report(needed=True)))
    await estate.store.queue.finish(first, rules=estate.context.rules)
    estate.script(look(), deliver(report()))
    second = await estate.claim()
    ending = await SessionRunner(context=estate.context).run(second, StopControl())
    finished = await estate.store.queue.finish(ending, rules=estate.context.rules)

    await beats(estate, pinging(watchdog.url, proxies={}), (second, finished.decision.reason))

    assert second.tier == 2
    assert watchdog.asked == [f"/ping/{TOKEN}"]


def test_the_proxy_is_asked_unless_the_host_is_an_exception(watchdog: Watchdog) -> None:
    with serving() as proxy:
        proxies = {"http": proxy.url.partition("/ping")[0]}
        pinging(watchdog.url, proxies=proxies)()
        pinging(watchdog.url, proxies={**proxies, "no": "127.0.0.1"})()

    assert proxy.asked == [watchdog.url]
    assert watchdog.asked == [f"/ping/{TOKEN}"]


# --- monitors that know more ------------------------------------------------------------------------------

CHECK = "0f9a4a1e-8f0c-4c0e-9a43-30c8c1b3a2d1"


def test_healthchecks_is_told_each_verb_with_the_runs_id() -> None:
    for url in (f"https://hc.example/{CHECK}", f"https://hc.example/ping/{CHECK}/", "https://hc.example/ping/key/nas"):
        start, success, fail = (
            address(url, verb, 7) or "" for verb in (MonitorVerb.START, MonitorVerb.SUCCESS, MonitorVerb.FAIL)
        )

        plain = url.rstrip("/")
        assert success.startswith(f"{plain}?rid=")
        assert start == success.replace("?", "/start?")
        assert fail == success.replace("?", "/fail?")
        assert address(url, MonitorVerb.SUCCESS, 8) != success


def test_uptime_kuma_is_told_how_it_is_and_of_no_start() -> None:
    url = "https://kuma.example/api/push/abc?status=up&msg=OK&ping="

    assert address(url, MonitorVerb.SUCCESS, 7) == "https://kuma.example/api/push/abc?status=up&msg=OK"
    assert address(url, MonitorVerb.FAIL, 7) == "https://kuma.example/api/push/abc?status=down&msg=unresolved"
    assert address(url, MonitorVerb.START, 7) == ""


def test_any_other_monitor_is_only_pinged() -> None:
    assert address("https://monitor.example/ping/token", MonitorVerb.SUCCESS, 7) is None
    assert signalling("https://monitor.example", proxies={}) is None


async def test_a_cycle_that_nobody_follows_is_told_after_its_start(estate: Estate, watchdog: Watchdog) -> None:
    session = await estate.queue()
    url = f"{watchdog.url}/{CHECK}"
    beat = beating(estate, pinging(url, proxies={}))
    beat.signal = signalling(url, proxies={})

    async with anyio.create_task_group() as tasks:
        beat.started(session)
        beat.ended(session, ending(session), Finished(decision=Decision(reason=DecisionReason.MAX_TIER)))
        tasks.start_soon(beat.run)
        await until(lambda: estate.logged.getvalue().count("heartbeat_sent") == 2)
        tasks.cancel_scope.cancel()

    assert [asked.partition("?")[0].rpartition("/")[2] for asked in watchdog.asked] == ["start", "fail"]
    assert TOKEN not in estate.logged.getvalue()


async def test_an_end_that_somebody_follows_is_no_failure(estate: Estate) -> None:
    session = await estate.queue()
    beat = beating(estate, lambda: None)
    beat.signal = lambda _verb, _chain: None

    beat.ended(
        session, ending(session), Finished(decision=Decision(reason=DecisionReason.SESSION_FAILED), next_session_id=9)
    )
    beat.ended(session, ending(session), Finished(decision=Decision(reason=DecisionReason.PAUSED)))

    assert not beat._due.is_set()
