"""The clock, the time zones, and the programs that sessions look with."""

from __future__ import annotations

import ctypes
import re
import shutil
import zoneinfo
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from claudeops.cli.doctor.values import Finding, doubtful, failed, fine
from claudeops.cli.envelope import ErrorKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from claudeops.cli.doctor.values import Case
    from claudeops.settings import Settings

WRONG_SECONDS: Final = 300
"""From there on a clock is wrong: certificates, schedules and cooldowns are judged by it."""

_EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
_SET_IT: Final = "Set the clock and have it kept: `timedatectl set-ntp true`, or chrony."
_NOT_KEPT: Final = 5  # TIME_ERROR, adjtimex(2)

NEEDED: Final[Mapping[str, str]] = {
    "bash": "bash",
    "curl": "curl",
    "ssh": "openssh-client",
    "jq": "jq",
    "grep": "grep",
    **dict.fromkeys(("df", "head", "tail", "sort", "wc"), "coreutils"),
}
"""What the prompts use whatever the estate is made of, with the Debian package that has it."""

USEFUL: Final[Mapping[str, str]] = {"free": "procps", "ping": "iputils-ping", "ps": "procps", "ss": "iproute2"}
"""What they use too, and can do without."""

_COMMAND: Final = re.compile(r"`([a-z][a-z0-9_-]*) [^`]+`")
"""Code of more than one word; a single one may be a field's name as well."""


async def clock(case: Case, settings: Settings) -> Finding:
    """Compare the clock with the model API's, with the files of earlier days, and with what the kernel thinks of it."""
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
            f"{newest[1]} was written {behind:.0f} s from now, so the clock has been set back.",
            _SET_IT,
            kind=ErrorKind.RUNTIME,
        )
    if _kept() is False:
        return doubtful("Nobody keeps the clock: the kernel knows of no time source.", _SET_IT)
    return fine(f"{case.now:%Y-%m-%d %H:%M} UTC, and nothing contradicts it.")


def _newest(settings: Settings) -> tuple[float, Path] | None:
    """Return time and path of what was written last in the daemon's directories."""
    found: list[tuple[float, Path]] = []
    for directory in (settings.state_dir, settings.results_dir):
        try:
            found += [(entry.stat().st_mtime, entry) for entry in directory.iterdir()]
        except OSError:
            continue  # the check of the directories says so
    return max(found, default=None)


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex``, and room for its rest."""

    _fields_ = (("modes", ctypes.c_uint), ("rest", ctypes.c_long * 40))


def _kept() -> bool | None:
    """Return whether the kernel takes the clock for synchronised; ``None`` where it may not be asked."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.byref(_Timex()))
    return None if state < 0 else state != _NOT_KEPT


async def time_zones(_case: Case, settings: Settings) -> Finding:
    """Look whether time zones are known at all."""
    known = await anyio.to_thread.run_sync(zoneinfo.available_timezones)
    if settings.timezone != "UTC" and settings.timezone not in known:
        return failed(
            f"There is no data for the time zone {settings.timezone}.",
            "Install the package tzdata.",
        )
    if len(known) <= 1:
        return doubtful("No time zones are known but UTC.", "Install the package tzdata.")
    return fine(f"Times are meant in {settings.timezone}.")


async def tools(_case: Case, settings: Settings) -> Finding:
    """Look for the programs that the prompts speak of, on the PATH that sessions get."""

    def missing(names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if shutil.which(name, path=settings.path) is None)

    if lacking := missing(NEEDED):
        says = f"Sessions find no {', '.join(lacking)} on their PATH ({settings.path})."
        return failed(says, f"{_install(lacking)}, or correct PATH.", kind=ErrorKind.FILESYSTEM)
    if lacking := missing(USEFUL):
        return doubtful(f"Sessions would look better with {', '.join(lacking)}.", f"{_install(lacking)}.")
    lacking = missing(mentioned(tier.prompt_text for tier in settings.tiers))
    note = f" Not here, so what needs them cannot be looked at: {', '.join(lacking)}." if lacking else ""
    return fine(f"All {len(NEEDED) + len(USEFUL)} that every estate needs.{note}")


def _install(programs: Iterable[str]) -> str:
    packages = dict.fromkeys({**NEEDED, **USEFUL}[name] for name in programs)
    return f"Install what is missing (Debian: apt-get install {' '.join(packages)})"


def mentioned(prompts: Iterable[str]) -> frozenset[str]:
    """Return the programs of the command lines that prompts write as code."""
    return frozenset(word for prompt in prompts for word in _COMMAND.findall(prompt))
