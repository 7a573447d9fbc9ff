"""The state machine of a probe: what a look makes of how it stands, and when that is news.

Counters follow the looks (`_COUNTED`), the counters decide the state beneath (up, degraded, down), and three things may
hide that: a look that is impossible (unknown), too many changes (flapping), and an operator (silenced). Which turn the
way from one state to another is, stands in `TURNS`.

- It is *down* after as many looks that saw it down as ``failures`` says, and *degraded* after as many that saw it
  degraded or down. A single good look between them takes nothing back: it takes as many in a row as ``successes``
  says. So a service that fails every second look is down.
- Until the looks agree with the state, the next one comes after the retry interval.
- `Saw.NOTHING` counts neither way. After ``failures`` of them in a row the probe is unknown, never down.
- Waiting times are durations, and times of an observation are only ever compared with the window of flap detection: a
  clock that is set back or years forward costs at most the memory of earlier changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.probes.probe import (
    MOST_DETAIL,
    JobRun,
    Observation,
    Pings,
    PingVerb,
    Probe,
    ProbeState,
    Saw,
    Standing,
)
from claudeops.structs import replace


class ProbeChangeKind(StrEnum):
    """What a change is to those who read of it."""

    WORSE = "worse"  # an event, and a chain where nothing explains it
    BETTER = "better"  # the event is resolved
    BLIND = "blind"  # nothing is known of it any more: an event, and no chain


class ProbeChange(msgspec.Struct, frozen=True, kw_only=True):
    """News of a probe."""

    probe: str
    service: str
    before: ProbeState
    after: ProbeState
    turn: ProbeChangeKind
    at: datetime
    detail: str  # what the last look saw; written by others
    lasted_seconds: float | None = None  # the state before; None where nobody knows
    explained_by: str = ""  # the service whose failure explains it, or explained what is over: no chain of its own
    incident: str = ""  # of the failure that is over or got worse: the fingerprint of its chain; "": it had none


class ProbeStep(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one look."""

    standing: Standing
    change: ProbeChange | None
    wait_seconds: float  # until the next look; a duration, because a due time would depend on the clock

    @property
    def due_at(self) -> datetime | None:
        """When the next look is due, for people."""
        looked = self.standing.last_checked_at
        return None if looked is None else looked + timedelta(seconds=self.wait_seconds)


MOST_RUNS: Final = 50
"""Of one heartbeat, that have begun and not ended; older ones are forgotten."""


class ProbeFlapRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a probe changes too often."""

    changes: int = 6  # between up and not up
    window: timedelta = timedelta(hours=1)
    quiet: timedelta = timedelta(minutes=15)  # without a change, after which it flaps no more


FLAPPING: Final = ProbeFlapRules()


# --- the tables -------------------------------------------------------------------------------------------


_MORE: Final = 1  # one more than before
_ANEW: Final = 0  # none
_KEPT: Final = None  # as many as before


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What one look does to the counters of a standing."""

    failures: int | None
    degradations: int | None
    successes: int | None
    ups: int | None
    blind: int | None


_COUNTED: Final[Mapping[Saw, _Counts]] = MappingProxyType(
    {
        Saw.UP: _Counts(failures=_KEPT, degradations=_KEPT, successes=_MORE, ups=_MORE, blind=_ANEW),
        Saw.DEGRADED: _Counts(failures=_KEPT, degradations=_MORE, successes=_MORE, ups=_ANEW, blind=_ANEW),
        Saw.DOWN: _Counts(failures=_MORE, degradations=_MORE, successes=_ANEW, ups=_ANEW, blind=_ANEW),
        Saw.NOTHING: _Counts(failures=_KEPT, degradations=_KEPT, successes=_KEPT, ups=_KEPT, blind=_MORE),
    }
)

_MOST_COUNTED: Final = 1_000_000  # a month of looks a few seconds apart; columns are not endless

_SETTLED: Final = (ProbeState.UP, ProbeState.DEGRADED, ProbeState.DOWN)

TURNS: Final[Mapping[ProbeState, Mapping[ProbeState, ProbeChangeKind | None]]] = MappingProxyType(
    {  # from → to; what does not stand here is no news
        ProbeState.UNKNOWN: {
            ProbeState.UP: ProbeChangeKind.BETTER,
            ProbeState.DEGRADED: ProbeChangeKind.WORSE,
            ProbeState.DOWN: ProbeChangeKind.WORSE,
            ProbeState.FLAPPING: ProbeChangeKind.WORSE,
        },
        ProbeState.UP: {
            ProbeState.UNKNOWN: ProbeChangeKind.BLIND,
            ProbeState.DEGRADED: ProbeChangeKind.WORSE,
            ProbeState.DOWN: ProbeChangeKind.WORSE,
            ProbeState.FLAPPING: ProbeChangeKind.WORSE,
        },
        ProbeState.DEGRADED: {
            ProbeState.UNKNOWN: ProbeChangeKind.BLIND,
            ProbeState.UP: ProbeChangeKind.BETTER,
            ProbeState.DOWN: ProbeChangeKind.WORSE,
            ProbeState.FLAPPING: ProbeChangeKind.WORSE,
        },
        ProbeState.DOWN: {
            ProbeState.UNKNOWN: ProbeChangeKind.BLIND,
            ProbeState.UP: ProbeChangeKind.BETTER,
            ProbeState.DEGRADED: ProbeChangeKind.BETTER,
            ProbeState.FLAPPING: ProbeChangeKind.WORSE,
        },
        ProbeState.FLAPPING: {
            ProbeState.UNKNOWN: ProbeChangeKind.BLIND,
            ProbeState.UP: ProbeChangeKind.BETTER,
            ProbeState.DEGRADED: ProbeChangeKind.BETTER,
            ProbeState.DOWN: ProbeChangeKind.WORSE,
        },
        ProbeState.SILENCED: {  # a silence begins without a word; what it hid is told when it is over
            ProbeState.UP: ProbeChangeKind.BETTER,
            ProbeState.DEGRADED: ProbeChangeKind.WORSE,
            ProbeState.DOWN: ProbeChangeKind.WORSE,
            ProbeState.FLAPPING: ProbeChangeKind.WORSE,
        },
    }
)

_NEW_FAILURE: Final = frozenset(
    {
        (ProbeState.DEGRADED, ProbeState.DOWN),
        (ProbeState.FLAPPING, ProbeState.DOWN),
        (ProbeState.DEGRADED, ProbeState.FLAPPING),
    }
)
"""Changes for the worse that are more than what the failure's chain was told."""


# --- one step ---------------------------------------------------------------------------------------------


def step(
    standing: Standing, seen: Observation, probe: Probe, *, explained_by: str = "", flapping: ProbeFlapRules = FLAPPING
) -> ProbeStep:
    """Return how a probe stands after one more look, whether that is news, and when to look again.

    ``explained_by`` is the service whose failure would explain one of this probe's (`Dependencies.explanation`).
    """
    known = settled(standing)
    counted = _counted(standing, seen, probe, anew=bool(standing.explained_by) and not explained_by)
    found = _found(counted, known=ProbeState.UNKNOWN if standing.state is ProbeState.UNKNOWN else known, probe=probe)
    beneath = known if found is ProbeState.UNKNOWN else found
    changed = known is not ProbeState.UNKNOWN and (known is ProbeState.UP) is not (beneath is ProbeState.UP)
    changes = _within_window((*standing.changes, seen.at) if changed else standing.changes, seen.at, flapping)
    counted = replace(counted, beneath=beneath, changes=changes)
    is_restless = bool(changes) and changes[-1] > seen.at - flapping.quiet
    state = _state(found, counted, probe, before=standing.state, rules=flapping, is_restless=is_restless)
    after = replace(
        counted,
        state=state,
        since=standing.since if state is standing.state and standing.since is not None else seen.at,
        last_checked_at=seen.at,
        detail=seen.detail[:MOST_DETAIL],
        latency_ms=seen.latency_ms,
        changes=() if standing.state is ProbeState.FLAPPING and state in _SETTLED else changes,
        is_quiet=not probe.starts_chain,
        explained_by=_explained_by(counted, state, probe, explained_by) if is_unwell(state, beneath) else "",
    )
    change = _change(standing, after, probe)
    is_over = beneath is ProbeState.UP and state in {ProbeState.UP, ProbeState.SILENCED}
    if is_over or (standing.state, state) in _NEW_FAILURE:
        after = replace(after, incident="")
    return ProbeStep(standing=after, change=change, wait_seconds=_wait(after, probe))


def settled(standing: Standing) -> ProbeState:
    """Return what the looks alone make of a probe: up, degraded, down, or unknown before they agreed on one."""
    return standing.state if standing.state in _SETTLED else standing.beneath


def is_unwell(state: ProbeState, beneath: ProbeState) -> bool:
    """Tell whether a probe is known not to be up."""
    return state is ProbeState.FLAPPING or (
        state is not ProbeState.UNKNOWN and beneath in {ProbeState.DEGRADED, ProbeState.DOWN}
    )


def wavers(standing: Standing, probe: Probe) -> bool:
    """Tell whether the last looks do not agree with the state, so that another one may change it."""
    return (
        0 < standing.blind < probe.failures
        or 0 < standing.failures < probe.failures
        or 0 < standing.degradations < probe.failures
        or (standing.failures > 0 and standing.successes > 0)
        or (standing.degradations > 0 and standing.ups > 0)
    )


def _counted(standing: Standing, seen: Observation, probe: Probe, *, anew: bool) -> Standing:
    """Return the standing with its counters moved on by one look.

    ``anew``: what explained the failure is well again, and what was counted in the meantime says nothing about this
    service itself.
    """
    if anew and standing.degradations >= probe.failures:
        standing = replace(standing, failures=0, degradations=0)
    effect = _COUNTED[seen.saw]
    counted = replace(
        standing,
        failures=_moved(standing.failures, effect.failures),
        degradations=_moved(standing.degradations, effect.degradations),
        successes=_moved(standing.successes, effect.successes),
        ups=_moved(standing.ups, effect.ups),
        blind=_moved(standing.blind, effect.blind),
    )
    if counted.blind >= probe.failures:  # what was counted before is too old to add to
        return replace(counted, failures=0, degradations=0, successes=0, ups=0)
    if counted.ups >= probe.successes:
        return replace(counted, failures=0, degradations=0)
    return replace(counted, failures=0) if counted.successes >= probe.successes else counted


def _moved(count: int, effect: int | None) -> int:
    if effect is _KEPT:
        return count
    return min(count + 1, _MOST_COUNTED) if effect == _MORE else 0


def _found(counted: Standing, *, known: ProbeState, probe: Probe) -> ProbeState:
    """Return what the looks have agreed on; as long as they do not, what was known."""
    if counted.failures >= probe.failures:
        return ProbeState.DOWN
    if known is ProbeState.DOWN and counted.successes < probe.successes:
        return ProbeState.DOWN
    if counted.degradations >= probe.failures:
        return ProbeState.DEGRADED
    if known in {ProbeState.DOWN, ProbeState.DEGRADED} and counted.ups < probe.successes:
        return ProbeState.DEGRADED
    return ProbeState.UP if counted.ups and not counted.degradations else known


def _state(
    found: ProbeState, counted: Standing, probe: Probe, *, before: ProbeState, rules: ProbeFlapRules, is_restless: bool
) -> ProbeState:
    if probe.silenced:
        return ProbeState.SILENCED
    if counted.blind >= probe.failures:
        return ProbeState.UNKNOWN
    if is_restless and (before is ProbeState.FLAPPING or len(counted.changes) >= rules.changes):
        return ProbeState.FLAPPING
    return found


def _within_window(changes: tuple[datetime, ...], at: datetime, rules: ProbeFlapRules) -> tuple[datetime, ...]:
    """Return the changes that count; those of the future were seen by a clock that has been set back."""
    return tuple(each for each in changes if at - rules.window < each <= at)[-rules.changes :]


def _explained_by(counted: Standing, state: ProbeState, probe: Probe, explained_by: str) -> str:
    """Return what explains a failure. An explanation that is over holds until the looks have been counted anew."""
    is_open = counted.degradations < probe.failures or counted.ups > 0
    return explained_by or (counted.explained_by if is_open and state is not ProbeState.FLAPPING else "")


def _change(before: Standing, after: Standing, probe: Probe) -> ProbeChange | None:
    turn = TURNS[before.state].get(after.state)
    if before.state is after.state and before.explained_by and not after.explained_by:
        turn = ProbeChangeKind.WORSE  # what explained it is well again, and this is not
    if turn is None or after.last_checked_at is None:
        return None
    at = after.last_checked_at
    return ProbeChange(
        probe=probe.name,
        service=probe.service,
        before=before.state,
        after=after.state,
        turn=turn,
        at=at,
        detail=after.detail,
        lasted_seconds=None if before.since is None else max(0.0, (at - before.since).total_seconds()),
        explained_by=before.explained_by if turn is ProbeChangeKind.BETTER else after.explained_by,
        incident=before.incident,
    )


def _wait(standing: Standing, probe: Probe) -> float:
    return min(probe.retry_interval, probe.interval) if wavers(standing, probe) else probe.interval


# --- heartbeats -------------------------------------------------------------------------------------------


LISTENED: Final = timedelta(minutes=1)
"""How long somebody must have listened before silence counts; for a quicker heartbeat, as long as a ping may take."""

_SKEW: Final = timedelta(minutes=1)  # by which the clocks of two machines may differ


def heard(pings: Pings, verb: PingVerb, at: datetime, *, run: str = "") -> Pings:
    """Return what is known after one more ping; ``run`` says which run of its job it is about, if the job says so.

    Of several starts without an end the first one counts: a job that starts again and again and never succeeds is
    not well. Runs that name themselves may overlap: the end of one says nothing about another.
    """
    others = tuple(each for each in pings.runs if each.id != run)
    if verb is not PingVerb.START:
        return replace(pings, runs=others, **{verb.value: at})
    if run:
        begun = next((each.at for each in pings.runs if each.id == run), at)
        return replace(pings, runs=(*others, JobRun(id=run, at=begun))[-MOST_RUNS:])
    ends = [end for end in (pings.success, pings.fail) if end is not None]
    is_open = pings.start is not None and pings.start <= at and all(pings.start > end for end in ends)
    return pings if is_open else replace(pings, start=at)


def due(
    last: Pings,
    *,
    every: float,
    grace: float,
    now: datetime,
    listening_since: datetime | None = None,
    deaf_since: datetime | None = None,
) -> Observation:
    """Return how a heartbeat stands that is to be heard from every so many seconds, and ``grace`` later at most.

    - Success is up until the next one is overdue. Fail is down until the next success.
    - Start must be followed by success within the grace time (without one: within ``every``), and makes nothing good
      by itself. A run that names itself must end by itself; one that never does is forgotten with the next success.
    - Nothing was ever heard, or only from the future: that is no failure, but nothing is known.

    ``listening_since``: when the daemon began to listen, or saw that its clock had been set. Silence before proves
    nothing. ``deaf_since``: when an earlier one, or the database, was there for the last time. What was overdue by then
    still is. What was expected after that may have been lost where nobody was there for longer than a moment (the
    machine was off, and the job with it): then the next one is waited for, and a restart every night hides no silence.
    """
    success, start, fail = (
        at if at is not None and at <= now + _SKEW else None for at in (last.success, last.start, last.fail)
    )
    if fail is not None and (success is None or fail >= success):
        return Observation(saw=Saw.DOWN, at=now, detail=f"it said at {_clock(fail)} that it had failed")
    deadlines = []
    if success is not None:
        allowed = timedelta(seconds=every + grace)
        deadlines.append((success + allowed, allowed, f"nothing was heard since {_clock(success)}"))
    if start is not None and (success is None or start > success):
        allowed = timedelta(seconds=grace or every)
        deadlines.append((start + allowed, allowed, f"it started at {_clock(start)} and never ended"))
    for run in last.runs:
        allowed = timedelta(seconds=grace or every)
        if run.at <= now + _SKEW and (success is None or success <= run.at + allowed):
            deadlines.append(
                (run.at + allowed, allowed, f"its run {run.id} started at {_clock(run.at)} and never ended")
            )
    if not deadlines:
        return Observation(saw=Saw.NOTHING, at=now, detail=_unheard(last))
    deadline, allowed, sentence = min(deadlines)
    was_overdue = deaf_since is not None and deadline < deaf_since
    if listening_since is not None and listening_since <= now and not was_overdue:
        was_deaf = deaf_since is not None and listening_since - deaf_since > LISTENED
        deadline = max(deadline, listening_since + (allowed if was_deaf else min(LISTENED, allowed)))
    return Observation(saw=Saw.DOWN, at=now, detail=sentence) if now > deadline else Observation(saw=Saw.UP, at=now)


def _unheard(last: Pings) -> str:
    if last == Pings():
        return "nothing was ever heard of it: send it a first ping"
    return "its last ping is from the future, so the clock was set back: the next ping ends that"


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
