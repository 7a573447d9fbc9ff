"""What is said of a rehearsal before and after it: for people, and as the body of a JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from claudeops.cli.told_lines import escaped
from claudeops.domain.model import DecisionReason
from claudeops.rehearsal.verdict import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from claudeops.app_rehearsal import Rehearsed
    from claudeops.rehearsal.scenario_file import Named


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """One rehearsal that has ended."""

    named: Named
    result: Rehearsed
    root: Path  # its files

    @property
    def went_well(self) -> bool:
        """Whether everything came as expected."""
        return not self.result.shortfalls and not self.result.interrupted

    @property
    def spent_usd(self) -> float:
        """What the sessions would have cost, as far as they said it."""
        return sum(session.cost_usd or 0.0 for session in self.result.record.sessions)


def headline(named: Named, number: int, of: int) -> str:
    """Return what stands above a rehearsal."""
    count = f" {number} of {of}" if of > 1 else ""
    services = ", ".join(named.scenario.services)
    return f"\nRehearsal{count}: {named.scenario.title}\nWatched are small services, started for this: {services}.\n"


def summary(told: Told) -> str:
    """Return what was found, done and spent, whether that was expected, and where the files lie."""
    lines = ["", *(f"  {label:<9} {text}" for label, text in _summary(told)), ""]
    return "\n".join(lines)


def epilogue(told: Sequence[Told], asked_for: int) -> str:
    """Return the last line after several rehearsals."""
    well = sum(one.went_well for one in told)
    spent = sum(one.spent_usd for one in told)
    return f"{well} of {asked_for} rehearsals went as expected; at list prices the model would have cost ${spent:.4f}."


def body_of(told: Told) -> dict[str, object]:
    """Return a rehearsal as JSON."""
    record = told.result.record
    return {
        "scenario": told.named.name,
        "title": told.named.scenario.title,
        "as_expected": told.went_well,
        "interrupted": told.result.interrupted,
        "shortfalls": list(told.result.shortfalls),
        "decision": record.sessions[-1].decision_reason if record.sessions else None,
        "cost_usd": told.spent_usd,
        "sessions": [
            {
                "session_id": session.id,
                "tier": session.tier,
                "model": session.model,
                "outcome": session.outcome,
                "decision": session.decision_reason,
                "cost_usd": session.cost_usd,
                "summary": session.summary,
                "error": session.error,
                "path": session.log_path,
            }
            for session in record.sessions
        ],
        "calls": [
            {"session_id": call.session_id, "call": said(call), "verdict": call.verdict, "reason": call.reason}
            for call in record.account.calls
        ],
        "services": {name: state.value for name, state in record.states.items()},
        "path": str(told.root),
    }


def _summary(told: Told) -> Iterator[tuple[str, str]]:
    record = told.result.record
    yield "result", _result(told)
    found = [session.summary for session in record.sessions if session.summary]
    yield "found", escaped(found[-1]) if found else "nothing: no session left a report"
    yield "done", ", ".join(f"{action.kind} {action.service}" for action in record.account.actions) or "nothing changed"
    yield "spent", f"${told.spent_usd:.4f} at list prices; in truth nothing, for the model is scripted"
    yield "now", ", ".join(f"{name} is {state}" for name, state in record.states.items())
    if told.result.interrupted:
        yield "expected", "stopped before the end"
    elif told.went_well:
        yield "expected", "yes, all of it"
    else:
        yield "expected", "NO:"
        for shortfall in told.result.shortfalls:
            yield "", f"- {escaped(shortfall)}"
    yield "files", f"{told.root}/"
    yield "", "state/claudeops.db (database), results/ (a log a session), daemon.log"


def _result(told: Told) -> str:
    record = told.result.record
    if not record.sessions:
        return "no session ran"
    last = record.sessions[-1]
    if last.decision_reason is not DecisionReason.HEALTHY:
        return f"unresolved ({last.decision_reason or last.outcome or 'not ended'}): people are asked to look"
    return "healthy" if len(record.sessions) == 1 else f"resolved by tier {last.tier}"
