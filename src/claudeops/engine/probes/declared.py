"""What is to be watched: the operator's file and the manifests, read again when they change.

The file may lie on a disk that hangs, so it is read in a thread and within a bound. A wrong edit changes nothing but
the fault: the last good declaration serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies, dependencies_of
from claudeops.domain.probes.probe import Probe
from claudeops.engine.last_good import LastGood, look_again
from claudeops.errors import ConfigurationError
from claudeops.formats.probes.declaration import NO_DECLARATION, Declaration, read_probes
from claudeops.formats.probes.from_manifests import all_probes, derive
from claudeops.tasks import Threads
from claudeops.text import casefold_key
from claudeops.text.toml_file import TomlFault

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a probes file."""

_READ_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 1.0  # for the disk, of those who decide by what is declared
_FRESH_SECONDS: Final = 10.0  # within which a look is not repeated: twice the time after which a watch looks again

NO_FILE: Final = LastGood(NO_DECLARATION)
"""No probes file is there, which is no fault."""


class DeclaredNow(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared now."""

    probes: tuple[Probe, ...] = ()
    dependencies: Dependencies = NO_DEPENDENCIES
    fault: str = ""  # in the file; the rest is then as it was before
    is_whole: bool = True  # False: the repositories have not answered yet, so their manifests may declare more

    def watchable(self, kept: Container[str]) -> tuple[Probe, ...]:
        """Return the probes that are watched, where those in ``kept`` are on record.

        As long as a manifest may still declare what is on record, nothing new is watched.
        """
        return self.probes if self.is_whole else tuple(each for each in self.probes if each.name in kept)


NOTHING_DECLARED: Final = DeclaredNow()


def _no_estate() -> Estate:
    return NO_ESTATE


def allow_all(_text: str) -> str | None:
    """Refuse nothing."""
    return None


def read_file(path: Path, *, refuse_command: Callable[[str], str | None] = allow_all) -> Declaration:
    """Return what a probes file says; blocks. Raises `ConfigurationError`, whose text is a clause."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        fault = f"{path} cannot be read ({error.strerror}): let this user read the probes file"
        raise ConfigurationError(fault) from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path} is longer than {MOST_BYTES} bytes: write a shorter probes file")
    try:
        return read_probes(data.decode("utf-8-sig"), file=path.name, refuse_command=refuse_command)
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8: save the probes file as UTF-8") from None
    except TomlFault as error:
        raise ConfigurationError(f"{path}, line {error.line}: {error}") from None


class _MadeOf(msgspec.Struct, frozen=True):
    """What the latest probes were made of."""

    file: LastGood[Declaration]
    estate: Estate
    others: tuple[Probe, ...]


class DeclaredReader(msgspec.Struct, kw_only=True):
    """Reads what is declared, for one node: for its watch, if it has one, and for whoever reads the probes' rows."""

    file: Path | None = None  # it need not exist: then only the manifests declare probes
    estate: Callable[[], Estate] = _no_estate  # as last understood
    refuse_command: Callable[[str], str | None] = allow_all
    refuse_host: Callable[[str], str | None] = allow_all
    others: Callable[[], tuple[Probe, ...]] = tuple  # that another file of the operator's declares
    read_seconds: float = _READ_SECONDS
    monotonic: Callable[[], float] = time.monotonic
    _latest: _MadeOf | None = None
    _declared: DeclaredNow = NOTHING_DECLARED
    _returned: DeclaredNow | None = None  # by `changed`
    _looked_at: float | None = None
    _thread: Threads = msgspec.field(default_factory=lambda: Threads(most=1, joins=True))

    @property
    def latest(self) -> DeclaredNow | None:
        """What was declared at the last look; ``None``: there was none, or the repositories have not answered yet."""
        return self._declared if self._latest is not None and self._declared.is_whole else None

    def forget(self) -> None:
        """Have `changed` return what is declared once more, also where another look is under way."""
        self._returned = None

    async def changed(self) -> DeclaredNow | None:
        """Return what is declared now; ``None`` if that is what was returned before, or the disk does not answer."""
        await self._read_again(self.read_seconds)
        if self._latest is None or self._declared is self._returned:
            return None
        self._returned = self._declared
        return self._declared

    async def now(self) -> DeclaredNow:
        """Return what is declared, as far as it is known: read anew where nobody has looked for some seconds.

        A disk that does not answer keeps its caller for a second at most, and not at every call.
        """
        if self._looked_at is None or self.monotonic() - self._looked_at > _FRESH_SECONDS:
            await self._read_again(min(self.read_seconds, _WAIT_SECONDS))
        return self._declared

    async def watched(self, kept: Container[str]) -> tuple[Probe, ...]:
        """Return the probes that are watched, where those in ``kept`` are on record."""
        return (await self.now()).watchable(kept)

    async def dependencies(self) -> Dependencies:
        """Return which services need which others, as declared."""
        return (await self.now()).dependencies

    async def _read_again(self, seconds: float) -> None:
        self._looked_at = self.monotonic()
        look = partial(self._look, self._latest, self.estate(), self.others())
        try:
            made_of, declared = await self._thread.run(look, seconds=seconds, what="reading the probes file")
        except OSError:
            return  # what was declared before serves
        self._latest = made_of
        if declared is not None:
            self._declared = declared

    def _look(
        self, latest: _MadeOf | None, estate: Estate, others: tuple[Probe, ...]
    ) -> tuple[_MadeOf, DeclaredNow | None]:
        last = NO_FILE if latest is None else latest.file
        if self.file is not None:
            last = look_again(last, self.file, self._read, absent=NO_FILE)
        made_of = _MadeOf(last, estate, others)
        return made_of, None if made_of == latest else self._combine(made_of)

    def _combine(self, made_of: _MadeOf) -> DeclaredNow:
        declaration, estate = made_of.file.value, made_of.estate
        derived = derive(estate, defaults=declaration.defaults, refuse=self.refuse_host)
        taken = {casefold_key(probe.name) for probe in declaration.probes}
        own = (*declaration.probes, *(each for each in made_of.others if casefold_key(each.name) not in taken))
        probes = all_probes(own, derived.probes, estate)
        return DeclaredNow(
            probes=probes,
            dependencies=dependencies_of(probes, estate),
            fault=made_of.file.fault,
            is_whole=not estate.unread,
        )

    def _read(self, file: Path) -> Declaration:
        return read_file(file, refuse_command=self.refuse_command)
