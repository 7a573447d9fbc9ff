"""``claudeops rehearse``: lists scenarios, or runs them one after the other and prints what comes of them.

The files of each rehearsal stay in a directory of its own, until newer ones push it out.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from claudeops import logs
from claudeops.app.node import Node
from claudeops.app.rehearsal.run import Rehearsed, check_rehearsable, rehearse
from claudeops.app.start.checks import check_harnesses, check_prompts
from claudeops.cli.reply import Exit, print_document, print_failure
from claudeops.cli.start import listening
from claudeops.domain.sessions import DecisionReason
from claudeops.engine.gate.cli_version import check_version
from claudeops.engine.live.hub import Hub
from claudeops.engine.live.lines import escaped
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.system import Shutdown
from claudeops.errors import ClaudeopsError, MissingInputError
from claudeops.logs import LogEvent, Logger
from claudeops.rehearsal.scenario_file import NamedScenario, find, shipped
from claudeops.rehearsal.verdict import describe_call, times_of
from claudeops.settings import Loaded, Settings, load_settings
from claudeops.text.redact import Redactor

NAME: Final = "rehearse"

REHEARSALS: Final = "rehearsals"
"""The directory that holds one directory for each rehearsal, named after its time and scenario."""

LOG: Final = "daemon.log"
RESULT: Final = "result.json"
_KEPT: Final = 20  # directories of rehearsals that have ended


# --- commands -----------------------------------------------------------------------------------------


def list_scenarios(*, as_json: bool) -> Exit:
    """Print the scenarios that come with claudeops, with their titles."""
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


def run_scenarios(names: Sequence[str], *, pace_seconds: float, as_json: bool) -> int:
    """Find scenarios by name or path, and run them in order; return the exit status."""
    try:
        found = [find(name, cwd=Path.cwd()) for name in names]
    except MissingInputError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start", sysexit=Exit.NO_INPUT)
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start")
    return _run_all(found, pace_seconds=pace_seconds, as_json=as_json)


def _run_all(found: Sequence[NamedScenario], *, pace_seconds: float, as_json: bool) -> int:
    """Run scenarios in order, stop at the first that is interrupted, and return the exit status."""
    try:
        loaded = _load()
        done = anyio.run(partial(_all, loaded, found, pace_seconds, as_json=as_json))
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start")
    status = Exit.OK if len(done) == len(found) and all(one.went_well for one in done) else Exit.UNRESOLVED
    if as_json:
        return print_document(NAME, {"rehearsals": [body_of(one) for one in done]}, status)
    return status


def _load() -> Loaded:
    """Return the operator's settings. Checks what a rehearsal needs, which is neither credentials nor repositories."""
    loaded = load_settings(os.environ, cwd=Path.cwd())
    check_prompts(loaded.settings)
    check_harnesses(loaded.settings)
    check_rehearsable(loaded.settings)
    if loaded.settings.sessions.claude_bin is not None:
        check_version(loaded.settings.sessions.claude_bin)
    return loaded


async def _all(
    loaded: Loaded, found: Sequence[NamedScenario], pace_seconds: float, *, as_json: bool
) -> list[FinishedRehearsal]:
    become_subreaper()
    if as_json or not sys.stdout.isatty():
        return await _play(loaded, found, pace_seconds, live=_print_nothing if as_json else _print_live, hub=None)
    # A link that logs in is for whoever sits at the terminal, and for no log.
    from claudeops.app.rehearsal.pages import rehearsal_pages  # noqa: PLC0415 - takes as long to import as all the rest

    async with rehearsal_pages(loaded.settings, logs.get_logger(), _print_link) as pages:

        @asynccontextmanager
        async def live(node: Node) -> AsyncIterator[None]:
            await pages.show(node)
            async with _print_live(node):
                yield

        done = await _play(loaded, found, pace_seconds, live=live, hub=pages.hub)
        if len(done) == len(found) and not done[-1].result.interrupted:
            await _until_interrupted()
    return done


async def _play(
    loaded: Loaded,
    found: Sequence[NamedScenario],
    pace_seconds: float,
    *,
    live: Callable[[Node], AbstractAsyncContextManager[None]],
    hub: Hub | None,
) -> list[FinishedRehearsal]:
    done: list[FinishedRehearsal] = []
    is_told = live is not _print_nothing
    for number, named in enumerate(found, start=1):
        if is_told:
            click.echo(headline(named, number, len(found)))
        one = await _one(loaded, named, pace_seconds=pace_seconds, live=live, hub=hub)
        done.append(one)
        if is_told:
            click.echo(summary(one))
        if one.result.interrupted:
            break
    if is_told and len(found) > 1:
        click.echo(epilogue(done, len(found)))
    return done


async def _one(
    loaded: Loaded,
    named: NamedScenario,
    *,
    pace_seconds: float,
    live: Callable[[Node], AbstractAsyncContextManager[None]],
    hub: Hub | None,
) -> FinishedRehearsal:
    settings = loaded.settings
    root = _new_directory(_parent(settings), named.name)
    with _log_to(root / LOG, settings) as log:
        for warning in loaded.warnings:
            log.warning(LogEvent.CONFIGURATION_WARNING, warning=warning)
        shutdown = Shutdown()
        with listening(shutdown, log):
            result = await rehearse(
                settings,
                named.scenario,
                root,
                shutdown=shutdown,
                log=log,
                pace_seconds=pace_seconds,
                live=live,
                hub=hub,
            )
    done = FinishedRehearsal(named=named, result=result, root=root)
    (root / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(body_of(done)), indent=2))
    return done


def _print_link(url: str) -> None:
    click.echo(f"  pages     {url}\n            logs one browser in; the pages stay open until Ctrl-C\n")


async def _until_interrupted() -> None:
    """Wait for Ctrl-C, or for a request to stop."""
    click.echo("\nThe pages of the last rehearsal stay open; Ctrl-C ends them.")
    shutdown = Shutdown()
    with listening(shutdown, logs.get_logger()):
        await shutdown.requested.wait()


@asynccontextmanager
async def _print_live(node: Node) -> AsyncIterator[None]:
    from claudeops.cli.text.terminal import live_printer  # noqa: PLC0415 - JSON mode does not need it

    with live_printer(node.context.hub, sys.stdout):
        yield


@asynccontextmanager
async def _print_nothing(_node: Node) -> AsyncIterator[None]:
    yield


# --- files --------------------------------------------------------------------------------------------
def _parent(settings: Settings) -> Path:
    """Return the directory for all rehearsals: beside the default state directory, else below the one that is set.

    Only its owner may enter a state directory, and another user may need to read what a rehearsal shows its sessions.
    """
    if settings.places.state_dir == Path.cwd() / ".claudeops" / "state":
        return settings.places.state_dir.parent / REHEARSALS
    settings.places.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return settings.places.state_dir / REHEARSALS


def _new_directory(parent: Path, name: str) -> Path:
    """Make a directory for one rehearsal; remove the oldest of those that have ended, beyond `_KEPT`."""
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
    """Write the daemon's log to a file, redacted as always."""
    redactor = Redactor(settings.secrets)
    with path.open("w", encoding="utf-8") as file:
        logs.configure(
            level=settings.log.level, fmt="json", stream=file, redact=redactor.text, redact_line=redactor.line
        )
        try:
            yield logs.get_logger()
        finally:
            logs.flush()


# --- output -------------------------------------------------------------------------------------------


class FinishedRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """One rehearsal that has ended."""

    named: NamedScenario
    result: Rehearsed
    root: Path  # the directory with its files

    @property
    def went_well(self) -> bool:
        """Whether everything went as expected."""
        return not self.result.shortfalls and not self.result.interrupted

    @property
    def spent_usd(self) -> float:
        """What the sessions would have cost at list prices, as far as it is known."""
        return sum(session.cost_usd or 0.0 for session in self.result.record.sessions)


def headline(named: NamedScenario, number: int, of: int) -> str:
    """Return the text printed before a rehearsal."""
    count = f" {number} of {of}" if of > 1 else ""
    services = ", ".join(named.scenario.services)
    looks = "" if named.scenario.scheduled else " No round is due: only the daemon's probes look."
    return (
        f"\nRehearsal{count}: {named.scenario.title}\n"
        f"It watches small services that it starts itself: {services}.{looks}\n"
    )


def summary(done: FinishedRehearsal) -> str:
    """Return what was found, done and spent, whether that was expected, and where the files are."""
    lines = ["", *(f"  {label:<9} {text}" for label, text in _summary_rows(done)), ""]
    return "\n".join(lines)


def _summary_rows(done: FinishedRehearsal) -> Iterator[tuple[str, str]]:
    record = done.result.record
    yield "result", _result(done)
    found = [session.summary for session in record.sessions if session.summary]
    if not record.sessions:
        found = [event.message for event in record.own_events]
    yield "found", escaped(found[-1]) if found else "nothing: no session left a report"
    yield "done", ", ".join(f"{action.kind} {action.service}" for action in record.account.actions) or "nothing changed"
    if record.answers:
        yield "chat", escaped("; ".join(record.answers))
    if (times := _times(done)) is not None:
        yield "times", times
    if record.decided:
        told = ", ".join(f"{count} {decision}" for decision, count in sorted(record.decided.items()))
        yield "alerts", f"{sum(record.decided.values())}: {told}"
    yield "spent", f"${done.spent_usd:.4f} at list prices; in fact nothing, because the model is scripted"
    yield "now", ", ".join(f"{name} is {state}" for name, state in record.states.items())
    if done.result.interrupted:
        yield "expected", "stopped before the end"
    elif done.went_well:
        yield "expected", "yes, all of it"
    else:
        yield "expected", "NO:"
        for shortfall in done.result.shortfalls:
            yield "", f"- {escaped(shortfall)}"
    yield "files", f"{done.root}/"
    yield "", "state/claudeops.db (database), results/ (one log a session), daemon.log"


def _times(done: FinishedRehearsal) -> str | None:
    """Return how long things took; ``None``: no fault came while the daemon ran."""
    record = done.result.record
    if (times := times_of(record)) is None:
        return None
    stages = (
        ("noticed by a probe", times.noticed),
        (f"tier {record.sessions[0].tier} started" if record.sessions else "", times.session_started),
        ("repaired", times.repaired),
    )
    told = [f"{stage} after {seconds:.1f} s" for stage, seconds in stages if seconds is not None]
    return f"{record.struck[0].service} failed: {', '.join(told) or 'nobody noticed'}"


def _result(done: FinishedRehearsal) -> str:
    record = done.result.record
    if not record.sessions:
        return "no session ran"
    last = record.sessions[-1]
    if last.decision_reason is not DecisionReason.HEALTHY:
        return f"unresolved ({last.decision_reason or last.outcome or 'not ended'}): needs a person"
    return "healthy" if len(record.sessions) == 1 else f"resolved by tier {last.tier}"


def epilogue(done: Sequence[FinishedRehearsal], asked_for: int) -> str:
    """Return the line printed after several rehearsals."""
    well = sum(one.went_well for one in done)
    spent = sum(one.spent_usd for one in done)
    return f"{well} of {asked_for} rehearsals went as expected; at list prices the model would have cost ${spent:.4f}."


def body_of(done: FinishedRehearsal) -> dict[str, object]:
    """Return a rehearsal as a part of a JSON document."""
    record = done.result.record
    times = times_of(record)
    return {
        "scenario": done.named.name,
        "title": done.named.scenario.title,
        "as_expected": done.went_well,
        "interrupted": done.result.interrupted,
        "shortfalls": list(done.result.shortfalls),
        "decision": record.sessions[-1].decision_reason if record.sessions else None,
        "times_seconds": None if times is None else msgspec.structs.asdict(times),
        "cost_usd": done.spent_usd,
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
            {"session_id": call.session_id, "call": describe_call(call), "verdict": call.verdict, "reason": call.reason}
            for call in record.account.calls
        ],
        "services": {name: state.value for name, state in record.states.items()},
        "path": str(done.root),
    }
