"""What keeps queued sessions in the queue: an operator's pause, a refusal of the model API, a spent day.

A hold stops claims and nothing else: schedules go on recording their due times, sessions that run go on
running, and what is queued stays queued. Holds survive a restart.

Who may start under which hold:

- ``paused``, ``budget`` and ``disk``: nobody. They are over when they are released, or at their ``until``.
- ``parked`` and ``breaker``: nobody before ``until``. From then on exactly one session of the lowest tier, the
  probe: a refused one costs nothing, and one that is let through is the look that was due anyway. Its first
  answer from the model API releases the hold, its failure sets the next ``until``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import Level, NewEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class HoldKind(StrEnum):
    """Why no session is started; one hold of a kind at a time."""

    PAUSED = "paused"  # an operator said so
    BREAKER = "breaker"  # the model API refuses our credentials, or the account does not pay
    PARKED = "parked"  # the model API's rate limit is reached, or it is overloaded
    BUDGET = "budget"  # the day's money is spent
    DISK = "disk"  # a disk that sessions need has less free space than it must


class Admission(StrEnum):
    """What may be claimed."""

    OPEN = "open"  # whatever is due
    PROBE = "probe"  # one session of the lowest tier, to see whether the model API serves us again
    CLOSED = "closed"  # nothing


PROBE_LEASE: Final = timedelta(hours=2)
"""How long the others wait for a probe of which nothing is heard; its own clocks end it long before."""

PROBED: Final = frozenset({HoldKind.BREAKER, HoldKind.PARKED})
"""Holds that only a served session ends: time alone does not make a refused key a good one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """A reason why no session is started, with what it takes to go on."""

    kind: HoldKind
    reason: str  # one sentence for the operator, without secrets
    since: datetime  # UTC
    until: datetime | None = None  # UTC; over then, or (parked, breaker) one probe may go; None: until released
    by: str | None = None  # the operator who asked for it
    failures: int = 0  # sessions in a row that ended refused: each doubles the wait for the next probe
    probe: int | None = None  # the session that is trying at the moment


def has_lapsed(hold: Hold, now: datetime) -> bool:
    """Tell whether a hold is over by itself."""
    return hold.kind not in PROBED and hold.until is not None and hold.until <= now


def admission(holds: Iterable[Hold], now: datetime) -> Admission:
    """Return what may be claimed while these holds stand; those that have lapsed do not count."""
    standing = [hold for hold in holds if not has_lapsed(hold, now)]
    if not standing:
        return Admission.OPEN
    return Admission.PROBE if all(_may_probe(hold, now) for hold in standing) else Admission.CLOSED


def probing(hold: Hold, session_id: int, now: datetime) -> Hold:
    """Return a hold while a session tries for all: nobody else starts until it is known what became of it."""
    return replace(hold, probe=session_id, until=now + PROBE_LEASE)


def when_probing(standing: Sequence[Hold], session_id: int, now: datetime) -> Mapping[HoldKind, Hold]:
    """Return what the start of a probe changes."""
    return {hold.kind: probing(hold, session_id, now) for hold in standing if hold.kind in PROBED}


def _may_probe(hold: Hold, now: datetime) -> bool:
    """Tell whether a probe may go; a hold from the future means that the clock was set back since."""
    if hold.kind not in PROBED:
        return False
    return hold.since > now or (hold.until is not None and hold.until <= now)


# --- the event that tells of a hold -----------------------------------------------------------------------

_LEVELS: Final = {
    HoldKind.PAUSED: Level.INFO,
    HoldKind.BREAKER: Level.CRITICAL,
    HoldKind.PARKED: Level.WARNING,
    HoldKind.BUDGET: Level.CRITICAL,
    HoldKind.DISK: Level.CRITICAL,
}


def event_name(kind: HoldKind) -> str:
    """Return the fingerprint under which a hold's event is counted and resolved."""
    return f"hold:{kind.value}"


def opened(hold: Hold) -> NewEvent:
    """Return the event of a hold that begins."""
    return NewEvent(level=_LEVELS[hold.kind], message=hold.reason, fingerprint=event_name(hold.kind))
