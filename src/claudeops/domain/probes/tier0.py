"""Tier 0: what the probes tell tier 1, and when they make it unnecessary.

A scheduled model session may be left out only while the probes can answer for it: everything that is expected has a
probe, each one was up when it was last looked at, nothing has changed since a model last found everything healthy, and
that is not too long ago. Anything unclear costs a session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.domain.probes.probe import Probe, ProbeState, Standing, kind_of, target_of
from claudeops.domain.probes.record import is_recent
from claudeops.domain.probes.state_machine import wavers
from claudeops.domain.sessions import DecisionReason
from claudeops.text import casefold_key, join_names

MOST_ROWS: Final = 60
"""Probes in the table of a prompt; more are counted."""

_CELL: Final = 160  # characters of one cell of the table


class Tier0(StrEnum):
    """What the probes are used for when a schedule is due."""

    OFF = "off"
    INFORM = "inform"  # their table stands in tier 1's prompt
    GATE = "gate"  # and no session is started while they can answer for it


class Need(StrEnum):
    """Why a model has to look."""

    NO_PROBES = "no_probes"
    NO_VERDICT = "no_verdict"  # no model has looked yet
    NOT_HEALTHY = "not_healthy"  # the last verdict was not that all is well
    OLD_VERDICT = "old_verdict"
    UNWATCHED = "unwatched"  # an expected service has no probe
    NOT_UP = "not_up"
    WAVERING = "wavering"  # up, and the last looks disagree
    STALE = "stale"  # a probe was not looked at in time
    CHANGED = "changed"  # since the verdict


class ModelVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict that a model gave on a whole round."""

    reason: DecisionReason
    looked_from: datetime  # when its session started: what changed later, it may not have seen


class Tier0Gate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a scheduled session may be left out."""

    need: Need | None  # None: it may
    sentence: str

    @property
    def may_skip(self) -> bool:
        """Whether the probes can answer for the session."""
        return self.need is None


def gate(
    probes: Sequence[Probe],
    standings: Mapping[str, Standing],
    *,
    expected: Iterable[str],
    verdict: ModelVerdict | None,
    max_age: timedelta,
    now: datetime,
    other_names: Mapping[str, str] | None = None,
) -> Tier0Gate:
    """Return whether a scheduled session may be left out; the first thing that speaks against it is told.

    ``standings`` by probe; ``other_names`` of services, to the name that they are counted by.
    """
    if not probes:
        return Tier0Gate(need=Need.NO_PROBES, sentence="there are no probes")
    if (refusal := _refused_verdict(verdict, max_age=max_age, now=now)) is not None:
        return refusal
    if unwatched := _unwatched(probes, expected, other_names or {}):
        return Tier0Gate(need=Need.UNWATCHED, sentence=f"no probe looks at {join_names(unwatched)}")
    for probe in probes:
        refusal = _refused_probe(probe, standings.get(probe.name, Standing()), verdict=verdict, now=now)
        if refusal is not None:
            return refusal
    since = f"{verdict.looked_from:%Y-%m-%d %H:%M} UTC" if verdict is not None else ""
    return Tier0Gate(need=None, sentence=f"{len(probes)} probes are up and unchanged since a model looked at {since}")


def _refused_verdict(verdict: ModelVerdict | None, *, max_age: timedelta, now: datetime) -> Tier0Gate | None:
    if verdict is None:
        return Tier0Gate(need=Need.NO_VERDICT, sentence="no model has given a verdict yet")
    if verdict.reason is not DecisionReason.HEALTHY:
        return Tier0Gate(need=Need.NOT_HEALTHY, sentence=f"the last verdict of a model is {verdict.reason}")
    age = now - verdict.looked_from
    if age >= max_age:
        hours = age.total_seconds() / 3600
        return Tier0Gate(need=Need.OLD_VERDICT, sentence=f"the last verdict of a model is {hours:.0f} h old")
    if age < timedelta(0):
        return Tier0Gate(
            need=Need.OLD_VERDICT, sentence="the last verdict of a model is from the future: the clock was set"
        )
    return None


def _counted_by(other_names: Mapping[str, str]) -> Callable[[str], str]:
    """Return what tells by which name, in one case, a service is counted."""
    names = {casefold_key(alias): casefold_key(name) for alias, name in other_names.items()}
    return lambda service: names.get(casefold_key(service), casefold_key(service))


def _unwatched(probes: Iterable[Probe], expected: Iterable[str], other_names: Mapping[str, str]) -> tuple[str, ...]:
    key = _counted_by(other_names)
    watched = {key(probe.service) for probe in probes}
    return tuple(service for service in expected if key(service) not in watched)


def _refused_probe(
    probe: Probe, standing: Standing, *, verdict: ModelVerdict | None, now: datetime
) -> Tier0Gate | None:
    if standing.state is not ProbeState.UP:
        return Tier0Gate(need=Need.NOT_UP, sentence=f"the probe {probe.name} is {standing.state}")
    if wavers(standing, probe):
        return Tier0Gate(need=Need.WAVERING, sentence=f"the last looks of the probe {probe.name} disagree")
    since = standing.since
    if not is_recent(probe, standing.last_checked_at, now):
        return Tier0Gate(need=Need.STALE, sentence=f"the probe {probe.name} has not been looked at in time")
    if since is None or verdict is None or since >= verdict.looked_from:
        return Tier0Gate(need=Need.CHANGED, sentence=f"the probe {probe.name} has changed since a model last looked")
    return None


# --- the table in a prompt --------------------------------------------------------------------------------


_ORDER: Final = (
    ProbeState.DOWN,
    ProbeState.FLAPPING,
    ProbeState.DEGRADED,
    ProbeState.UNKNOWN,
    ProbeState.SILENCED,
    ProbeState.UP,
)


def table(
    probes: Iterable[Probe],
    standings: Mapping[str, Standing],
    *,
    now: datetime,
    most: int = MOST_ROWS,
    about: Collection[str] = (),
    other_names: Mapping[str, str] | None = None,
    redact: Callable[[str], str] = str,
) -> tuple[str, ...]:
    """Return how many probes there are in each state, and a row a probe; the last row counts those left out.

    Those of the services that the reader is ``about`` come first, then the unwell. The details are what services
    answered: the prompt shows them as data. ``redact`` takes secrets out of a text before it is cut.
    """
    known = [(probe, standings.get(probe.name, Standing())) for probe in probes]
    if not known:
        return ()
    key = _counted_by(other_names or {})
    wanted = set(map(key, about))
    known.sort(key=lambda each: (key(each[0].service) not in wanted, _ORDER.index(each[1].state), each[0].name))
    rows = [f"{len(known)} in all: {_counts(known)}"]
    rows += [_row(probe, standing, now, redact) for probe, standing in known[:most]]
    if left := known[most:]:
        rows.append(f"and {len(left)} more: {_counts(left)}")
    return tuple(rows)


def _counts(known: Iterable[tuple[Probe, Standing]]) -> str:
    counts = Counter(standing.state for _, standing in known)
    return ", ".join(f"{counts[state]} {state}" for state in _ORDER if state in counts)


def _row(probe: Probe, standing: Standing, now: datetime, redact: Callable[[str], str]) -> str:
    parts = [
        _cell(redact(f"{probe.name} ({kind_of(probe.look)} {target_of(probe.look)}, service {probe.service})")),
        str(standing.state) + _for(standing.since, now),
    ]
    if standing.explained_by:
        parts.append(f"explained by {_cell(redact(standing.explained_by))}")
    if standing.latency_ms is not None:
        parts.append(f"{standing.latency_ms:.0f} ms")
    if standing.detail:
        parts.append(_cell(redact(standing.detail)))
    return " | ".join(parts)


def _for(since: datetime | None, now: datetime) -> str:
    if since is None or since > now:
        return ""
    seconds = (now - since).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f" for {seconds / length:.0f} {unit}"
    return f" for {seconds:.0f} s"


def _cell(text: str) -> str:
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= _CELL else line[:_CELL] + " ..."
