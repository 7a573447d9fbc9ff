"""What is to be watched: the operator's file and the manifests, read again when they change.

The file may lie on a disk that hangs, so it is read in a thread and within a bound. A wrong edit changes nothing but
the fault that is told: the last good declaration serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies, dependencies_of
from claudeops.domain.probes.probe import Probe
from claudeops.formats.probes.declaration import NO_DECLARATION, Declaration, read_probes
from claudeops.formats.probes.derived import all_probes, derive
from claudeops.tasks import Threads
from claudeops.text import casefold_key
from claudeops.text.toml_file import TomlFault

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a probes file."""

_READ_SECONDS: Final = 10.0

Signature = tuple[int, int, int, int]
"""Of a file: its device, number, size and time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredNow:
    """What is declared now."""

    probes: tuple[Probe, ...] = ()
    dependencies: Dependencies = NO_DEPENDENCIES
    fault: str = ""  # in the file; the rest is then as it was before
    is_whole: bool = True  # False: the repositories have not answered yet, so their manifests may declare more


def _no_estate() -> Estate:
    return NO_ESTATE


def allow_all(_text: str) -> str | None:
    """Refuse nothing."""
    return None


def read_file(path: Path, *, refuse_command: Callable[[str], str | None] = allow_all) -> Declaration | str:
    """Return what a probes file says, or the sentence that says what is wrong with it; blocks."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}): let this user read the probes file"
    if len(data) > MOST_BYTES:
        return f"{path} is longer than {MOST_BYTES} bytes: write a shorter probes file"
    try:
        return read_probes(data.decode("utf-8-sig"), file=path.name, refuse_command=refuse_command)
    except UnicodeDecodeError:
        return f"{path} is not UTF-8: save the probes file as UTF-8"
    except TomlFault as fault:
        return f"{path}, line {fault.line}: {fault}"


def signature_of(path: Path) -> Signature | None:
    """Return what changes when a file does, ``None`` if it is not there; blocks. Raises `OSError`."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(kw_only=True, slots=True)
class DeclaredReader:
    """Reads what is declared, and notices that it has changed."""

    file: Path | None = None  # it need not exist: then only the manifests declare probes
    estate: Callable[[], Estate] = _no_estate  # as last understood
    refuse_command: Callable[[str], str | None] = allow_all
    refuse_host: Callable[[str], str | None] = allow_all
    others: Callable[[], tuple[Probe, ...]] = tuple  # that another file of the operator's declares
    _others: tuple[Probe, ...] = ()
    _signature: Signature | None = None
    _from: Estate | None = None  # the estate that the latest probes were made of; None: nothing was read yet
    _declaration: Declaration = NO_DECLARATION
    _fault: str = ""
    _thread: Threads = field(default_factory=lambda: Threads(most=1))

    async def changed(self) -> DeclaredNow | None:
        """Return what is declared now; ``None`` if that is what was returned before, or nobody can tell."""
        try:
            return await self._thread.run(self._read, seconds=_READ_SECONDS, what="reading the probes file")
        except OSError:
            return None  # the disk does not answer; what was declared before serves

    def _read(self) -> DeclaredNow | None:
        estate, signature, others = self.estate(), self._look(), self.others()
        if (estate, signature, others) == (self._from, self._signature, self._others):
            return None
        if signature != self._signature or self._from is None:
            found = NO_DECLARATION if self.file is None or signature is None else self._read_file(self.file)
            self._fault = found if isinstance(found, str) else ""
            self._declaration = self._declaration if isinstance(found, str) else found
        self._signature, self._from, self._others = signature, estate, others
        derived = derive(estate, defaults=self._declaration.defaults, refuse=self.refuse_host)
        taken = {casefold_key(probe.name) for probe in self._declaration.probes}
        own = (*self._declaration.probes, *(each for each in others if casefold_key(each.name) not in taken))
        probes = all_probes(own, derived.probes, estate)
        return DeclaredNow(
            probes=probes, dependencies=dependencies_of(probes, estate), fault=self._fault, is_whole=not estate.unread
        )

    def _read_file(self, file: Path) -> Declaration | str:
        return read_file(file, refuse_command=self.refuse_command)

    def _look(self) -> Signature | None:
        return None if self.file is None else signature_of(self.file)
