"""A queue that a killed daemon left behind: the next one takes all of it, and each of it once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node, told
from support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.long)])
async def test_sessions_that_waited_when_the_daemon_was_killed_are_all_run_and_none_twice(
    tmp_path: Path, count: int
) -> None:
    async with stand_in_node(tmp_path) as node:
        node.script({"hang": True})
        async with node.daemon() as daemon:
            await daemon.until_logged("session_spawned")
            queued = await node.queue(count)
            await until(lambda: len(told(daemon, "session_claimed")) == 2)
            daemon.process.kill()
        node.script(look(), deliver(report()))
        async with node.daemon(CLAUDEOPS_MAX_CONCURRENT_SESSIONS="4") as again:
            await node.until_idle()
        sessions = {row["id"]: row for row in node.operator.sessions()}
        claims = Counter(line["session_id"] for line in told(again, "session_claimed"))
    begun = {line["session_id"] for line in told(daemon, "session_claimed")}

    assert {sessions[ident]["outcome"] for ident in begun} == {"lost"}
    waited = [ident for ident in queued if ident not in begun]
    assert len(waited) == count - 1
    assert {(sessions[ident]["outcome"], sessions[ident]["attempt"]) for ident in waited} == {("success", 1)}
    assert {claims[ident] for ident in waited} == {1}
    # Who was claimed when the daemon died may not have got as far as a log.
    logs = {
        path.name for path in (tmp_path / "results").iterdir() if re.fullmatch(r"session-\d{6}.*\.ndjson", path.name)
    }
    assert logs >= {f"session-{ident:06d}.ndjson" for ident in waited}
    assert logs <= {f"session-{ident:06d}.ndjson" for ident in sessions}
