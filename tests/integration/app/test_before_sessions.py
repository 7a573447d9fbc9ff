"""A daemon is ready before it is known what it runs for sessions; these wait for that."""

from __future__ import annotations

import os
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path

import pytest

from claudeops import logs
from claudeops.app.node import open_node
from claudeops.app.start.checks import make_directories
from claudeops.app.start.trial import Trial, surroundings
from claudeops.engine.cell.levels import Selected, choose
from claudeops.engine.cell.look_cell import FoundLooks
from claudeops.settings import load_settings
from support.daemon_within import nowhere
from support.estate import deliver, look, report
from support.stand_in_daemon import seconds, stand_in_node, told


async def test_a_daemon_is_ready_shows_pages_and_claims_no_session_while_a_program_is_tried(tmp_path: Path) -> None:
    """That program is a script, so `ldd` is asked for its libraries, which says nothing before it is let."""
    fifo, programs = tmp_path / "let", tmp_path / "bin"
    os.mkfifo(fifo)
    programs.mkdir()
    for name, script in (("ss", "exit 0"), ("ldd", f"read line <{fifo}")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    async with stand_in_node(tmp_path, is_new=True) as node:
        node.script(look(), deliver(report()))
        path = f"{programs}:{node.operator.environment()['PATH']}"
        async with node.daemon(PATH=path, CLAUDEOPS_LISTENER="on", CLAUDEOPS_DASHBOARD_PORT="0") as daemon:
            await daemon.until_logged("daemon_ready")
            if told(daemon, "isolation_chosen")[0]["isolation"] != "bubblewrap":
                pytest.skip("the programs are tried in bubblewrap alone")
            await daemon.until_logged("web_ready")
            await node.operator.until("SELECT status FROM sessions", bool)
            before = told(daemon, "looks_chosen")

            with fifo.open("r+b", buffering=0) as let:  # waits for no reader: the trial may have given up by now
                let.write(b"go on\n")
                await daemon.until_logged("looks_chosen")
            await daemon.until_logged("session_ended")
            (chosen,) = told(daemon, "looks_chosen")
            (session,) = node.operator.sessions()

    assert before == []
    assert "ss" in str(chosen["why"])
    started = datetime.fromisoformat(str(session["started_at"])).replace(tzinfo=UTC)
    assert started.timestamp() >= seconds(chosen["timestamp"])


@pytest.mark.parametrize("waiting", [0, 2])
async def test_where_a_session_waits_the_programs_are_tried_before_a_daemon_is_ready(
    tmp_path: Path, waiting: int
) -> None:
    isolation, orders = Future[Selected](), list[None]()
    async with stand_in_node(tmp_path) as node:
        await node.queue(waiting)
        with nowhere() as sink:
            settings = load_settings(node.operator.environment(**node.settings()), cwd=tmp_path).settings
            logs.configure(level="info", fmt="json", stream=sink, redact=str)
            await make_directories(settings)
            isolation.set_result(choose(settings.cell.isolation, surroundings(settings)))
            trial = Trial(isolation, Future[FoundLooks](), lambda: orders.append(None))
            async with open_node(settings, log=logs.get_logger(), trial=trial):
                assert len(orders) == min(waiting, 1)
