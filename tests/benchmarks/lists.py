"""How long a page of each list takes over a million rows, wherever it begins and whatever is asked for."""

from __future__ import annotations

import gc
import random
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import anyio

from benchmarks.table import Setup, Table, percentile, verdict
from claudeops.web.api.answers import Items
from claudeops.web.endpoints import Endpoint
from claudeops.web.listings import Paged, cursor
from support.listening import bearer
from support.paged import SiteDoor, site_door
from support.store_values import NOW

TARGET_MILLISECONDS: Final = 50.0

_MANY: Final = 1_000_000
_SOME: Final = 100_000
_DEPTHS: Final = 12  # places at which a page begins, for each set of filters
_WARM: Final = 2  # pages that are not counted
_AT: Final = "strftime('%Y-%m-%d %H:%M:%S.000000', {epoch} + i * {step}, 'unixepoch')"
_LEVEL: Final = "CASE i % 100 WHEN 0 THEN 'critical' WHEN 1 THEN 'warning' ELSE 'info' END"
_SERVICE: Final = "CASE i % 1000 WHEN 0 THEN 'web' WHEN 1 THEN 'Web' ELSE 'service-' || (i % 50) END"
_SESSION: Final = "1 + i % 100000"

ROWS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "sessions": (
        _SOME,
        {
            "id": "i",
            "root_session_id": "i",
            "tier": "1 + (i % 50 = 0)",
            "ordinal": "0",
            "harness": "'claude'",
            "model": "'haiku'",
            '"trigger"': "'scheduled'",
            "status": "'ended'",
            "attempt": "1",
            "audit_head": "''",
            "outcome": "CASE i % 200 WHEN 0 THEN 'error' ELSE 'success' END",
            "created_at": "at",
            "started_at": "at",
            "ended_at": "at",
            "summary": "'looked'",
            "decision_reason": "'healthy'",
        },
    ),
    "events": (
        _MANY,
        {
            "level": _LEVEL,
            "service": _SERVICE,
            "message": "'message ' || i",
            "fingerprint": "'f' || i",
            "created_at": "at",
            "first_seen": "at",
            "last_seen": "at",
            "count": "1",
            "session_id": _SESSION,
            "resolved_at": "CASE WHEN i % 1000 THEN at END",
        },
    ),
    "tool_calls": (
        _MANY,
        {
            "session_id": _SESSION,
            "tool_use_id": "'toolu_' || i",
            "tool_name": "'Bash'",
            "input": "'{}'",
            "verdict": "CASE i % 100 WHEN 0 THEN 'deny' ELSE 'allow' END",
            "reason": "'only looks'",
            "requested_at": "at",
            "decided_at": "at",
            "previous_hash": "''",
            "hash": "''",
        },
    ),
    "model_calls": (_MANY, {"session_id": _SESSION, "model": "'haiku'", "started_at": "at"}),
    "service_checks": (
        _MANY,
        {
            "session_id": _SESSION,
            "service": _SERVICE,
            "status": "'healthy'",
            "source": "'report'",
            "checked_at": "at",
        },
    ),
    "cooldown_actions": (
        _SOME,
        {
            "session_id": "i",
            "tool_use_id": "'toolu_' || i",
            "service": _SERVICE,
            "action_type": "'restart'",
            '"timestamp"': "at",
            "tier": "1 + (i % 50 = 0)",
            "success": "1",
        },
    ),
    "memories": (
        _SOME,
        {
            "category": "'timing'",
            "observation": "'web takes ' || i",
            "confidence": "0.9",
            "active": "i % 100 = 0",
            "created_at": "at",
            "updated_at": "at",
            "service": _SERVICE,
            "trust": "'operator'",
        },
    ),
    "incidents": (
        _SOME,
        {
            "number": "i",
            "service": _SERVICE,
            "services": "'[\"web\"]'",
            "group_key": "'g' || i",
            "severity": _LEVEL,
            "status": "CASE WHEN i < 4 THEN 'open' ELSE 'resolved' END",
            "opened_at": "at",
            "fired_at": "at",
            "reopened": "0",
            "witnesses": "'[]'",
            "resolved_at": "CASE WHEN i >= 4 THEN at END",
        },
    ),
    "alerts": (
        _SOME,
        {
            "source": "'am'",
            "fingerprint": "'f' || i",
            "name": "'Down'",
            "service": _SERVICE,
            "severity": _LEVEL,
            "status": "CASE WHEN i < 4 THEN 'firing' ELSE 'resolved' END",
            "labels": "'{}'",
            "annotations": "'{}'",
            "url": "''",
            "began": "at",
            "last_seen": "at",
            "count": "1",
            "flips": "0",
            "changes": "'[]'",
            "flapping": "0",
            "group_key": "'g'",
        },
    ),
    "approvals": (
        _SOME,
        {
            "session_id": "i",
            "tool_use_id": "'toolu_' || i",
            "call_hash": "'h' || i",
            "requested_at": "at",
            "status": "CASE WHEN i < 4 THEN 'pending' ELSE 'used' END",
            "expires_at": "at",
            "tier": "3",
        },
    ),
    "outbox": (
        _SOME,
        {
            "target": "CASE i % 100 WHEN 0 THEN 'rare' ELSE 'phone' END",
            "payload": "'{}'",
            "created_at": "at",
            "attempts": "1",
            "delivered_at": "CASE WHEN i >= 4 THEN at END",
            "result": "CASE WHEN i >= 4 THEN 'delivered' END",
        },
    ),
}
"""How many rows of each table there are, and what each is made of; ``i`` is its number, ``at`` its moment."""

FILTERS: Final[Mapping[str, str]] = {
    "service": "web",
    "level": "critical",
    "tier": "2",
    "outcome": "error",
    "since": "40d",
    "until": "2h",
    "open": "true",
    "all": "true",
    "waiting": "true",
    "target": "rare",
}
PARAMS: Final = {"id": "1", "name": "web", "number": "1", "root": "1"}


def paged(setup: Setup) -> Table:
    """Measure every list of the API, with every pair of filters, from places between its beginning and its end."""
    directory = setup.directory / "lists"
    directory.mkdir()
    rows = anyio.run(_measured, directory)
    return Table(
        title="Lists: a page of fifty entries out of a million rows, in ms",
        columns=("list", "asked with", "p50", "p99", f"target {TARGET_MILLISECONDS:.0f}"),
        rows=rows,
        notes=(
            f"{_MANY:,} events, calls, model calls and checks, {_SOME:,} rows of everything else; SQLite.",
            "Of every list the set of filters that takes longest, the answer's JSON included.",
        ),
    )


async def _measured(directory: Path) -> Sequence[tuple[str, ...]]:
    async with site_door(directory) as site:
        site.door.clock.at = NOW
        fill(directory / "claudeops.db")
        gc.collect()  # as the daemon does: a search for circles is no part of a list
        gc.freeze()
        rows = [row for row in site.door.listener.table.rows if _is_list(row)]
        return [await _slowest(site, row) for row in rows]


def _is_list(row: Endpoint) -> bool:
    is_paged = isinstance(row.query, type) and issubclass(row.query, Paged)
    return is_paged and getattr(row.answer, "__origin__", None) is Items


async def _slowest(site: SiteDoor, row: Endpoint) -> tuple[str, ...]:
    """Return the line of a list: its slowest set of filters."""
    worst: tuple[str, Sequence[float]] = ("", [0.0])
    for asked in _sets(row):
        taken = await _taken(site, row.path.format_map(PARAMS), asked)
        if percentile(taken, 0.99) > percentile(worst[1], 0.99):
            worst = (" ".join(f"{name}={text}" for name, text in asked.items()) or "nothing", taken)
    p50, p99 = percentile(worst[1], 0.5), percentile(worst[1], 0.99)
    return (row.path, worst[0], f"{p50:.1f}", f"{p99:.1f}", verdict(met=p99 <= TARGET_MILLISECONDS))


def _sets(row: Endpoint) -> Iterator[Mapping[str, str]]:
    assert isinstance(row.query, type)
    takes = [name for name in row.query.__struct_fields__ if name in FILTERS]
    for many in range(3):
        for names in combinations(takes, many):
            yield {name: FILTERS[name] for name in names}


async def _taken(site: SiteDoor, path: str, asked: Mapping[str, str]) -> Sequence[float]:
    """Return how many milliseconds each of some pages takes."""
    drawn = random.Random(path)  # noqa: S311 - the same places every time
    places = [None, *(drawn.randrange(1, _MANY) for _ in range(_DEPTHS))]
    taken = []
    for number, place in enumerate([*places[:_WARM], *places]):
        site.door.clock.go_on(1)
        query = urlencode({**asked, **({} if place is None else {"before": cursor(place) or ""})})
        began = time.perf_counter()
        answer = await site.door.ask("GET", f"{path}?{query}", headers=bearer(2))
        if number >= _WARM:
            taken.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, (path, query, answer.body)
    return taken


def fill(file: Path, share: float = 1.0) -> None:
    """Write a million rows of each big table, or a share of them; of each table the last one is of `NOW`."""
    sessions = str(round(_SOME * share))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table, (most, columns) in ROWS.items():
            count = round(most * share)
            step = timedelta(days=365).total_seconds() / count
            at = _AT.format(epoch=int((NOW - timedelta(days=365)).timestamp()), step=step)
            texts = (text.replace(str(_SOME), sessions) for text in columns.values())
            values = ", ".join(re.sub(r"\bat\b", at, text) for text in texts)
            connection.execute(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"  # noqa: S608
                f" INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM n"
            )
