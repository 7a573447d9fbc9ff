"""Holds: what keeps queued sessions in the queue, and what releases it.

A hold stops claims and nothing else: schedules go on recording their due times, running sessions go on running,
and queued ones stay queued. Holds survive a restart.

Who may start under which hold:

- ``paused``, ``budget`` and ``disk``: no session. They end when they are released, or at their ``until``.
- ``parked`` and ``breaker``: no session before ``until``. From then on exactly one session of the lowest tier, the
  trial: if it is refused, it costs nothing; if it is served, it is the look that was due anyway. Its first answer
  from the model API releases the hold, its failure sets the next ``until``.

What a refusal by the model API means for all sessions: a rate limit or an overload parks until the reset time that
the API gave, or for a wait that doubles. Refused credentials or billing open the breaker: waiting does not mend those,
so a trial runs now and then. The trial is an ordinary session. A cheaper one would have to be a request of our own: it
would need the secret of the CLI's own way of signing in, would prove nothing about the CLI, and would save nothing,
because what is refused costs nothing and what is served is the look that was due.

https://docs.anthropic.com/en/api/errors and https://docs.anthropic.com/en/api/rate-limits name the error types and the
headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.chains.failure import kind_of_call
from claudeops.domain.events import EventLevel, NewEvent, on_node
from claudeops.domain.sessions import Ending, FailureKind, Outcome, Session
from claudeops.structs import replace

TRIAL_LEASE: Final = timedelta(hours=2)
"""How long the other sessions wait for a silent trial; the trial's own clocks end it long before that."""


class HoldKind(ClosedSet):
    """Why no session is started; there is at most one hold of each kind, but one for each machine with a full disk."""

    PAUSED = "paused", "an operator wants it"
    BREAKER = "breaker", "the model API refuses our credentials, or the account does not pay"
    PARKED = "parked", "the model API's rate limit is reached, or it is overloaded"
    BUDGET = "budget", "the day's money is spent"
    DISK = "disk", "a disk that sessions need has too little free space"


class Admission(StrEnum):
    """What may be claimed."""

    OPEN = "open"  # whatever is due
    TRIAL = "trial"  # one session of the lowest tier, which shows whether the model API serves us again
    CLOSED = "closed"  # nothing


TRIAL_KINDS: Final = frozenset({HoldKind.BREAKER, HoldKind.PARKED})
"""Holds that only a served session ends: time alone does not turn a refused key into a good one."""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why no session is started, and when that ends."""

    kind: HoldKind
    reason: str  # one sentence for the operator, without secrets
    since: datetime  # UTC
    until: datetime | None = None  # UTC; it ends then, or (parked, breaker) one trial may start; None: until released
    by: str | None = None  # the operator who asked for it
    failures: int = 0  # consecutive sessions that ended refused: each doubles the wait for the next trial
    trial: int | None = None  # the session that is the trial at the moment
    node: str = ""  # the one machine that starts none; empty: no machine does


def has_lapsed(hold: Hold, now: datetime) -> bool:
    """Tell whether a hold has ended without being released."""
    return hold.kind not in TRIAL_KINDS and hold.until is not None and hold.until <= now


def admission(holds: Iterable[Hold], now: datetime) -> Admission:
    """Return what may be claimed while these holds stand; those that have lapsed do not count."""
    standing = [hold for hold in holds if not has_lapsed(hold, now)]
    if not standing:
        return Admission.OPEN
    return Admission.TRIAL if all(_may_try(hold, now) for hold in standing) else Admission.CLOSED


def with_trial(hold: Hold, session_id: int, now: datetime) -> Hold:
    """Return a hold with a session as its trial: no other session starts until the trial's result is known."""
    return replace(hold, trial=session_id, until=now + TRIAL_LEASE)


def when_trial_started(standing: Sequence[Hold], session_id: int, now: datetime) -> Mapping[HoldKind, Hold]:
    """Return what the start of a trial changes."""
    return {hold.kind: with_trial(hold, session_id, now) for hold in standing if hold.kind in TRIAL_KINDS}


def _may_try(hold: Hold, now: datetime) -> bool:
    """Tell whether a trial may start; a hold from the future means that the clock was set back since."""
    if hold.kind not in TRIAL_KINDS:
        return False
    return hold.since > now or (hold.until is not None and hold.until <= now)


# --- events -----------------------------------------------------------------------------------------------


_LEVELS: Final = {
    HoldKind.PAUSED: EventLevel.INFO,
    HoldKind.BREAKER: EventLevel.CRITICAL,
    HoldKind.PARKED: EventLevel.WARNING,
    HoldKind.BUDGET: EventLevel.CRITICAL,
    HoldKind.DISK: EventLevel.CRITICAL,
}


def holds_of(node: str, holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Return the holds under which one machine starts no session."""
    return tuple(hold for hold in holds if hold.node in {"", node})


def event_name(kind: HoldKind, node: str = "") -> str:
    """Return the fingerprint under which a hold's event is counted and resolved."""
    return on_node(f"hold:{kind.value}", node)


def opened(hold: Hold) -> NewEvent:
    """Return the event that reports a new hold."""
    return NewEvent(level=_LEVELS[hold.kind], message=hold.reason, fingerprint=event_name(hold.kind, hold.node))


# --- what the model API's refusals change -------------------------------------------------------------


LONGEST_PARKING: Final = timedelta(days=8)
"""The longest plan limit spans a week; a reset time further away than this is ignored."""

_JITTER: Final = 0.2  # share of a wait that is added, so that many nodes do not come back at once
_LONGEST_JITTER: Final = timedelta(seconds=30)
_MESSAGE_LENGTH: Final = 300  # characters of the API's message that a reason repeats

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
"""Which hold a refusal leads to; other failures lead to none."""


class BackOff(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that doubles: ``first``, then twice that, up to ``longest``."""

    first: timedelta
    longest: timedelta

    def after(self, failures: int) -> timedelta:
        """Return the wait after this many consecutive failures."""
        return min(self.first * (1 << min(max(failures - 1, 0), 30)), self.longest)


_BACK_OFFS: Final = {
    FailureKind.RATE_LIMIT: BackOff(first=timedelta(minutes=1), longest=timedelta(hours=1)),
    FailureKind.OVERLOADED: BackOff(first=timedelta(seconds=30), longest=timedelta(minutes=15)),
    FailureKind.AUTH: BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15)),
    FailureKind.BILLING: BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15)),
}
_UNSERVED: Final = BackOff(first=timedelta(minutes=1), longest=timedelta(minutes=15))


class ApiRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The model API did not serve a call."""

    kind: FailureKind  # one of `REFUSALS`
    message: str = ""  # the API's message, redacted
    resets_at: datetime | None = None  # UTC; when the API will serve again, according to itself
    session_id: int | None = None  # the session that made the call
    attempt: int | None = None  # as which it made the call; None: that is not compared
    trying: bool = False  # its CLI repeats the call by itself, so no other session needs to try meanwhile


def after_refusal(standing: Hold | None, refusal: ApiRefusal, now: datetime) -> Hold:
    """Return the hold that follows; ``standing`` is the current hold of the same kind.

    A session whose CLI goes on trying becomes the trial, so that a hiccup delays the others for a moment only. Refusals
    of other sessions only move the reset time, because their calls began before the hold did.
    """
    kind = REFUSALS[refusal.kind]
    if standing is not None and standing.since > now:  # the clock was set back: its times mean nothing
        standing = replace(standing, since=now, until=now)
    if standing is not None and standing.trial not in {None, refusal.session_id}:
        return _moved(standing, refusal, now)
    if refusal.trying and refusal.session_id is not None:
        return standing or with_trial(Hold(kind=kind, reason=_reason(refusal), since=now), refusal.session_id, now)
    if standing is not None and standing.trial is None:
        return _moved(standing, refusal, now)
    hold = standing or Hold(kind=kind, reason="", since=now)
    hold = replace(hold, reason=_reason(refusal), failures=hold.failures + 1, trial=None)
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
        attempt=ending.attempt,
    )


def served(ending: Ending) -> bool:
    """Tell whether the model API answered a session."""
    if ending.failure_kind in REFUSALS:
        return False
    answered = ending.outcome is Outcome.SUCCESS or ending.failure_kind is FailureKind.REFUSAL
    return answered or bool(ending.output_tokens)


def when_refused(standing: Sequence[Hold], refusal: ApiRefusal, now: datetime) -> Changes:
    """Return what a refusal changes."""
    kind = REFUSALS[refusal.kind]
    known = next((hold for hold in standing if hold.kind is kind), None)
    hold = after_refusal(known, refusal, now)
    return {} if hold == known else {kind: hold}


def when_answered(standing: Sequence[Hold], session_id: int) -> Changes:
    """Return what the model API's answer to a session changes: holds whose trial it was are over."""
    return {hold.kind: None for hold in standing if hold.trial == session_id}


def when_ended(standing: Sequence[Hold], ending: Ending, now: datetime) -> Changes:
    """Return what a session's end changes: it may have been refused, or have been the trial."""
    refusal = refusal_of(ending)
    changes = {} if refusal is None else dict(when_refused(standing, refusal, now))
    for hold in standing:
        if hold.trial == ending.session_id and (refusal is None or REFUSALS[refusal.kind] is not hold.kind):
            changes[hold.kind] = None if served(ending) else _unserved(hold, now)
    return changes


def when_lost(standing: Sequence[Hold], session_id: int, now: datetime) -> Changes:
    """Return what the loss of a session changes: the next one may be the trial."""
    return {hold.kind: replace(hold, trial=None, until=now) for hold in standing if hold.trial == session_id}


def when_started(standing: Sequence[Hold], now: datetime) -> Changes:
    """Return what the first daemon's start changes: it may have other credentials, so they are tried at once."""
    return {
        hold.kind: replace(hold, until=now) for hold in standing if hold.kind is HoldKind.BREAKER and hold.trial is None
    }


def _unserved(hold: Hold, now: datetime) -> Hold:
    """Return the hold after a trial that failed before the API answered: the next trial comes later."""
    hold = replace(hold, failures=hold.failures + 1, trial=None)
    return replace(hold, until=_backed_off(hold, _UNSERVED, now))


def _moved(standing: Hold, refusal: ApiRefusal, now: datetime) -> Hold:
    resets_at = _resets_at(refusal, now)
    if resets_at is None or (standing.until is not None and standing.until >= resets_at):
        return standing
    return replace(standing, until=resets_at)


def _resets_at(refusal: ApiRefusal, now: datetime) -> datetime | None:
    """Return when to try, by the reset time that the API gave; ``None`` where that time is not usable."""
    if refusal.resets_at is None or not now < refusal.resets_at <= now + LONGEST_PARKING:
        return None
    return refusal.resets_at + _jitter(refusal.resets_at - now, refusal.kind, refusal.resets_at)


def _backed_off(hold: Hold, back_off: BackOff, now: datetime) -> datetime:
    wait = back_off.after(hold.failures)
    return now + wait + _jitter(wait, hold.kind, hold.since, hold.failures)


def _jitter(wait: timedelta, *of: object) -> timedelta:
    """Return a share of ``wait`` that is always the same for the same arguments."""
    digest = sha256("\x1f".join(map(str, of)).encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return min(wait * _JITTER, _LONGEST_JITTER) * share


def _reason(refusal: ApiRefusal) -> str:
    message = " ".join(refusal.message.split())[:_MESSAGE_LENGTH]
    detail = f" ({message})" if message else ""
    return f"{_SENTENCES[refusal.kind]}{detail}: no session starts until a trial session is served."


# --- capacity: how many sessions a claim may take ---------------------------------------------------------------


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions may start now."""

    sessions: int = 1  # in all
    above: int | None = None  # how many of these may be above the lowest tier; None: all of them

    @property
    def lowest_only(self) -> bool:
        """Whether nothing above the lowest tier may start."""
        return self.above is not None and self.above <= 0

    @property
    def is_short(self) -> bool:
        """Whether a session that is due may wait for a slot."""
        return self.sessions <= 0 or self.lowest_only

    def beside(self, taken: Sequence[Session], *, lowest_tier: int) -> Capacity:
        """Return the capacity that is left beside the sessions in ``taken``."""
        above = sum(1 for session in taken if session.tier > lowest_tier)
        return Capacity(sessions=self.sessions - len(taken), above=None if self.above is None else self.above - above)

    def within(self, most: int | None, *, running: int, above: int) -> Capacity:
        """Return what is left of this where at most so many run at once, and so many do; one is kept likewise.

        ``above``: how many of them are above the lowest tier.
        """
        if most is None:
            return self
        left = [] if most == 1 else [most - 1 - above]
        left += [] if self.above is None else [self.above]
        return Capacity(sessions=min(self.sessions, most - running), above=min(left, default=None))


ONE_SLOT: Final = Capacity()
"""One session of any tier."""


# --- the model API's answers --------------------------------------------------------------------------


_KINDS: Final = {
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "overloaded_error": FailureKind.OVERLOADED,
    "authentication_error": FailureKind.AUTH,
    "billing_error": FailureKind.BILLING,
}
_NO_CREDIT: Final = "credit balance"  # an account without money gets a 400: "Your credit balance is too low …"
_TRIED_AGAIN: Final = frozenset({FailureKind.RATE_LIMIT, FailureKind.OVERLOADED})
_LIMITS: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_PREFIX: Final = "anthropic-ratelimit-"
_PLAN_RESET: Final = f"{_PREFIX}unified-reset"  # of a subscription: seconds since the epoch


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How one call was answered."""

    status: int
    headers: Mapping[str, str]  # lower-case names
    error: ApiError | None = None  # also one that arrived in the middle of a stream


def refusal(answer: ApiAnswer, *, session_id: int, now: datetime) -> ApiRefusal | None:
    """Return an answer as a refusal, or ``None`` if it is not one that concerns all sessions."""
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
    """Return when the API will serve again: ``retry-after``, else the latest reset of the limits that are used up."""
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
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few answers have a date; it loads much

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


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the API's own words: https://docs.anthropic.com/en/api/errors."""

    type: str
    message: str
