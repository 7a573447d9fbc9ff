"""The worker: a body is on record before its sender hears so, secrets are not, and heartbeats are heard."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.domain.alerts.alert import AlertDecision, SenderBody
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.rules import NO_RULES, AlertSource, Grouping, Heartbeat, Rules, SenderKind
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.engine.alerts.worker import AlertWorker
from claudeops.engine.operator_file import OperatorFile
from claudeops.engine.probes.declared import DeclaredReader
from claudeops.errors import DatabaseUnavailableError
from claudeops.logs import LogEvent, get_logger
from claudeops.settings.alerts import load_alerts
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.probe_values import heartbeat
from support.replays import StillClock
from support.store_values import OWNER, RULES, wanted
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)

AT_ONCE: Final = Grouping(wait=timedelta(0))
SOURCES: Final = (
    AlertSource(name="am", kind=SenderKind.ALERTMANAGER, grouping=AT_ONCE),
    AlertSource(name="kuma", kind=SenderKind.UPTIME_KUMA, grouping=AT_ONCE),
)
WATCHDOG: Final = Heartbeat(
    name="prometheus", matchers=read_matchers(["alertname=Watchdog"]), every=timedelta(minutes=5)
)
SECRET: Final = "hunter22-hunter22"


def body(name: str = "Down", **labels: str) -> bytes:
    each = {"status": "firing", "labels": {"alertname": name, "service": "shop", "severity": "critical", **labels}}
    return json.dumps({"version": "4", "groupKey": "g", "alerts": [each]}).encode()


@dataclass
class World:
    store: Store
    database: Database
    rules: Rules = field(default_factory=lambda: Rules(sources=SOURCES, heartbeats=(WATCHDOG,)))
    announced: int = 0
    clock: StillClock = field(default_factory=StillClock)

    @asynccontextmanager
    async def desk(self, **changes: object) -> AsyncIterator[AlertWorker]:
        async def announce() -> None:
            self.announced += 1

        def chain(tier: int, told: Handover) -> NewSession:
            return wanted(tier, trigger=Trigger.ALERT, context=told)

        values: dict[str, object] = {
            "alerts": self.store.alerts,
            "probes": self.store.probes,
            "read_rules": lambda: self.rules,
            "escalation": lambda: RULES,
            "dependencies": DeclaredReader().dependencies,
            "new_chain": chain,
            "redact": Redactor([SECRET]).text,
            "announce": announce,
            "clock": self.clock,
            "log": get_logger(),
            **changes,
        }
        desk = AlertWorker(**values)  # type: ignore[arg-type]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.keep_writing)
            tasks.start_soon(desk.keep_deciding)
            yield desk
            tasks.cancel_scope.cancel()

    async def decided(self, count: int) -> None:
        """Wait until so many decisions are on record, and nothing waits for one."""
        await until(lambda: len(self.decisions()) >= count and not self.rows("alert_queue"))

    def decisions(self) -> list[object]:
        return [row["decision"] for row in self.rows("alert_decisions")]

    def rows(self, table: str) -> list[Mapping[str, object]]:
        return list(self.database.rows(table))


@pytest.fixture
async def world(sqlite: Database) -> AsyncIterator[World]:
    async with opened(sqlite) as store:
        yield World(store, sqlite)


async def test_a_body_is_on_record_before_the_answer_and_then_its_chain_is_announced(world: World) -> None:
    async with world.desk() as desk:
        receipt = await desk.take("am", body(), {}, world.clock.now(), query={})
        assert [row["key"] for row in world.rows("alert_deliveries")] == [receipt.delivery]
        again = await desk.take("am", body(), {}, world.clock.now(), query={})
        await world.decided(2)
        await until(lambda: world.announced > 0)  # which follows what is on record

    assert (receipt.alerts, receipt.readable, receipt.repeats) == (1, True, False)
    assert (again.delivery, again.repeats) == (receipt.delivery, True)
    assert world.decisions() == [AlertDecision.STARTED, AlertDecision.DUPLICATE]
    assert len(world.rows("sessions")) == world.announced == 1


async def test_bodies_that_come_at_once_all_get_their_own_receipt(world: World) -> None:
    found: dict[int, int] = {}

    async with world.desk() as desk:

        async def post(number: int) -> None:
            receipt = await desk.take("am", body(f"A{number}"), {}, world.clock.now(), query={})
            found[number] = receipt.alerts

        async with anyio.create_task_group() as posts:
            for number in range(150):
                posts.start_soon(post, number)
        await world.decided(150)

    assert found == dict.fromkeys(range(150), 1)
    assert len(world.rows("alert_deliveries")) == 150
    assert len({row["alert_id"] for row in world.rows("alert_decisions")}) == 150


async def test_a_body_that_is_nonsense_is_on_record(world: World) -> None:
    async with world.desk() as desk:
        receipt = await desk.take("am", b"<html>", {}, world.clock.now(), query={})

    assert (receipt.alerts, receipt.readable) == (0, False)
    assert [row["raw"] for row in world.rows("alert_deliveries")] == ["<html>"]
    assert [row["decision"] for row in world.rows("alert_decisions")] == ["unparsed"]
    (event,) = world.rows("events")
    assert str(event["message"]).startswith("am sends what cannot be read: line 1, column 1: ")


async def test_a_secret_is_in_no_reason_and_in_no_remark(world: World) -> None:
    async with world.desk() as desk:
        state = json.dumps({"heartbeat": {"status": SECRET}}).encode()
        receipt = await desk.take("kuma", state, {}, world.clock.now(), query={})
        remark = json.dumps({"heartbeat": None, "msg": f"{SECRET} Testing"}).encode()
        await desk.take("kuma", remark, {}, world.clock.now(), query={})

    assert "unknown status" in str(world.rows("alert_sources")[0]["reason"])
    kept = [world.rows(name) for name in ("alert_deliveries", "alert_decisions", "alert_sources", "events", "outbox")]
    assert [row["status"] for row in world.rows("alert_deliveries")] == ["unparsed", "read"]
    assert SECRET not in repr((receipt, kept))


async def test_a_packed_body_is_on_record_as_what_it_says(world: World) -> None:
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    async with world.desk() as desk:
        for number, packed in enumerate((gzip.compress(body()), body().decode().encode("utf-16")), 1):
            receipt = await desk.take("am", packed, headers, world.clock.now(), query={})
            assert (receipt.alerts, receipt.readable) == (1, True)
            await world.decided(number)

    assert world.decisions() == [AlertDecision.STARTED, AlertDecision.DUPLICATE]
    assert [row["raw"] for row in world.rows("alert_deliveries")] == [body().decode()]


async def test_no_secret_of_a_body_is_kept(world: World) -> None:
    monitor = {"id": 1, "name": "shop", "basic_auth_pass": "monitor-word", "headers": '{"X-Key": "other-word"}'}
    beat = {"status": 0, "msg": f"refused {SECRET}", "monitorID": 1, "time": "2026-03-01 11:59:00"}
    kuma = json.dumps({"heartbeat": beat, "monitor": monitor, "msg": "[shop] down"}).encode()
    async with world.desk() as desk:
        await desk.take("kuma", kuma, {}, world.clock.now(), query={})
        await desk.take("am", body(note=SECRET), {}, world.clock.now(), query={})
        queued = repr(world.rows("alert_queue"))
        await world.decided(2)

    assert not [word for word in (SECRET, "monitor-word", "other-word") if word in queued]
    kept = repr([world.rows(name) for name in ("alert_deliveries", "alerts", "alert_decisions", "sessions", "events")])
    assert len(world.rows("alerts")) == 2
    assert not [word for word in (SECRET, "monitor-word", "other-word") if word in kept]


async def test_secrets_are_in_no_identity_and_the_end_of_an_alert_is_still_its_end(world: World) -> None:
    def named(status: str) -> bytes:
        each = {"status": status, "labels": {"alertname": "Down", "service": "shop"}, "fingerprint": f"host-{SECRET}"}
        return json.dumps({"version": "4", "groupKey": f"g-{SECRET}", "alerts": [each]}).encode()

    async with world.desk() as desk:
        for seconds, status in enumerate(("firing", "resolved")):
            at = world.clock.now() - timedelta(seconds=9 - seconds)
            await desk.take("am", named(status), {}, at, query={})
        queued = repr(world.rows("alert_queue"))
        await world.decided(2)

    tables = ("alert_deliveries", "alerts", "alert_decisions", "incidents", "sessions", "events")
    assert SECRET not in queued + repr([world.rows(name) for name in tables])
    assert [row["status"] for row in world.rows("alerts")] == ["resolved"]


@pytest.mark.parametrize("label", ["x", ";token=a"])
async def test_a_body_that_is_long_to_redact_holds_up_no_other(world: World, label: str) -> None:
    may_go_on = threading.Event()

    def redact(text: str) -> str:
        if len(text) > 10_000:  # of the long body alone
            may_go_on.wait(PATIENCE_SECONDS)
        return text

    long = body(**{f"l{number}": label * 20 for number in range(80)}, rest="x" * 20_000)
    async with world.desk(redact=redact) as desk, anyio.create_task_group() as posts:
        posts.start_soon(partial(desk.take, "am", long, {}, world.clock.now(), query={}))
        await anyio.wait_all_tasks_blocked()
        receipt = await desk.take("am", body("Other"), {}, world.clock.now(), query={})
        assert [row["key"] for row in world.rows("alert_deliveries")] == [receipt.delivery]
        may_go_on.set()
    assert len(world.rows("alert_deliveries")) == 2


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("size", [0, 900_000])
async def test_a_small_body_that_may_unpack_to_a_large_one_is_read_on_another_thread(
    world: World, pack: Callable[[bytes], bytes], size: int
) -> None:
    threads: set[int] = set()

    def redact(text: str) -> str:
        threads.add(threading.get_ident())
        return text

    packed = pack(body(note="x" * size))
    assert len(packed) < 8 * 1024
    async with world.desk(redact=redact) as desk:
        receipt = await desk.take("am", packed, {}, world.clock.now(), query={})
        reading = set(threads)

    assert receipt.readable
    assert reading
    assert threading.get_ident() not in reading


async def test_a_watchdog_feeds_its_heartbeat_and_starts_nothing(world: World) -> None:
    await world.store.probes.enrol((heartbeat("prometheus"),), OWNER, now=world.clock.now())
    async with world.desk() as desk:
        heard = world.clock.now() - timedelta(minutes=3)  # it has waited for so long
        await desk.take("am", body("Watchdog"), {}, heard, query={})
        await world.decided(1)
        await until(lambda: world.rows("probes")[0]["ping_success_at"] is not None)

    assert world.decisions() == [AlertDecision.WATCHDOG]
    assert world.rows("sessions") == []
    pings = await world.store.probes.pings()
    assert pings["prometheus"].success == heard


async def test_a_database_that_is_away_is_told_to_the_sender_and_the_next_body_is_taken(world: World) -> None:
    class Away:
        def __init__(self) -> None:
            self.is_away = True

        async def receive(self, *args: object, **named: object) -> object:
            if self.is_away:
                raise DatabaseUnavailableError("the database is away.")
            return await world.store.alerts.receive(*args, **named)  # type: ignore[arg-type]

        async def decide(self, *args: object, **named: object) -> object:
            return await world.store.alerts.decide(*args, **named)  # type: ignore[arg-type]

        async def tick(self, *args: object, **named: object) -> object:
            return await world.store.alerts.tick(*args, **named)  # type: ignore[arg-type]

        async def is_quiet(self) -> bool:
            return await world.store.alerts.is_quiet()

    away = Away()
    async with world.desk(alerts=away) as desk:
        with pytest.raises(DatabaseUnavailableError):
            await desk.take("am", body(), {}, world.clock.now(), query={})
        away.is_away = False
        receipt = await desk.take("am", body(), {}, world.clock.now(), query={})

    assert receipt.alerts == 1


async def test_a_body_that_our_code_fails_to_write_ends_nothing_and_its_text_is_on_record(world: World) -> None:
    class Failing:
        async def receive(self, posted: Sequence[ReceivedBody], *, now: datetime) -> object:
            if any(isinstance(each.content, SenderBody) and each.content.alerts[0].name == "Bad" for each in posted):
                raise OverflowError("a bug of ours")
            return await world.store.alerts.receive(posted, now=now)

        def __getattr__(self, name: str) -> object:
            return getattr(world.store.alerts, name)

    receipts = {}

    async def bring(desk: AlertWorker, name: str) -> None:
        receipts[name] = await desk.take("am", body(name), {}, world.clock.now(), query={})

    async with world.desk(alerts=Failing()) as desk:
        async with anyio.create_task_group() as senders:
            for name in ("First", "Bad", "Last"):
                senders.start_soon(bring, desk, name)
        await world.decided(3)

    assert {name: receipt.readable for name, receipt in receipts.items()} == {"First": True, "Bad": False, "Last": True}
    assert _keys(world, "unparsed") == {receipts["Bad"].delivery}
    assert {row["name"] for row in world.rows("alerts")} == {"First", "Last"}


def _keys(world: World, status: str) -> set[object]:
    return {row["key"] for row in world.rows("alert_deliveries") if row["status"] == status and row["raw"]}


async def test_a_body_that_our_code_fails_about_keeps_no_other_from_being_decided_about(world: World) -> None:
    def chain(tier: int, told: Handover) -> NewSession:
        if "Bad of " in told.findings:
            raise RuntimeError("a bug of ours")
        return wanted(tier, trigger=Trigger.ALERT, context=told)

    async with world.desk(new_chain=chain) as desk:
        for name in ("First", "Bad", "Last"):
            own_group = body(name, service=name).replace(b'"g"', name.encode().join([b'"', b'"']))
            await desk.take("am", own_group, {}, world.clock.now(), query={})
        await world.decided(3)

    assert sorted(map(str, world.decisions())) == ["started", "started", "unparsed"]
    assert {row["name"] for row in world.rows("alerts")} == {"First", "Last"}


# --- the file of alerts -----------------------------------------------------------------------------------


async def test_a_wrong_edit_is_an_event_and_the_last_good_file_serves(world: World, tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text('[[source]]\nname = "am"\nkind = "alertmanager"\n', encoding="utf-8")
    file = OperatorFile(
        path=path,
        value=NO_RULES,
        name="alerts",
        refused=LogEvent.ALERTS_REFUSED,
        read=lambda found: load_alerts(found, highest_tier=3),
        events=world.store.probes,
        clock=world.clock,
        log=get_logger(),
    )
    await file.look()
    assert [source.name for source in file.value.sources] == ["am"]

    path.write_text('[[source]]\nname = "am"\nkind = "carrier pigeon"\n', encoding="utf-8")
    await file.look()
    (event,) = world.rows("events")
    assert "line 3" in str(event["message"])
    assert [source.name for source in file.value.sources] == ["am"]

    path.write_text('[[source]]\nname = "other"\nkind = "alertmanager"\n', encoding="utf-8")
    await file.look()
    assert [row["resolved_at"] is None for row in world.rows("events")] == [False]
    assert replace(file.value.sources[0], origin="").name == "other"

    path.unlink()
    await file.look()
    assert "is not there any more" in str(world.rows("events")[1]["message"])
    assert [source.name for source in file.value.sources] == ["other"]
