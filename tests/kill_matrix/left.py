"""What a daemon leaves that ended in good order, looked at before the next one comes: nothing of its own.

What waits in the queue may wait. What a daemon before it left, that was killed, may be as it was: it can have been
asked to stop before it took anything over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from kill_matrix.records import strays
from kill_matrix.world import Machine, World
from support.waiting import wait_until

ENDING_SECONDS: Final = 60
"""For what is just ending: its daemon or the kernel has seen to that, and it takes a moment on a machine under load."""

_RUNNING: Final = "SELECT id, attempt FROM sessions WHERE status = 'running'"
_MONEY: Final = """
    SELECT session_id FROM budget_entries WHERE kind <> 'settled'{} GROUP BY session_id
    HAVING sum(CASE kind WHEN 'reserved' THEN 1 ELSE -1 END) <> 0"""
_CALL: Final = "SELECT session_id FROM model_calls WHERE ended_at IS NULL"
_ACTION: Final = "SELECT session_id FROM cooldown_actions WHERE success IS NULL"
_HELD: Final = {
    "money is reserved for session {}": _MONEY.format(""),
    "a model call of session {} is open": _CALL,
    "an action of session {} is not settled": _ACTION,
    "the command {} is not over": "SELECT id FROM commands WHERE ended_at IS NULL",
    "the notice {} is under way": "SELECT id FROM outbox WHERE delivered_at IS NULL AND lease_until IS NOT NULL",
    "the daemon {} is on record as one that runs": "SELECT owner FROM instances",
    "the lease {} has an owner": (
        "SELECT name FROM leases WHERE owner IS NOT NULL AND (name NOT LIKE 'service:%' OR NOT EXISTS ("
        "SELECT 1 FROM sessions WHERE CAST(root_session_id AS TEXT) = leases.owner"
        " AND (status <> 'ended' OR outcome = 'lost')))"  # a chain that goes on keeps its services, a lost one for long
    ),
}
_OF_ENDED: Final = " AND session_id IN (SELECT id FROM sessions WHERE status = 'ended')"
_HELD_BESIDE: Final = {
    "session {} runs by its row": (
        "SELECT id FROM sessions WHERE status = 'running' AND owner NOT IN (SELECT owner FROM instances)"
    ),
    "money is reserved for session {}": _MONEY.format(_OF_ENDED),
    "a model call of session {} is open": _CALL + _OF_ENDED,
    "an action of session {} is not settled": _ACTION + _OF_ENDED,
    "the lease {} has an owner": (
        "SELECT name FROM leases WHERE owner IS NOT NULL AND name NOT LIKE 'service:%'"
        " AND owner NOT IN (SELECT owner FROM instances)"
    ),
}
_OF_PID: Final = "SELECT owner FROM instances WHERE pid = {}"


def running(world: World) -> frozenset[tuple[int, int]]:
    """Return what runs by its row, as id and attempt."""
    return frozenset((int(str(row["id"])), int(str(row["attempt"]))) for row in world.database.rows(_RUNNING))


def left_behind(world: World, machine: Machine, pid: int, before: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield what is left of a daemon that has ended with status 0; ``before``: what ran by its row when it started."""
    yield from _status_file(machine, pid)
    now = running(world)
    for session_id, _ in sorted(now - before):
        yield f"left: session {session_id} runs by its row, and its daemon has stopped in good order"
    if now:
        return  # of a daemon that was killed: everything else may be its own, too
    yield from _held(world, _HELD)
    yield from _on_machine(machine)


def left_beside(world: World, machine: Machine, pid: int) -> Iterator[str]:
    """Yield what is left of a daemon that has ended with status 0 while those of other nodes live, or are dead."""
    yield from _status_file(machine, pid)
    yield from _held(world, {**_HELD_BESIDE, "the daemon {} is on record as one that runs": _OF_PID.format(pid)})
    if was_ready(machine):  # else what a killed one has left there may be there still
        yield from _on_machine(machine)


def was_ready(machine: Machine) -> bool:
    """Tell whether a node's newest daemon has come to the end of its start."""
    newest = max(machine.root.glob("daemon-*.log"), key=lambda output: int(output.stem.rpartition("-")[2]))
    return '"daemon_ready"' in newest.read_text(encoding="utf-8", errors="replace")


def _status_file(machine: Machine, pid: int) -> Iterator[str]:
    status = machine.state / "daemon.json"
    if status.exists() and json.loads(status.read_bytes())["pid"] == pid:
        yield "left: daemon.json, which says that the daemon runs"


def _held(world: World, held: Mapping[str, str]) -> Iterator[str]:
    for what, query in held.items():
        for row in world.database.rows(query):
            yield f"left: {what.format(*row.values())}, and its daemon has stopped in good order"


def _on_machine(machine: Machine) -> Iterator[str]:
    for workspace in machine.sessions.glob("*"):
        yield f"left: the workspace {workspace.name}, and its daemon has stopped in good order"
    for stray in strays_at_last(machine):
        yield f"stray: a daemon that stopped in good order left a process: {stray}"


def strays_at_last(machine: Machine) -> list[str]:
    """Return the processes of a node that do not end by themselves."""
    with suppress(TimeoutError):
        wait_until(lambda: not strays(machine), ENDING_SECONDS)
    return strays(machine)
