"""The operator's rules for alerts, as values: who may send, how alerts are read and grouped, and what explains what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import PROBES
from claudeops.domain.alerts.matchers import Matcher, all_hold
from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import LOWEST_TIER
from claudeops.structs import replace


class SenderKind(StrEnum):
    """Whose bodies a source sends."""

    ALERTMANAGER = "alertmanager"
    GRAFANA = "grafana"
    PAGERDUTY = "pagerduty"
    UPTIME_KUMA = "uptime-kuma"
    HEALTHCHECKS = "healthchecks"
    GENERIC = "generic"


REPEATING: Final = frozenset({SenderKind.ALERTMANAGER, SenderKind.GRAFANA})
"""Senders that repeat what still fires, so that their silence says something."""

SEVERITIES: Final[Mapping[str, EventLevel]] = {
    **dict.fromkeys(("critical", "crit", "page", "fatal", "emergency", "disaster", "high"), EventLevel.CRITICAL),
    **dict.fromkeys(("p1", "sev1", "sev0", "p0", "error", "major", "down"), EventLevel.CRITICAL),
    **dict.fromkeys(("warning", "warn", "average", "medium", "minor", "p2", "p3", "sev2", "sev3"), EventLevel.WARNING),
    **dict.fromkeys(("info", "information", "informational", "notice", "low", "none", "debug", "ok"), EventLevel.INFO),
    **dict.fromkeys(("p4", "p5", "sev4", "sev5"), EventLevel.INFO),
}
"""What the usual words mean, in lower case; a source's own map goes before it."""

_RANKS: Final = {level: rank for rank, level in enumerate((EventLevel.INFO, EventLevel.WARNING, EventLevel.CRITICAL))}


def rank(level: EventLevel) -> int:
    """Return the weight of a severity, for comparisons."""
    return _RANKS[level]


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """Which alerts share a chain, and when it starts."""

    by: tuple[str, ...] = ()  # labels; empty: the sender's own group, else the service
    wait: timedelta = timedelta(seconds=30)  # for others, before the first chain of a group
    interval: timedelta = timedelta(minutes=5)  # after a chain's start, before what is new starts the next
    repeat: timedelta = timedelta(hours=4)  # after a chain's start, before what still fires starts the next


class FlapRules(msgspec.Struct, frozen=True, kw_only=True):
    """When an alert changes too often to be news."""

    enabled: bool = True
    changes: int = 4  # between firing and not
    window: timedelta = timedelta(hours=1)
    quiet: timedelta = timedelta(minutes=15)  # without a change, after which it flaps no more
    ask_why: bool = False  # one chain a day may find out


class StormRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many chains alerts may start; what comes beyond shares one."""

    sessions: int = 5
    window: timedelta = timedelta(minutes=10)


class AlertSource(msgspec.Struct, frozen=True, kw_only=True):
    """One who may send."""

    name: str
    kind: SenderKind = SenderKind.GENERIC
    secret_env: tuple[str, ...] = ()  # variables of its secrets, the new one and the old one; empty: not signed
    signature_header: str = ""  # empty: the kind's own
    timestamp_header: str = ""  # Grafana: the one that was chosen there; empty: the body alone is signed
    service_label: tuple[str, ...] = ()  # the first that an alert has names its service; else `subject`
    severity_label: tuple[str, ...] = ("severity", "priority", "level")
    severity: Mapping[str, EventLevel] = msgspec.field(default_factory=dict)  # its words, in lower case
    default_severity: EventLevel = EventLevel.WARNING  # of an alert without one, or with an unknown word
    fingerprint: tuple[str, ...] = ()  # generic: fields or labels that identify an alert; empty: all its labels
    firing_words: tuple[str, ...] = ()  # generic: by which it says that something fires, besides the usual ones
    over_words: tuple[str, ...] = ()  # the same for what is over
    min_severity: EventLevel = EventLevel.WARNING  # below it no session is started
    grouping: Grouping = Grouping()
    tier: int = LOWEST_TIER  # that chains start at
    stale_after: timedelta | None = None  # without a repetition; None: it never gets stale
    origin: str = ""  # the file and line that declares it


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What is different for some alerts; the first rule that fits counts."""

    matchers: tuple[Matcher, ...]
    tier: int | None = None
    min_severity: EventLevel | None = None
    group_by: tuple[str, ...] | None = None
    flapping: bool | None = None  # whether flap detection holds back its sessions


class InhibitRule(msgspec.Struct, frozen=True, kw_only=True):
    """While an alert of ``source`` fires, those of ``target`` with the same values of ``equal`` start nothing."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts that are a sign of life, such as Alertmanager's Watchdog; their silence is the trouble."""

    name: str
    matchers: tuple[Matcher, ...]
    every: timedelta
    grace: timedelta = timedelta(0)


class Treatment(msgspec.Struct, frozen=True, kw_only=True):
    """How one alert is treated: its source's settings, changed by the rule that fits."""

    tier: int
    min_severity: EventLevel
    grouping: Grouping
    flapping: FlapRules


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    sources: tuple[AlertSource, ...] = ()
    rules: tuple[Rule, ...] = ()
    inhibit: tuple[InhibitRule, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    flapping: FlapRules = FlapRules()
    storm: StormRules = StormRules()
    self_inflicted: timedelta = timedelta(minutes=2)  # after an action of ours, in which its alerts are its own
    reopen_within: timedelta = timedelta(hours=1)  # after an incident's end
    follow_dependencies: bool = True  # the failure of what a service depends on explains its alerts

    def source(self, name: str) -> AlertSource:
        """Return a source by name; for one that is gone, and for probes, what holds without any settings."""
        for source in self.sources:
            if source.name == name:
                return source
        grouping = Grouping(wait=timedelta(0)) if name == PROBES else Grouping()
        return AlertSource(name=name, grouping=grouping)

    def heartbeat(self, labels: Mapping[str, str]) -> Heartbeat | None:
        """Return the heartbeat that an alert feeds."""
        return next((beat for beat in self.heartbeats if all_hold(beat.matchers, labels)), None)

    def treatment(self, labels: Mapping[str, str], source: str) -> Treatment:
        """Return how an alert is treated."""
        known = self.source(source)
        plain = Treatment(
            tier=known.tier, min_severity=known.min_severity, grouping=known.grouping, flapping=self.flapping
        )
        rule = next((rule for rule in self.rules if all_hold(rule.matchers, labels)), None)
        if rule is None:
            return plain
        is_watched = self.flapping.enabled if rule.flapping is None else rule.flapping
        return Treatment(
            tier=plain.tier if rule.tier is None else rule.tier,
            min_severity=rule.min_severity or plain.min_severity,
            grouping=plain.grouping if rule.group_by is None else replace(plain.grouping, by=rule.group_by),
            flapping=replace(self.flapping, enabled=is_watched),
        )


NO_RULES: Final = Rules()
