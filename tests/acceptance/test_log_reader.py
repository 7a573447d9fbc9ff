"""The daemon and a reader of its log that stands still: sessions run, and it stops as it should."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

PIPE_BYTES = 4096


async def test_a_log_that_nobody_reads_stops_neither_sessions_nor_the_schedule_nor_the_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    async with stand_in_node(tmp_path) as node:
        node.script(look(), deliver(report()))
        environment = node.operator.environment(**node.settings(CLAUDEOPS_INTERVAL="1", CLAUDEOPS_LOG_LEVEL="debug"))
        process = await anyio.open_process(
            node.operator.runs, env=environment, cwd=tmp_path, stdout=writing, stderr=subprocess.DEVNULL
        )
        os.close(writing)
        try:
            await node.operator.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) >= 3)
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(PATIENCE_SECONDS):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.aclose()
    with os.fdopen(reading, "rb") as log:
        said = log.read(PIPE_BYTES).splitlines()
    assert "timestamp" in json.loads(said[0])
