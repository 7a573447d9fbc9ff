"""Where the state directory and the database are, found without reading any other setting: quick commands need no more.

Raises `ConfigurationError` like all of the settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from claudeops.files import is_directory
from claudeops.settings.reader import Reader, read_database_url

STATE: Final = "CLAUDEOPS_STATE_DIR"
RESULTS: Final = "CLAUDEOPS_RESULTS_DIR"

_ROOT: Final = Path("/")


def state_dir(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Path:
    """Return the state directory as the settings have it."""
    return _state_dir(Reader(environ, cwd=cwd), cwd=cwd, root=root)


def database_url(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> str:
    """Return the address of the database as the settings have it."""
    reader = Reader(environ, cwd=cwd)
    return read_database_url(reader, state_dir=_state_dir(reader, cwd=cwd, root=root), cwd=cwd)


def results_dir(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> Path:
    """Return the directory of the sessions' logs as the settings have it."""
    reader = Reader(environ, cwd=cwd)
    return find_directory(reader, RESULTS, "results", os.W_OK | os.X_OK, cwd=cwd, root=root, may=os.access)[0]


def day_budget(environ: Mapping[str, str], *, cwd: Path) -> tuple[float, str]:
    """Return what all sessions of a day may spend, in US dollars, and the time zone of the day."""
    reader = Reader(environ, cwd=cwd)
    return reader.number("CLAUDEOPS_DAILY_BUDGET_USD"), reader.text("CLAUDEOPS_TIMEZONE") or "UTC"


def find_directory(
    reader: Reader,
    variable: str,
    name: str,
    access: int,
    *,
    cwd: Path,
    root: Path,
    may: Callable[[Path, int], bool],
) -> tuple[Path, Path]:
    """Return where a directory is, and its usual place."""
    usual = root / name
    named = reader.path(variable)
    if named is not None:
        return named, usual
    return (usual if is_directory(usual) and may(usual, access) else cwd / ".claudeops" / name), usual


def _state_dir(reader: Reader, *, cwd: Path, root: Path) -> Path:
    return find_directory(reader, STATE, "state", os.W_OK | os.X_OK, cwd=cwd, root=root, may=os.access)[0]
