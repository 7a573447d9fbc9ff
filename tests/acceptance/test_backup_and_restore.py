"""The documented way back: nothing is overwritten, nothing is read into the wrong row, and everything goes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from support.checkout import ROOT
from support.operating import Operator, conclude, look, operator

pytestmark = pytest.mark.anyio

HOW_TO = ROOT / "docs" / "how-to" / "back-up-and-restore.md"
ENDED = "SELECT * FROM sessions WHERE status = 'ended'"
MODEL = [look(), conclude()]


def commands(heading: str) -> str:
    """Return the first block of commands under a heading of the page."""
    _, _, below = HOW_TO.read_text(encoding="utf-8").partition(f"## {heading}\n")
    block = re.search(r"^```sh\n(.+?)^```$", below, flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1]


async def type_in(someone: Operator, heading: str, **environment: str) -> None:
    """Do what the page says."""
    shell = {**someone.environment(**environment), "PATH": f"{_bin()}:/usr/bin:/bin"}
    await anyio.run_process(["sh", "-euc", commands(heading)], env=shell, cwd=someone.root)


def _bin() -> Path:

    return Path(sys.executable).parent


def logs(someone: Operator) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (someone.root / "results").glob("session-*")}


async def test_what_ran_after_the_backup_is_kept_and_never_mixed_up_with_what_runs_after_the_restore(
    tmp_path: Path,
) -> None:
    backups = tmp_path / "backups"
    backups.mkdir()
    async with operator(tmp_path, haiku=MODEL) as someone:
        async with someone.daemon(CLAUDEOPS_INTERVAL="86400"):
            await someone.until(ENDED, lambda rows: len(rows) == 1)
            await type_in(someone, "Back up", BACKUPS=str(backups))
        (backup,) = backups.iterdir()
        await someone.bootstrap()  # another life: session 2, of which the copy knows nothing
        before, lived = logs(someone), someone.sessions()
        assert [row["id"] for row in lived] == [1, 2]

        await type_in(someone, "Restore", BACKUP=str(backup))
        assert [row["id"] for row in someone.sessions()] == [1]
        async with someone.daemon(CLAUDEOPS_INTERVAL="86400") as daemon:  # whose next look is a day away
            await daemon.until_logged("daemon_ready")  # which keeps new sessions from the numbers of the logs
            await someone.bootstrap()
            await someone.until(ENDED, lambda rows: len(rows) == 2)

        after = logs(someone)
        assert {name: after[name] for name in before} == before
        first, new = someone.sessions()
        assert (first["id"], new["id"], new["outcome"]) == (1, 3, "success")
        assert str(new["cli_session_id"]).encode() in after["session-000003.ndjson"]
        assert {row["cli_session_id"] for row in lived} & {new["cli_session_id"]} == set()
        assert len(someone.rows("SELECT DISTINCT cli_session_id FROM sessions")) == 2


@pytest.mark.long
async def test_a_session_that_was_queued_at_the_backup_runs_again_beside_its_first_log(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=MODEL) as someone:
        await someone.bootstrap()
        await _queue_another(someone)
        copy = await someone.run("backup", str(tmp_path / "copy.db"), "--output-format=json")
        assert copy.document["bytes"] == (tmp_path / "copy.db").stat().st_size
        await someone.bootstrap()  # the queued one does not belong to this chain
        async with someone.daemon(CLAUDEOPS_INTERVAL="86400"):
            await someone.until(ENDED, lambda rows: len(rows) >= 4)
        first_life = logs(someone)["session-000002.ndjson"]

        await type_in(someone, "Restore", BACKUP=str(tmp_path / "copy.db"))
        async with someone.daemon(CLAUDEOPS_INTERVAL="86400"):
            await someone.until(f"{ENDED} AND id = 2", lambda rows: len(rows) == 1)

        (again,) = someone.rows("SELECT * FROM sessions WHERE id = 2")
        assert again["outcome"] == "success"
        assert logs(someone)["session-000002.ndjson"] == first_life
        assert str(again["log_path"]).endswith("session-000002.2.ndjson")
        assert str(again["cli_session_id"]).encode() in logs(someone)["session-000002.2.ndjson"]
        assert str(again["cli_session_id"]).encode() not in first_life


async def _queue_another(someone: Operator) -> None:
    """Leave a session in the queue, as a daemon that is stopped leaves those that have not begun."""
    with someone.connect() as connection:
        columns = [str(row[1]) for row in connection.exec_driver_sql("PRAGMA table_info(sessions)")]
        kept: Sequence[str] = ("tier", "ordinal", "harness", "model", "trigger", "created_at", "audit_head")
        names = [name for name in columns if name in kept]
        row = connection.exec_driver_sql(f"SELECT {', '.join(names)} FROM sessions WHERE id = 1").one()  # noqa: S608
        values = {**dict(zip(names, row, strict=True)), "status": "queued", "attempt": 0, "audit_head": ""}
        places = ", ".join(f":{name}" for name in values)
        connection.exec_driver_sql(f"INSERT INTO sessions ({', '.join(values)}) VALUES ({places})", values)  # noqa: S608
        connection.exec_driver_sql("UPDATE sessions SET root_session_id = id WHERE root_session_id IS NULL")
