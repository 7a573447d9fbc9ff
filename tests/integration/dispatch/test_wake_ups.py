"""What an operator writes reaches the daemon at once, and without a wake-up all the same; a flood is no load."""

from __future__ import annotations

import io
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from claudeops import logs
from claudeops.dispatch.wake_ups import (
    LONGEST_REST_SECONDS,
    LOOK_SECONDS,
    NET_SECONDS,
    OWN_SECONDS,
    REST_SECONDS,
    NextVersion,
    WakeUps,
    open_socket,
)
from claudeops.domain.commands import CommandName
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.database import WAKE_SOCKET, waking
from claudeops.store.store import open_store
from support.store_values import NOW, OWNER
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

HOURS: Final = 10 * 3600.0


async def unchanged() -> object:
    return 1


async def at_once(_seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


def seen(version: Callable[[], Awaitable[object]]) -> NextVersion:
    """Return what looks at a version as a database does."""

    async def next_version(is_news: Callable[[object], bool], seconds: float) -> object:
        while True:
            await (anyio.sleep_forever() if seconds == HOURS else anyio.lowlevel.checkpoint())
            if is_news(found := await version()):
                return found

    return next_version


def wake_ups(
    state: Path, *, look_seconds: float = HOURS, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
) -> WakeUps:
    return WakeUps(file=state / WAKE_SOCKET, log=logs.get_logger(), look_seconds=look_seconds, sleep=sleep)


@asynccontextmanager
async def running(ups: WakeUps, next_version: NextVersion | None = None) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ups.run, next_version or seen(unchanged))
        yield
        tasks.cancel_scope.cancel()


def send(state: Path) -> None:
    waking(state)()


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


async def test_an_operators_row_is_found_at_once_although_the_next_look_is_hours_away(
    sqlite: Database, tmp_path: Path
) -> None:
    ups = wake_ups(tmp_path)
    waiter = ups.waiter()
    async with opened(sqlite) as daemons, running(ups, daemons.database.next_version):
        await waiter.pause(HOURS)  # for the look at the start
        shell = open_store(sqlite.url, changed=waking(tmp_path))
        with anyio.fail_after(PATIENCE_SECONDS):
            await shell.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
            await waiter.pause(HOURS)
        await shell.close()
        assert [command.requested_by for command in await daemons.commands.take(OWNER.name, now=NOW)] == ["ada"]


async def test_an_operators_row_is_found_by_looking_where_no_wake_up_can_come(
    sqlite: Database, tmp_path: Path, logged: io.StringIO
) -> None:
    state = tmp_path / ("x" * 120)
    state.mkdir()
    ups = wake_ups(state, look_seconds=0.001)
    waiter = ups.waiter()
    async with opened(sqlite) as daemons, running(ups, daemons.database.next_version):
        await waiter.pause(HOURS)
        shell = open_store(sqlite.url, changed=waking(state))
        with anyio.fail_after(PATIENCE_SECONDS):
            await shell.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
            await waiter.pause(HOURS)
        await shell.close()
    assert logged.getvalue().count("wake_socket_unusable") == 1


async def test_a_look_wakes_nothing_while_nothing_is_written(tmp_path: Path) -> None:
    looks, woken = 0, list[str]()

    async def version() -> object:
        nonlocal looks
        looks += 1
        return "the same"

    ups = wake_ups(tmp_path, look_seconds=0.0)
    ups.join(partial(woken.append, "woken"))
    async with running(ups, seen(version)):
        await until(lambda: looks > 100)
    assert woken == ["woken"]  # at the start: what was written before is not known


async def test_what_the_daemon_writes_itself_wakes_only_those_that_wait_for_that_and_takes_no_look(
    sqlite: Database, tmp_path: Path
) -> None:
    ups = wake_ups(tmp_path, sleep=at_once)
    woken: list[str] = []
    store = open_store(sqlite.url, changed=ups.note)
    async with running(ups):  # whose next look is hours away
        await ups.waiter().pause(HOURS)  # for the look at the start
        ups.join(partial(woken.append, "any"))
        ups.join(partial(woken.append, "of others"), own=False)
        await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
        await until(lambda: woken == ["any"])
        await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
        await until(lambda: woken == ["any", "any"])
    await store.close()


async def test_however_much_the_daemon_writes_it_wakes_what_waits_once_a_second(tmp_path: Path) -> None:
    rests: list[float] = []
    woken: list[str] = []
    ended = anyio.Event()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        for _ in range(1000):
            ups.note()
        await (anyio.lowlevel.checkpoint() if len(rests) == 1 else ended.wait())

    ups = wake_ups(tmp_path, sleep=sleep)
    async with running(ups):
        await ups.waiter().pause(HOURS)
        ups.join(partial(woken.append, ""))
        ups.note()
        await until(lambda: bool(woken))
        assert (len(rests), len(woken)) == (1, 1)
        ups.note()
        await until(lambda: len(rests) == 2)
    assert all(0 < rest <= OWN_SECONDS for rest in rests)
    assert len(woken) == 1


async def test_what_was_written_before_the_daemon_could_be_woken_wakes_it_then(tmp_path: Path) -> None:
    ups = wake_ups(tmp_path, sleep=at_once)
    woken: list[str] = []
    ups.note()
    async with running(ups):
        await ups.waiter().pause(HOURS)
        ups.join(partial(woken.append, ""))
        await until(lambda: bool(woken))


async def test_a_write_after_the_daemons_end_fails_at_nothing(tmp_path: Path) -> None:
    """A thread that was left behind with its database may come back when everything else has ended."""
    ups: list[WakeUps] = []

    async def run() -> None:
        ups.append(wake_ups(tmp_path))
        async with running(ups[0]):
            await ups[0].waiter().pause(HOURS)

    await anyio.to_thread.run_sync(lambda: anyio.run(run))
    ups[0].note()


@pytest.mark.parametrize(("name", "seconds"), [("state", NET_SECONDS), ("x" * 120, LOOK_SECONDS)])
async def test_the_daemon_looks_each_second_where_no_wake_up_can_come(
    tmp_path: Path, name: str, seconds: float, logged: io.StringIO
) -> None:
    state = tmp_path / name
    state.mkdir()
    waits: list[float] = []

    async def next_version(is_news: Callable[[object], bool], seconds: float) -> object:
        waits.append(seconds)
        if len(waits) == 2:
            await anyio.sleep_forever()
        assert is_news(1)
        return 1

    async with running(wake_ups(state, look_seconds=NET_SECONDS), next_version):
        await until(lambda: len(waits) == 2)
    assert waits == [0.0, seconds]
    assert ("wake_socket_unusable" in logged.getvalue()) == (seconds == LOOK_SECONDS)


async def test_a_database_that_is_away_wakes_what_waits_so_that_it_is_noticed(tmp_path: Path) -> None:
    looks: list[str] = []

    async def version() -> object:
        looks.append("")
        raise DatabaseUnavailableError("the database is away.")

    ups = wake_ups(tmp_path, look_seconds=0.0)
    waiter = ups.waiter()
    async with running(ups, seen(version)):
        with anyio.fail_after(PATIENCE_SECONDS):
            await waiter.pause(HOURS)
            await waiter.pause(HOURS)


async def test_a_flood_of_wake_ups_does_not_spin_the_daemon(tmp_path: Path) -> None:
    """As long as datagrams come without end, the daemon rests longer and longer, up to what it did before."""
    rests: list[float] = []
    woken: list[str] = []
    over = anyio.Event()

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 8:
            over.set()
            await anyio.sleep_forever()
        if len(rests) != 7:
            for _ in range(1000):
                send(tmp_path)

    ups = wake_ups(tmp_path, sleep=sleep)
    async with running(ups):
        await until((tmp_path / WAKE_SOCKET).exists)
        ups.join(partial(woken.append, ""))
        send(tmp_path)
        with anyio.fail_after(PATIENCE_SECONDS):
            await until(lambda: len(rests) == 7)
            send(tmp_path)
            await over.wait()
    assert rests == [0.05, 0.1, 0.2, 0.4, 0.8, LONGEST_REST_SECONDS, LONGEST_REST_SECONDS, REST_SECONDS]
    assert len(woken) == len(rests)


def test_a_sender_is_never_held_up_and_never_fails(tmp_path: Path) -> None:
    send(tmp_path)  # nothing is there
    send(tmp_path / ("x" * 200))
    (tmp_path / WAKE_SOCKET).write_text("a file", encoding="utf-8")
    send(tmp_path)
    (tmp_path / WAKE_SOCKET).unlink()
    with open_socket(tmp_path / WAKE_SOCKET) as inlet:
        for _ in range(5000):  # far more than the kernel holds
            send(tmp_path)
        assert inlet.recv(10) == b"\n"


async def test_a_heartbeat_is_no_news_and_wakes_nothing(sqlite: Database, tmp_path: Path) -> None:
    store = open_store(sqlite.url, changed=waking(tmp_path))
    with open_socket(tmp_path / WAKE_SOCKET) as inlet:
        await store.recovery.renew_lease(OWNER, now=NOW)
        with pytest.raises(BlockingIOError):
            inlet.recv(10)
        await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
        assert inlet.recv(10) == b"\n"
    await store.close()


def test_the_socket_of_a_dead_daemon_is_replaced_and_ours_goes_with_us(tmp_path: Path) -> None:
    file = tmp_path / WAKE_SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(file))
    with open_socket(file) as inlet:
        send(tmp_path)
        assert inlet.recv(10) == b"\n"
    assert not file.exists()


def test_the_socket_is_the_daemons_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_socket(tmp_path / WAKE_SOCKET):
            assert stat.S_IMODE((tmp_path / WAKE_SOCKET).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_successors_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / WAKE_SOCKET
    with open_socket(file):
        file.unlink()
        file.write_text("somebody else's", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == "somebody else's"


async def test_a_file_in_the_place_of_the_socket_is_named_and_left_alone(tmp_path: Path, logged: io.StringIO) -> None:
    file = tmp_path / WAKE_SOCKET
    file.write_text("precious", encoding="utf-8")
    ups = wake_ups(tmp_path)
    async with running(ups):
        await until(lambda: bool(logged.getvalue()))
    assert file.read_text(encoding="utf-8") == "precious"
    assert f'"path":"{file}"' in logged.getvalue().replace(" ", "")
    assert "no socket: remove it" in logged.getvalue()


def test_another_users_socket_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / WAKE_SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(str(file))
        owner = file.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(FileExistsError, match=f"user {owner}'s"), open_socket(file):
            pass
        assert file.is_socket()
