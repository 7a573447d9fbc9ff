"""Two daemons on one PostgreSQL database: each thing is done once, and what must be the same on all is demanded."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.domain.owner import ALERTS, NOTICES, SCHEDULES, UPKEEP, differing, probes_of
from support.fleet import FleetOperator, fleet
from support.operating import conclude, look
from support.store_values import queued, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.xdist_group("postgres")]

SESSIONS: Final = "SELECT * FROM sessions ORDER BY id"
NODES: Final = "SELECT * FROM instances ORDER BY node"
DEATHS: Final = "SELECT * FROM events WHERE fingerprint LIKE 'fleet:dead%'"
HELD: Final = "SELECT name, owner FROM leases WHERE owner IS NOT NULL"
ROLES: Final = {ALERTS, NOTICES, SCHEDULES, UPKEEP, probes_of("main")}
PROBE: Final = """
[[probe]]
name = "web"
kind = "tcp"
host = "127.0.0.1"
port = 1
interval = "1h"
"""

Rows = Sequence[dict[str, object]]


def ended(count: int) -> Callable[[Rows], bool]:
    return lambda rows: sum(row["status"] == "ended" for row in rows) >= count


def apart(rows: Rows) -> list[str] | None:
    """Return what two daemons decide by and have otherwise; ``None``: not both say all of it yet."""
    one, other = [json.loads(str(row["digests"])) for row in rows] if len(rows) == 2 else ({}, {})
    return list(differing(one, other)) if "probes" in one and "probes" in other else None


async def both_ready(operator: FleetOperator) -> None:
    await operator.until(NODES, lambda rows: len(rows) == 2)
    await operator.until(HELD, lambda rows: {row["name"] for row in rows} >= ROLES)


async def test_two_daemons_on_one_database_do_each_thing_once(tmp_path: Path, postgresql: Database) -> None:
    async with (
        fleet(tmp_path, postgresql, haiku=[look(), conclude()]) as operator,
        operator.node("attic", CLAUDEOPS_INTERVAL="2") as attic,
        operator.node("cellar", CLAUDEOPS_INTERVAL="2") as cellar,
    ):
        await attic.until_logged("daemon_ready")
        await cellar.until_logged("daemon_ready")
        await both_ready(operator)
        await operator.until(SESSIONS, ended(3))
        listed = await operator.run("list-nodes", "-o", "json")
        status = [await operator.run("status", "-o", "json", **operator.places(name)) for name in ("attic", "cellar")]
        health = [await operator.run("health", **operator.places(name)) for name in ("attic", "cellar")]
        holders = {row["owner"] for row in operator.rows(HELD)}
        owners = {row["owner"]: row["node"] for row in operator.rows(NODES)}
        assert [await attic.stop(), await cellar.stop()] == [0, 0]
    sessions, fires = operator.rows(SESSIONS), operator.rows("SELECT * FROM schedule_fires")
    taken = [row for row in sessions if row["attempt"]]  # the last fire may have come while both stopped: it waits
    nodes = listed.document["nodes"]
    assert isinstance(nodes, list)
    assert sorted(node["node"] for node in nodes) == ["attic", "cellar"]
    assert [done.code for done in health] == [0, 0]
    assert len(holders) == 1
    assert sorted((done.document["roles"] for done in status), key=str) == [sorted(ROLES), []]
    assert len(taken) >= len(sessions) - 1
    assert {row["owner"] for row in taken} <= owners.keys()
    assert {row["attempt"] for row in taken} == {1}
    assert sorted(int(str(row["session_id"])) for row in fires if row["session_id"]) == [row["id"] for row in sessions]
    assert not operator.rows(NODES)
    assert not operator.rows(HELD)


async def test_a_file_that_is_changed_on_one_machine_first_is_a_difference_that_passes(
    tmp_path: Path, postgresql: Database
) -> None:
    files = [tmp_path / f"{name}.toml" for name in ("attic", "cellar")]
    for file in files:
        file.write_text(PROBE)
    async with (
        fleet(tmp_path, postgresql, haiku=[look(), conclude()]) as operator,
        operator.node("attic", CLAUDEOPS_PROBES_PATH=str(files[0])),
        operator.node("cellar", CLAUDEOPS_PROBES_PATH=str(files[1])),
    ):
        await operator.until(NODES, lambda rows: apart(rows) == [])
        for differs, file in zip((["probes"], []), files, strict=True):
            file.write_text(PROBE.replace("port = 1", "port = 2"))
            await operator.until(NODES, lambda rows, differs=differs: apart(rows) == differs)  # type: ignore[misc]


async def test_death_of_a_node_is_said_until_it_is_back_and_what_waits_for_it_can_be_cancelled(
    tmp_path: Path, postgresql: Database
) -> None:
    async with fleet(tmp_path, postgresql, haiku=[look(), conclude()]) as operator, operator.node("attic") as attic:
        await attic.until_logged("daemon_ready")
        async with operator.node("cellar") as cellar:
            await cellar.until_logged("daemon_ready")
            await operator.until(SESSIONS, lambda rows: bool(rows) and all(row["status"] == "ended" for row in rows))
            assert not operator.rows(DEATHS)
            cellar.signal(signal.SIGKILL)
            await attic.until_logged("node_dead")
        (death,) = operator.rows(DEATHS)
        async with opened(postgresql) as store:
            waiting = await queued(store, wanted(for_node="cellar"))
        listed = await operator.run("list-nodes", "-o", "json")
        status = await operator.run("status", **operator.places("attic"))
        stopped = await operator.run("stop", str(waiting.id))
        async with operator.node("cellar") as cellar:
            await cellar.until_logged("node_back")
            assert await cellar.stop() == 0
        deaths = operator.rows(DEATHS)
    assert (listed.document["nodes_count"], listed.document["conditions"]) == (1, [death["message"]])
    assert (
        f"waits for node cellar, and no daemon runs there: start it, or `claudeops stop {waiting.id}`" in status.stdout
    )
    assert stopped.code == 0
    assert [(row["fingerprint"], row["resolved_at"] is None) for row in deaths] == [("fleet:dead cellar", False)]


async def test_a_daemon_with_another_approval_key_or_one_that_shares_nothing_is_refused_beside_others(
    tmp_path: Path, postgresql: Database
) -> None:
    async with (
        fleet(tmp_path, postgresql, haiku=[look(), conclude()]) as operator,
        operator.node("attic") as attic,
    ):
        await attic.until_logged("daemon_ready")
        places = operator.places("cellar")
        (tmp_path / "cellar" / "state" / "approval.key").write_bytes(b"k" * 32)
        strange = await operator.run("run", **places)
        alone = await operator.run("run", **places, CLAUDEOPS_DISPATCHER="local")
        assert [row["node"] for row in operator.rows(NODES)] == ["attic"]
    assert strange.code == 78
    assert "copy approval.key from the state directory of node attic" in strange.stderr
    assert alone.code == 75
    assert "set CLAUDEOPS_DISPATCHER=procrastinate here too" in alone.stderr


async def test_chain_of_a_shell_is_the_fleets_where_one_runs_and_else_its_own(
    tmp_path: Path, postgresql: Database
) -> None:
    done: dict[str, int] = {}
    async with fleet(tmp_path, postgresql, haiku=[look(), conclude()]) as operator:

        async def run(prompt: str, place: str) -> None:
            done[prompt] = (await operator.bootstrap("--prompt", prompt, **operator.places(place))).code

        async with operator.node("attic") as attic:
            await attic.until_logged("daemon_ready")
            await run("beside", "cellar")
            assert await attic.stop() == 0
        async with anyio.create_task_group() as tasks:
            for place in ("attic", "cellar"):
                tasks.start_soon(run, f"of {place}", place)
    assert done == {"beside": 0, "of attic": 0, "of cellar": 0}
    asked = {row["prompt_text"]: row["log_node"] for row in operator.rows(SESSIONS) if row["trigger"] == "manual"}
    assert asked == {"beside": "attic", "of attic": "attic", "of cellar": "cellar"}
    assert {row["status"] for row in operator.rows(SESSIONS)} == {"ended"}
