"""The sentences of reasons: one for each thing on record, for people who ask why nothing was done.

What others wrote is put on one line of bounded length; whoever shows a sentence makes it visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from claudeops.domain.actions import Recheck
from claudeops.domain.alerts.alert import AlertDecision, Silence
from claudeops.domain.events import EventLevel
from claudeops.domain.holds import HoldKind
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.schedules.plan import SkipReason
from claudeops.domain.sessions import DecisionReason, Outcome
from claudeops.domain.why import ReasonTone, Why, WhyKind
from claudeops.text import one_line
from claudeops.wording.notices.texts import call_in_words

DECISIONS: Final = MappingProxyType(
    {
        DecisionReason.HEALTHY: "everything is well, and a look proves it",
        DecisionReason.ESCALATED: "handed over to the next tier",
        DecisionReason.MAX_TIER: "something is wrong, and no higher tier may look",
        DecisionReason.DRY_RUN: "something is wrong, and a dry run goes no further",
        DecisionReason.COOLDOWN: "the actions that would help are used up for now",
        DecisionReason.BUDGET: "there is no money left for the next tier",
        DecisionReason.NO_REPORT: "no report came, so nobody knows",
        DecisionReason.NO_EVIDENCE: "it says that all is well, and no look proves it",
        DecisionReason.SESSION_FAILED: "the session failed",
        DecisionReason.PAUSED: "an operator stopped it",
        DecisionReason.MAINTENANCE: "only services in their maintenance windows are concerned",
    }
)
"""Why a chain went on or ended."""

SKIPS: Final = MappingProxyType(
    {
        SkipReason.CHAIN_UNFINISHED: "a chain of this schedule has not ended",
        SkipReason.SUPPRESSED: "the highest tier, dry run or a cooldown forbade it",
        SkipReason.QUIET_HOURS: "it has its quiet hours",
        SkipReason.MISSED: "it would have come later than its grace allows",
        SkipReason.JUST_DONE: "the fire before it came so late that it stands for this one too",
        SkipReason.UNCHANGED: "every probe is up, and nothing has changed since a model last looked",
    }
)
"""Why a fire of a schedule started no chain."""

ALERTS: Final = MappingProxyType(
    {
        AlertDecision.STARTED: "started a chain",
        AlertDecision.JOINED: "was left to those who are on it",
        AlertDecision.GROUPED: "was put together with others",
        AlertDecision.DUPLICATE: "was a repetition",
        AlertDecision.SILENCED: "was silenced",
        AlertDecision.INHIBITED: "was explained by something else",
        AlertDecision.FLAPPING: "was held back as flapping",
        AlertDecision.BELOW_SEVERITY: "was not severe enough",
        AlertDecision.COOLDOWN: "was held back by a cooldown",
        AlertDecision.BUDGET: "was held back by the budget",
        AlertDecision.PAUSED: "was held back by a pause",
        AlertDecision.RESOLVED_FIRST: "was over before a session started",
        AlertDecision.SELF_INFLICTED: "was taken for an effect of our own action",
        AlertDecision.WATCHDOG: "was a sign of life of the monitoring",
        AlertDecision.UNPARSED: "could not be read",
        AlertDecision.STALE: "was not repeated any more",
    }
)
"""What became of an alert."""

_LONGEST_START: Final = timedelta(minutes=1)
"""For which a session waits in the queue without a word about it."""

_GOOD_DECISIONS: Final = frozenset({DecisionReason.HEALTHY})
_CALM_DECISIONS: Final = frozenset({DecisionReason.ESCALATED, DecisionReason.MAINTENANCE, DecisionReason.PAUSED})
_BAD_SKIPS: Final = frozenset({SkipReason.SUPPRESSED, SkipReason.MISSED})
_GOOD_ALERTS: Final = frozenset({AlertDecision.RESOLVED_FIRST, AlertDecision.WATCHDOG})
_BAD_ALERTS: Final = frozenset(
    {AlertDecision.COOLDOWN, AlertDecision.BUDGET, AlertDecision.PAUSED, AlertDecision.UNPARSED, AlertDecision.STALE}
)
_HELD: Final[Mapping[Recheck, tuple[str, ReasonTone]]] = MappingProxyType(
    {
        Recheck.HELD: ("held", ReasonTone.GOOD),
        Recheck.RELAPSED: ("did not hold", ReasonTone.BAD),
        Recheck.UNKNOWN: ("was looked at again, without an answer whether it held", ReasonTone.BAD),
    }
)
_ABSENT: Final = MappingProxyType(
    {
        WhyKind.FIRE: "no schedule fired",
        WhyKind.ALERT: "no alert came",
        WhyKind.PROBE: "no probe changed",
        WhyKind.SESSION: "no session ran",
    }
)

Sentence = tuple[str, ReasonTone]
"""A sentence and what it means."""


def minute(at: datetime) -> str:
    """Return a moment for a sentence."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# --- schedules, alerts, silences ----------------------------------------------------------------------------


def fire(schedule: str, skipped: str | None, chain: int | None) -> Sentence:
    """Say what came of a due time; ``chain`` is the one that it started, if that is still on record."""
    if skipped is None:
        started = "a chain that is no longer on record" if chain is None else f"chain {chain}"
        return f"Schedule {schedule} fired and started {started}.", ReasonTone.NEUTRAL
    if skipped not in set(SkipReason):
        return f"Schedule {schedule} started nothing: {skipped}.", ReasonTone.BAD
    reason = SkipReason(skipped)
    tone = (
        ReasonTone.BAD
        if reason in _BAD_SKIPS
        else ReasonTone.GOOD
        if reason is SkipReason.UNCHANGED
        else ReasonTone.NEUTRAL
    )
    return f"Schedule {schedule} started nothing: {SKIPS[reason]}.", tone


def alert(name: str | None, service: str | None, decision: AlertDecision, because: str) -> Sentence:
    """Say what became of an alert; without a name it is a body that could not be read."""
    what = "What a source sent" if name is None else f"Alert {one_line(name)} of {one_line(service)}"
    tone = (
        ReasonTone.BAD
        if decision in _BAD_ALERTS
        else ReasonTone.GOOD
        if decision in _GOOD_ALERTS
        else ReasonTone.NEUTRAL
    )
    return _ended(f"{what} {ALERTS[decision]}: {one_line(because)}"), tone


def repeated(name: str, service: str, times: int) -> Sentence:
    """Say that an alert came again."""
    often = "once more" if times == 1 else f"{times} times more"
    return f"Alert {one_line(name)} of {one_line(service)} came {often}, which changed nothing.", ReasonTone.NEUTRAL


def silence(one: Silence) -> Sentence:
    """Say for how long an operator's silence held."""
    matchers = ", ".join(map(str, one.matchers))
    until = minute(one.ends_at) + (f" when {one.ended_by} ended it" if one.ended_by else "")
    what = f"{one.created_by} silenced {matchers} until {until} (silence {one.id})"
    return _ended(f"{what}: {one_line(one.comment)}" if one.comment else what), ReasonTone.NEUTRAL


# --- what was seen --------------------------------------------------------------------------------------------


def seen(service: str, status: ServiceStatus, detail: str | None, session_id: int | None) -> Sentence:
    """Say how a service was found; without a session it is a change that its probes saw."""
    who = "The probes" if session_id is None else f"Session {session_id}"
    because = f": {one_line(detail)}" if detail else ""
    tone = ReasonTone.GOOD if status is ServiceStatus.HEALTHY else ReasonTone.BAD
    return _ended(f"{who} found {one_line(service)} {status.value}{because}"), tone


def probe_stands(name: str, state: str, since: datetime) -> Sentence:
    """Say how a probe stands that has not changed in the time of the question."""
    return f"Probe {name} says {state}, without a change since {minute(since)}.", ReasonTone.NEUTRAL


def probe_failed(name: str, *, failures: int, checks: int, first: datetime, last: datetime) -> Sentence:
    """Say how often a probe failed; a state changes only after several failures in a row."""
    when = f"from {minute(first)} to {minute(last)}" if last > first else f"around {minute(first)}"
    return f"Probe {name} failed in {failures} of {checks} looks, {when}.", ReasonTone.BAD


# --- sessions and their calls -----------------------------------------------------------------------------------


def session_queued(name: str, not_before: datetime | None) -> Sentence:
    """Say that a session waits; ``name`` as in `session_name`."""
    bound = f", and may not start before {minute(not_before)}" if not_before is not None else ""
    return f"{name} was queued{bound}.", ReasonTone.NEUTRAL


def session_unserved(name: str, site: str) -> Sentence:
    """Say that a session waits for a daemon of its site, and there is none; ``name`` as in `session_name`."""
    return f"{name} waits for a node of site {one_line(site)}, and no daemon runs there.", ReasonTone.BAD


def session_waits_for_node(name: str, node: str, session_id: int) -> Sentence:
    """Say that a session waits for a machine without a daemon, and the way out; ``name`` as in `session_name`."""
    out = f"start it, or cancel the session with `claudeops stop {session_id}`"
    return f"{name} waits for node {one_line(node)}, and no daemon runs there: {out}.", ReasonTone.BAD


def session_started(name: str, waited: timedelta) -> Sentence:
    """Say that a session started, and how long it had waited."""
    minutes = waited // timedelta(minutes=1)
    return f"{name} started{f' after {minutes} min in the queue' if is_long(waited) else ''}.", ReasonTone.NEUTRAL


def session_ended(name: str, outcome: Outcome, reason: DecisionReason | None, error: str | None) -> Sentence:
    """Say how a session ended, and what the daemon concluded."""
    why = "" if reason is None else f": {DECISIONS[reason]}"
    detail = f" ({one_line(error)})" if error and outcome is not Outcome.SUCCESS else ""
    tone = (
        ReasonTone.GOOD
        if reason in _GOOD_DECISIONS
        else ReasonTone.NEUTRAL
        if reason in _CALM_DECISIONS
        else ReasonTone.BAD
    )
    return _ended(f"{name} ended with {outcome.value}{why}{detail}"), tone


def session_name(session_id: int, tier: int, trigger: str) -> str:
    """Return a session for the beginning of a sentence."""
    return f"Session {session_id} (tier {tier}, {trigger})"


def is_long(waited: timedelta) -> bool:
    """Return whether a session waited so long that its time in the queue is a reason of its own."""
    return waited >= _LONGEST_START


def call_refused(session_id: int, tool: str, redacted_input: str, reason: str, *, asks: bool) -> Sentence:
    """Say which call did not run as it was wanted, and why."""
    became = "has no verdict but a question" if asks else "was denied"
    call = one_line(call_in_words(tool, redacted_input))
    return _ended(f"A call of session {session_id} {became} ({call}): {one_line(reason)}"), ReasonTone.BAD


def limit_reached(session_id: int, reason: str) -> Sentence:
    """Say which limit of actions refused a call."""
    return _ended(f"A limit held session {session_id} back: {one_line(reason)}"), ReasonTone.BAD


# --- questions to people ------------------------------------------------------------------------------------------


def question_expired(number: int, call: str, *, in_time: datetime, at: datetime) -> Sentence:
    """Say that no answer came until ``in_time``, or until the session ended at ``at``."""
    when = "before its session ended" if at < in_time else f"until {minute(in_time)}"
    return _ended(f"No answer came to question {number} {when}, so the call did not run ({call})"), ReasonTone.BAD


def question_denied(number: int, call: str, by: str | None) -> Sentence:
    """Say who denied the call."""
    return f"Question {number} was answered with no by {one_line(by) or 'the daemon'} ({call}).", ReasonTone.NEUTRAL


def question_waits(number: int, call: str, until: datetime) -> Sentence:
    """Say that a question waits for an answer."""
    return f"Question {number} waits for an answer until {minute(until)} ({call}).", ReasonTone.BAD


def question_call(tool: str | None, redacted_input: str | None) -> str:
    """Return the call of a question."""
    return one_line(call_in_words(tool or "a call", redacted_input or ""))


# --- holds, actions, events -----------------------------------------------------------------------------------------


def hold(kind: HoldKind, reason: str, *, over_at: datetime | None, until: datetime | None, by: str | None) -> Sentence:
    """Say for how long no session started; ``over_at`` None: it holds, ``until`` then or until it is released."""
    end = over_at or until
    how_long = f"until {minute(end)}" if end is not None else "until it is released"
    who = f", by {one_line(by)}" if by else ""
    tone = ReasonTone.NEUTRAL if kind is HoldKind.PAUSED else ReasonTone.BAD
    return _ended(f"No session starts {how_long} ({kind.value}{who}): {one_line(reason)}"), tone


def action(kind: str, service: str, session_id: int, *, success: bool | None, error: str | None) -> Sentence:
    """Say what was done."""
    what = f"Session {session_id} did a {kind} of {one_line(service)}"
    if success is None:
        return f"{what}; its result is not known.", ReasonTone.NEUTRAL
    because = f": {one_line(error)}" if error else ""
    return (f"{what}.", ReasonTone.GOOD) if success else (_ended(f"{what}, which failed{because}"), ReasonTone.BAD)


def action_held(kind: str, service: str, session_id: int, held: Recheck) -> Sentence:
    """Say whether what was done held."""
    words, tone = _HELD[held]
    return f"The {kind} of {one_line(service)} by session {session_id} {words}.", tone


def event(level: EventLevel, service: str | None, message: str, *, times: int, over_at: datetime | None) -> Sentence:
    """Say what was raised."""
    about = f"{one_line(service)}: " if service else ""
    often = f", {times} times" if times > 1 else ""
    over = f", over at {minute(over_at)}" if over_at is not None and level is not EventLevel.INFO else ""
    tone = ReasonTone.NEUTRAL if level is EventLevel.INFO else ReasonTone.BAD
    return _ended(f"{about}{one_line(message).rstrip('.')} ({level.value}{often}{over})"), tone


# --- nothing ----------------------------------------------------------------------------------------------------------


def nothing(why: Why) -> str:
    """Return the sentence for a time in which nothing is on record about the service, or about any."""
    about = "" if why.service is None else f" about {one_line(why.service)}"
    kinds = {reason.kind for reason in why.reasons}
    absent = [words for kind, words in _ABSENT.items() if kind not in kinds]
    means = f": {', '.join(absent)}" if absent else ""
    sentence = f"Nothing is on record{about} between {minute(why.since)} and {minute(why.until)}{means}."
    if why.before is None:
        return f"{sentence} Nothing is on record{about} in the 30 days before either."
    return f"{sentence} The last before, at {minute(why.before.at)}: {why.before.text}"


class WhyAnswer(Why, frozen=True, kw_only=True):
    """The reasons, as they are shown."""

    reasons_count: int
    nothing: str | None  # the sentence for a time without any; None: there are reasons


def answer_of(why: Why) -> WhyAnswer:
    """Return the reasons as they are shown."""
    given = {name: getattr(why, name) for name in why.__struct_fields__}
    return WhyAnswer(**given, reasons_count=len(why.reasons), nothing=nothing(why) if why.silent else None)


def _ended(text: str) -> str:
    """Return a sentence with one mark at its end."""
    return text if text.endswith((".", "!", "?", "...")) else f"{text}."
