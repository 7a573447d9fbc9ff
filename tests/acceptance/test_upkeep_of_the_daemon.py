"""The daemon keeps house by itself: it pings the watchdog, and starts nothing on a disk that is too full."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.operating import conclude, look, operator
from support.senders import starts_nothing
from support.waiting import until

pytestmark = pytest.mark.anyio

TOKEN = "a-token-that-only-the-watchdog-knows"
ENDED = "SELECT * FROM sessions WHERE status = 'ended'"


@contextmanager
def watchdog() -> Iterator[tuple[str, list[str]]]:
    """Give an address to ping and the list of who pinged."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{TOKEN}", asked
        finally:
            server.shutdown()
            thread.join()


async def test_the_watchdog_hears_of_a_whole_healthy_cycle_and_its_address_is_in_no_log(tmp_path: Path) -> None:
    with watchdog() as (url, asked):
        async with (
            operator(tmp_path, haiku=[look(), conclude()]) as someone,
            someone.daemon(CLAUDEOPS_INTERVAL="86400", CLAUDEOPS_HEARTBEAT_URL=url) as daemon,
        ):
            await daemon.until_logged("heartbeat_sent")
            output = daemon.output

    assert asked == [f"/{TOKEN}"]
    assert TOKEN not in output.read_text()


async def test_the_watchdog_hears_of_a_chain_in_the_foreground_too(tmp_path: Path) -> None:
    with watchdog() as (url, asked):
        async with operator(tmp_path, haiku=[look(), conclude()]) as someone:
            await someone.bootstrap(CLAUDEOPS_HEARTBEAT_URL=url)
            await someone.bootstrap("--prompt", "is db all right?", CLAUDEOPS_HEARTBEAT_URL=url)

    assert asked == [f"/{TOKEN}"]


async def test_the_watchdog_hears_nothing_of_a_look_without_evidence(tmp_path: Path) -> None:
    with watchdog() as (url, asked):
        async with (
            operator(tmp_path, haiku=[conclude()]) as someone,
            someone.daemon(CLAUDEOPS_INTERVAL="86400", CLAUDEOPS_HEARTBEAT_URL=url) as daemon,
        ):
            await someone.until(ENDED, lambda rows: len(rows) == 1)
            (session,) = someone.sessions()
            await daemon.stop()

    assert session["decision_reason"] == "no_evidence"
    assert asked == []


async def test_below_the_floor_nothing_starts_and_somebody_is_told(tmp_path: Path) -> None:
    state = tmp_path / "state" / "daemon.json"
    async with operator(tmp_path, haiku=[look(), conclude()]) as someone:
        async with someone.daemon(CLAUDEOPS_INTERVAL="86400", CLAUDEOPS_DISK_FLOOR_MB="1048576") as daemon:
            await daemon.until_logged("disk_low")
            await daemon.until_logged("schedule_fired")
            await daemon.until_logged("daemon_ready")
            await until(lambda: "disk" in [hold["kind"] for hold in json.loads(state.read_text())["holds"]])
            await daemon.stop()
        assert [row["status"] for row in someone.sessions()] == ["queued"]
        (event,) = someone.rows("SELECT * FROM events WHERE level = 'critical'")
        assert "CLAUDEOPS_DISK_FLOOR_MB" in str(event["message"])

        async with someone.daemon(CLAUDEOPS_INTERVAL="86400"):  # with room again
            await someone.until(ENDED, lambda rows: len(rows) >= 1)


async def test_a_backup_is_made_while_the_daemon_runs_and_takes_no_files_place(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    async with (
        operator(tmp_path, haiku=[look(), conclude()]) as someone,
        someone.daemon(**starts_nothing(tmp_path)) as daemon,
    ):
        await daemon.until_logged("daemon_ready")
        first = await someone.run("backup", str(copy), "--output-format=json")
        size = copy.stat().st_size
        second = await someone.run("backup", str(copy))

    assert (first.code, first.document["path"], first.document["bytes"]) == (0, str(copy), size)
    assert (second.code, copy.stat().st_size) == (78, size)
    assert "exists" in second.stderr
