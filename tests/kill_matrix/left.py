"""What a daemon leaves that ended in good order, looked at before the next one comes: nothing of its own.

What waits in the queue may wait. What a daemon before it left, that was killed, may be as it was: it can have been
asked to stop before it took anything over.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from kill_matrix.records import strays
from kill_matrix.world import World
from support.waiting import wait_until

ENDING_SECONDS: Final = 60
"""For what is just ending: its daemon or the kernel has seen to that, and it takes a moment on a machine under load."""

_RUNNING: Final = "SELECT id, attempt FROM sessions WHERE status = 'running'"
_HELD: Final = {
    "money is reserved for session {}": """
        SELECT session_id FROM budget_entries WHERE kind <> 'settled' GROUP BY session_id
        HAVING sum(CASE kind WHEN 'reserved' THEN 1 ELSE -1 END) <> 0""",
    "a model call of session {} is open": "SELECT session_id FROM model_calls WHERE ended_at IS NULL",
    "an action of session {} is not settled": "SELECT session_id FROM cooldown_actions WHERE success IS NULL",
    "the daemon {} is on record as one that runs": "SELECT owner FROM instances",
    "the lease {} has an owner": (
        "SELECT name FROM leases WHERE owner IS NOT NULL AND (name NOT LIKE 'service:%' OR NOT EXISTS ("
        "SELECT 1 FROM sessions WHERE CAST(root_session_id AS TEXT) = leases.owner"
        " AND (status <> 'ended' OR outcome = 'lost')))"  # a chain that goes on keeps its services, a lost one for long
    ),
}


def running(world: World) -> frozenset[tuple[int, int]]:
    """Return what runs by its row, as id and attempt."""
    return frozenset((int(str(row[0])), int(str(row[1]))) for row in _rows(world, _RUNNING))


def left_behind(world: World, pid: int, before: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield what is left of a daemon that has ended with status 0; ``before``: what ran by its row when it started."""
    status = world.root / "state" / "daemon.json"
    if status.exists() and json.loads(status.read_bytes())["pid"] == pid:
        yield "left: daemon.json, which says that the daemon runs"
    now = running(world)
    for session_id, _ in sorted(now - before):
        yield f"left: session {session_id} runs by its row, and its daemon has stopped in good order"
    if now:
        return  # of a daemon that was killed: everything else may be its own, too
    for what, query in _HELD.items():
        for (whose,) in _rows(world, query):
            yield f"left: {what.format(whose)}, and its daemon has stopped in good order"
    for workspace in world.sessions.glob("*"):
        yield f"left: the workspace {workspace.name}, and its daemon has stopped in good order"
    for stray in strays_at_last(world):
        yield f"stray: a daemon that stopped in good order left a process: {stray}"


def strays_at_last(world: World) -> list[str]:
    """Return the processes of a trial that do not end by themselves."""
    with suppress(TimeoutError):
        wait_until(lambda: not strays(world), ENDING_SECONDS)
    return strays(world)


def _rows(world: World, query: str) -> list[tuple[object, ...]]:
    """Return what a query finds; nothing where there are no tables yet."""
    there = f"file:{world.database}?mode=ro"
    try:
        with closing(sqlite3.connect(there, uri=True, timeout=5)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []
