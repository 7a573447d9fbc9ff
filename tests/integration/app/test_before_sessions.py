"""A daemon is ready before it is known what it runs for sessions; these wait for that."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

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
