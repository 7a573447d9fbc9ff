"""How services were over time, as their probes have seen them: one bar a stretch of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select

from claudeops.domain.probes.history import HOUR
from claudeops.store.tables.probes import probe_history, probes

_BADNESS: Final = {"down": 4, "flapping": 3, "degraded": 2, "unknown": 1}


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes of a service saw within a stretch of time."""

    start: datetime
    checks: int
    failures: int


class ServiceNow(msgspec.Struct, frozen=True, kw_only=True):
    """A service that probes watch."""

    service: str
    states: tuple[str, ...]  # of its probes
    since: datetime | None  # when the latest of them changed
    checked_at: datetime | None  # the latest look
    detail: str  # what the worst of them says


def bars(connection: Connection, *, since: datetime) -> Mapping[str, Sequence[Bar]]:
    """Return the bars of every service since a moment, oldest first; hours without a look are left out."""
    query = (
        select(
            probes.c.service,
            probe_history.c.bucket,
            func.sum(probe_history.c.checks),
            func.sum(probe_history.c.failures),
        )
        .join(probes, probes.c.name == probe_history.c.probe)
        .where(probe_history.c.resolution == int(HOUR.total_seconds()), probe_history.c.bucket >= since)
        .group_by(probes.c.service, probe_history.c.bucket)
        .order_by(probe_history.c.bucket)
    )
    found: dict[str, list[Bar]] = {}
    for service, start, checks, failures in connection.execute(query):
        found.setdefault(service, []).append(Bar(start=start, checks=int(checks), failures=int(failures)))
    return found


def services_now(connection: Connection) -> Sequence[ServiceNow]:
    """Return the services that probes watch, by name."""
    rows: dict[str, list[tuple[str, datetime | None, datetime | None, str]]] = {}
    columns = (probes.c.service, probes.c.state, probes.c.since, probes.c.last_checked_at, probes.c.detail)
    for service, state, since, checked_at, detail in connection.execute(select(*columns).order_by(probes.c.name)):
        rows.setdefault(service, []).append((state, since, checked_at, detail))
    return [_now(service, found) for service, found in sorted(rows.items())]


def _now(service: str, found: Sequence[tuple[str, datetime | None, datetime | None, str]]) -> ServiceNow:
    worst = max(found, key=lambda one: _BADNESS.get(one[0], 0))
    return ServiceNow(
        service=service,
        states=tuple(state for state, _, _, _ in found),
        since=max((since for _, since, _, _ in found if since is not None), default=None),
        checked_at=max((at for _, _, at, _ in found if at is not None), default=None),
        detail=worst[3],
    )
