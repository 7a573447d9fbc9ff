"""PostgreSQL ends connections, or its disk is full: the daemon goes on, nothing is lost and nothing is done twice."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
import pytest
import sqlalchemy as sa

from claudeops.store.migrate import migrate
from support import machines
from support.estate import deliver, look, report
from support.machines import Machine, machine
from support.postgres import Server, running_server
from support.stores import MIGRATIONS, Database
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.postgres,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(machines.refusal() is not None, reason=f"the daemon needs a namespace: {machines.refusal()}"),
]

ASK_MODEL: Final = {"ask_model": {"model": "claude-haiku-4-5"}}
DISK: Final = "160m"
CHUNK: Final = 4096  # bytes
SMALL: Final = {"CLAUDEOPS_DISPATCHER": "local", "CLAUDEOPS_LOG_LEVEL": "debug"}


@dataclass
class Watched:
    """A machine with a session that waits for a sign of the test after its first calls, and its database."""

    attic: Machine
    database: Database

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.database.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query))]

    async def until_it_waits(self) -> None:
        await until(lambda: len(self.rows("SELECT id FROM model_calls WHERE ended_at IS NOT NULL")) == 1)

    async def until_it_lives(self) -> None:
        """Return once the daemon has shown life after this moment."""
        ((now,),) = self.rows("SELECT clock_timestamp()")
        await until(lambda: self._shown() > now)  # type: ignore[operator]

    def _shown(self) -> object:
        ((shown,),) = self.rows("SELECT max(heartbeat) FROM instances")
        return shown

    def go(self) -> None:
        (self.attic.signals / "go").touch()

    @property
    def outcomes(self) -> list[object]:
        return [row[0] for row in self.rows("SELECT outcome FROM sessions ORDER BY id")]

    @property
    def allowed(self) -> list[object]:
        return [row[0] for row in self.rows("SELECT tool_use_id FROM tool_calls WHERE verdict = 'allow' ORDER BY id")]

    @property
    def asked(self) -> int:
        return len(self.attic.node.operator.api.requests)


async def watched(
    tmp_path: Path, server: Server, database: Database, *, summary: str = "all is well", **settings: str
) -> AsyncIterator[Watched]:
    async with machine("attic", tmp_path / "attic", server.directory, database) as attic:
        go = {"await": str(attic.signals / "go")}
        later = look("toolu_2"), ASK_MODEL | {"may_fail": True}
        attic.node.script(look("toolu_1"), ASK_MODEL, go, *later, deliver(report(summary=summary)))
        async with attic.running(**settings):
            found = Watched(attic, database)
            await found.until_it_waits()
            yield found


# --- connections that the server ends -----------------------------------------------------------------------

CONNECTIONS: Final = (
    "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY backend_start"
)
LOCK: Final = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock'"


@pytest.fixture
async def node(postgres: Server, postgresql: Database, tmp_path: Path) -> AsyncIterator[Watched]:
    async for found in watched(tmp_path, postgres, postgresql):
        yield found


async def test_the_server_ends_each_connection_in_turn_and_the_daemon_goes_on(node: Watched) -> None:
    connections = node.rows(CONNECTIONS)
    assert sum(name == "claudeops-jobs" for _, name in connections) == 2
    assert len(connections) >= 6  # it writes, reads, has leases and the lock besides
    for pid, _ in connections:
        node.rows(f"SELECT pg_terminate_backend({pid})")
        await until(lambda pid=pid: pid not in {each for each, _ in node.rows(CONNECTIONS)})  # type: ignore[misc]
        await node.until_it_lives()
    await until(lambda: node.rows(LOCK) == [(1,)])
    await until(lambda: sum(name == "claudeops-jobs" for _, name in node.rows(CONNECTIONS)) == 2)

    node.go()
    await until(lambda: node.outcomes == ["success"])

    assert (node.allowed, node.asked) == (["toolu_1", "toolu_2"], 2)
    assert node.rows("SELECT count(*) FROM service_checks") == [(1,)]
    assert node.rows("SELECT count(*) FROM budget_entries WHERE kind = 'settled'") == [(1,)]
    assert not node.attic.logged("lock_lost", "lease_over", "stale_attempt")


# --- its disk is full ---------------------------------------------------------------------------------------


@cache
def no_mounts() -> str | None:
    """Return why no disk of its own can be given to a server here; ``None``: it can."""
    if os.geteuid() != 0:
        return "a file system is mounted by root alone"
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place],
            capture_output=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode:
            return done.stderr.decode(errors="replace").strip() or "mount failed"
        subprocess.run(["umount", place], check=True, timeout=PATIENCE_SECONDS)
    return None


class Disk:
    """A small disk, which is filled and has room again."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    def fill(self) -> None:
        """Leave no room, also where something is written meanwhile."""
        with self._ballast.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(CHUNK)):
                pass

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk() -> Iterator[Disk]:
    if (why := no_mounts()) is not None:
        pytest.skip(f"a server needs a small disk of its own: {why}")
    with tempfile.TemporaryDirectory(prefix="claudeops-disk-") as name:
        place = Path(name)
        place.chmod(0o755)  # for the server, which is not root
        options = f"size={DISK},mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", name], check=True, timeout=PATIENCE_SECONDS)
        try:
            yield Disk(place)
        finally:
            subprocess.run(["umount", name], check=True, timeout=PATIENCE_SECONDS)


def write_until_it_panics(connection: psycopg.Connection) -> None:
    """Have the server begin segments of its log until it finds no room for one, which ends it.

    Before that a statement may find no room for something else, which ends nothing.
    """
    for _ in range(1000):
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', 'more'), pg_switch_wal()")
        if connection.broken:
            return
    pytest.fail("the server has found room for all of it")


def is_up(server: Server) -> bool:
    try:
        server.connect("postgres").close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
async def node_on_a_small_disk(tmp_path: Path, disk: Disk) -> AsyncIterator[tuple[Watched, Server]]:
    small = {"min_wal_size": "32MB", "max_wal_size": "48MB"}
    with running_server(data_directory=disk.place / "data", parameters=small) as server:
        database = Database(server.url(server.create()))
        migrate(database.url, migrations_dir=MIGRATIONS, backup_dir=tmp_path)
        async for found in watched(tmp_path, server, database, **SMALL):
            yield found, server


async def test_a_server_without_room_for_its_log_ends_and_results_wait_for_its_return(
    node_on_a_small_disk: tuple[Watched, Server], disk: Disk
) -> None:
    node, server = node_on_a_small_disk
    with server.connect("postgres") as connection:
        disk.fill()
        write_until_it_panics(connection)
    await until(lambda: bool(node.attic.logged("database_unavailable")))
    node.go()
    await until(lambda: '"while_doing":"finish"' in node.attic.daemon.output.read_text())
    assert node.asked == 1

    disk.free()
    if not is_up(server):
        server.start()
    await until(lambda: bool(node.attic.logged("session_ended")))
    await until(lambda: bool(node.attic.logged("database_recovered")))

    assert (node.outcomes, node.allowed, node.asked) == (["success"], ["toolu_1"], 1)
    assert node.rows("SELECT count(*) FROM service_checks") == [(1,)]
    assert node.rows("SELECT count(*) FROM budget_entries WHERE kind = 'settled'") == [(1,)]
    assert "database unavailable: a call that cannot be recorded" in node.attic.daemon.output.read_text()
    assert not node.attic.logged("lock_lost")


@pytest.fixture
async def node_with_tables_on_a_small_disk(tmp_path: Path, disk: Disk) -> AsyncIterator[Watched]:
    with running_server() as server:
        owner = server.directory.stat()
        os.chown(disk.place, owner.st_uid, owner.st_gid)
        with server.connect("postgres") as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{disk.place}'")
            connection.execute("CREATE DATABASE small TABLESPACE small")
        database = Database(server.url("small"))
        migrate(database.url, migrations_dir=MIGRATIONS, backup_dir=tmp_path)
        much = random.Random(1).randbytes(40_000).hex()  # noqa: S311 - no secret: what cannot be packed
        async for found in watched(tmp_path, server, database, summary=much, **SMALL):
            yield found


@pytest.mark.long
async def test_a_result_for_which_the_tables_have_no_room_is_written_once_they_have(
    node_with_tables_on_a_small_disk: Watched, disk: Disk
) -> None:
    node = node_with_tables_on_a_small_disk
    disk.fill()
    node.go()
    await until(lambda: '"while_doing":"finish"' in node.attic.daemon.output.read_text())
    assert node.rows("SELECT status FROM sessions") == [("running",)]
    (full,) = node.attic.logged("database_full")
    assert "the disk of the server of the database" in str(full["error"])
    assert "could not extend file" in str(full["error"])
    assert {line["level"] for line in node.attic.logged("database_unavailable")} == {"debug"}

    disk.free()
    await until(lambda: bool(node.attic.logged("session_ended")))
    await until(lambda: bool(node.attic.logged("database_has_room")))

    assert node.outcomes == ["success"]
    assert len(node.allowed) == len(set(node.allowed))
    assert node.rows("SELECT count(*) FROM service_checks") == [(1,)]
    assert node.rows("SELECT count(*) FROM budget_entries WHERE kind = 'settled'") == [(1,)]
    assert not node.attic.logged("lock_lost")
