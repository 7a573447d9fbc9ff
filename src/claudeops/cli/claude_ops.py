"""Coming from Claude Ops: ``claudeops migrate-from`` and ``claudeops doctor --from-claude-ops``."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from claudeops.cli.on_database import operators_name
from claudeops.cli.reply import CommandResult, Exit, print_failure, print_result
from claudeops.cli.with_settings import read_settings
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings, prepare_directories
from claudeops.settings.claude_ops import Fate, LineVerdict, read_set_up
from claudeops.settings.files import packaged, read_text
from claudeops.store.claude_ops.source import opened
from claudeops.store.claude_ops.takeover import Takeover, TakeoverResult
from claudeops.store.locks import claim_database
from claudeops.store.migrate import migrate
from claudeops.store.store import open_store
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor

_NAME: Final = "migrate-from"
_SECONDS: Final = 3600.0  # for the whole transaction; nobody else writes meanwhile
_MOST_BYTES: Final = 1024 * 1024
_ATTENTION: Final = frozenset({Fate.RENAMED, Fate.GONE, Fate.STRANGE})


# --- the database -------------------------------------------------------------------------------------


def migrate_from(path: Path, *, as_json: bool) -> int:
    """Take the database of Claude Ops over, once; print what was taken and what was left; return the exit status."""
    try:
        settings = read_settings()
        done = anyio.run(partial(_take_over, settings, path.absolute()))
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, target=str(path))
    told = CommandResult(text="\n".join(_lines(done, path)), body=_body(done, path))
    return print_result(_NAME, told, as_json=as_json)


async def _take_over(settings: Settings, path: Path) -> TakeoverResult:
    with opened(path) as source:  # before anything of ours is made: the path may be wrong
        prepare_directories(settings)
        with claim_database(settings.places.database_url, settings.places.state_dir):
            migrate(
                settings.places.database_url,
                migrations_dir=packaged("migrations"),
                backup_dir=settings.places.state_dir,
            )
            store = open_store(settings.places.database_url, wait_seconds=_SECONDS)
            try:
                return await Takeover(store.database).take(
                    source,
                    by=operators_name(),
                    path=str(path),
                    redact=Redactor(settings.secrets).text,
                    now=datetime.now(UTC),
                )
            finally:
                await store.close()


def _lines(done: TakeoverResult, path: Path) -> list[str]:
    if done.done_at is not None:
        return [f"{path} was taken over already, on {done.done_at:%Y-%m-%d %H:%M:%S} UTC; nothing was changed."]
    taken = [f"  {count} {table.replace('_', ' ')}" for table, count in done.taken.items() if count]
    left = [f"  {count} {why}" for why, count in sorted(done.left.items())]
    return [
        f"Taken over from {path}:",
        *(taken or ["  nothing: it holds no rows"]),
        "Left:",
        *left,
        "  the logs of its sessions, and its files cooldown.json and handoff.json",
        "Memories of sessions that had found something unwell wait in quarantine: `claudeops memories list --all`.",
        "The file itself is unchanged.",
    ]


def _body(done: TakeoverResult, path: Path) -> dict[str, object]:
    return {
        "path": str(path),
        "handled": done.done_at is None,
        "taken": dict(done.taken),
        "left": [{"reason": why, "count": count} for why, count in sorted(done.left.items())],
        "done_at": done.done_at,
    }


# --- the set-up ---------------------------------------------------------------------------------------


def examine_set_up(file: Path, *, as_json: bool) -> int:
    """Print line by line what becomes of an old compose file or env file, and return the exit status.

    Changes nothing, and shows no values.
    """
    try:
        text = read_text(file.absolute(), origin="--from-claude-ops", what="set-up", limit=_MOST_BYTES)
    except ClaudeopsError as error:
        return print_failure(
            "doctor", error, as_json=as_json, operation="read", target=str(file), sysexit=Exit.NO_INPUT
        )
    verdicts = tuple(read_set_up(text))
    counts = Counter(verdict.fate for verdict in verdicts)
    width = max((len(verdict.subject) for verdict in verdicts), default=0)
    lines = [
        f"{verdict.line:>4}  {verdict.fate.value.ljust(len(Fate.RENAMED))}  {visible(verdict.subject).ljust(width)}  "
        f"{verdict.says}"
        for verdict in verdicts
    ]
    text = "\n".join((*lines, _summary(file, counts)))
    return print_result("doctor", CommandResult(text=text, body=_set_up_body(file, verdicts, counts)), as_json=as_json)


def _summary(file: Path, counts: Counter[Fate]) -> str:
    if not counts:
        return f"{file} says nothing that concerns claudeops."
    told = ", ".join(f"{counts[fate]} {fate.value}" for fate in Fate if counts[fate])
    change = sum(counts[fate] for fate in _ATTENTION)
    return f"\n{told}. " + (f"{change} lines are to be changed." if change else "Nothing needs to be changed.")


def _set_up_body(file: Path, verdicts: tuple[LineVerdict, ...], counts: Counter[Fate]) -> dict[str, object]:
    return {
        "path": str(file),
        "counts": {fate.value: counts[fate] for fate in Fate},
        "lines": [
            {
                "line": verdict.line,
                "subject": visible(verdict.subject),
                "fate": verdict.fate.value,
                "message": verdict.says,
            }
            for verdict in verdicts
        ],
    }
