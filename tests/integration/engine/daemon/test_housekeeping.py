"""Old logs are packed, then removed, with their rows; what runs, is young or belongs to nobody known stays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from claudeops.clock import Clock
from claudeops.domain.retention import RemovalStep
from claudeops.engine.daemon.housekeeping import Housekeeping
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.retention import Retention
from claudeops.store.sessions import Records
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report


@dataclass
class Later(Clock):
    """The machine's clock, put forward."""

    by: timedelta

    def now(self) -> datetime:
        return Clock().now() + self.by

    def monotonic(self) -> float:
        return Clock().monotonic()


def upkeep(estate: Estate, *, running: Collection[int] = (), **later: float) -> Housekeeping:
    return Housekeeping(
        database=estate.store.retention,
        records=estate.store.records,
        clock=Later(timedelta(**later)),
        results_dir=estate.root / "results",
        retention_days=30,
        running=lambda: running,
        log=estate.context.log,
    )


def files(estate: Estate) -> list[str]:
    return sorted(path.name for path in (estate.root / "results").iterdir())


PLAIN = ["session-000001.index", "session-000001.ndjson", "session-000001.stderr"]
PACKED = ["session-000001.index", "session-000001.ndjson.zst", "session-000001.stderr"]


async def test_a_log_is_packed_an_hour_after_its_session_and_removed_after_the_retention(estate: Estate) -> None:
    text = [{"type": "text", "text": "I look."}]
    said = {"frame": {"type": "assistant", "message": {"role": "assistant", "content": text}}}
    await estate.finished(said, look(), deliver(report()))

    await upkeep(estate, minutes=59).round()
    assert files(estate) == PLAIN

    done = await upkeep(estate, minutes=61).round()
    assert files(estate) == PACKED
    assert done["logs_packed"] == 1
    assert not {"logs_packed", "logs_removed"} & set(await upkeep(estate, days=29).round())

    done = await upkeep(estate, days=31).round()
    assert files(estate) == []
    assert (done["logs_removed"], done["sessions_shortened"]) == (1, 1)

    done = await upkeep(estate, days=91).round()
    assert done["sessions_removed"] == 1
    assert estate.rows("SELECT * FROM sessions") == []
    assert await upkeep(estate, days=91).round() == {}


async def test_the_log_of_a_running_session_is_never_touched(estate: Estate) -> None:
    estate.script(look(), deliver(report()))
    await estate.queue()
    session = await estate.claim()
    for name in PLAIN:
        (estate.root / "results" / name).write_text("{}\n")

    await upkeep(estate, days=400).round()

    assert session.log_path == estate.log_path(1)
    assert files(estate) == PLAIN
    assert [row["status"] for row in estate.rows("SELECT status FROM sessions")] == ["running"]


async def test_not_even_when_its_row_has_ended_and_its_process_has_not(estate: Estate) -> None:
    await estate.finished(look(), deliver(report()))

    await upkeep(estate, running=[1], days=400).round()

    assert files(estate) == PLAIN


@pytest.mark.parametrize(
    "name",
    [
        "session-000007.ndjson",  # of a row that the database does not know, or no more
        "session-000001.2.ndjson",  # its row names another one
        "session-1.ndjson",
        "session-000001.ndjson.zst.partial",
        "notes.txt",
    ],
)
async def test_what_belongs_to_nobody_known_stays(estate: Estate, name: str) -> None:
    await estate.finished(look(), deliver(report()))
    (estate.root / "results" / name).write_text("{}\n")

    await upkeep(estate, days=400).round()

    assert name in files(estate)


async def test_a_log_that_is_not_its_rows_stays(estate: Estate) -> None:
    await estate.finished(look(), deliver(report()))
    with estate.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET log_path = '/elsewhere/session-000001.ndjson'")

    await upkeep(estate, days=31).round()

    assert files(estate) == PLAIN


async def test_a_log_that_cannot_be_packed_stops_no_other(estate: Estate) -> None:
    for number in (1, 2):
        await estate.finished(look(f"toolu_{number}"), deliver(report()))
    plain = Path(estate.log_path(1))
    plain.unlink()
    plain.mkdir()

    done = await upkeep(estate, hours=2).round()

    assert done["logs_packed"] == 1
    assert "session-000002.ndjson.zst" in files(estate)
    assert "upkeep_failed" in estate.logged.getvalue()


async def test_steps_that_take_long_become_smaller(estate: Estate) -> None:
    sizes: list[int] = []

    class Slow(Later):
        """A clock by which every step takes a tenth of a second."""

        def monotonic(self) -> float:
            return 0.1 * len(sizes)

    class Counting(Retention):
        """Steps of which each leaves something, but for the sixth."""

        async def expire(self, *_: object, rows: int, **__: object) -> RemovalStep:
            sizes.append(rows)
            return RemovalStep(done=1, more=len(sizes) < 6)

    keeper = replace(upkeep(estate), database=Counting(estate.store.database), clock=Slow(timedelta()))
    await keeper.round()

    assert sizes[:5] == [200, 100, 50, 25, 12]


async def test_a_database_that_is_away_costs_a_line_and_the_round(estate: Estate) -> None:
    await estate.finished(look(), deliver(report()))
    away: Records = _Away()  # type: ignore[assignment]  # all that is asked of it

    assert await replace(upkeep(estate, hours=2), records=away).round() == {}

    assert files(estate) == PLAIN
    assert "upkeep_failed" in estate.logged.getvalue()


class _Away:
    """Records whose database is away."""

    async def session(self, _session_id: int) -> None:
        raise DatabaseUnavailableError("the database is away.")


async def test_rows_are_left_to_the_node_whose_role_that_is_and_logs_are_not(estate: Estate) -> None:
    await estate.finished(look(), deliver(report()))

    done = await replace(upkeep(estate, days=91), removes_rows=lambda: False).round()

    assert (done["logs_removed"], done["sessions_removed"]) == (1, 0)
    assert len(estate.rows("SELECT * FROM sessions")) == 1
