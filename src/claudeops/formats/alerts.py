"""The operator's file of alerts, read: TOML becomes `Rules`, or the line that is wrong and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from claudeops.domain.alerts.alert import PROBES
from claudeops.domain.alerts.matchers import Matcher, read_matchers
from claudeops.domain.alerts.rules import (
    REPEATING,
    AlertSource,
    FlapRules,
    Grouping,
    Heartbeat,
    InhibitRule,
    Rule,
    Rules,
    SenderKind,
    StormRules,
)
from claudeops.domain.events import EventLevel
from claudeops.text import casefold_key, regex
from claudeops.text.toml_file import NAME, VARIABLE, KeyFault, TomlFile, as_struct, keys_of
from claudeops.text.toml_lines import Path

T = TypeVar("T")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)

MOST_SOURCES: Final = 100
MOST_RULES: Final = 1000
"""Of rules, and of inhibitions."""

STALE_REPEATS: Final = 3
"""Repeat intervals after which a sender that repeats has fallen silent."""

_DURATION: Final = regex.Pattern(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|m|h|d)")
_UNIT: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST: Final = 366 * 86400.0
_HEADER: Final = regex.Pattern(r"[A-Za-z0-9-]{1,100}")
_NEVER: Final = "never"
_Time = float | str
_Words = str | tuple[str, ...]


class AlertDefaults(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[defaults]``: what holds for every source that says nothing else."""

    service_label: _Words = ()
    severity_label: _Words = ("severity", "priority", "level")
    severity: dict[str, EventLevel] = {}
    default_severity: EventLevel = EventLevel.WARNING
    min_severity: EventLevel = EventLevel.WARNING
    group_by: tuple[str, ...] = ()
    group_wait: _Time = "30s"
    group_interval: _Time = "5m"
    repeat_interval: _Time = "4h"
    tier: int = 1
    stale_after: _Time = ""


class DeclaredSource(AlertDefaults, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[source]]``: one who may send."""

    name: str
    kind: SenderKind
    secret_env: _Words = ()
    signature_header: str = ""
    timestamp_header: str = ""
    fingerprint: _Words = ()
    firing_words: _Words = ()
    over_words: _Words = ()


class RuleEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[rule]]``: what is different for some alerts."""

    matchers: _Words
    tier: int | None = None
    min_severity: EventLevel | None = None
    group_by: tuple[str, ...] | None = None
    flapping: bool | None = None


class InhibitEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[inhibit]]``: what explains what."""

    source: _Words
    target: _Words
    equal: tuple[str, ...] = ()


class HeartbeatEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[heartbeat]]``: alerts that are a sign of life."""

    name: str
    matchers: _Words
    every: _Time
    grace: _Time = "0s"


class FlappingEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[flapping]``."""

    enabled: bool = True
    changes: int = 4
    window: _Time = "1h"
    quiet: _Time = "15m"
    ask_why: bool = False


class StormEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[storm]``."""

    sessions: int = 5
    window: _Time = "10m"


class General(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The keys above all tables."""

    self_inflicted: _Time = "2m"
    reopen_within: _Time = "1h"
    follow_dependencies: bool = True


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "defaults": AlertDefaults,
    "flapping": FlappingEntry,
    "storm": StormEntry,
}
_LISTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "source": DeclaredSource,
    "rule": RuleEntry,
    "inhibit": InhibitEntry,
    "heartbeat": HeartbeatEntry,
}
_MOST: Final = {"source": MOST_SOURCES, "rule": MOST_RULES, "inhibit": MOST_RULES, "heartbeat": MOST_SOURCES}


def read_rules(text: str, *, highest_tier: int, file: str = "") -> Rules:
    """Return what a file of alerts says. Raises `TomlFault` for the first fault."""
    toml = TomlFile(text, what="a file of alerts")
    loaded = toml.values
    toml.check_keys(loaded, (), (*keys_of(General), *_TABLES, *_LISTS))
    reader = _Reader(toml, highest_tier=highest_tier, file=file)
    general = reader.table({key: value for key, value in loaded.items() if key in keys_of(General)}, (), General)
    flapping = reader.each(loaded.get("flapping", {}), ("flapping",), FlappingEntry, _flapping)
    storm = reader.each(loaded.get("storm", {}), ("storm",), StormEntry, _storm)
    reader.each(loaded.get("defaults", {}), ("defaults",), AlertDefaults, reader.check_settings)
    sources = reader.sources(loaded)
    if not sources:
        raise toml.fault((), "there is no source in it: add a [[source]], or unset CLAUDEOPS_ALERTS_PATH")
    heartbeats = reader.several(loaded, "heartbeat", HeartbeatEntry, _heartbeat)
    reader.check_names("heartbeat", [beat.name for beat in heartbeats])
    with toml.at():
        times = _general(general)
    return Rules(
        sources=sources,
        rules=reader.several(loaded, "rule", RuleEntry, reader.rule),
        inhibit=reader.several(loaded, "inhibit", InhibitEntry, _inhibit),
        heartbeats=heartbeats,
        flapping=flapping,
        storm=storm,
        self_inflicted=times[0],
        reopen_within=times[1],
        follow_dependencies=general.follow_dependencies,
    )


class _Reader:
    """Reads the tables of one text."""

    def __init__(self, toml: TomlFile, *, highest_tier: int, file: str) -> None:
        self._toml = toml
        self._highest = highest_tier
        self._file = file

    def table(self, table: object, path: Path, kind: type[_Struct]) -> _Struct:
        """Return a table as a struct."""
        if not isinstance(table, dict):
            raise self._toml.fault(path, f"{path[0]} is a table: write [{path[0]}]")
        self._toml.check_keys(table, path, keys_of(kind))
        with self._toml.at(*path):
            return as_struct(table, kind)

    def each(self, table: object, path: Path, kind: type[_Struct], made: Callable[[_Struct], T]) -> T:
        """Return a table as the value that ``made`` makes of it."""
        entry = self.table(table, path, kind)
        with self._toml.at(*path):
            return made(entry)

    def several(
        self, loaded: Mapping[str, object], name: str, kind: type[_Struct], made: Callable[[_Struct], T]
    ) -> tuple[T, ...]:
        """Return the values of an array of tables."""
        return tuple(self.each(table, (name, at), kind, made) for at, table in enumerate(self._array(loaded, name)))

    def sources(self, loaded: Mapping[str, object]) -> tuple[AlertSource, ...]:
        """Return the sources, each over the defaults."""
        given = loaded.get("defaults", {})
        defaults = given if isinstance(given, dict) else {}
        found = []
        for at, table in enumerate(self._array(loaded, "source")):
            path: Path = ("source", at)
            self.table(table, path, DeclaredSource)  # alone, so that a fault of the defaults is not reported as its own
            entry = msgspec.convert({**defaults, **table}, DeclaredSource)
            with self._toml.at(*path):
                self.check_settings(entry)
                found.append(_source(entry, {*table, *defaults}, f"{self._file}:{self._toml.line(*path)}"))
        self.check_names("source", [source.name for source in found])
        return tuple(found)

    def check_names(self, name: str, names: Sequence[str]) -> None:
        """Refuse a name that is taken."""
        taken: dict[str, int] = {}
        for at, each in enumerate(names):
            before = taken.setdefault(casefold_key(each), at)
            if before != at:
                line = self._toml.line(name, before)
                reason = f"this name is taken by the {name} in line {line}: choose another"
                raise self._toml.fault((name, at, "name"), reason)

    def check_settings(self, entry: AlertDefaults) -> None:
        """Refuse settings of a source that make no sense."""
        self._check_tier(entry.tier)
        _grouping(entry)
        _stale_after(entry, repeats=True)
        for key, words in (("service_label", entry.service_label), ("group_by", entry.group_by)):
            if not all(word.strip() for word in _words(words)):
                raise KeyFault(key, f"{key}: an empty name is no label: leave it out")

    def rule(self, entry: RuleEntry) -> Rule:
        """Return a rule."""
        if entry.tier is not None:
            self._check_tier(entry.tier)
        return Rule(
            matchers=_matchers("matchers", entry.matchers),
            tier=entry.tier,
            min_severity=entry.min_severity,
            group_by=entry.group_by,
            flapping=entry.flapping,
        )

    def _check_tier(self, tier: int) -> None:
        if not 1 <= tier <= self._highest:
            raise KeyFault("tier", f"there is no tier {tier}: tiers go from 1 to {self._highest}")

    def _array(self, loaded: Mapping[str, object], name: str) -> list[dict[str, object]]:
        tables = loaded.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._toml.fault((name,), f"each {name} is a table of its own: write [[{name}]]")
        if len(tables) > _MOST[name]:
            raise self._toml.fault((name, _MOST[name]), f"a file holds at most {_MOST[name]} of these: leave some out")
        return tables


# --- tables as values -------------------------------------------------------------------------------------


def _source(entry: DeclaredSource, given: Collection[str], origin: str) -> AlertSource:
    _check_name(entry.name)
    if entry.name == PROBES:
        raise KeyFault("name", f"{PROBES!r} is what the daemon's own probes are called: choose another name")
    secrets = _words(entry.secret_env)
    for name in secrets:
        if VARIABLE.fullmatch(name) is None:
            raise KeyFault("secret_env", "secret_env: name variables of the environment, and never the secret itself")
    for key, header in (("signature_header", entry.signature_header), ("timestamp_header", entry.timestamp_header)):
        if header and _HEADER.fullmatch(header) is None:
            raise KeyFault(key, f"{key}: {header[:40]!r} is not the name of a header")
    if entry.timestamp_header and entry.kind is not SenderKind.GRAFANA:
        raise KeyFault("timestamp_header", "timestamp_header: only Grafana sends one: leave it out")
    if entry.fingerprint and entry.kind is not SenderKind.GENERIC:
        raise KeyFault("fingerprint", f"fingerprint: {entry.kind} says itself what identifies an alert: leave it out")
    _check_state_words(entry)
    signed = {SenderKind.GRAFANA, SenderKind.PAGERDUTY, SenderKind.GENERIC}
    if secrets and entry.kind not in signed:
        raise KeyFault("secret_env", f"secret_env: {entry.kind} signs nothing: give it a token, and leave this out")
    severe = {SenderKind.UPTIME_KUMA, SenderKind.HEALTHCHECKS}  # they know no severity: what they report is down
    is_severe = entry.kind in severe and "default_severity" not in given
    return AlertSource(
        name=entry.name,
        kind=entry.kind,
        secret_env=secrets,
        signature_header=entry.signature_header,
        timestamp_header=entry.timestamp_header,
        service_label=_words(entry.service_label),
        severity_label=_words(entry.severity_label),
        severity={casefold_key(word): level for word, level in entry.severity.items()},
        default_severity=EventLevel.CRITICAL if is_severe else entry.default_severity,
        fingerprint=_words(entry.fingerprint),
        firing_words=_words(entry.firing_words),
        over_words=_words(entry.over_words),
        min_severity=entry.min_severity,
        grouping=_grouping(entry),
        tier=entry.tier,
        stale_after=_stale_after(entry, repeats=entry.kind in REPEATING),
        origin=origin,
    )


def _check_state_words(entry: DeclaredSource) -> None:
    taken = {casefold_key(word) for word in _words(entry.firing_words)}
    for key, words in (("firing_words", _words(entry.firing_words)), ("over_words", _words(entry.over_words))):
        if words and entry.kind is not SenderKind.GENERIC:
            raise KeyFault(key, f"{key}: the words of {entry.kind} are known: leave it out")
        if not all(word.strip() for word in words):
            raise KeyFault(key, f"{key}: an empty word is in every text: leave it out")
    if both := sorted(taken & {casefold_key(word) for word in _words(entry.over_words)}):
        raise KeyFault("over_words", f"over_words: {both[0][:40]!r} is among 'firing_words' too: take it out of one")


def _grouping(entry: AlertDefaults) -> Grouping:
    grouping = Grouping(
        by=entry.group_by,
        wait=_duration("group_wait", entry.group_wait),
        interval=_duration("group_interval", entry.group_interval),
        repeat=_duration("repeat_interval", entry.repeat_interval),
    )
    if grouping.wait > timedelta(hours=1):
        raise KeyFault("group_wait", "group_wait: nobody would look for that long: write at most 1h")
    if grouping.repeat < grouping.interval or grouping.repeat < timedelta(minutes=1):
        raise KeyFault("repeat_interval", "repeat_interval: write at least a minute, and at least 'group_interval'")
    return grouping


def _stale_after(entry: AlertDefaults, *, repeats: bool) -> timedelta | None:
    if entry.stale_after == _NEVER or (entry.stale_after == "" and not repeats):
        return None
    if entry.stale_after == "":
        return STALE_REPEATS * _duration("repeat_interval", entry.repeat_interval)
    found = _duration("stale_after", entry.stale_after)
    if found < timedelta(minutes=1):
        raise KeyFault("stale_after", "stale_after: write a minute or more, or 'never'")
    return found


def _flapping(entry: FlappingEntry) -> FlapRules:
    if not 2 <= entry.changes <= 100:  # noqa: PLR2004 - one change is what every alert does
        raise KeyFault("changes", f"changes: {entry.changes} changes say nothing: write 2 to 100")
    return FlapRules(
        enabled=entry.enabled,
        changes=entry.changes,
        window=_duration("window", entry.window),
        quiet=_duration("quiet", entry.quiet),
        ask_why=entry.ask_why,
    )


def _storm(entry: StormEntry) -> StormRules:
    if not 1 <= entry.sessions <= 100:  # noqa: PLR2004 - a sensible limit
        raise KeyFault("sessions", f"sessions: {entry.sessions} cannot be kept: write 1 to 100")
    return StormRules(sessions=entry.sessions, window=_duration("window", entry.window))


def _inhibit(entry: InhibitEntry) -> InhibitRule:
    return InhibitRule(
        source=_matchers("source", entry.source), target=_matchers("target", entry.target), equal=entry.equal
    )


def _heartbeat(entry: HeartbeatEntry) -> Heartbeat:
    _check_name(entry.name)
    every = _duration("every", entry.every)
    if every < timedelta(seconds=1):
        raise KeyFault("every", "every: write a second or more")
    grace = _duration("grace", entry.grace)
    return Heartbeat(name=entry.name, matchers=_matchers("matchers", entry.matchers), every=every, grace=grace)


def _general(entry: General) -> tuple[timedelta, timedelta]:
    return _duration("self_inflicted", entry.self_inflicted), _duration("reopen_within", entry.reopen_within)


# --- values -----------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise KeyFault("name", f"{name[:40]!r} is not a name: use letters, digits, dots, dashes and underscores")


def _words(given: _Words) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _matchers(key: str, given: _Words) -> tuple[Matcher, ...]:
    try:
        return read_matchers(_words(given))
    except ValueError as error:
        raise KeyFault(key, f"{key}: {error}") from None


def _duration(key: str, value: _Time) -> timedelta:
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            raise KeyFault(key, f"{key}: {value[:40]!r} is not a duration: write '30s', '5m', '4h' or '1d'")
        value = float(found[1]) * _UNIT[found[2]]
    if not 0 <= value <= _LONGEST:  # also refuses NaN
        raise KeyFault(key, f"{key}: {value:g} s is not a duration: write 0 s to 366 days")
    return timedelta(seconds=value)
