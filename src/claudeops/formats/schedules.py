"""A file of schedules, read: TOML text becomes `Plan` values, or the line that is wrong and what to write instead."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Final, TypeVar

import msgspec

from claudeops.domain.schedules import Cadence, Cron, Interval, Schedule, next_due
from claudeops.domain.schedules.plan import Overlap, Plan
from claudeops.domain.schedules.windows import Window, read_window
from claudeops.errors import ConfigurationError
from claudeops.text import regex
from claudeops.text.toml_lines import Path, key_lines, line_of

T = TypeVar("T")

MOST_SCHEDULES: Final = 200

_POSITION: Final = regex.Pattern(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_AT: Final = regex.Pattern(r" - at `\$\.schedule\[(\d+)\](?:\.(\w+))?[^`]*`$")
_DURATION: Final = regex.Pattern(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # seconds
_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
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
    quiet_hours: tuple[str, ...] | str = ()
    overlap: Overlap = Overlap.SKIP
    misfire_grace: float | str | None = None
    enabled: bool = True


class _Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    schedule: tuple[_Entry, ...] = ()


_KEYS: Final = tuple(field.name for field in msgspec.structs.fields(_Entry))


class ScheduleFault(Exception):  # noqa: N818 - not an error of ours: it describes a fault in an operator's text
    """What is wrong with a file of schedules; ``str()`` is a clause with the remedy, ``line`` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a file does not say itself."""

    highest_tier: int
    timezone: str = "UTC"  # of schedules without one of their own
    site: str = ""
    prompt_file: Callable[[str], str]  # returns the text of a file beside this one; raises `ValueError` with a clause
    origin: str = ""  # the file's path


def read_plans(text: str, around: Surroundings) -> tuple[Plan, ...]:
    """Return the schedules of a file. Raises `ScheduleFault` for the first fault."""
    loaded = _load(text)
    lines = key_lines(text)
    try:
        _check_keys(loaded)
        document = msgspec.convert(loaded, _Document)
    except msgspec.ValidationError as error:
        raise _typed(error, lines) from None
    except _Fault as fault:
        raise ScheduleFault(line_of(lines, fault.path), str(fault)) from None
    if not document.schedule:
        raise ScheduleFault(1, "there is no schedule in it: add a [[schedule]], or unset CLAUDEOPS_SCHEDULES_PATH")
    if len(document.schedule) > MOST_SCHEDULES:
        raise ScheduleFault(1, f"there are more than {MOST_SCHEDULES} schedules in it: leave some out")
    plans: list[Plan] = []
    for index, entry in enumerate(document.schedule):
        try:
            _check_name(entry.name, plans)
            origin = f"{around.origin}:{line_of(lines, ('schedule', index))}"
            plans.append(_plan(entry, around, origin))
        except _Fault as fault:
            raise ScheduleFault(line_of(lines, ("schedule", index, *fault.path)), str(fault)) from None
    return tuple(plans)


class _Fault(Exception):  # noqa: N818 - as above
    """A fault at a path of keys."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(reason)
        self.path: Path = (path,) if isinstance(path, str) else path


def _load(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _POSITION.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        raise ScheduleFault(line, f"this is not TOML: {_POSITION.sub('', str(error))}") from None
    except RecursionError:
        raise ScheduleFault(1, "this is nested too deeply to be a file of schedules") from None


def _check_keys(loaded: Mapping[str, object]) -> None:
    for key in loaded:
        if key != "schedule":
            raise _Fault(key, f"the key {key!r} is not known here: schedules stand under [[schedule]]")
    entries = loaded.get("schedule")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        for key in entry if isinstance(entry, dict) else ():
            if key not in _KEYS:
                near = difflib.get_close_matches(key, _KEYS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_KEYS)}"
                raise _Fault(("schedule", index, key), f"the key {key!r} is not known here: {hint}")


def _typed(error: msgspec.ValidationError, lines: dict[Path, int]) -> ScheduleFault:
    """Return the fault of a value of the wrong type."""
    found = _AT.search(str(error))
    reason = _AT.sub("", str(error)).replace("`", "'")
    if found is None:
        return ScheduleFault(1, f"{reason}: write every schedule as a table, [[schedule]]")
    path: Path = ("schedule", int(found[1]), *([found[2]] if found[2] else []))
    return ScheduleFault(line_of(lines, path), f"{found[2]}: {reason}" if found[2] else reason)


def _check_name(name: str, others: Sequence[Plan]) -> None:
    if not _NAME.fullmatch(name):
        raise _Fault("name", f"{name!r} is not a name: use letters, digits, dots, dashes and underscores")
    if any(name == other.name for other in others):
        raise _Fault("name", f"there is another schedule {name!r}: give every schedule its own name")


def _plan(entry: _Entry, around: Surroundings, origin: str) -> Plan:
    if not 1 <= entry.tier <= around.highest_tier:
        raise _Fault("tier", f"there is no tier {entry.tier}: tiers go from 1 to {around.highest_tier}")
    if entry.budget_usd is not None and not 0.01 <= entry.budget_usd <= 100_000:  # noqa: PLR2004 - also refuses NaN
        raise _Fault("budget_usd", f"a budget of {entry.budget_usd:g} US dollars cannot be kept: give 0.01 or more")
    if any(not name.strip() for name in entry.services):
        raise _Fault("services", "an empty name is no service: leave it out")
    timezone = entry.timezone or around.timezone
    cadence = _cadence(entry, timezone)
    jitter = _seconds("jitter", entry.jitter)
    if jitter >= (gap := _shortest_gap(cadence)):
        raise _Fault("jitter", f"a jitter of {jitter:g} s is not below the {gap:g} s between two due times: lower it")
    grace = None if entry.misfire_grace is None else _seconds("misfire_grace", entry.misfire_grace)
    schedule = _checked(
        "jitter", lambda: Schedule(name=entry.name, cadence=cadence, jitter_seconds=jitter, site=around.site)
    )
    return Plan(
        schedule=schedule,
        timezone=timezone,
        tier=entry.tier,
        prompt=_prompt(entry, around),
        services=tuple(dict.fromkeys(name.strip() for name in entry.services)),
        budget_usd=entry.budget_usd,
        quiet_hours=tuple(_windows(entry)),
        overlap=entry.overlap,
        grace_seconds=grace,
        begins_at_once=isinstance(cadence, Interval),
        enabled=entry.enabled,
        origin=origin,
    )


def _cadence(entry: _Entry, timezone: str) -> Cadence:
    if (entry.cron is None) == (entry.interval is None):
        remedy = "give 'cron' or 'interval'" if entry.cron is None else "leave one of them out"
        raise _Fault("cron", f"a schedule has either a crontab line or an interval: {remedy}")
    _checked("timezone", lambda: Cron(expr="@daily", timezone=timezone))  # also where only quiet hours are read in it
    if entry.cron is not None:
        expr = entry.cron
        return _checked("cron", lambda: Cron(expr=expr, timezone=timezone))
    seconds = _seconds("interval", entry.interval or 0.0)
    if seconds < 1:
        raise _Fault("interval", f"an interval of {seconds:g} s cannot be kept: give a second or more")
    return _checked("interval", lambda: Interval(seconds=seconds))


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
        raise _Fault("prompt_file", "a schedule has either a prompt or a file with one: leave one of them out")
    try:
        return around.prompt_file(entry.prompt_file)
    except ValueError as error:
        raise _Fault("prompt_file", str(error)) from None


def _windows(entry: _Entry) -> Iterator[Window]:
    for text in (entry.quiet_hours,) if isinstance(entry.quiet_hours, str) else entry.quiet_hours:
        try:
            yield read_window(text)
        except ValueError as error:
            raise _Fault("quiet_hours", str(error)) from None


def _seconds(key: str, value: float | str) -> float:
    """Return a duration in seconds: a number of them, or a number with its unit."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise _Fault(key, f"{value!r} is not a duration: write a number with s, m, h or d, such as '15m'")
        value = float(found[1] or 0) * _UNIT[found[2] or "s"]
    if not 0 <= value <= _UNIT["d"] * 366:  # also refuses NaN
        raise _Fault(key, f"{value:g} s is not a duration: give 0 to 366 days")
    return float(value)


def _checked(key: str, made: Callable[[], T]) -> T:
    """Return what ``made`` returns; a value that it refuses is a fault of ``key``."""
    try:
        return made()
    except ConfigurationError as error:
        raise _Fault(key, str(error)) from None
