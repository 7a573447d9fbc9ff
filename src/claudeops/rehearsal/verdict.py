"""Compares what came of a rehearsal with what its scenario expects. Pure: a record in, sentences out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from claudeops.domain.chain_record import ChainRecord, KnownCall
from claudeops.domain.model import Session, VerdictKind
from claudeops.rehearsal.scenario import Expected, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What came of a rehearsal."""

    sessions: Sequence[Session]
    account: ChainRecord
    states: Mapping[str, State] = field(default_factory=dict)  # how the services answered at the end
    problems: Sequence[str] = ()  # what the script did not foresee


def shortfalls(record: Record, expected: Expected) -> tuple[str, ...]:
    """Return one sentence for each expectation that does not hold; none means that all went as expected."""
    return (
        *(f"the script did not foresee this: {problem}" for problem in record.problems),
        *_check_sessions(record.sessions, expected),
        *_check_actions(record, expected),
        *_check_calls(record.account.calls, expected),
        *_check_events(record, expected),
        *_check_services(record.states, expected),
    )


def describe_call(call: KnownCall) -> str:
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


def _check_sessions(sessions: Sequence[Session], expected: Expected) -> Iterator[str]:
    if not sessions:
        yield "a session was expected, but none ran"
        return
    tiers = [session.tier for session in sessions]
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


def _check_actions(record: Record, expected: Expected) -> Iterator[str]:
    actions = [f"{action.kind} {action.service}" for action in record.account.actions]
    if actions != list(expected.actions):
        yield f"these actions were expected: {_listed(expected.actions)}; but these were taken: {_listed(actions)}"


def _check_calls(calls: Sequence[KnownCall], expected: Expected) -> Iterator[str]:
    by_verdict: dict[VerdictKind, list[KnownCall]] = {VerdictKind.ALLOW: [], VerdictKind.DENY: []}
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


def _instead(text: str, others: Sequence[KnownCall]) -> str:
    found = next((call for call in others if text in describe_call(call)), None)
    return ", but there was none" if found is None else f", but it was not ({found.verdict}: {found.reason})"


def _check_events(record: Record, expected: Expected) -> Iterator[str]:
    for wanted in expected.events:
        if not any(
            event.level is wanted.level and wanted.contains in event.message and wanted.service in (None, event.service)
            for event in record.account.events
        ):
            about = f" about {wanted.service}" if wanted.service else ""
            yield f"a {wanted.level} event{about} with {wanted.contains!r} was expected, but there is none"


def _check_services(states: Mapping[str, State], expected: Expected) -> Iterator[str]:
    for name, wanted in expected.services.items():
        if (state := states.get(name)) is not wanted:
            yield f"{name} was expected to be {wanted} at the end, but it is {state or 'unknown'}"


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"
