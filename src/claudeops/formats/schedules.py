"""A file of schedules, read: TOML text becomes `SchedulePlan` values, or the wrong line and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Final

import msgspec

from claudeops.domain.schedules import Cadence, Cron, Interval, Schedule, next_due
from claudeops.domain.schedules.plan import Overlap, SchedulePlan
from claudeops.domain.schedules.windows import read_windows
from claudeops.text import regex
from claudeops.text.toml_file import NAME, KeyFault, TomlFile, fault_of, keys_of

MOST_SCHEDULES: Final = 200

_DURATION: Final = regex.Pattern(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # seconds
_SAMPLED: Final = 32  # due times, for the shortest gap between two
_SAMPLE_START: Final = datetime(2024, 1, 1, tzinfo=UTC)  # fixed: what is valid must not depend on the day


class _Entry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[schedule]]``, as it is written."""

    name: str
    cron: str | None = None
    interval: float | str | None = None
    jitter: float | str = 0.0
    timezone: str | None = None
    tier: int = 1
    prompt: str = ""
    prompt_file: str | None = None
    services: tuple[str, ...] = ()
    budget_usd: float | None = None
    site: str | None = None
    quiet_hours: tuple[str, ...] | str = ()
    overlap: Overlap = Overlap.SKIP
    misfire_grace: float | str | None = None
    enabled: bool = True


class _Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    schedule: tuple[_Entry, ...] = ()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a file does not say itself."""

    highest_tier: int
    timezone: str = "UTC"  # of schedules without one of their own
    site: str = ""  # of the machine that reads it
    prompt_file: Callable[[str], str]  # returns the text of a file beside this one; raises `ValueError` with a clause
    origin: str = ""  # the file's path


def read_plans(text: str, around: Surroundings) -> tuple[SchedulePlan, ...]:
    """Return the schedules of a file. Raises `TomlFault` for the first fault."""
    file = TomlFile(text, what="a file of schedules")
    for key in file.values:
        if key != "schedule":
            raise file.fault((key,), f"the key {key!r} is not known here: schedules stand under [[schedule]]")
    for index, table in file.tables("schedule"):
        file.check_keys(table, ("schedule", index), keys_of(_Entry), shown=None)
    document = file.as_document(_Document, remedy="write every schedule as a table, [[schedule]]")
    if not document.schedule:
        raise file.fault((), "there is no schedule in it: add a [[schedule]], or unset CLAUDEOPS_SCHEDULES_PATH")
    if len(document.schedule) > MOST_SCHEDULES:
        raise file.fault((), f"there are more than {MOST_SCHEDULES} schedules in it: leave some out")
    plans: list[SchedulePlan] = []
    for index, entry in enumerate(document.schedule):
        with file.at("schedule", index):
            _check_name(entry.name, plans)
            plans.append(_plan(entry, around, f"{around.origin}:{file.line('schedule', index)}"))
    return tuple(plans)


def _check_name(name: str, others: Sequence[SchedulePlan]) -> None:
    if not NAME.fullmatch(name):
        raise KeyFault("name", f"{name!r} is not a name: use letters, digits, dots, dashes and underscores")
    if any(name == other.name for other in others):
        raise KeyFault("name", f"there is another schedule {name!r}: give every schedule its own name")


def _plan(entry: _Entry, around: Surroundings, origin: str) -> SchedulePlan:
    if not 1 <= entry.tier <= around.highest_tier:
        raise KeyFault("tier", f"there is no tier {entry.tier}: tiers go from 1 to {around.highest_tier}")
    if entry.budget_usd is not None and not 0.01 <= entry.budget_usd <= 100_000:  # noqa: PLR2004 - also refuses NaN
        raise KeyFault("budget_usd", f"a budget of {entry.budget_usd:g} US dollars cannot be kept: give 0.01 or more")
    if entry.site is not None and not entry.site.strip():
        raise KeyFault("site", "an empty name is no site: leave it out, and a node of any site may run it")
    if any(not name.strip() for name in entry.services):
        raise KeyFault("services", "an empty name is no service: leave it out")
    timezone = entry.timezone or around.timezone
    cadence = _cadence(entry, timezone)
    jitter = _seconds("jitter", entry.jitter)
    if jitter >= (gap := _shortest_gap(cadence)):
        raise KeyFault("jitter", f"a jitter of {jitter:g} s is not below the {gap:g} s between two due times: lower it")
    grace = None if entry.misfire_grace is None else _seconds("misfire_grace", entry.misfire_grace)
    with fault_of("jitter"):
        schedule = Schedule(name=entry.name, cadence=cadence, jitter_seconds=jitter, site=around.site)
    prompt = _prompt(entry, around)
    with fault_of("quiet_hours"):
        quiet_hours = read_windows(entry.quiet_hours)
    return SchedulePlan(
        schedule=schedule,
        timezone=timezone,
        tier=entry.tier,
        prompt=prompt,
        services=tuple(dict.fromkeys(name.strip() for name in entry.services)),
        budget_usd=entry.budget_usd,
        site=None if entry.site is None else entry.site.strip(),
        quiet_hours=quiet_hours,
        overlap=entry.overlap,
        grace_seconds=grace,
        begins_at_once=isinstance(cadence, Interval),
        enabled=entry.enabled,
        origin=origin,
    )


def _cadence(entry: _Entry, timezone: str) -> Cadence:
    if (entry.cron is None) == (entry.interval is None):
        remedy = "give 'cron' or 'interval'" if entry.cron is None else "leave one of them out"
        raise KeyFault("cron", f"a schedule has either a crontab line or an interval: {remedy}")
    with fault_of("timezone"):
        Cron(expr="@daily", timezone=timezone)  # also where only quiet hours are read in it
    if entry.cron is not None:
        with fault_of("cron"):
            return Cron(expr=entry.cron, timezone=timezone)
    seconds = _seconds("interval", entry.interval or 0.0)
    if seconds < 1:
        raise KeyFault("interval", f"an interval of {seconds:g} s cannot be kept: give a second or more")
    with fault_of("interval"):
        return Interval(seconds=seconds)


def _shortest_gap(cadence: Cadence) -> float:
    """Return the shortest time between two due times, in seconds; of a crontab line the first ones are taken."""
    if isinstance(cadence, Interval):
        return cadence.seconds
    times = islice(_due_times(cadence), _SAMPLED)
    return min((later - sooner).total_seconds() for sooner, later in pairwise(times))


def _due_times(cadence: Cron) -> Iterator[datetime]:
    due_at = _SAMPLE_START
    while True:
        due_at = next_due(cadence, due_at)
        yield due_at


def _prompt(entry: _Entry, around: Surroundings) -> str:
    if entry.prompt_file is None:
        return entry.prompt
    if entry.prompt:
        raise KeyFault("prompt_file", "a schedule has either a prompt or a file with one: leave one of them out")
    with fault_of("prompt_file"):
        return around.prompt_file(entry.prompt_file)


def _seconds(key: str, value: float | str) -> float:
    """Return a duration in seconds: a number of them, or a number with its unit."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise KeyFault(key, f"{value!r} is not a duration: write a number with s, m, h or d, such as '15m'")
        value = float(found[1] or 0) * _UNIT[found[2] or "s"]
    if not 0 <= value <= _UNIT["d"] * 366:  # also refuses NaN
        raise KeyFault(key, f"{value:g} s is not a duration: give 0 to 366 days")
    return float(value)
