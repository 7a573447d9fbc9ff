"""What is on record of a probe beside how it stands, what its changes write, and what it says to those who ask.

Pure. A *telling* is what a change of a probe writes beside its row: events, and the state of its service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.events import NewEvent
from claudeops.domain.probes.history import Bucket
from claudeops.domain.probes.probe import Observation, Pings, Probe, ProbeState, Saw, Standing
from claudeops.domain.report.report import ServiceStatus
from claudeops.text.escapes import visible

HELD_SECONDS: Final = 600.0
"""For so long a service must have been seen up without a break after an action until its cooldown counters clear. Two
looks of a probe may lie five seconds apart, and a service that dies once a minute would never reach its limit."""

_MISSED: Final = 3  # intervals without a look, from which what was seen before proves nothing any more
_SLACK: Final = timedelta(minutes=1)  # more than that: a busy machine

_MOST_LINE: Final = 500  # characters of a line that comes with a ping

_UNHEARD: Final = Pings()

ABANDONED: Final = timedelta(days=1)
"""After which a probe of a site without a daemon is no longer declared anywhere: a site may have another name now."""

_PLAIN: Final = (
    "state",
    "since",
    "last_checked_at",
    "detail",
    "latency_ms",
    "failures",
    "successes",
    "explained_by",
    "incident",
)
"""What has a column of its own in a standing; the rest is the state machine's, in ``counters``."""


def ping_line(text: str, redact: Callable[[str], str], *, is_cut: bool = False) -> str:
    """Return what is kept of a text that comes with a ping: one line, of which nothing is secret and nothing hides.

    ``is_cut``: the text went on. Its last word is left out then, for part of a secret is found only where it is long.
    """
    last = (text.split() or [""])[-1]
    if is_cut and len(last) < _MOST_LINE:
        text = text.removesuffix(last)
    # As sent first: what is a secret over several lines is none on one.
    return visible(redact(" ".join(redact(text).split())))[:_MOST_LINE]


class StoredProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe as it is on record."""

    name: str
    service: str
    kind: str
    standing: Standing
    interval: float  # seconds
    healthy_since: datetime | None = None  # since then every look has seen it up; null: the last one has not
    session_id: int | None = None  # the first session of the chain that was last started because of it
    chain_at: datetime | None = None  # when that was queued
    handled_at: datetime | None = None  # when a failure was last left to a chain or a person
    handled_state: ProbeState | None = None  # its state then; None: not known
    owner: str | None = None  # the daemon that looks, or has looked last
    pings: Pings = _UNHEARD
    ping_text: str = ""  # the latest line that came with a ping
    view: Observed | None = None  # of one site, if several look


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a probe writes beside its row."""

    at: datetime
    number: int = 0  # rises with each of a daemon's; one that is on record is not written again
    detail: str = ""  # of the look that made it
    events: tuple[NewEvent, ...] = ()  # to be raised
    over: tuple[str, ...] = ()  # fingerprints of events that are over
    notes: tuple[NewEvent, ...] = ()  # events that are over as soon as they are raised
    is_state: bool = True  # the service's state is written down too
    is_explained: bool = False  # by the failure of another service, which tells it


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A probe as its latest look leaves it, with the tellings that have not been written yet, oldest first.

    Of a probe that several sites look at it is the view of one of them.
    """

    probe: Probe
    site: str = ""  # of several, whose view it is; "": it has one, or it stands for all of them
    standing: Standing
    healthy_since: datetime | None
    tellings: tuple[Telling, ...] = msgspec.field(default=())


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time of one probe."""

    probe: str
    start: datetime
    bucket: Bucket


STATUS_OF: Final = {
    ProbeState.UP: ServiceStatus.HEALTHY,
    ProbeState.DEGRADED: ServiceStatus.DEGRADED,
    ProbeState.FLAPPING: ServiceStatus.DEGRADED,
    ProbeState.DOWN: ServiceStatus.DOWN,
}
"""What a state means for the service; the others say nothing of it."""

FAILING: Final = frozenset({ProbeState.DEGRADED, ProbeState.DOWN, ProbeState.FLAPPING})
"""States of which a chain may be told."""

_WORST_FIRST: Final = (ServiceStatus.DOWN, ServiceStatus.DEGRADED, ServiceStatus.HEALTHY)


def worst(states: Iterable[ProbeState]) -> ServiceStatus | None:
    """Return the state of a service by all its probes; ``None``: none of them knows."""
    found = {STATUS_OF[state] for state in states if state in STATUS_OF}
    return next((status for status in _WORST_FIRST if status in found), None)


def fingerprint_of(name: str) -> str:
    """Return the fingerprint of a probe's event: one for each probe, so that its return ends it."""
    return fingerprint("probe", name)


def began(observation: Observation) -> datetime:
    """Return when a look began, as far as is known."""
    return observation.at - timedelta(milliseconds=observation.latency_ms or 0.0)


def healthy_since(
    before: datetime | None, observation: Observation, *, looked_at: datetime | None, interval: float
) -> datetime | None:
    """Return since when every look has seen a service up; a look that could not look changes nothing.

    ``looked_at``: when the one before it ended. While nobody looked for several ``interval`` seconds, because no daemon
    ran, the service may have been anything.
    """
    match observation.saw:
        case Saw.UP:
            start = began(observation)
            is_gap = looked_at is None or start - looked_at > timedelta(seconds=_MISSED * interval) + _SLACK
            return start if before is None or is_gap else before
        case Saw.NOTHING:
            return before
        case _:
            return None


def is_recent(probe: Probe, looked_at: datetime | None, now: datetime) -> bool:
    """Tell whether a look is recent enough to say how its service is."""
    latest = timedelta(seconds=_MISSED * probe.interval + probe.timeout) + _SLACK
    return looked_at is not None and -_SLACK <= now - looked_at <= latest


def standing_columns(standing: Standing) -> dict[str, object]:
    """Return how a probe stands as columns have it."""
    values = msgspec.structs.asdict(standing)
    plain: dict[str, object] = {name: values.pop(name) for name in _PLAIN}
    return {**plain, "state": standing.state.value, "counters": msgspec.json.encode(values).decode()}


def to_standing(row: Any) -> Standing:
    """Return how a probe stood; counters that cannot be read begin anew, and it takes some looks more."""
    try:
        counters = msgspec.json.decode(row.counters, type=dict[str, object])
        plain = {name: getattr(row, name) for name in _PLAIN if hasattr(row, name)}  # a view has no incident
        return msgspec.convert({**counters, **plain}, Standing)
    except msgspec.MsgspecError:
        return Standing(state=ProbeState(row.state), since=row.since, detail=row.detail)


msgspec.json.Decoder(Standing)  # `msgspec.convert` goes by what this makes


def has_held(kept: StoredProbe, last_action_at: datetime) -> bool:
    """Tell whether a probe has seen its service up twice after an action, and for long enough without a break."""
    standing = kept.standing
    if standing.state is not ProbeState.UP or kept.healthy_since is None or standing.last_checked_at is None:
        return False
    enough = timedelta(seconds=max(HELD_SECONDS, 2 * kept.interval))
    begun = max(kept.healthy_since, last_action_at)
    return standing.ups > 1 and standing.last_checked_at - begun >= enough
