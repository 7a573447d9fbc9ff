"""Alerts as values: what a sender says, what is kept of it, what was decided, and the incidents that it belongs to.

A sender *says* (`Alert`, many in a `SenderBody`); what is *kept* is an `AlertState`, one a source and fingerprint.
Times of a sender (``starts_at``, ``ends_at``, ``reported_at``) are only ever compared with times of the same sender;
all others are the daemon's. So a wrong clock of a sender does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.alerts.exporters import exporter
from claudeops.domain.alerts.matchers import PLAIN, SERVICE, Matcher, all_hold
from claudeops.domain.events import EventLevel

Key: TypeAlias = tuple[str, str]
"""Of an alert: source and fingerprint."""

PROBES: Final = "probes"
"""The source of what the daemon's own probes say."""

BY_LABELS: Final = "its labels "
"""How `Alert.service_by` begins where several labels name a service: one its scope, as in ``shop/checkout``."""

STORM: Final = "storm"
"""The group key of what gets one chain because too much came at once."""


class ReportedState(StrEnum):
    """The state of an alert as its sender reports it."""

    FIRING = "firing"
    RESOLVED = "resolved"


class AlertStatus(ClosedSet):
    """How an alert stands."""

    FIRING = "firing", "its source reports that something is wrong"
    RESOLVED = "resolved", "its source reports that it is over"
    STALE = "stale", "it fired, and its source has not repeated it for too long; never the same as resolved"


class AlertDecision(ClosedSet):
    """What became of an alert."""

    STARTED = "started", "a chain was started for it"
    JOINED = "joined", "a chain is on it already, or the person who acknowledged its incident"
    GROUPED = "grouped", "it waits with others for one chain, or went out in another one's"
    DUPLICATE = "duplicate", "it came before, or is out of date"
    SILENCED = "silenced", "an operator's silence"
    INHIBITED = "inhibited", "another alert explains it, or the failure of something that its service depends on"
    FLAPPING = "flapping", "it changes too often to be news"
    BELOW_SEVERITY = "below_severity", "not severe enough for a session"
    COOLDOWN = "cooldown", "every action on its service is used up"
    BUDGET = "budget", "there is no money left"
    PAUSED = "paused", "an operator has paused the daemon"
    RESOLVED_FIRST = "resolved_first", "it was over before a session was started"
    SELF_INFLICTED = "self_inflicted", "it follows an action of a session on its service, or on what that depends on"
    WATCHDOG = "watchdog", "a sign of life of the monitoring system, which feeds a heartbeat"
    UNPARSED = "unparsed", "the body could not be read"
    STALE = "stale", "its source has not repeated it for too long"


HANDLED: Final = frozenset({AlertDecision.STARTED, AlertDecision.JOINED, AlertDecision.GROUPED})
"""Decisions after which a repetition is a duplicate."""

TEMPORARY: Final = frozenset(
    {
        AlertDecision.SILENCED,
        AlertDecision.INHIBITED,
        AlertDecision.FLAPPING,
        AlertDecision.COOLDOWN,
        AlertDecision.BUDGET,
        AlertDecision.PAUSED,
        AlertDecision.SELF_INFLICTED,
    }
)
"""Decisions that pass: an alert that still fires then is decided anew, whether or not its sender repeats it."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert as one sender says it: bounded and visible text, and nothing that is an instruction."""

    fingerprint: str  # the sender's, or made of what identifies the alert
    state: ReportedState
    name: str  # of the rule, monitor or check
    service: str  # by the source's rules; never empty
    severity: EventLevel  # by the source's map
    service_by: str = ""  # what names the service: "its label app"; empty: the daemon's own probe
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    starts_at: datetime | None = None  # None: the sender does not say
    ends_at: datetime | None = None
    reported_at: datetime | None = None  # by the sender's clock, which orders its messages; None: unknown
    url: str = ""  # where the sender shows it


class SenderBody(msgspec.Struct, frozen=True, kw_only=True):
    """One body of a sender."""

    source: str
    key: str  # the same for the same delivery: 64 hex digits
    alerts: tuple[Alert, ...] = ()  # none: a test message, or news that is about no alert
    group_key: str = ""  # the sender's own group; "": it does not group
    left_out: int = 0  # alerts that the sender or the limit left out
    remark: str = ""  # what else there is, in one sentence


class Unparsed(msgspec.Struct, frozen=True, kw_only=True):
    """A body that could not be read."""

    source: str
    key: str
    why: str  # a clause


class AlertState(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an alert."""

    source: str
    fingerprint: str
    name: str
    service: str
    severity: EventLevel
    status: AlertStatus
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    url: str = ""
    starts_at: datetime | None = None  # by the sender
    ends_at: datetime | None = None  # by the sender; of the latest end
    reported_at: datetime | None = None  # by the sender
    began: datetime  # by us: when this status first came
    last_seen: datetime
    count: int = 1  # messages about it
    flips: int = 0  # changes between firing and not, ever
    changes: tuple[datetime, ...] = ()  # recent ones, by us; they outlive a resolve
    flapping: bool = False  # as of the last change
    why_asked_at: datetime | None = None  # when a chain was last started to find out why it flaps
    contested_at: datetime | None = None  # a message has it fire after it had been resolved, perhaps only late
    decision: AlertDecision | None = None  # the latest about what fires, or what ended it; never a duplicate
    service_by: str = ""  # what names the service
    sender_group: str = ""  # the sender's own group that it came with
    group_key: str = ""
    due_at: datetime | None = None  # while it waits in its group
    incident: int | None = None

    @property
    def key(self) -> Key:
        """Source and fingerprint."""
        return (self.source, self.fingerprint)

    @property
    def fires(self) -> bool:
        """Whether it is known to fire."""
        return self.status is AlertStatus.FIRING

    @property
    def is_waiting(self) -> bool:
        """Whether it waits in its group for a chain."""
        return self.due_at is not None


def matchable(alert: Alert | AlertState, source: str) -> Mapping[str, str]:
    """Return what matchers see: the sender's labels, and what the daemon calls the alert where they say nothing.

    A label ``service`` that names an exporter says nothing of the service. No sender says which source it is. A service
    that is called by its namespace, project or host has its plain name beside it (`PLAIN`).
    """
    own = {"alertname": alert.name, SERVICE: alert.service, "severity": alert.severity.value}
    found = {**own, **alert.labels, "source": source}
    is_ours = SERVICE not in alert.labels
    if alert.service_by and exporter(found[SERVICE]) is not None:
        found[SERVICE], is_ours = alert.service, True
    is_scoped = not alert.service_by or alert.service_by.startswith(BY_LABELS)  # else a "/" is part of the name
    if is_ours and is_scoped and (plain := alert.service.partition("/")[2]):
        found[PLAIN] = plain
    return found


# --- incidents --------------------------------------------------------------------------------------------


class IncidentStatus(ClosedSet):
    """Where an incident stands."""

    OPEN = "open", "the trouble goes on"
    ACKNOWLEDGED = "acknowledged", "a person is on it: alerts join it, and start nothing"
    RESOLVED = "resolved", "it is over, as witnesses show"


class WitnessKind(ClosedSet):
    """Who says that the trouble is over."""

    SOURCE = "source", "every alert of it is resolved"
    PROBE = "probe", "a probe of the daemon has seen the service up"
    LOOK = "look", "a session has looked, and found it healthy"
    OPERATOR = "operator", "a person; needs no second one"


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """One who says that the trouble is over."""

    kind: WitnessKind
    at: datetime
    name: str = ""  # of the source, the probe, the session or the person


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble with one service or group, from its first signal to its proven end."""

    number: int
    group_key: str
    services: tuple[str, ...]
    severity: EventLevel  # the highest that was reached
    status: IncidentStatus = IncidentStatus.OPEN
    opened_at: datetime
    fired_at: datetime  # when the latest of its alerts came; what was seen before proves nothing
    started_at: datetime | None = None  # when its latest chain was started
    last_action_at: datetime | None = None  # when a session last changed something
    acked_by: str = ""
    acked_at: datetime | None = None
    resolved_at: datetime | None = None
    reopened: int = 0  # times
    witnesses: tuple[Witness, ...] = ()  # one of a kind
    root_session_id: int | None = None  # of the latest chain

    @property
    def is_open(self) -> bool:
        """Whether the trouble is not known to be over."""
        return self.status is not IncidentStatus.RESOLVED


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """An operator does not want to hear of some alerts for a while."""

    id: int
    matchers: tuple[Matcher, ...]  # all must hold
    starts_at: datetime
    ends_at: datetime
    created_by: str
    comment: str = ""
    suppressed_count: int = 0
    ended_by: str = ""  # who has ended it before its time

    def covers(self, labels: Mapping[str, str], now: datetime) -> bool:
        """Return whether it silences an alert with these labels (`matchable`) now."""
        return self.starts_at <= now < self.ends_at and all_hold(self.matchers, labels)
