"""``claudeops rehearse``: scenarios, one after the other, told live."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec

from claudeops import logs
from claudeops.app_kit import check_harnesses, check_prompts
from claudeops.app_rehearsal import check_rehearsable
from claudeops.app_rehearsal import rehearse as run_one
from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.cli.rehearsed import Told, body_of, epilogue, headline, summary
from claudeops.cli.scenarios import NAME
from claudeops.cli.signals import listening
from claudeops.domain.redact import Redactor
from claudeops.engine.cli_version import check_version
from claudeops.engine.reaper import become_subreaper
from claudeops.engine.shutdown import Shutdown
from claudeops.errors import ClaudeopsError
from claudeops.logs import LogEvent
from claudeops.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from claudeops.app import Node
    from claudeops.logs import Logger
    from claudeops.rehearsal.scenario_file import Named
    from claudeops.settings import Loaded, Settings

REHEARSALS: Final = "rehearsals"
"""In it a directory for each rehearsal, named after its time and scenario."""

LOG: Final = "daemon.log"
RESULT: Final = "result.json"
_KEPT: Final = 20


def rehearse(found: Sequence[Named], *, pace_seconds: float, as_json: bool) -> int:
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
    from claudeops.cli.telling import telling  # noqa: PLC0415 - not needed where nobody reads

    with telling(node.kit.hub, sys.stdout):
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
