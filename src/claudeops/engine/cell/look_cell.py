"""What the cells of looks have in common: a program with its libraries, bounds, and a trial at the daemon's start."""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import LAUNCHER
from claudeops.engine.cell.cgroups import MIB

RunBounded: TypeAlias = Callable[[Sequence[str], int, int], str]
"""Runs a command that a launcher leads, for a trial, with so many MiB of address space and seconds of computing time;
returns what it prints. Raises `OSError` and `subprocess.SubprocessError`."""

NULL: Final = ("--dev-bind", "/dev/null", "/dev/null")

_TRIAL_SECONDS: Final = 20.0
_LATE_SECONDS: Final = 20.0  # by which a trial that was ended may be over
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}  # of a trial
# Outside of the cell, which has no shell; the limits are inherited.
_BOUNDED: Final = 'ulimit -c 0; ulimit -v {}; ulimit -t {}; exec "$@" </dev/null'
_LIBRARY: Final = re.compile(r"(/\S+) \(0x")

_HEAD_BYTES: Final = 4096
_ELF: Final = b"\x7fELF\x02\x01"  # of 64 bits, the least significant byte first
_ELF_HEADER: Final = Struct("<32xQ14xHH")  # where its table of segments is, an entry's size, their number
_ELF_SEGMENT: Final = Struct("<I4xQ16xQ")  # its kind, where its content is, and how many bytes of it
_PT_INTERP: Final = 3


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


class FoundLooks(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon can run for sessions."""

    cells: Mapping[str, LookCell]  # by program
    why: Mapping[str, str]  # why a program that is installed, or git, cannot be run

    def known(self) -> dict[str, str]:
        """Return the programs for the policy, each with "" or the sentence why it cannot be run."""
        return {**dict.fromkeys(self.cells, ""), **self.why} if self.cells else {}


NO_LOOKS: Final = FoundLooks(cells={}, why={})


def find_program(name: str, path: str) -> Program | str | None:
    """Return a program on PATH, or the sentence why it cannot be used; None where it is not there. Starts a process."""
    program = shutil.which(name, path=path)
    if program is None:
        return None
    try:
        lister = _lister(Path(program), path)
        if lister is None:
            return "there is no ldd on PATH"
        listed = run_trial([*lister, str(Path(program).resolve())])
    except (OSError, subprocess.SubprocessError) as error:
        return f"the libraries of {name} are not known: {error}"
    return Program(path=Path(program), libraries=tuple(map(Path, _LIBRARY.findall(listed))))


def _lister(program: Path, path: str) -> tuple[str, ...] | None:
    """Return what lists a program's libraries: the loader that it names, or ldd, a script that starts six processes."""
    with program.open("rb") as file:
        loader = _loader(file.read(_HEAD_BYTES))
    if loader is not None:
        return loader, "--list"
    ldd = shutil.which("ldd", path=path)
    return None if ldd is None else (ldd,)


def _loader(head: bytes) -> str | None:
    """Return the loader that the beginning of a program names: elf(5). None where that is no ordinary program."""
    if head[:6] != _ELF or len(head) < _ELF_HEADER.size:
        return None
    table, size, count = _ELF_HEADER.unpack_from(head)
    for place in range(table, min(table + size * count, len(head) - _ELF_SEGMENT.size), size or len(head)):
        kind, start, length = _ELF_SEGMENT.unpack_from(head, place)
        if kind == _PT_INTERP:
            return os.fsdecode(head[start : start + length].rstrip(b"\0")) or None
    return None


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
        env=_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        process_group=0,
        timeout=_TRIAL_SECONDS,
        check=True,
        text=True,
        errors="replace",
    )
    return done.stdout


@contextmanager
def trials() -> Iterator[RunBounded]:
    """Yield what runs many commands that a launcher leads, in forks of one: its start takes longer than the rest."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        try:
            forking = subprocess.Popen(  # noqa: S603 - a program of ours
                (*LAUNCHER, "many"),
                env=_ENVIRONMENT,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError:
            yield _run_bounded  # each command says what is wrong
            return
        with forking:
            theirs.close()
            ours.settimeout(_TRIAL_SECONDS + _LATE_SECONDS)
            try:
                yield partial(_run_forked, ours)
            finally:
                ours.close()  # which ends it


def _run_bounded(command: Sequence[str], memory_mb: int, cpu_seconds: int) -> str:
    return run_trial(bounded(command, memory_mb=memory_mb, cpu_seconds=cpu_seconds))


def _run_forked(door: socket.socket, command: Sequence[str], memory_mb: int, cpu_seconds: int) -> str:
    limits = (str(math.ceil(_TRIAL_SECONDS)), str(memory_mb * MIB), str(cpu_seconds))
    content = b"".join(os.fsencode(text) + b"\0" for text in (*limits, *command[len(LAUNCHER) :]))
    with TemporaryFile() as printed, TemporaryFile() as errors:
        try:
            socket.send_fds(door, [b"\n"], [printed.fileno(), errors.fileno()])
            door.sendall(len(content).to_bytes(8, "big") + content)
            answer = door.recv(4, socket.MSG_WAITALL)
            if not answer:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        except OSError:
            door.close()  # an answer that comes after all is none to the next message
            raise
        texts = [_whole(file) for file in (printed, errors)]
    status = int.from_bytes(answer, sys.byteorder, signed=True)
    if status == -signal.SIGALRM:
        raise subprocess.TimeoutExpired(command, _TRIAL_SECONDS)
    if status != 0:
        raise subprocess.CalledProcessError(status, command, *texts)
    return texts[0]


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
