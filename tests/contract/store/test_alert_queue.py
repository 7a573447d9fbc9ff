"""Any store: what was acknowledged is decided about once, in its order, whoever dies in between."""

from __future__ import annotations

import sys
import textwrap
from datetime import timedelta
from itertools import count
from typing import Final

import anyio
import pytest

from claudeops.domain.alerts.alert import AlertDecision, SenderBody
from claudeops.domain.alerts.decide import RELEASED
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.rules import Grouping
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.retention import Aged, cutoffs
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.alerts.transaction import PIECE, Piece
from claudeops.store.store import Store, open_store
from support.alerts import SOURCE, alert, bring, rules_of
from support.store_values import NOW, RULES, after, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

ABOUT: Final = AlertFiles(alerts=rules_of(), escalation=RULES)
STORM: Final = PIECE * 3
KILLED: Final = textwrap.dedent(
    """
    import os, signal, sys
    import anyio
    from claudeops.domain.alerts.situation import AlertFiles
    from claudeops.store.store import open_store
    from support.alerts import rules_of
    from support.store_values import NOW, RULES

    def dies(tier, told):
        os.kill(os.getpid(), signal.SIGKILL)

    async def decide():
        store = open_store(sys.argv[1])
        await store.alerts.decide(AlertFiles(alerts=rules_of(), escalation=RULES), dies, now=NOW)

    anyio.run(decide)
    """
)


def chain_of(tier: int, told: Handover) -> NewSession:
    return wanted(tier, trigger=Trigger.ALERT, context=told)


def body(key: str, *names: str, group: str = "g") -> ReceivedBody:
    alerts = tuple(alert(name, group or "shop") for name in names)
    said = SenderBody(source=SOURCE, key=key, alerts=alerts, group_key=group)
    return ReceivedBody(content=said, received_at=NOW, raw="{}")


def decisions(database: Database) -> list[object]:
    return [row["decision"] for row in database.rows("alert_decisions")]


async def test_a_body_is_on_record_at_once_and_decided_about_by_whoever_comes(store: Store, database: Database) -> None:
    kept = await store.alerts.receive([body("a", "Down"), body("b", "Down"), body("a", "Down")], now=NOW)
    assert kept == [False, False, True]
    assert (len(database.rows("alert_queue")), decisions(database)) == (3, [])

    async with opened(database) as following:
        assert await following.alerts.decide(ABOUT, chain_of, now=after(minutes=1), most=1) is not None
        rest = await following.alerts.decide(ABOUT, chain_of, now=after(minutes=1))
    assert rest is not None
    assert len(rest.rulings) == 2
    assert rest.backlog is None
    assert decisions(database) == ["started", "duplicate", "duplicate"]
    assert await store.alerts.decide(ABOUT, chain_of, now=after(minutes=2)) is None
    assert database.rows("alert_queue") == []


async def test_a_daemon_that_is_killed_while_it_decides_leaves_the_whole_body_to_the_next_one(
    store: Store, database: Database
) -> None:
    await store.alerts.receive([body("a", "Down", "Slow"), body("b", "Down", group="h")], now=NOW)
    command = [sys.executable, "-c", KILLED, database.url]
    died = await anyio.run_process(command, check=False, env={"PYTHONPATH": ":".join(sys.path)})
    assert died.returncode == -9
    assert (len(database.rows("alert_queue")), database.rows("alerts"), decisions(database)) == (2, [], [])

    done = await bring(store.alerts, [], ABOUT, chain_of, now=after(minutes=1))
    assert len(done.started) == len(database.rows("sessions")) == 2
    assert sorted(map(str, decisions(database))) == ["grouped", "started", "started"]


async def test_how_much_waits_and_since_when_is_known(store: Store) -> None:
    await store.alerts.receive([body(str(number), "Down") for number in range(5)], now=NOW)
    done = await store.alerts.decide(ABOUT, chain_of, now=after(minutes=1), most=2)
    assert done is not None
    assert done.backlog is not None
    assert (done.backlog.bodies, done.backlog.since) == (3, NOW)


async def test_a_storm_does_not_keep_the_writer_longer_than_a_piece_may_take(database: Database) -> None:
    seconds = count()  # at every look a second has passed: one body is all there is time for
    store = open_store(database.url, now=lambda: NOW, monotonic=lambda: float(next(seconds)))
    try:
        await store.alerts.receive([body(str(number), "Down") for number in range(3)], now=NOW)
        waiting = []
        while (done := await store.alerts.decide(ABOUT, chain_of, now=after(minutes=1))) is not None:
            waiting.append(0 if done.backlog is None else done.backlog.bodies)
    finally:
        await store.close()
    assert waiting == [2, 1, 0]


async def test_a_body_that_is_set_aside_has_a_decision_and_the_next_ones_turn_has_come(
    store: Store, database: Database
) -> None:
    await store.alerts.receive([body("a", "Down"), body("b", "Slow")], now=NOW)
    assert await store.alerts.set_aside("ValueError", now=after(minutes=1)) == "a"
    await bring(store.alerts, [], ABOUT, chain_of, now=after(minutes=1))

    rows = database.rows("alert_decisions")
    assert [row["decision"] for row in rows] == [AlertDecision.UNPARSED, AlertDecision.STARTED]
    assert rows[0]["because"] == "it could not be decided about: ValueError"
    assert await store.alerts.set_aside("again", now=after(minutes=1)) is None


async def test_a_body_that_waits_is_not_cleared_away(store: Store, database: Database) -> None:
    await store.alerts.receive([body("a", "Down")], now=NOW)
    late = after(days=60)
    await store.retention.expire(Aged.BODIES, cutoffs(late, retention_days=30), now=late, rows=100)
    assert len(database.rows("alert_deliveries")) == 1


async def test_a_storms_last_chain_is_written_in_pieces_and_what_a_death_leaves_joins_it(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = AlertFiles(alerts=rules_of(Grouping(wait=timedelta(minutes=1))), escalation=RULES)
    names = [f"A{number}" for number in range(STORM)]
    posts = [body(str(first), *names[first : first + 100], group="") for first in range(0, STORM, 100)]
    await bring(store.alerts, posts, about, chain_of, now=NOW)
    assert set(decisions(database)) == {"grouped"}

    written = 0
    write = Piece.write

    def fails(piece: Piece, connection: object) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise DatabaseUnavailableError("the disk is away.")
        write(piece, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(Piece, "write", fails)
    done = await store.alerts.tick(about, chain_of, now=after(minutes=2))
    monkeypatch.undo()
    assert [len(start.alerts) for _, start in done.started] == [RELEASED]
    assert sum(row["due_at"] is not None for row in database.rows("alerts")) == STORM - PIECE

    async with opened(database) as following:
        await following.alerts.tick(about, chain_of, now=after(minutes=3))
    told = [row["decision"] for row in database.rows("alerts")]
    assert {name: told.count(name) for name in set(told)} == {
        "started": 1,
        "grouped": PIECE - 1,
        "joined": STORM - PIECE,
    }
    assert {row["incident_id"] for row in database.rows("alerts")} == {1}
    assert len(database.rows("sessions")) == 1
