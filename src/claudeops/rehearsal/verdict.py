"""Compares what came of a rehearsal with what its scenario expects. Pure: a record in, sentences out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.calls import VerdictKind
from claudeops.domain.chains.chain_record import ChainRecord, JudgedCall
from claudeops.domain.live import EventRaised
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import FAILING
from claudeops.domain.sessions import Session
from claudeops.rehearsal.course import Struck
from claudeops.rehearsal.scenario import ExpectedOutcome, ServiceState


class ProbeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that has changed its state."""

    probe: str
    state: ProbeState
    at: datetime


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How long things took, in seconds from the beginning of the first fault that came while the daemon ran."""

    noticed: float | None  # by a probe; None: it was not
    session_started: float | None
    repaired: float | None  # None: a probe still sees something unwell


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a rehearsal."""

    sessions: Sequence[Session]  # of all chains
    account: ChainRecord
    struck: Sequence[Struck] = ()
    turns: Sequence[ProbeTurn] = ()  # oldest first
    own_events: Sequence[EventRaised] = ()  # that the daemon wrote without a session
    states: Mapping[str, ServiceState] = msgspec.field(default_factory=dict)  # how the services answered at the end
    decided: Mapping[str, int] = msgspec.field(default_factory=dict)  # alerts, by what was decided last about each
    problems: Sequence[str] = ()  # what the script did not foresee
    answers: Sequence[str] = ()  # in the chat, to whoever tapped
    shown: Sequence[str] = ()  # by the messages in the chat, at the end
    asking: bool = False  # a message in the chat still has buttons


def shortfalls(record: Record, expected: ExpectedOutcome) -> tuple[str, ...]:
    """Return one sentence for each expectation that does not hold; none means that all went as expected."""
    return (
        *(f"the script did not foresee this: {problem}" for problem in record.problems),
        *_check_sessions(record.sessions, expected),
        *_check_actions(record, expected),
        *_check_calls(record.account.calls, expected),
        *_check_events(record, expected),
        *_check_services(record.states, expected),
        *_check_probes(record, expected),
        *_check_alerts(record, expected),
        *_check_chat(record, expected),
        *_check_times(record, expected),
    )


def may_still_come(record: Record, expected: ExpectedOutcome) -> bool:
    """Tell whether something is missing that time may bring, once nothing is under way any more."""
    found = (_check_sessions(record.sessions, expected), _check_events(record, expected))
    later = (_check_probes(record, expected), _check_alerts(record, expected), _check_chat(record, expected))
    return any(any(each) for each in (*found, *later))


def times_of(record: Record) -> Times | None:
    """Return how long things took; ``None``: no fault came while the daemon ran."""
    if not record.struck:
        return None
    began = record.struck[0].at
    noticed, repaired, unwell = None, None, set[str]()
    for turn in record.turns:
        if turn.at >= began and turn.state in FAILING:
            noticed = noticed or turn.at
            unwell.add(turn.probe)
        elif turn.probe in unwell:
            unwell.remove(turn.probe)
            repaired = turn.at
    started = [session.started_at for session in record.sessions if session.started_at is not None]

    def seconds(at: datetime | None) -> float | None:
        return None if at is None else max(0.0, (at - began).total_seconds())

    return Times(
        noticed=seconds(noticed),
        session_started=seconds(min(started, default=None)),
        repaired=None if unwell else seconds(repaired),
    )


def _latest(record: Record) -> dict[str, ProbeState]:
    return {turn.probe: turn.state for turn in record.turns}


def describe_call(call: JudgedCall) -> str:
    """Return what a call would do, as a person would write it: a command, a path, or else its whole input."""
    try:
        given = json.loads(call.redacted_input)
    except ValueError:
        return call.redacted_input
    if isinstance(given, dict):
        for key in ("command", "file_path"):
            if isinstance(value := given.get(key), str):
                return value if key == "command" else f"{call.tool_name} {value}"
    return f"{call.tool_name} {call.redacted_input}"


def _check_sessions(sessions: Sequence[Session], expected: ExpectedOutcome) -> Iterator[str]:
    tiers = [session.tier for session in sessions]
    if not expected.tiers:
        if tiers:
            yield f"no session was expected, but the tiers {_listed(tiers)} ran"
        return
    if not sessions:
        yield "a session was expected, but none ran"
        return
    if expected.trigger is not None and sessions[0].trigger is not expected.trigger:
        yield f"the trigger {expected.trigger} was expected, but it is {sessions[0].trigger}"
    if tiers != list(expected.tiers):
        yield f"the tiers {_listed(expected.tiers)} were expected, but {_listed(tiers)} ran"
    last = sessions[-1]
    if last.outcome is not expected.outcome:
        yield (
            f"the last session was expected to end as {expected.outcome}, but ended as {last.outcome or 'nothing'}"
            + (f" ({last.error})" if last.error else "")
        )
    if last.decision_reason is not expected.decision:
        yield f"the decision {expected.decision} was expected, but it is {last.decision_reason or 'none'}"


def _check_actions(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    actions = [f"{action.kind} {action.service}" for action in record.account.actions]
    if actions != list(expected.actions):
        yield f"these actions were expected: {_listed(expected.actions)}; but these were taken: {_listed(actions)}"


def _check_calls(calls: Sequence[JudgedCall], expected: ExpectedOutcome) -> Iterator[str]:
    by_verdict: dict[VerdictKind, list[JudgedCall]] = {VerdictKind.ALLOW: [], VerdictKind.DENY: []}
    for call in calls:
        by_verdict.setdefault(call.verdict, []).append(call)
    for text in expected.allowed:
        if not any(text in describe_call(call) for call in by_verdict[VerdictKind.ALLOW]):
            yield f"a call with {text!r} was expected to be allowed{_instead(text, by_verdict[VerdictKind.DENY])}"
    for text in expected.denied:
        if not any(text in describe_call(call) for call in by_verdict[VerdictKind.DENY]):
            yield f"a call with {text!r} was expected to be denied{_instead(text, by_verdict[VerdictKind.ALLOW])}"
    for call in by_verdict[VerdictKind.DENY]:
        if not any(text in describe_call(call) for text in expected.denied):
            yield f"this call was not expected to be denied: {describe_call(call)} ({call.reason})"


def _instead(text: str, others: Sequence[JudgedCall]) -> str:
    found = next((call for call in others if text in describe_call(call)), None)
    return ", but there was none" if found is None else f", but it was not ({found.verdict}: {found.reason})"


def _check_events(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    written = [(event.level, event.service, event.message) for event in record.account.events]
    written += [(event.level, event.service, event.message) for event in record.own_events]
    for wanted in expected.events:
        if not any(
            level is wanted.level and wanted.contains in message and wanted.service in (None, service)
            for level, service, message in written
        ):
            about = f" about {wanted.service}" if wanted.service else ""
            yield f"a {wanted.level} event{about} with {wanted.contains!r} was expected, but there is none"


def _check_services(states: Mapping[str, ServiceState], expected: ExpectedOutcome) -> Iterator[str]:
    for name, wanted in expected.services.items():
        if (state := states.get(name)) is not wanted:
            yield f"{name} was expected to be {wanted} at the end, but it is {state or 'unknown'}"


def _check_probes(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    latest = _latest(record)
    for name, wanted in expected.probes.items():
        if (state := latest.get(name, ProbeState.UNKNOWN)) is not wanted:
            yield f"the probe {name} was expected to be {wanted} at the end, but it is {state}"


def _check_alerts(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    decided = sum(record.decided.values())
    if expected.decided is not None and decided != expected.decided:
        yield f"a decision about {expected.decided} alerts was expected, but there is one about {decided}"


def _check_chat(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    wanted = expected.chat
    as_wanted = [said.startswith(text) for said, text in zip(record.answers, wanted.answers, strict=False)]
    if len(record.answers) != len(wanted.answers) or not all(as_wanted):
        told = f"these answers in the chat were expected: {_listed(wanted.answers)}"
        yield f"{told}; but these were given: {_listed(record.answers)}"
    for text in wanted.shows:
        if not any(text in shown for shown in record.shown):
            yield f"a message in the chat was expected to show {text!r} at the end, but none does"
    if record.asking:
        yield "no message in the chat was expected to have buttons at the end, but one has"


def _check_times(record: Record, expected: ExpectedOutcome) -> Iterator[str]:
    measured = times_of(record)
    found = {} if measured is None else msgspec.structs.asdict(measured)
    for name, most in msgspec.structs.asdict(expected.within_seconds).items():
        seconds = found.get(name)
        if most is not None and (seconds is None or seconds > most):
            came = "never came" if seconds is None else f"took {seconds:.1f} s"
            yield f"from the first fault to '{_STAGES[name]}' at most {most:g} s were expected, but it {came}"


_STAGES: Final = {
    "noticed": "noticed by a probe",
    "session_started": "the first session has started",
    "repaired": "repaired",
}


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"
