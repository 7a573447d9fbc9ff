"""Directories, what is watched, room on the disks."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from claudeops.cli.doctor.values import Finding, doubtful, failed, failed_with, fine, halves
from claudeops.cli.envelope import ErrorKind
from claudeops.errors import ConfigurationError
from claudeops.settings import require_repos, unusable_directories

if TYPE_CHECKING:
    from claudeops.cli.doctor.values import Case
    from claudeops.settings import Settings

LEAST_BYTES: Final = 128 * 1024 * 1024
"""Below it a session's log, the database or the CLI's own files will soon meet a full disk."""

LEAST_TEMPORARY_BYTES: Final = 16 * 1024 * 1024
LITTLE_BYTES: Final = 1024 * 1024 * 1024
LEAST_FILES: Final = 1000
_OTHERS: Final = 0o007
_MIB: Final = 1024 * 1024


async def directories(_case: Case, settings: Settings) -> Finding:
    """Look whether the daemon could write where it has to."""
    return await anyio.to_thread.run_sync(_directories, settings)


def _directories(settings: Settings) -> Finding:
    if wrong := unusable_directories(settings):
        parts = [halves(sentence) for sentence in wrong]
        says = " ".join(problem for problem, _ in parts)
        return failed(says, " ".join(remedy for _, remedy in parts if remedy), kind=ErrorKind.FILESYSTEM)
    state = settings.state_dir
    if state.is_dir():
        found, user = state.stat(), os.geteuid()
        if found.st_uid != user:
            return doubtful(
                f"{state} belongs to user {found.st_uid}, and this is user {user}, who may write everywhere.",
                f"Ask as the user that the daemon runs as; if that is not {found.st_uid}, run `chown -R` for it.",
            )
        if found.st_mode & _OTHERS:
            return doubtful(f"Everybody may look into {state}.", f"Run `chmod o= {state}`.")
    return fine(f"State in {state}, session logs in {settings.results_dir}.")


async def repositories(_case: Case, settings: Settings) -> Finding:
    """Look whether there is anything to watch, and whether all of it can be read."""
    return await anyio.to_thread.run_sync(_repositories, settings.repos_dir)


def nothing_to_watch(repos: Path) -> str | None:
    """Return the sentence that says so, or ``None``."""
    try:
        require_repos(repos)
    except ConfigurationError as error:
        return str(error)
    return None


def _repositories(repos: Path) -> Finding:
    if (nothing := nothing_to_watch(repos)) is not None:
        return failed_with(nothing, kind=ErrorKind.FILESYSTEM)
    entries = sorted(entry for entry in repos.iterdir() if not entry.name.startswith("."))
    closed = [entry.name for entry in entries if not os.access(entry, os.R_OK | (os.X_OK if entry.is_dir() else 0))]
    if closed:
        return doubtful(
            f"User {os.geteuid()} may not read {', '.join(closed)} in {repos}.",
            f"Run `chmod -R o+rX` on them, or `chown -R {os.geteuid()}`, where they are mounted from.",
        )
    manifests = sum((entry / "CLAUDE-OPS.md").is_file() for entry in entries)
    return fine(f"{len(entries)} in {repos}, {manifests} of them with a manifest (CLAUDE-OPS.md).")


async def disk_space(_case: Case, settings: Settings) -> Finding:
    """Look how much room is left where sessions and the database write."""
    return await anyio.to_thread.run_sync(_disk_space, settings)


def _disk_space(settings: Settings) -> Finding:
    # A session's temporary files lie in the state directory; what needs the machine's own ends in seconds.
    temporary = Path(tempfile.gettempdir())
    if shutil.disk_usage(temporary).free < LEAST_TEMPORARY_BYTES:
        return failed(f"{temporary} is full.", "Make room, or set TMPDIR.", kind=ErrorKind.FILESYSTEM)
    least: tuple[int, Path] | None = None
    for place in (settings.state_dir, settings.results_dir):
        there = next(path for path in (place, *place.parents) if path.is_dir())
        free, found = shutil.disk_usage(there).free, os.statvfs(there)
        if found.f_files and found.f_favail < LEAST_FILES:
            return failed(
                f"Only {found.f_favail} files can still be made in {place}.",
                "Remove small files from that file system, or give it more inodes.",
                kind=ErrorKind.FILESYSTEM,
            )
        least = min(least or (free, place), (free, place))
    if least is None:
        raise AssertionError("there is always a place to look at")
    free, place = least
    if free < LEAST_BYTES:
        return failed(
            f"Only {free // _MIB} MiB are left in {place}.",
            "Make room, or set another directory.",
            kind=ErrorKind.FILESYSTEM,
        )
    if free < LITTLE_BYTES:
        return doubtful(f"Only {free // _MIB} MiB are left in {place}.", "Make room soon.")
    return fine(f"At least {free // _MIB} MiB are left.")
