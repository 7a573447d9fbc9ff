"""Helpers of the daemon beside its sessions: no look for orphans takes them for one."""

from __future__ import annotations

import sys

import anyio
import pytest

from claudeops.engine.process import tree
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.engine.process.tree import become_subreaper, inherited

pytestmark = pytest.mark.anyio

WAITS = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]


async def test_a_helper_is_not_taken_for_an_orphan_of_a_session_and_killed() -> None:
    become_subreaper()
    helper = await open_leader(WAITS)
    async with await anyio.open_process(WAITS, start_new_session=True) as unregistered:
        try:
            orphans = inherited()
        finally:
            unregistered.kill()
            await end_leader(helper)
    assert orphans == {unregistered.pid}


async def test_a_helper_that_was_ended_is_forgotten_because_its_pid_comes_again() -> None:
    helper = await open_leader(WAITS)
    await end_leader(helper)
    assert helper.returncode == -9
    assert helper.pid not in tree._started
