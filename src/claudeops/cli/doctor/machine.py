"""Checks of this machine: directories, repositories, disk space, clock, time zones, and the tools of the sessions."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
import zoneinfo
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, failed, failed_with, fine, halves
from claudeops.cli.reply import ErrorKind
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings, require_repos, unusable_directories

WRONG_SECONDS: Final = 300
"""A clock that is off by more is wrong: certificates, schedules and cooldowns depend on it."""

LEAST_BYTES: Final = 128 * 1024 * 1024
"""Below it a session's log, the database or the CLI's own files will soon meet a full disk."""

LEAST_TEMPORARY_BYTES: Final = 16 * 1024 * 1024
LITTLE_BYTES: Final = 1024 * 1024 * 1024
LEAST_FILES: Final = 1000

NEEDED: Final[Mapping[str, str]] = {
    "bash": "bash",
    "curl": "curl",
    "ssh": "openssh-client",
    "jq": "jq",
    "grep": "grep",
    **dict.fromkeys(("df", "head", "tail", "sort", "wc"), "coreutils"),
}
"""Programs that the prompts use for every estate, each with its Debian package."""

USEFUL: Final[Mapping[str, str]] = {"free": "procps", "ping": "iputils-ping", "ps": "procps", "ss": "iproute2"}
"""Programs that the prompts use too, but can do without."""

_EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
_SET_IT: Final = "Set the clock and keep it synchronised: `timedatectl set-ntp true`, or chrony."
_NOT_KEPT: Final = 5  # TIME_ERROR, adjtimex(2)

_COMMAND: Final = re.compile(r"`([a-z][a-z0-9_-]*) [^`]+`")
"""Code of more than one word; a single word may also be the name of a field."""
_OTHERS: Final = 0o007
_MIB: Final = 1024 * 1024


# --- directories, repositories and disks -------------------------------------------------------------


async def directories(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the daemon can write where it must."""
    return await anyio.to_thread.run_sync(_directories, settings)


def _directories(settings: Settings) -> Finding:
    if wrong := unusable_directories(settings):
        parts = [halves(sentence) for sentence in wrong]
        says = " ".join(problem for problem, _ in parts)
        return failed(says, " ".join(remedy for _, remedy in parts if remedy), kind=ErrorKind.FILESYSTEM)
    state = settings.places.state_dir
    if state.is_dir():
        found, user = state.stat(), os.geteuid()
        if found.st_uid != user:
            return doubtful(
                f"{state} belongs to user {found.st_uid}; this is user {user}, who may write everywhere.",
                f"Run this as the daemon's user; if that is not {found.st_uid}, run `chown -R` for it.",
            )
        if found.st_mode & _OTHERS:
            return doubtful(f"Every user may read {state}.", f"Run `chmod o= {state}`.")
    return fine(f"State in {state}, session logs in {settings.places.results_dir}.")


async def repositories(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that there is something to watch, and that all of it can be read."""
    return await anyio.to_thread.run_sync(_repositories, settings.places.repos_dir)


def nothing_to_watch(repos: Path) -> str | None:
    """Return the sentence that says that there is nothing to watch, or ``None``."""
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


async def disk_space(_case: DoctorContext, settings: Settings) -> Finding:
    """Check the free space where sessions and the database write."""
    return await anyio.to_thread.run_sync(_disk_space, settings)


def _disk_space(settings: Settings) -> Finding:
    # Temporary files of sessions are in the state directory; the machine's own directory is needed for seconds only.
    temporary = Path(tempfile.gettempdir())
    if shutil.disk_usage(temporary).free < LEAST_TEMPORARY_BYTES:
        return failed(f"{temporary} is full.", "Free some space, or set TMPDIR.", kind=ErrorKind.FILESYSTEM)
    least: tuple[int, Path] | None = None
    for place in (settings.places.state_dir, settings.places.results_dir):
        there = next(path for path in (place, *place.parents) if path.is_dir())
        free, found = shutil.disk_usage(there).free, os.statvfs(there)
        if found.f_files and found.f_favail < LEAST_FILES:
            return failed(
                f"Only {found.f_favail} more files can be created in {place}.",
                "Remove small files from that file system, or give it more inodes.",
                kind=ErrorKind.FILESYSTEM,
            )
        least = min(least or (free, place), (free, place))
    if least is None:
        raise AssertionError("there is always a directory to look at")
    free, place = least
    if free < LEAST_BYTES:
        return failed(
            f"Only {free // _MIB} MiB are left in {place}.",
            "Free some space, or set another directory.",
            kind=ErrorKind.FILESYSTEM,
        )
    if free < LITTLE_BYTES:
        return doubtful(f"Only {free // _MIB} MiB are left in {place}.", "Free some space soon.")
    return fine(f"At least {free // _MIB} MiB are left.")


# --- clock and time zones ----------------------------------------------------------------------------


async def clock(case: DoctorContext, settings: Settings) -> Finding:
    """Compare the clock with the model API's and with older files, and ask the kernel whether it is synchronised."""
    if case.now < _EARLIEST:
        return failed(f"The clock says {case.now:%Y-%m-%d %H:%M} UTC.", _SET_IT, kind=ErrorKind.RUNTIME)
    answer = await case.answer()
    if answer is not None and answer.date is not None and answer.heard_at is not None:
        off = (answer.heard_at - answer.date).total_seconds()
        if abs(off) > WRONG_SECONDS:
            way = "ahead of" if off > 0 else "behind"
            return failed(f"The clock is {abs(off):.0f} s {way} the model API's.", _SET_IT, kind=ErrorKind.RUNTIME)
    newest = await anyio.to_thread.run_sync(_newest, settings)
    if newest is not None and (behind := newest[0] - case.now.timestamp()) > WRONG_SECONDS:
        return failed(
            f"{newest[1]} was written {behind:.0f} s in the future, so the clock has been set back.",
            _SET_IT,
            kind=ErrorKind.RUNTIME,
        )
    if _kept() is False:
        return doubtful("Nothing synchronises the clock: the kernel knows no time source.", _SET_IT)
    return fine(f"{case.now:%Y-%m-%d %H:%M} UTC, and nothing contradicts it.")


def _newest(settings: Settings) -> tuple[float, Path] | None:
    """Return time and path of the newest entry in the daemon's directories."""
    found: list[tuple[float, Path]] = []
    for directory in (settings.places.state_dir, settings.places.results_dir):
        try:
            found += [(entry.stat().st_mtime, entry) for entry in directory.iterdir()]
        except OSError:
            continue  # the check of the directories reports it
    return max(found, default=None)


class _Timex(ctypes.Structure):
    """The first field of ``struct timex``, and space for the rest."""

    _fields_ = (("modes", ctypes.c_uint), ("rest", ctypes.c_long * 40))


def _kept() -> bool | None:
    """Return whether the kernel considers the clock synchronised; ``None`` where asking is not allowed."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.byref(_Timex()))
    return None if state < 0 else state != _NOT_KEPT


async def time_zones(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that time zone data is installed."""
    known = await anyio.to_thread.run_sync(zoneinfo.available_timezones)
    if settings.schedule.timezone != "UTC" and settings.schedule.timezone not in known:
        return failed(
            f"There is no data for the time zone {settings.schedule.timezone}.",
            "Install the package tzdata.",
        )
    if len(known) <= 1:
        return doubtful("No time zone but UTC is known.", "Install the package tzdata.")
    return fine(f"Schedules use {settings.schedule.timezone}.")


# --- tools -------------------------------------------------------------------------------------------


async def tools(_case: DoctorContext, settings: Settings) -> Finding:
    """Look for the programs that the prompts mention, on the PATH that sessions get."""

    def missing(names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if shutil.which(name, path=settings.environment.path) is None)

    if lacking := missing(NEEDED):
        says = f"Sessions do not find {', '.join(lacking)} on their PATH ({settings.environment.path})."
        return failed(says, f"{_install(lacking)}, or correct PATH.", kind=ErrorKind.FILESYSTEM)
    if lacking := missing(USEFUL):
        return doubtful(f"Sessions could look closer with {', '.join(lacking)}.", f"{_install(lacking)}.")
    lacking = missing(mentioned(tier.prompt_text for tier in settings.tiers))
    note = f" Not installed, so what needs them cannot be looked at: {', '.join(lacking)}." if lacking else ""
    return fine(f"All {len(NEEDED) + len(USEFUL)} that every estate needs are installed.{note}")


def mentioned(prompts: Iterable[str]) -> frozenset[str]:
    """Return the programs of the command lines that prompts write as code."""
    return frozenset(word for prompt in prompts for word in _COMMAND.findall(prompt))


def _install(programs: Iterable[str]) -> str:
    packages = dict.fromkeys({**NEEDED, **USEFUL}[name] for name in programs)
    return f"Install what is missing (Debian: apt-get install {' '.join(packages)})"
