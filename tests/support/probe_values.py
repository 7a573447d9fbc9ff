"""Probes for tests: declarations, standings, and what a look leaves."""

from __future__ import annotations

from datetime import datetime

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.probes.probe import (
    HeartbeatLook,
    HttpLook,
    Probe,
    ProbeState,
    Standing,
)
from claudeops.domain.probes.record import Observed, Telling, fingerprint_of
from support.store_values import NOW


def probe(name: str = "web", **changes: object) -> Probe:
    """Return a probe of a service of the same name, unless told otherwise."""
    look = HttpLook(url=f"http://{name}.test/")
    values: dict[str, object] = {"name": name, "look": look, "service": name, "origin": "probes.toml:1", **changes}
    return Probe(**values)  # type: ignore[arg-type]


def heartbeat(name: str = "backup", *, every: float = 60.0, **changes: object) -> Probe:
    return probe(name, look=HeartbeatLook(every=every, grace=10.0), **changes)


def standing(state: ProbeState = ProbeState.UP, *, at: datetime = NOW, **changes: object) -> Standing:
    """Return how a probe stands after three looks of the same kind."""
    up = state is ProbeState.UP
    values: dict[str, object] = {
        "state": state,
        "since": at,
        "last_checked_at": at,
        "failures": 0 if up else 3,
        "successes": 3 if up else 0,
        "ups": 3 if up else 0,
        "beneath": state,
        **changes,
    }
    return Standing(**values)  # type: ignore[arg-type]


def observed(of: Probe, state: ProbeState = ProbeState.UP, *, at: datetime = NOW, **changes: object) -> Observed:
    """Return what a look leaves that changed nothing."""
    stands = standing(state, at=at)
    values: dict[str, object] = {
        "probe": of,
        "standing": stands,
        "healthy_since": at if state is ProbeState.UP else None,
        **changes,
    }
    return Observed(**values)  # type: ignore[arg-type]


def turned(of: Probe, state: ProbeState, *, at: datetime = NOW, **changes: object) -> Observed:
    """Return what a look leaves that changed the probe's state."""
    name = fingerprint_of(of.name)
    if state is ProbeState.UP:
        told = Telling(at=at, detail="200", over=(name,))
    else:
        message = f"{of.name} is {state.value}"
        event = NewEvent(level=EventLevel.CRITICAL, message=message, service=of.service, fingerprint=name)
        told = Telling(at=at, detail="no answer", events=(event,))
    return observed(of, state, at=at, **{"tellings": (told,), **changes})
