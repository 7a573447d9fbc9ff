"""The scenarios that ``claudeops rehearse`` is given: found, listed, refused. Without what running them takes.

What is said of a rehearsal before and after it: for people, and as the body of a JSON document.

``claudeops rehearse``: scenarios, one after the other, told live.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from claudeops import logs
from claudeops.app.node import Node
from claudeops.app.rehearsal import Rehearsed, check_rehearsable
from claudeops.app.rehearsal import rehearse as run_one
from claudeops.app.wiring import check_harnesses, check_prompts
from claudeops.cli.output import Exit, print_document, print_failure
from claudeops.cli.start import listening
from claudeops.domain.model import DecisionReason
from claudeops.domain.redact import Redactor
from claudeops.engine.gate.admission import check_version
from claudeops.engine.live.lines import escaped
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown
from claudeops.errors import ClaudeopsError, MissingInputError
from claudeops.logs import LogEvent, Logger
from claudeops.rehearsal.scenario_file import Named, find, shipped
from claudeops.rehearsal.verdict import said
from claudeops.settings import Loaded, Settings, load_settings

NAME: Final = "rehearse"


def list_scenarios(*, as_json: bool) -> Exit:
    """Print the shipped scenarios with their titles."""
    found = [find(name, cwd=Path.cwd()) for name in shipped()]
    if as_json:
        body: dict[str, object] = {
            "scenarios": [{"name": named.name, "title": named.scenario.title} for named in found]
        }
        return Exit(print_document(NAME, body, Exit.OK))
    width = max(len(named.name) for named in found)
    for named in found:
        click.echo(f"{named.name:<{width}}  {named.scenario.title}")
    return Exit.OK


def rehearse(given: Sequence[str], *, pace_seconds: float, as_json: bool) -> int:
    """Find scenarios and run them in order; return the exit status."""
    try:
        found = [find(name, cwd=Path.cwd()) for name in given]
    except MissingInputError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start", sysexit=Exit.NO_INPUT)
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start")
    return run_all(found, pace_seconds=pace_seconds, as_json=as_json)


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


REHEARSALS: Final = "rehearsals"
"""In it a directory for each rehearsal, named after its time and scenario."""

LOG: Final = "daemon.log"
RESULT: Final = "result.json"
_KEPT: Final = 20


def run_all(found: Sequence[Named], *, pace_seconds: float, as_json: bool) -> int:
    """Run scenarios in order, stop at the first that is interrupted, and return the exit status."""
    try:
        loaded = _load()
        told = anyio.run(_all, loaded, found, pace_seconds, as_json)
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start")
    status = Exit.OK if len(told) == len(found) and all(one.went_well for one in told) else Exit.UNRESOLVED
    if as_json:
        return print_document(NAME, {"rehearsals": [body_of(one) for one in told]}, status)
    if len(found) > 1:
        click.echo(epilogue(told, len(found)))
    return status


def _load() -> Loaded:
    """Return the operator's settings, checked as far as a rehearsal needs them: no credentials, nothing to watch."""
    loaded = load_settings(os.environ, cwd=Path.cwd())
    check_prompts(loaded.settings)
    check_harnesses(loaded.settings)
    check_rehearsable(loaded.settings)
    if loaded.settings.claude_bin is not None:
        check_version(loaded.settings.claude_bin)
    return loaded


async def _all(loaded: Loaded, found: Sequence[Named], pace_seconds: float, as_json: bool) -> list[Told]:  # noqa: FBT001 - anyio.run passes by position
    told: list[Told] = []
    become_subreaper()
    for number, named in enumerate(found, start=1):
        if not as_json:
            click.echo(headline(named, number, len(found)))
        one = await _one(loaded, named, pace_seconds=pace_seconds, aloud=not as_json)
        told.append(one)
        if not as_json:
            click.echo(summary(one))
        if one.result.interrupted:
            break
    return told


async def _one(loaded: Loaded, named: Named, *, pace_seconds: float, aloud: bool) -> Told:
    settings = loaded.settings
    root = _new_directory(_parent(settings), named.name)
    with _log_to(root / LOG, settings) as log:
        for warning in loaded.warnings:
            log.warning(LogEvent.CONFIGURATION_WARNING, warning=warning)
        shutdown = Shutdown()
        with listening(shutdown, log):
            result = await run_one(
                settings,
                named.scenario,
                root,
                shutdown=shutdown,
                log=log,
                pace_seconds=pace_seconds,
                telling=_aloud if aloud else _silently,
            )
    told = Told(named=named, result=result, root=root)
    (root / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(body_of(told)), indent=2))
    return told


@asynccontextmanager
async def _aloud(node: Node) -> AsyncIterator[None]:
    from claudeops.cli.terminal import live_printer  # noqa: PLC0415 - not needed where nobody reads

    with live_printer(node.context.hub, sys.stdout):
        yield


@asynccontextmanager
async def _silently(_node: Node) -> AsyncIterator[None]:
    yield


# --- files ----------------------------------------------------------------------------------------------


def _parent(settings: Settings) -> Path:
    """Return the directory for all rehearsals: beside the state directory where that is the default, else below it.

    A state directory is its owner's alone, and what a rehearsal shows its sessions may be for another user to read.
    """
    if settings.state_dir == Path.cwd() / ".claudeops" / "state":
        return settings.state_dir.parent / REHEARSALS
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return settings.state_dir / REHEARSALS


def _new_directory(parent: Path, name: str) -> Path:
    """Make a directory for one rehearsal; of those that have ended, the oldest beyond `_KEPT` go."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    ended = sorted(result.parent for result in parent.glob(f"*/{RESULT}"))
    for old in ended[: max(0, len(ended) - _KEPT + 1)]:
        shutil.rmtree(old, ignore_errors=True)
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}"
    for number in itertools.count(1):
        with suppress(FileExistsError):
            root = parent / (stem if number == 1 else f"{stem}-{number}")
            root.mkdir()
            return root
    raise AssertionError("there is always another number")


@contextmanager
def _log_to(path: Path, settings: Settings) -> Iterator[Logger]:
    """Let the daemon log to a file, redacted as always."""
    with path.open("w", encoding="utf-8") as file:
        logs.configure(level=settings.log_level, fmt="json", stream=file, redact=Redactor(settings.secrets).text)
        try:
            yield logs.get_logger()
        finally:
            logs.flush()
