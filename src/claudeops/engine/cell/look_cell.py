"""What the cells of looks have in common: a program with its libraries, bounds, and a trial at the daemon's start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from claudeops.domain.looks import LookCall

NULL: Final = ("--dev-bind", "/dev/null", "/dev/null")

_TRIAL_SECONDS: Final = 20.0
# Outside of the cell, which has no shell; the limits are inherited.
_BOUNDED: Final = 'ulimit -c 0; ulimit -v {}; ulimit -t {}; exec "$@" </dev/null'
_LIBRARY: Final = re.compile(r"(/\S+) \(0x")


class LookRefusedError(Exception):
    """A look cannot be run; ``str()`` says why, for the model to read."""


class LookCell(Protocol):
    """The cell in which one program runs for sessions."""

    @property
    def program(self) -> Path:
        """Where the program is, on the machine."""

    @property
    def wall_seconds(self) -> float:
        """How long one look may take, with the wait for others and for a session that reads slowly."""

    def command(self, look: LookCall) -> tuple[str, ...]:
        """Return a look's command line; raises `LookRefusedError` and `OSError`. Accesses the disk."""

    def sentence(self, look: LookCall, status: int, said: bytes) -> str:
        """Return what the session reads about a look beside its output, or "".

        ``said`` is the beginning of what the program wrote to standard error.
        """


@runtime_checkable
class ReadLines(Protocol):
    """A cell whose program prints lines, of which a session may not read everything."""

    def printed(self, line: bytes) -> bytes:
        """Return what a session reads of a line; neither has a newline."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program, by the name by which it is run, with its libraries, by those under which the loader looks for them."""

    path: Path
    libraries: tuple[Path, ...]

    def mounts(self) -> tuple[str, ...]:
        """Return the arguments that show it."""
        return tuple(word for file in (self.path, *self.libraries) for word in shown(file))


def find_program(name: str, path: str) -> Program | str | None:
    """Return a program on PATH, or the sentence why it cannot be used; None where it is not there. Starts a process."""
    program, ldd = shutil.which(name, path=path), shutil.which("ldd", path=path)
    if program is None:
        return None
    if ldd is None:
        return "there is no ldd on PATH"
    try:
        listed = run_trial([ldd, str(Path(program).resolve())])
    except (OSError, subprocess.SubprocessError) as error:
        return f"the libraries of {name} are not known: {error}"
    return Program(path=Path(program), libraries=tuple(map(Path, _LIBRARY.findall(listed))))


def shown(file: Path) -> tuple[str, ...]:
    """Return the arguments that show a file of the machine at its own place."""
    return ("--ro-bind", str(file.resolve()), str(file))


def bounded(command: Sequence[str], *, memory_mb: int, cpu_seconds: int) -> tuple[str, ...]:
    """Return a command line whose address space and computing time the kernel bounds."""
    return ("/bin/sh", "-c", _BOUNDED.format(memory_mb * 1024, cpu_seconds), "sh", *command)


def run_trial(command: Sequence[str]) -> str:
    """Run a command; return what it prints. Raises `OSError` and `subprocess.SubprocessError`."""
    done = subprocess.run(  # noqa: S603 - programs of the machine, with arguments of ours
        command,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        process_group=0,
        timeout=_TRIAL_SECONDS,
        check=True,
        text=True,
        errors="replace",
    )
    return done.stdout
