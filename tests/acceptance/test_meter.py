"""The meter under the real CLI: every model call goes through it, and what the API served is what is booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.booked import Tokens
from support.operating import conclude, look, operator

if TYPE_CHECKING:
    from pathlib import Path

    from support.operating import Operator

pytestmark = pytest.mark.anyio

CALLS = "SELECT * FROM model_calls ORDER BY id"


def booked(op: Operator) -> Tokens:
    return Tokens.booked(op.rows(CALLS))


async def test_what_the_api_served_is_what_is_booked(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[look(), conclude()]) as op:
        done = await op.bootstrap()
        assert done.code == 0, done.stderr
        assert booked(op) == Tokens.served(op.api.traffic) != Tokens()
    calls = op.rows(CALLS)
    [session] = op.sessions()
    assert [(call["session_id"], call["http_status"], call["error"]) for call in calls] == [(1, 200, None)] * 2
    assert all(str(call["model"]).startswith("claude-haiku-") and call["ended_at"] for call in calls)
    assert session["cost_usd"] == pytest.approx(sum(float(str(call["cost_usd"])) for call in calls))
    assert session["cost_usd"]
    assert (session["input_tokens"], session["output_tokens"]) == (booked(op).input, booked(op).output)
    assert session["warnings"] in {None, "[]"}, "our price table and the CLI's own figure agree"
