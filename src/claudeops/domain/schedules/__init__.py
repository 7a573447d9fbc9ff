"""When a schedule is due, and when it fires.

A due time identifies a fire and is what is recorded; it carries no jitter. The fire happens at the due time plus its
jitter. Due times depend on the cadence alone, never on the daemon's start, so that two daemons, or one before and
after a restart, name the same fire by the same due time.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from claudeops.errors import ConfigurationError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NEVER: Final = _EPOCH
"""The last due time of a schedule that has never fired: it is overdue, so its first fire comes at once."""

_MICROSECOND: Final = timedelta(microseconds=1)
_SHORTEST_SECONDS: Final = 0.001
_LONGEST_SECONDS: Final = 366 * 24 * 3600.0
_LONGEST_JITTER_SECONDS: Final = 24 * 3600.0
_FIELDS: Final = 5
_JITTER_BITS: Final = 48  # few enough for the fraction to stay below 1 as a float

_NICKNAMES: Final = {  # crontab(5), "extensions"; @reboot has no due time
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Due at every multiple of ``seconds`` since 1970-01-01 UTC.

    Raises `ConfigurationError` outside of one millisecond to 366 days.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not _SHORTEST_SECONDS <= self.seconds <= _LONGEST_SECONDS:  # also refuses NaN
            message = f"an interval of {self.seconds} s cannot be kept: give 0.001 s to 366 days"
            raise ConfigurationError(message)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """Due as crontab(5) says, in a time zone of the IANA database.

    Five fields or a nickname such as ``@daily``; 0 and 7 are Sunday; when day of month and day of week are
    both restricted, either may match. Around daylight saving a job at a fixed time runs once, moved behind
    the gap, as with Debian's cron. Raises `ConfigurationError` for an expression that cannot be read or that
    never matches, and for an unknown zone.
    """

    expr: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        _zone(self.timezone)
        _next_match(self, _EPOCH)


Cadence = Interval | Cron


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A cadence with a name. Raises `ConfigurationError` for a jitter outside of 0 s to one day."""

    name: str
    cadence: Cadence
    jitter_seconds: float = 0.0  # a fire comes after its due time by less than this
    site: str = ""  # spreads the fires of sites that share one configuration

    def __post_init__(self) -> None:
        if not 0 <= self.jitter_seconds <= _LONGEST_JITTER_SECONDS:  # also refuses NaN
            message = f"schedule {self.name!r}: a jitter of {self.jitter_seconds} s cannot be kept: give 0 to 86400"
            raise ConfigurationError(message)


def next_due(cadence: Cadence, after: datetime) -> datetime:
    """Return the first due time later than ``after`` (timezone-aware), in UTC."""
    if isinstance(cadence, Interval):
        period = _period(cadence)
        return _EPOCH + (((after - _EPOCH) // _MICROSECOND) // period + 1) * period * _MICROSECOND
    return _next_match(cadence, after)


def latest_due(cadence: Cadence, *, after: datetime, until: datetime) -> datetime | None:
    """Return the last due time later than ``after`` and not later than ``until``, in UTC, or ``None``."""
    if isinstance(cadence, Interval):
        period = _period(cadence)
        due = _EPOCH + (((until - _EPOCH) // _MICROSECOND) // period) * period * _MICROSECOND
        return due if after < due <= until else None
    # Cron only looks forward, and stepping from due time to due time would take minutes where a clock was set from
    # 1970 to today. So the rest is halved instead. Nothing is due between ``end`` and ``until``.
    if (due := next_due(cadence, after)) > until:
        return None
    end = until
    while (later := next_due(cadence, due)) <= end:
        middle = later + (end - later) / 2
        if (found := next_due(cadence, middle)) <= end:
            due = found
        else:
            due, end = later, middle
    return due


def jitter(schedule: str, due_at: datetime, max_seconds: float, site: str = "") -> float:
    """Return by how many seconds a fire is delayed: at least 0, less than ``max_seconds`` (0 where that is 0).

    Always the same for the same arguments, on every machine, so a restart within the jitter moves nothing.
    """
    if not (math.isfinite(max_seconds) and max_seconds > 0):
        return 0.0
    text = "\0".join((site, schedule, due_at.astimezone(UTC).isoformat()))
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[: _JITTER_BITS // 8])
    return max_seconds * (number / (1 << _JITTER_BITS))


def fires_at(schedule: Schedule, due_at: datetime) -> datetime:
    """Return when a due time's fire happens, in UTC."""
    seconds = jitter(schedule.name, due_at, schedule.jitter_seconds, schedule.site)
    return due_at.astimezone(UTC) + timedelta(seconds=seconds)


def merged(schedule: Schedule, due_at: datetime, now: datetime) -> datetime:
    """Return the due time to fire for at ``now``; ``due_at`` is the first one that has not fired.

    It is the latest one whose fire should have happened by now: however long the machine slept or the database
    was unavailable, one fire makes up for everything missed.
    """
    overdue = now - timedelta(seconds=schedule.jitter_seconds)  # before this, whatever the jitter
    due = latest_due(schedule.cadence, after=due_at, until=overdue) or due_at
    while fires_at(schedule, later := next_due(schedule.cadence, due)) <= now:
        due = later
    return due


def _period(cadence: Interval) -> int:
    """Return the interval in whole microseconds: sums of floats drift over fifty years."""
    return round(cadence.seconds * 1_000_000)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: "Europe" is a directory
        message = f"the time zone {name!r} is not known: give a name such as Europe/Berlin or UTC"
        raise ConfigurationError(message) from error


def _next_match(cron: Cron, after: datetime) -> datetime:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - needed by few installations

    expr = cron.expr.strip()
    fields = _NICKNAMES.get(expr.lower(), expr)
    if len(fields.split()) != _FIELDS:
        message = f"the cron expression {expr!r} needs five fields (minute hour day month weekday), or say @daily"
        raise ConfigurationError(message)
    try:
        matches = CronSim(fields, after.astimezone(_zone(cron.timezone)))
    except CronSimError as error:
        message = f"the cron expression {expr!r} cannot be read: {str(error)[:1].lower()}{str(error)[1:]}"
        raise ConfigurationError(message) from error
    for match in matches:
        # In the hour that occurs twice, a job at a fixed time gets the first occurrence, which may be over.
        if (due := match.astimezone(UTC)) > after:
            return due
    message = f"the cron expression {expr!r} never matches"
    raise ConfigurationError(message)
