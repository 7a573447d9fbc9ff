"""Two daemons on one PostgreSQL: whatever happens to one of them, the other goes on, and nothing is done twice."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, cast

import pytest
import sqlalchemy as sa

from support import machines
from support.estate import deliver, look, report
from support.machines import Machine, machine, share_key
from support.postgres import Server
from support.stores import Database
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.postgres,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(machines.refusal() is not None, reason=f"each daemon needs a namespace: {machines.refusal()}"),
]

ALLOWED: Final = "SELECT session_id, tool_use_id FROM tool_calls WHERE verdict = 'allow' ORDER BY id"
EVERYTHING: Final = (
    "SELECT sessions, tool_calls FROM sessions LEFT JOIN tool_calls ON session_id = sessions.id ORDER BY 1, 2"
)
CHAIN: Final = "SELECT tier, trigger, status, outcome, log_node FROM sessions ORDER BY id"


@dataclass
class Pair:
    """Two machines; the first one has a session, which waits for a sign of the test after its first call."""

    attic: Machine
    cellar: Machine
    database: Database

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.database.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    async def until_ended(self, count: int) -> None:
        """Return once so many sessions have ended and none is left."""
        await until(
            lambda: [row[2] for row in self.rows(CHAIN)] == ["ended"] * count and not self._is_anything_queued()
        )

    def _is_anything_queued(self) -> bool:
        return bool(self.rows("SELECT id FROM sessions WHERE status <> 'ended'"))

    def frames(self) -> list[dict[str, object]]:
        """Return the frames in the log of the first session."""
        (log,) = (self.attic.root / "results").glob("session-*.ndjson")
        lines = log.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    async def last_shown(self) -> datetime:
        """Return when the first node has shown life for the last time, which it does no more."""
        ((shown_at,),) = self.rows("SELECT heartbeat FROM instances WHERE node = 'attic'")
        return cast("datetime", shown_at)

    def when(self, node: Machine, event: str) -> datetime:
        """Return when a node has logged an event for the first time."""
        return datetime.fromisoformat(str(node.logged(event)[0]["timestamp"]))

    @property
    def asked(self) -> int:
        """How many model calls have reached the API of the first node."""
        return len(self.attic.node.operator.api.requests)

    def has_processes(self) -> bool:
        """Return whether a process of a session of the first node is left."""
        return bool(self.attic.node.operator.processes_of_sessions())


ASK_MODEL: Final[Mapping[str, object]] = {"ask_model": {"model": "claude-haiku-4-5"}}
TAKEN_OVER: Final = [
    (1, "scheduled", "ended", "lost", "attic"),
    (1, "recovery", "ended", "success", "cellar"),
]
TAKEOVER: Final = timedelta(seconds=machines.TAKEOVER_SECONDS)
BOOKED: Final = "SELECT id FROM model_calls WHERE ended_at IS NOT NULL"


@pytest.fixture
async def pair(postgres: Server, postgresql: Database, tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        attic, cellar = [
            await stack.enter_async_context(machine(name, tmp_path / name, postgres.directory, postgresql))
            for name in ("attic", "cellar")
        ]
        go = {"await": str(attic.signals / "go")}
        held = look("toolu_1"), ASK_MODEL, go, look("toolu_2"), ASK_MODEL
        attic.node.script({"ignore": ["SIGTERM"]}, *held, deliver(report()))
        cellar.node.script(look("toolu_3"), deliver(report()))
        found = Pair(attic, cellar, postgresql)
        await stack.enter_async_context(attic.running())
        await until(lambda: len(found.rows(BOOKED)) == 1)
        share_key(attic, cellar)
        await stack.enter_async_context(cellar.running())
        yield found


async def test_paused_node_wakes_up_to_no_session_and_nothing_is_done_twice(pair: Pair) -> None:
    pair.attic.signal(signal.SIGSTOP)
    shown_at = await pair.last_shown()
    (pair.attic.signals / "go").touch()
    await pair.until_ended(2)
    before = pair.rows(EVERYTHING)

    pair.attic.signal(signal.SIGCONT)
    await until(lambda: len(pair.attic.logged("stale_attempt")) > 0)
    await until(lambda: not pair.has_processes())

    assert pair.attic.logged("lease_over")[0]["sessions"] == [1]
    assert pair.rows(CHAIN) == TAKEN_OVER
    assert pair.rows(ALLOWED) == [(1, "toolu_1"), (2, "toolu_3")]
    assert pair.asked == 1
    assert pair.rows(EVERYTHING) == before
    assert "result" not in {frame["type"] for frame in pair.frames()}
    assert pair.when(pair.cellar, "sessions_reconciled") - shown_at >= TAKEOVER


@pytest.mark.long
async def test_session_of_a_killed_node_is_taken_over_once(pair: Pair) -> None:
    pair.attic.signal(signal.SIGKILL)
    shown_at = await pair.last_shown()
    await pair.until_ended(2)

    assert pair.rows(CHAIN) == TAKEN_OVER
    assert pair.rows(ALLOWED) == [(1, "toolu_1"), (2, "toolu_3")]
    assert (pair.asked, pair.has_processes()) == (1, False)
    assert pair.when(pair.cellar, "sessions_reconciled") - shown_at >= TAKEOVER


@pytest.mark.long
async def test_node_that_is_cut_off_has_stopped_its_session_when_another_takes_it_over(pair: Pair) -> None:
    pair.attic.road.cut()
    await until(lambda: bool(pair.attic.logged("network_closed")))
    assert not pair.has_processes()
    await pair.until_ended(2)
    before = pair.rows(EVERYTHING)
    (pair.attic.signals / "go").touch()
    pair.attic.road.is_cut = False
    await until(lambda: bool(pair.attic.logged("stale_attempt")))

    assert pair.when(pair.attic, "network_closed") < pair.when(pair.cellar, "sessions_reconciled")
    assert pair.rows(CHAIN) == TAKEN_OVER
    assert pair.rows(ALLOWED) == [(1, "toolu_1"), (2, "toolu_3")]
    assert pair.asked == 1
    assert pair.rows(EVERYTHING) == before
    assert not pair.attic.logged("lock_lost")


@pytest.mark.long
async def test_server_that_is_away_for_less_than_a_lease_costs_no_session(postgres: Server, pair: Pair) -> None:
    postgres.stop()
    await until(lambda: bool(pair.attic.logged("database_unavailable") and pair.cellar.logged("database_unavailable")))
    postgres.start()
    (pair.attic.signals / "go").touch()
    await pair.until_ended(1)

    assert pair.rows(CHAIN) == [(1, "scheduled", "ended", "success", "attic")]
    assert pair.rows(ALLOWED) == [(1, "toolu_1"), (1, "toolu_2")]
    assert pair.asked == 2
    assert [*pair.attic.logged("lease_over"), *pair.cellar.logged("sessions_reconciled")] == []


@pytest.mark.long
async def test_server_that_is_away_for_longer_than_a_lease_costs_each_session_one_repetition(
    postgres: Server, pair: Pair
) -> None:
    postgres.stop()
    await until(lambda: bool(pair.attic.logged("network_closed")))
    assert not pair.has_processes()
    (pair.attic.signals / "go").touch()  # for the repetition
    postgres.start()
    await pair.until_ended(2)

    assert [row[1:4] for row in pair.rows(CHAIN)] == [row[1:4] for row in TAKEN_OVER]
    assert pair.rows(ALLOWED)[0] == (1, "toolu_1")
    assert len(pair.rows("SELECT id FROM events WHERE level = 'critical'")) == 0
