"""The listener says nothing of a log that another machine has, or says that it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from claudeops.app.log_lines import SessionLogs
from claudeops.domain.sessions import Session, Status
from claudeops.store.reading.calls import CallVerdict
from claudeops.structs import replace
from claudeops.web.ports import LogElsewhereError
from support.store_values import NOW, running

pytestmark = pytest.mark.anyio


class OneRow:
    def __init__(self, session: Session) -> None:
        """Hold one session."""
        self.held = session

    async def session(self, _session_id: int) -> Session:
        return self.held


async def no_verdicts(_session_id: int) -> Mapping[str, CallVerdict]:
    return {}


@pytest.mark.parametrize("status", [Status.RUNNING, Status.ENDED])
@pytest.mark.parametrize("node", ["attic", "cellar", None])
async def test_reader_is_sent_where_the_log_is(tmp_path: Path, status: Status, node: str | None) -> None:
    session = replace(
        running(), status=status, log_path=str(tmp_path / "session-000007.ndjson"), log_node=node, ended_at=NOW
    )
    logs = SessionLogs(records=OneRow(session), verdicts=no_verdicts, node="attic")  # type: ignore[arg-type]
    log = await logs.open(session.id)
    assert log is not None

    if node == "cellar":
        with pytest.raises(LogElsewhereError, match=f"is on node cellar, at {session.log_path}"):
            await log.read(0, limit=10)
    elif status is Status.ENDED:
        with pytest.raises(FileNotFoundError, match="No such file"):
            await log.read(0, limit=10)
    else:  # it is opened a moment after its row names it
        assert (await log.read(0, limit=10)).lines == ()


async def test_log_in_a_directory_that_machines_share_is_read(tmp_path: Path) -> None:
    path = tmp_path / "session-000007.ndjson"
    path.write_text('{"type": "system"}\n', encoding="utf-8")
    session = replace(running(), log_path=str(path), log_node="cellar")

    log = await SessionLogs(records=OneRow(session), verdicts=no_verdicts, node="attic").open(7)  # type: ignore[arg-type]

    assert log is not None
    assert len((await log.read(0, limit=10)).lines) == 1
