"""Known failures of headless CLI sessions: a model that goes round in circles."""

from __future__ import annotations

import pytest

from claudeops.policy.repetition import REFUSED_AFTER, STOPPED_AFTER
from support.estate import Estate, deliver, look, report

pytestmark = pytest.mark.anyio


def failing(number: int) -> dict[str, object]:
    """Return a step: the same call once more, which fails in the same way."""
    about = {"id": f"toolu_{number}", "input": {"command": "curl http://web"}, "fails": True, "output": "Exit code 7"}
    return {"tool": about}


async def test_row_32_agent_repeats_the_same_failing_call(estate: Estate) -> None:
    row = await estate.finished(*map(failing, range(STOPPED_AFTER)), {"hang": True})
    assert (row["outcome"], row["decision_reason"]) == ("error", "session_failed")
    assert "again and again" in str(row["error"])
    verdicts = [call["verdict"] for call in estate.rows("SELECT verdict FROM tool_calls ORDER BY id")]
    assert verdicts == ["allow"] * REFUSED_AFTER + ["deny"] * (STOPPED_AFTER - REFUSED_AFTER)
    assert estate.rows("SELECT * FROM events WHERE message LIKE '%failed 8 times in a row%'")


async def test_row_32_who_heeds_the_refusal_goes_on(estate: Estate) -> None:
    alarm = report(needed=True, status="down")
    row = await estate.finished(*map(failing, range(REFUSED_AFTER + 1)), look("toolu_99"), deliver(alarm))
    assert (row["outcome"], row["decision_reason"]) == ("success", "escalated")
