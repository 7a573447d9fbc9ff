"""Limits that must fit each other: money, times, the schedule.

A default gives way to a lower limit that the operator set; two values that the operator set and that contradict
each other are refused. A money limit never rises by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from claudeops.errors import ConfigurationError
from claudeops.settings.reader import shown

if TYPE_CHECKING:
    from claudeops.settings.reader import Reader

_DAILY: Final = "CLAUDEOPS_DAILY_BUDGET_USD"
_CHAIN: Final = "CLAUDEOPS_CHAIN_BUDGET_USD"
_SESSION: Final = "CLAUDEOPS_SESSION_TIMEOUT"
_CRON: Final = "CLAUDEOPS_CRON"
_INTERVAL: Final = "CLAUDEOPS_INTERVAL"
_JITTER: Final = "CLAUDEOPS_JITTER"

_SHARE_OF_SESSION: Final = 0.9
"""A default that does not fit into a short session becomes this share of the session's time."""

_SAMPLED_FIRES: Final = 32
_SAMPLE_START: Final = datetime(2024, 1, 1, tzinfo=UTC)  # the answer must not depend on the day of the start


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgets:
    """Money limits in US dollars; no tier is above the chain, nor the chain above the day."""

    daily: float
    chain: float
    tiers: tuple[float, ...]  # by tier number, from 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When chains start; durations in seconds."""

    interval: float
    cron: str | None
    timezone: str
    jitter: float


def read_budgets(reader: Reader, max_tier: int) -> Budgets:
    """Return the budgets of the tiers 1 to ``max_tier``, of a chain and of a day."""
    daily = reader.number(_DAILY)
    chain = _budget(reader, _CHAIN, daily, _DAILY)
    names = (f"CLAUDEOPS_TIER{tier}_MAX_BUDGET_USD" for tier in range(1, max_tier + 1))
    return Budgets(daily=daily, chain=chain, tiers=tuple(_budget(reader, name, chain, _CHAIN) for name in names))


def read_timeout(reader: Reader, name: str) -> float:
    """Return a time limit within a session, in seconds; it is below the session's own."""
    session, value = reader.number(_SESSION), reader.number(name)
    if value < session:
        return value
    if not reader.is_set(name):
        return session * _SHARE_OF_SESSION
    raise ConfigurationError(
        f"{name} is {value:g} s, not below {_SESSION}, which is {session:g} s{_by_default(reader, _SESSION)}: "
        "lower the first, or raise the second."
    )


def read_schedule(reader: Reader) -> Schedule:
    """Return the schedule: an interval, or cron."""
    timezone, cron = _timezone(reader), reader.text(_CRON)
    interval, jitter = reader.number(_INTERVAL), reader.number(_JITTER)
    if cron is not None and reader.is_set(_INTERVAL):
        raise ConfigurationError(f"Both {_CRON} and {_INTERVAL} are set: unset one of them.")
    gap = interval if cron is None else _shortest_gap(cron)
    if jitter >= gap:
        period = f"{_INTERVAL}, which is {gap:g} s" if cron is None else f"the {gap:g} s between two times of {_CRON}"
        raise ConfigurationError(f"{_JITTER} is {jitter:g} s, not below {period}: lower the jitter.")
    return Schedule(interval=interval, cron=cron, timezone=timezone, jitter=jitter)


def _budget(reader: Reader, name: str, ceiling: float, ceiling_name: str) -> float:
    value = reader.number(name)
    if value <= ceiling:
        return value
    if not reader.is_set(name):
        return ceiling
    raise ConfigurationError(
        f"{name} is {value:g} USD, above {ceiling_name}, which is {ceiling:g} USD"
        f"{_by_default(reader, ceiling_name)}: lower the first, or raise the second."
    )


def _by_default(reader: Reader, name: str) -> str:
    return "" if reader.is_set(name) else " unless you set it"


def _timezone(reader: Reader) -> str:
    name = reader.text("CLAUDEOPS_TIMEZONE") or "UTC"
    try:
        ZoneInfo(name)
    # ValueError: a path instead of a name; OSError: the name of a directory of zones.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"CLAUDEOPS_TIMEZONE is {shown(name)}, which is no IANA time zone: set one such as Europe/Berlin or UTC."
        ) from None
    return name


def _shortest_gap(cron: str) -> float:
    """Return the least number of seconds between two of the next times of a crontab(5) expression."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - needed by few installations

    refusal = ConfigurationError(
        f"{_CRON} is {shown(cron)}, which is not five crontab(5) fields that ever come due: "
        "set minute, hour, day, month and weekday, such as '*/30 * * * *'."
    )
    if len(cron.split()) != 5:  # noqa: PLR2004 - cronsim takes a sixth field, for seconds; crontab(5) has five
        raise refusal
    try:
        # StopIteration: it never comes due. AssertionError, ValueError: cronsim 2.8 notices some odd fields no
        # other way.
        fires = CronSim(cron, _SAMPLE_START)
        times = [next(fires) for _ in range(_SAMPLED_FIRES)]
    except (CronSimError, StopIteration, AssertionError, ValueError):
        raise refusal from None
    return min((later - sooner).total_seconds() for sooner, later in pairwise(times))
