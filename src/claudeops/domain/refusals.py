"""What the model API's refusals mean for all sessions: parked, or stopped until somebody mends the account.

A rate limit or an overload parks until the reset time that was given, else for a wait that doubles. Refused
credentials or billing open the breaker: waiting does not mend those, so a probe tries now and then. The probe is
an ordinary session of the lowest tier. A cheaper one would have to be a request of our own: it would need the
secret of the CLI's own way of signing in, would prove nothing about the CLI, and would save nothing, because what
is refused costs nothing and what is served is the look that was due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from claudeops.domain.holds import Hold, HoldKind, probing
from claudeops.domain.model import FailureKind, Outcome

if TYPE_CHECKING:
    from claudeops.domain.model import Ending

Changes: TypeAlias = Mapping[HoldKind, Hold | None]
"""What a hold of a kind becomes; ``None``: released."""

REFUSALS: Final = {
    FailureKind.RATE_LIMIT: HoldKind.PARKED,
    FailureKind.OVERLOADED: HoldKind.PARKED,
    FailureKind.AUTH: HoldKind.BREAKER,
    FailureKind.BILLING: HoldKind.BREAKER,
}
"""What a refusal leads to; other failures hold nobody back."""

LONGEST_PARKING: Final = timedelta(days=8)
"""The longest plan limit counts a week; a reset time beyond that is taken for no time at all."""

_JITTER: Final = 0.2  # of a wait, added so that many nodes do not come back at once
_LONGEST_JITTER: Final = timedelta(seconds=30)
_MESSAGE_LENGTH: Final = 300  # characters of what the API said that a reason repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class BackOff:
    """Waits that double: ``first``, then twice that, up to ``longest``."""

    first: timedelta
    longest: timedelta

    def after(self, failures: int) -> timedelta:
        """Return the wait after so many failures in a row."""
        return min(self.first * (1 << min(max(failures - 1, 0), 30)), self.longest)


_BACK_OFFS: Final = {
    FailureKind.RATE_LIMIT: BackOff(first=timedelta(minutes=1), longest=timedelta(hours=1)),
    FailureKind.OVERLOADED: BackOff(first=timedelta(seconds=30), longest=timedelta(minutes=15)),
    FailureKind.AUTH: BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15)),
    FailureKind.BILLING: BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15)),
}
_UNSERVED: Final = BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15))

_SENTENCES: Final = {
    FailureKind.RATE_LIMIT: "The model API's rate limit is reached",
    FailureKind.OVERLOADED: "The model API is overloaded",
    FailureKind.AUTH: "The model API refuses our credentials",
    FailureKind.BILLING: "The model API refuses our account's billing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """The model API did not serve a call."""

    kind: FailureKind  # one of `REFUSALS`
    message: str = ""  # what was said about it, redacted
    resets_at: datetime | None = None  # UTC; when the API says that it serves again
    session_id: int | None = None  # the session that made the call
    trying: bool = False  # its CLI repeats the call by itself: nobody else needs to try meanwhile


def after_refusal(standing: Hold | None, refusal: Refusal, now: datetime) -> Hold:
    """Return the hold that follows; ``standing`` is the one of the same kind that stands.

    A session whose CLI goes on trying becomes the probe, so that a hiccup costs nobody more than a moment. The
    others' refusals only move a reset time, because they began before the hold did.
    """
    kind = REFUSALS[refusal.kind]
    if standing is not None and standing.since > now:  # the clock was set back: its times mean nothing
        standing = replace(standing, since=now, until=now)
    if standing is not None and standing.probe not in {None, refusal.session_id}:
        return _moved(standing, refusal, now)
    if refusal.trying and refusal.session_id is not None:
        return standing or probing(Hold(kind=kind, reason=_reason(refusal), since=now), refusal.session_id, now)
    if standing is not None and standing.probe is None:
        return _moved(standing, refusal, now)
    hold = standing or Hold(kind=kind, reason="", since=now)
    hold = replace(hold, reason=_reason(refusal), failures=hold.failures + 1, probe=None)
    return replace(hold, until=_resets_at(refusal, now) or _backed_off(hold, _BACK_OFFS[refusal.kind], now))


def refusal_of(ending: Ending) -> Refusal | None:
    """Return the refusal that ended a session, if one did."""
    if ending.failure_kind not in REFUSALS:
        return None
    return Refusal(
        kind=ending.failure_kind,
        message=ending.error or "",
        resets_at=ending.limit_resets_at,
        session_id=ending.session_id,
    )


def served(ending: Ending) -> bool:
    """Tell whether the model API answered a session."""
    if ending.failure_kind in REFUSALS:
        return False
    return ending.outcome is Outcome.SUCCESS or bool(ending.output_tokens)


def when_refused(standing: Sequence[Hold], refusal: Refusal, now: datetime) -> Changes:
    """Return what a refusal changes."""
    kind = REFUSALS[refusal.kind]
    known = next((hold for hold in standing if hold.kind is kind), None)
    hold = after_refusal(known, refusal, now)
    return {} if hold == known else {kind: hold}


def when_answered(standing: Sequence[Hold], session_id: int) -> Changes:
    """Return what the model API's answer to a session changes: what it was the probe of is over."""
    return {hold.kind: None for hold in standing if hold.probe == session_id}


def when_ended(standing: Sequence[Hold], ending: Ending, now: datetime) -> Changes:
    """Return what a session's end changes: it may have been refused, or have been the probe."""
    refusal = refusal_of(ending)
    changes = {} if refusal is None else dict(when_refused(standing, refusal, now))
    for hold in standing:
        if hold.probe == ending.session_id and (refusal is None or REFUSALS[refusal.kind] is not hold.kind):
            changes[hold.kind] = None if served(ending) else _unserved(hold, now)
    return changes


def when_lost(standing: Sequence[Hold], session_id: int, now: datetime) -> Changes:
    """Return what it changes that a session's daemon is gone: the next one may try."""
    return {hold.kind: replace(hold, probe=None, until=now) for hold in standing if hold.probe == session_id}


def when_started(standing: Sequence[Hold], now: datetime) -> Changes:
    """Return what a new daemon changes: it may have other credentials, so it tries them at once."""
    return {
        hold.kind: replace(hold, until=now) for hold in standing if hold.kind is HoldKind.BREAKER and hold.probe is None
    }


def _unserved(hold: Hold, now: datetime) -> Hold:
    """Return the hold after a probe that failed before the API said anything: the next one tries, later."""
    hold = replace(hold, failures=hold.failures + 1, probe=None)
    return replace(hold, until=_backed_off(hold, _UNSERVED, now))


def _moved(standing: Hold, refusal: Refusal, now: datetime) -> Hold:
    resets_at = _resets_at(refusal, now)
    if resets_at is None or (standing.until is not None and standing.until >= resets_at):
        return standing
    return replace(standing, until=resets_at)


def _resets_at(refusal: Refusal, now: datetime) -> datetime | None:
    """Return when to try after the time that the API gave; ``None`` where that is no time to wait for."""
    if refusal.resets_at is None or not now < refusal.resets_at <= now + LONGEST_PARKING:
        return None
    return refusal.resets_at + _jitter(refusal.resets_at - now, refusal.kind, refusal.resets_at)


def _backed_off(hold: Hold, back_off: BackOff, now: datetime) -> datetime:
    wait = back_off.after(hold.failures)
    return now + wait + _jitter(wait, hold.kind, hold.since, hold.failures)


def _jitter(wait: timedelta, *of: object) -> timedelta:
    """Return a part of ``wait`` that is the same for the same circumstances."""
    digest = sha256("\x1f".join(map(str, of)).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return min(wait * _JITTER, _LONGEST_JITTER) * share


def _reason(refusal: Refusal) -> str:
    said = " ".join(refusal.message.split())[:_MESSAGE_LENGTH]
    return f"{_SENTENCES[refusal.kind]}{f' ({said})' if said else ''}: no session starts until a probe is served."
