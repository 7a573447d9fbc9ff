"""What keeps queued sessions in the queue: an operator's pause, a refusal of the model API, a spent day.

A hold stops claims and nothing else: schedules go on recording their due times, sessions that run go on
running, and what is queued stays queued. Holds survive a restart.

Who may start under which hold:

- ``paused``, ``budget`` and ``disk``: nobody. They are over when they are released, or at their ``until``.
- ``parked`` and ``breaker``: nobody before ``until``. From then on exactly one session of the lowest tier, the
  probe: a refused one costs nothing, and one that is let through is the look that was due anyway. Its first
  answer from the model API releases the hold, its failure sets the next ``until``.

What the model API's refusals mean for all sessions: parked, or stopped until somebody mends the account.

A rate limit or an overload parks until the reset time that was given, else for a wait that doubles. Refused
credentials or billing open the breaker: waiting does not mend those, so a probe tries now and then. The probe is
an ordinary session of the lowest tier. A cheaper one would have to be a request of our own: it would need the
secret of the CLI's own way of signing in, would prove nothing about the CLI, and would save nothing, because what
is refused costs nothing and what is served is the look that was due.

How many queued sessions a claim may take at once.

What an answer of the model API says about all sessions: a refusal, and when the API serves again.

https://docs.anthropic.com/en/api/errors and https://docs.anthropic.com/en/api/rate-limits name types and headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, TypeAlias

from claudeops.domain.failure import kind_of_call
from claudeops.domain.model import Ending, FailureKind, Level, NewEvent, Outcome, Session
from claudeops.domain.spending.usage import ApiError

PROBE_LEASE: Final = timedelta(hours=2)
"""How long the others wait for a probe of which nothing is heard; its own clocks end it long before."""


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


# --- what the model API's refusals change -------------------------------------------------------------


LONGEST_PARKING: Final = timedelta(days=8)
"""The longest plan limit counts a week; a reset time beyond that is taken for no time at all."""

_JITTER: Final = 0.2  # of a wait, added so that many nodes do not come back at once
_LONGEST_JITTER: Final = timedelta(seconds=30)
_MESSAGE_LENGTH: Final = 300  # characters of what the API said that a reason repeats

_SENTENCES: Final = {
    FailureKind.RATE_LIMIT: "The model API's rate limit is reached",
    FailureKind.OVERLOADED: "The model API is overloaded",
    FailureKind.AUTH: "The model API refuses our credentials",
    FailureKind.BILLING: "The model API refuses our account's billing",
}

Changes: TypeAlias = Mapping[HoldKind, Hold | None]
"""What a hold of a kind becomes; ``None``: released."""

REFUSALS: Final = {
    FailureKind.RATE_LIMIT: HoldKind.PARKED,
    FailureKind.OVERLOADED: HoldKind.PARKED,
    FailureKind.AUTH: HoldKind.BREAKER,
    FailureKind.BILLING: HoldKind.BREAKER,
}
"""What a refusal leads to; other failures hold nobody back."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRefusal:
    """The model API did not serve a call."""

    kind: FailureKind  # one of `REFUSALS`
    message: str = ""  # what was said about it, redacted
    resets_at: datetime | None = None  # UTC; when the API says that it serves again
    session_id: int | None = None  # the session that made the call
    trying: bool = False  # its CLI repeats the call by itself: nobody else needs to try meanwhile


def after_refusal(standing: Hold | None, refusal: ApiRefusal, now: datetime) -> Hold:
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


def refusal_of(ending: Ending) -> ApiRefusal | None:
    """Return the refusal that ended a session, if one did."""
    if ending.failure_kind not in REFUSALS:
        return None
    return ApiRefusal(
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


def when_refused(standing: Sequence[Hold], refusal: ApiRefusal, now: datetime) -> Changes:
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


def _moved(standing: Hold, refusal: ApiRefusal, now: datetime) -> Hold:
    resets_at = _resets_at(refusal, now)
    if resets_at is None or (standing.until is not None and standing.until >= resets_at):
        return standing
    return replace(standing, until=resets_at)


def _resets_at(refusal: ApiRefusal, now: datetime) -> datetime | None:
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


def _reason(refusal: ApiRefusal) -> str:
    said = " ".join(refusal.message.split())[:_MESSAGE_LENGTH]
    return f"{_SENTENCES[refusal.kind]}{f' ({said})' if said else ''}: no session starts until a probe is served."


# --- how many sessions a claim may take ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """How many sessions may start now."""

    sessions: int = 1  # in all
    above: int | None = None  # of them above the lowest tier; None: all of them

    @property
    def lowest_only(self) -> bool:
        """Whether nothing above the lowest tier may start."""
        return self.above is not None and self.above <= 0

    def beside(self, taken: Sequence[Session], *, lowest_tier: int) -> Capacity:
        """Return what is left of it."""
        above = sum(1 for session in taken if session.tier > lowest_tier)
        return Capacity(sessions=self.sessions - len(taken), above=None if self.above is None else self.above - above)


ONE_SLOT: Final = Capacity()
"""One session of any tier."""


# --- the model API's answers --------------------------------------------------------------------------


_KINDS: Final = {
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "overloaded_error": FailureKind.OVERLOADED,
    "authentication_error": FailureKind.AUTH,
    "billing_error": FailureKind.BILLING,
}
_NO_CREDIT: Final = "credit balance"  # an account without money is told by a 400: "Your credit balance is too low …"
_TRIED_AGAIN: Final = frozenset({FailureKind.RATE_LIMIT, FailureKind.OVERLOADED})
_LIMITS: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_PREFIX: Final = "anthropic-ratelimit-"
_PLAN_RESET: Final = f"{_PREFIX}unified-reset"  # of a subscription: seconds since the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiAnswer:
    """How one call was answered."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    error: ApiError | None = None  # also one that came in the middle of a stream


def refusal(answer: ApiAnswer, *, session_id: int, now: datetime) -> ApiRefusal | None:
    """Return the refusal that an answer is, if it is one that concerns all sessions."""
    kind = _kind(answer)
    if kind not in REFUSALS:
        return None
    return ApiRefusal(
        kind=kind,
        message=answer.error.message if answer.error else f"HTTP {answer.status}",
        resets_at=resets_at(answer.headers, now),
        session_id=session_id,
        trying=kind in _TRIED_AGAIN and answer.headers.get("x-should-retry") != "false",
    )


def resets_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """Return when the API says that it serves again: ``retry-after``, else the last of the limits that are used up."""
    return _retry_after(headers.get("retry-after", ""), now) or max(_resets(headers), default=None)


def _kind(answer: ApiAnswer) -> FailureKind:
    if answer.error is not None:
        if answer.error.type in _KINDS:
            return _KINDS[answer.error.type]
        if _NO_CREDIT in answer.error.message.lower():
            return FailureKind.BILLING
    return kind_of_call(label=None, status=answer.status)


def _retry_after(text: str, now: datetime) -> datetime | None:
    """Return the time of a ``retry-after``, which is seconds or a date (RFC 9110, 10.2.3)."""
    try:
        return now + timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        pass
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _resets(headers: Mapping[str, str]) -> Iterator[datetime]:
    for limit in _LIMITS:
        if headers.get(f"{_PREFIX}{limit}-remaining") == "0":
            try:
                yield datetime.fromisoformat(headers.get(f"{_PREFIX}{limit}-reset", "")).astimezone(UTC)
            except (ValueError, OverflowError):
                continue
    try:
        yield datetime.fromtimestamp(float(headers.get(_PLAN_RESET, "")), UTC)
    except (ValueError, OverflowError, OSError):
        return
