"""The state of everything at a glance, for ``claudeops status``: what a person on call asks first.

Plain SQL over the drivers themselves, which is the same for both databases. SQLAlchemy takes longer to import than the
whole answer may take. `claudeops.store.tables` has the columns, and a test asks both kinds of database.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec

from claudeops.errors import ClaudeopsError, DatabaseUnavailableError, MissingInputError
from claudeops.files import is_there

BUSY_SECONDS: Final = 2.0
"""How long each question waits for a database that is busy: the answer is for somebody in a hurry."""

_PARAMETER: Final = re.compile(r":([a-z_]+)")
_SHOWN: Final = 5  # events, and probes that are down
_HOLDS: Final = frozenset({"paused", "breaker", "parked", "budget", "disk"})
"""`claudeops.domain.holds.HoldKind`; other flags than holds may stand in their table."""

_TRIED_AGAIN: Final = frozenset({"breaker", "parked"})
"""Those that do not end by themselves: a trial session starts at their time."""

_NODE_MARK: Final = " on node "
"""`claudeops.domain.events` has it: between the name of a hold and that of the one machine that has it."""

_DEAF: Final = "chat_deaf:"
_ABOUT_TARGETS: Final = (_DEAF, "target_refused:", "notification_dead:")
"""`claudeops.domain.notices.notice` has them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BUCKET: Final = timedelta(minutes=15)
"""`claudeops.domain.spending.budget` has it."""

_TIME: Final = "%Y-%m-%d %H:%M:%S.%f"

_Row: TypeAlias = tuple[Any, ...]
_Ask: TypeAlias = Callable[..., Sequence[_Row]]


class RunningNow(msgspec.Struct, frozen=True, kw_only=True):
    """A session that runs."""

    session_id: int
    chain: int
    tier: int
    trigger: str
    model: str | None
    started_at: datetime | None


class LastEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The session that ended last."""

    session_id: int
    chain: int
    tier: int
    outcome: str
    decision_reason: str | None
    ended_at: datetime
    summary: str | None


class GlancedFire(msgspec.Struct, frozen=True, kw_only=True):
    """The fire of a schedule that was last."""

    schedule: str
    fired_at: datetime
    session_id: int | None
    skipped_reason: str | None


class HoldNow(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why no session starts."""

    kind: str
    reason: str | None
    until: datetime | None


class OpenEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is not resolved."""

    event_id: int
    level: str
    service: str | None
    message: str
    last_seen: datetime


class OpenIncident(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that is not over."""

    incident: int
    severity: str
    status: str
    service: str
    opened_at: datetime
    acked_by: str | None


class RepairNow(msgspec.Struct, frozen=True, kw_only=True):
    """A service that one chain alone may change now."""

    service: str
    chain: int
    since: datetime | None  # its first action on the service
    ends_at: datetime  # if the chain gives no more sign


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What the database says."""

    running: tuple[RunningNow, ...]
    queued: int
    queued_from: datetime | None  # when the first of them may start; None: now
    sites_without_node: tuple[str, ...]  # that some of them wait for, and of which no daemon runs
    nodes_absent: Mapping[str, int]  # on which no daemon runs, with the first session that waits for each
    last_session: LastEnded | None
    last_fire: GlancedFire | None
    holds: tuple[HoldNow, ...]
    today_usd: float  # booked since midnight, and used by the calls of running sessions that are over
    reserved_usd: float  # for running sessions
    open_events: Mapping[str, int]  # by level
    newest_events: tuple[OpenEvent, ...]  # the worst and newest of them
    approvals_waiting: int
    approval_expires_at: datetime | None  # the first of them
    probes: Mapping[str, int]  # by state
    probes_down: tuple[str, ...]  # some of them
    incidents: tuple[OpenIncident, ...]  # some of those that are open, the newest first
    incidents_open: int
    under_repair: tuple[RepairNow, ...]
    sources_unreadable: tuple[str, ...]  # of alerts: whose latest body cannot be read
    notices_waiting: int  # that should have been told by now
    untold_since: datetime | None  # the oldest of them; None: there is none
    chats_deaf: tuple[str, ...]  # what is said of chats whose answers do not arrive


_WITHOUT_NODE: Final = (  # where no daemon runs at all, that is what there is to say
    "SELECT DISTINCT site FROM sessions WHERE status = 'queued' AND site IS NOT NULL AND for_node IS NULL"
    " AND EXISTS (SELECT 1 FROM instances)"
    " AND NOT EXISTS (SELECT 1 FROM instances WHERE is_alone OR instances.site = sessions.site) ORDER BY site"
)
_FOR_ABSENT: Final = (
    "SELECT for_node, min(id) FROM sessions WHERE status = 'queued' AND for_node IS NOT NULL"
    " AND EXISTS (SELECT 1 FROM instances) AND NOT EXISTS (SELECT 1 FROM instances WHERE is_alone OR"
    " instances.node = sessions.for_node AND (sessions.site IS NULL OR instances.site = sessions.site))"
    " GROUP BY for_node ORDER BY for_node"
)


def glance(url: str, *, now: datetime, midnight: datetime, busy_seconds: float = BUSY_SECONDS) -> Glance:
    """Return what the database at ``url`` says; ``midnight`` is when the day of the budget began.

    Raises `MissingInputError` where there is none, and `DatabaseUnavailableError` where it does not answer.
    """
    with _connected(url, busy_seconds) as ask:
        [(queued, queued_from)] = ask("SELECT count(*), min(not_before) FROM sessions WHERE status = 'queued'")
        [(waiting, expires)] = ask(
            "SELECT count(*), min(expires_at) FROM approvals WHERE status = 'pending' AND expires_at > :now", now=now
        )
        today_usd, reserved_usd = _money(ask, midnight)
        untold, untold_since = _untold(ask, now)
        return Glance(
            running=tuple(_running(ask)),
            queued=queued,
            queued_from=_at(queued_from),
            sites_without_node=tuple(row[0] for row in ask(_WITHOUT_NODE)) if queued else (),
            nodes_absent=dict(ask(_FOR_ABSENT)) if queued else {},
            last_session=_last_session(ask),
            last_fire=_last_fire(ask),
            holds=tuple(_holds(ask, now)),
            today_usd=today_usd,
            reserved_usd=reserved_usd,
            open_events=dict(ask("SELECT level, count(*) FROM events WHERE resolved_at IS NULL GROUP BY level")),
            newest_events=tuple(_events(ask)),
            approvals_waiting=waiting,
            approval_expires_at=_at(expires),
            probes=dict(ask("SELECT state, count(*) FROM probes GROUP BY state")),
            probes_down=tuple(
                row[0]
                for row in ask(f"SELECT name FROM probes WHERE state = 'down' ORDER BY since LIMIT {_SHOWN}")  # noqa: S608 - a number of ours
            ),
            incidents=tuple(_incidents(ask)),
            under_repair=tuple(_repairs(ask, now)),
            incidents_open=ask("SELECT count(*) FROM incidents WHERE status <> 'resolved'")[0][0],
            sources_unreadable=tuple(
                row[0] for row in ask("SELECT source FROM alert_sources WHERE NOT readable ORDER BY source")
            ),
            notices_waiting=untold,
            untold_since=untold_since,
            chats_deaf=tuple(message for name, message in _of_targets(ask) if name.startswith(_DEAF)),
        )


def noted_of_targets(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Sequence[tuple[str, str]]:
    """Return the open events about targets that take nothing, or whose answers do not arrive: fingerprint and message.

    Raises as `glance` does.
    """
    with _connected(url, busy_seconds) as ask:
        return _of_targets(ask)


def _running(ask: _Ask) -> Iterator[RunningNow]:
    rows = ask(
        "SELECT id, root_session_id, tier, trigger, model, started_at FROM sessions"
        " WHERE status = 'running' ORDER BY id"
    )
    for number, chain, tier, trigger, model, started_at in rows:
        yield RunningNow(
            session_id=number, chain=chain, tier=tier, trigger=trigger, model=model, started_at=_at(started_at)
        )


def _last_session(ask: _Ask) -> LastEnded | None:
    rows = ask(
        "SELECT id, root_session_id, tier, outcome, decision_reason, ended_at, summary FROM sessions"
        " WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1"
    )
    for number, chain, tier, outcome, reason, ended_at, summary in rows:
        return LastEnded(
            session_id=number,
            chain=chain,
            tier=tier,
            outcome=outcome,
            decision_reason=reason,
            ended_at=_moment(ended_at),
            summary=summary,
        )
    return None


def _last_fire(ask: _Ask) -> GlancedFire | None:
    rows = ask(
        "SELECT schedule, fired_at, session_id, skipped_reason FROM schedule_fires ORDER BY fired_at DESC LIMIT 1"
    )
    for schedule, fired_at, session_id, reason in rows:
        return GlancedFire(schedule=schedule, fired_at=_moment(fired_at), session_id=session_id, skipped_reason=reason)
    return None


def _money(ask: _Ask, midnight: datetime) -> tuple[float, float]:
    """Return what was spent since midnight, and what is reserved for running sessions."""
    [(booked,)] = ask(
        "SELECT coalesce(sum(amount_usd), 0) FROM settled_sums WHERE bucket >= :since",
        since=midnight - (midnight - _EPOCH) % _BUCKET,
    )
    [(reserved,)] = ask(
        "SELECT coalesce(sum(b.amount_usd), 0) FROM budget_entries b JOIN sessions s ON s.id = b.session_id"
        " WHERE b.kind = 'reserved' AND s.status = 'running'"
    )
    [(charged,)] = ask(
        "SELECT coalesce(sum(c.charged_usd), 0) FROM model_calls c JOIN sessions s ON s.id = c.session_id"
        " WHERE s.status = 'running' AND c.ended_at IS NOT NULL"
    )
    return float(booked) + float(charged), float(reserved)


def _untold(ask: _Ask, now: datetime) -> tuple[int, datetime | None]:
    """Return how many notices should have been told by now, and since when the oldest of them waits."""
    [(count, since)] = ask(
        "SELECT count(*), min(CASE WHEN attempts > 0 THEN created_at ELSE coalesce(not_before, created_at) END)"
        " FROM outbox WHERE delivered_at IS NULL AND (attempts > 0 OR not_before IS NULL OR not_before <= :now)",
        now=now,
    )
    return count, _at(since)


def _of_targets(ask: _Ask) -> Sequence[tuple[str, str]]:
    rows = ask("SELECT fingerprint, message FROM events WHERE resolved_at IS NULL AND level = 'critical' ORDER BY id")
    return [(name, message) for name, message in rows if name.startswith(_ABOUT_TARGETS)]


def _holds(ask: _Ask, now: datetime) -> Iterator[HoldNow]:
    for name, reason, until in ask("SELECT name, reason, until FROM flags ORDER BY updated_at"):
        lapsed = name not in _TRIED_AGAIN and until is not None and _moment(until) <= now
        kind = name.partition(_NODE_MARK)[0]
        if kind in _HOLDS and not lapsed:
            yield HoldNow(kind=kind, reason=reason, until=_at(until))


def _repairs(ask: _Ask, now: datetime) -> Iterator[RepairNow]:
    since = (
        "SELECT min(a.timestamp) FROM cooldown_actions a JOIN sessions s ON s.id = a.session_id"
        " WHERE s.root_session_id = CAST(l.owner AS INTEGER) AND a.service = substr(l.name, 9)"
    )
    rows = ask(
        f"SELECT substr(l.name, 9), l.owner, ({since}), l.ends_at FROM leases l"  # noqa: S608 - our own words
        " WHERE substr(l.name, 1, 8) = 'service:' AND l.owner IS NOT NULL AND l.ends_at > :now ORDER BY l.name",
        now=now,
    )
    for service, chain, began, ends_at in rows:
        yield RepairNow(service=service, chain=int(chain), since=_at(began), ends_at=_moment(ends_at))


def _events(ask: _Ask) -> Iterator[OpenEvent]:
    rows = ask(
        "SELECT id, level, service, message, last_seen FROM events WHERE resolved_at IS NULL AND level <> 'info'"  # noqa: S608 - a number of ours
        f" ORDER BY CASE level WHEN 'critical' THEN 0 ELSE 1 END, last_seen DESC LIMIT {_SHOWN}"
    )
    for number, level, service, message, last_seen in rows:
        yield OpenEvent(event_id=number, level=level, service=service, message=message, last_seen=_moment(last_seen))


def _incidents(ask: _Ask) -> Iterator[OpenIncident]:
    rows = ask(
        "SELECT number, severity, status, service, opened_at, acked_by FROM incidents WHERE status <> 'resolved'"  # noqa: S608 - a number of ours
        f" ORDER BY number DESC LIMIT {_SHOWN}"
    )
    for number, severity, status, service, opened_at, acked_by in rows:
        yield OpenIncident(
            incident=number,
            severity=severity,
            status=status,
            service=service,
            opened_at=_moment(opened_at),
            acked_by=acked_by,
        )


# --- the two databases ------------------------------------------------------------------------------------


@contextmanager
def _connected(url: str, busy_seconds: float) -> Iterator[_Ask]:
    if url.startswith("sqlite"):
        with _sqlite(url, busy_seconds) as ask:
            yield ask
    else:
        with _postgresql(url, busy_seconds) as ask:
            yield ask


@contextmanager
def _sqlite(url: str, busy_seconds: float) -> Iterator[_Ask]:
    file = Path(unquote(url.partition(":///")[2].partition("?")[0]))
    if not is_there(file):
        raise MissingInputError(
            f"there is no database {file}: set CLAUDEOPS_STATE_DIR (or CLAUDEOPS_DATABASE_URL) as the daemon has it."
        )
    try:
        found = f"{file.absolute().as_uri()}?mode=rw"  # one that goes away just now is not made anew
        with closing(sqlite3.connect(found, uri=True, timeout=busy_seconds, isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")  # one snapshot for all questions

            def ask(question: str, **values: datetime) -> Sequence[_Row]:
                given = {name: value.astimezone(UTC).strftime(_TIME) for name, value in values.items()}
                return connection.execute(question, given).fetchall()

            yield ask
    except sqlite3.Error as error:
        raise _unavailable(str(file), error) from error


@contextmanager
def _postgresql(url: str, busy_seconds: float) -> Iterator[_Ask]:
    import psycopg  # noqa: PLC0415 - SQLite needs it not

    address = f"postgresql://{url.partition('://')[2]}"
    limits = f"-c statement_timeout={int(busy_seconds * 1000)} -c timezone=UTC -c default_transaction_read_only=on"
    try:
        with psycopg.connect(address, connect_timeout=max(int(busy_seconds), 2), options=limits) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

            def ask(question: str, **values: datetime) -> Sequence[_Row]:
                return connection.execute(_PARAMETER.sub(r"%(\1)s", question).encode(), values).fetchall()

            yield ask
    except psycopg.Error as error:
        raise _unavailable(address.rpartition("@")[2].partition("?")[0], error) from error


def _unavailable(name: str, error: Exception) -> ClaudeopsError:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DatabaseUnavailableError(f"the database {name} says: {line}.")


def _at(value: str | datetime | None) -> datetime | None:
    return None if value is None else _moment(value)


def _moment(value: str | datetime) -> datetime:
    """Return a time as a driver gives it; SQLite has it as text, in UTC."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value.astimezone(UTC)
