"""A session that eats the machine's memory, and a machine that has not enough of it for all slots."""

from __future__ import annotations

import psutil
import pytest

from claudeops.engine.process.bounds import available_mb, fitting_slots, used_mb
from claudeops.engine.process.tree import tally
from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio


async def test_a_session_that_outgrows_its_memory_is_stopped_and_says_what_it_cost(estate: Estate) -> None:
    estate.with_context(session_memory_mb=150)
    row = await estate.finished(look(), {"eat": 200}, {"hang": True})
    assert (row["outcome"], row["cost_usd"]) == ("out_of_memory", 0.01)
    assert "memory limit" in str(row["error"])
    assert "memory_limit_exceeded" in estate.logged.getvalue()


async def test_one_that_ignores_every_request_is_killed_before_it_has_eaten_everything(estate: Estate) -> None:
    estate.with_context(session_memory_mb=100)
    deaf = {"ignore": ["SIGTERM", "SIGINT", "interrupt"]}
    row = await estate.finished(deaf, {"eat": 300}, {"hang": True})
    assert (row["outcome"], row["exit_code"]) == ("out_of_memory", -9)


async def test_a_session_within_its_memory_is_left_alone(estate: Estate) -> None:
    estate.with_context(session_memory_mb=2000)
    row = await estate.finished({"eat": 50}, look(), deliver(report()))
    assert row["outcome"] == "success"


def test_shared_memory_is_counted_once() -> None:
    pid = psutil.Process().pid
    assert 0 < used_mb(tally(pid), worth_knowing_mb=0) <= used_mb(tally(pid), worth_knowing_mb=1_000_000)
    assert used_mb(tally(2**22 + 1)) == 0


@pytest.mark.parametrize(
    ("wanted", "session_mb", "free_mb", "slots"),
    [(2, 4096, 9000, 2), (2, 4096, 8191, 1), (2, 4096, 100, 1), (64, 256, 1024, 4)],
)
def test_as_many_sessions_as_fit_into_the_memory_but_always_one(
    wanted: int, session_mb: int, free_mb: int, slots: int
) -> None:
    assert fitting_slots(wanted, session_mb=session_mb, free_mb=free_mb) == slots


def test_the_free_memory_is_no_more_than_the_machine_has() -> None:
    assert 0 < available_mb() <= psutil.virtual_memory().total // 2**20
