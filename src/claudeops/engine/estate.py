"""The estate as the daemon reads it: the repositories' manifests, looked at anew before every session.

Repositories may lie on a disk that hangs, and may hold anything. So they are read in a thread, within a bound; what
cannot be read in time leaves the estate as it was last understood, and what was read until then need not be read again.

Of each repository count its manifest and its compose files, at the top and two directories below; what is passed over
is named. Only regular files are read, and no link leads out of the repository that it stands in. A repository that
cannot be read, or makes no sense, is a fault of its own and stops no other one.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.clock import Clock
from claudeops.domain.estate.estate import NO_ESTATE, UNREAD, Estate, Fault, Manifest, ProbedPlaces, StatementSource
from claudeops.domain.events import EventLevel, NewEvent, of_node
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.compose import Compose, parse_compose, with_compose
from claudeops.formats.estate.manifest import FILE, MOST_CHARACTERS, parse_manifest
from claudeops.logs import LogEvent, Logger
from claudeops.structs import replace
from claudeops.tasks import Threads, check_abandoned
from claudeops.text import regex
from claudeops.text.escapes import visible

if TYPE_CHECKING:  # SQL: commands that only read the manifests do without
    from claudeops.store.probes import Probes

MOST_REPOSITORIES: Final = 64
MOST_BYTES: Final = MOST_CHARACTERS
"""Of one file."""

MOST_COMPOSE_FILES: Final = 16  # of one repository
_MOST_ENTRIES: Final = 2000  # of one directory that are looked at
_MOST_DIRECTORIES: Final = 1000  # of one repository that are looked into
_DEEPEST: Final = 2  # directories below a repository

_READ_SECONDS: Final = 10.0
_READERS: Final = Threads(most=2)
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # to open a pipe without waiting for a writer
_COMPOSE: Final = regex.Pattern(r"(?:docker-)?compose(?:[._-][\w.-]+)?\.ya?ml")
_PASSED_OVER: Final = frozenset({"node_modules", "vendor", "venv"})
_LOGGED: Final = 10  # faults that the log writes out
_NAMED: Final = 5  # sentences that the event quotes

_Stamp = tuple[tuple[str, int, int, int, int], ...]


def nothing(_repos_dir: Path) -> Estate:
    """Read no estate."""
    return NO_ESTATE


def read_estate(repos_dir: Path) -> Estate:
    """Return the estate that the repositories describe, read once. Raises `OSError` when the directory is not there."""
    return EstateReader().read(repos_dir)


class Estates:
    """The estate as last understood.

    ``probed`` reads the hosts of the operator's probes. They may lie on another disk, so each of the two readings
    leaves what the other one found.
    """

    def __init__(
        self,
        repos_dir: Path = Path(),
        *,
        read: Callable[[Path], Estate] = nothing,
        probed: Callable[[], ProbedPlaces] | None = None,
    ) -> None:
        self.latest = UNREAD
        self._repos_dir = repos_dir
        self._read = read
        self._probed = probed
        self._prober = Threads(most=1)
        self._faults: frozenset[Fault] = frozenset()  # that the log knows

    async def look(self, log: Logger) -> Estate:
        """Read the estate anew and return it; the last one if the disk does not answer."""
        probed = await self._hosts(log)
        try:
            read = await _READERS.run(
                lambda: self._read(self._repos_dir),
                seconds=_READ_SECONDS,
                what=f"reading the manifests in {self._repos_dir}",
            )
        except FileNotFoundError as error:
            log.warning(LogEvent.ESTATE_NOT_READ, error=str(error))
            # Without repositories there are no manifests. Those that were there before still hold.
            self.latest = (NO_ESTATE if self.latest.unread else self.latest).with_probes(probed)
            return self.latest
        except OSError as error:
            log.warning(LogEvent.ESTATE_NOT_READ, error=str(error))
            self.latest = self.latest.with_probes(probed)
            return self.latest
        self.latest = read.with_probes(probed)
        faults = self.latest.faults
        if faults and frozenset(faults) != self._faults:
            first = sorted(faults, key=lambda fault: not fault.unbound)[:_LOGGED]
            log.warning(LogEvent.ESTATE_FAULTY, count=len(faults), faults=[str(fault) for fault in first])
        self._faults = frozenset(faults)
        return self.latest

    async def _hosts(self, log: Logger) -> ProbedPlaces:
        if self._probed is None:
            return ProbedPlaces()
        try:
            return await self._prober.run(self._probed, seconds=_READ_SECONDS, what="reading the probes file")
        except OSError as error:
            log.warning(LogEvent.ESTATE_NOT_READ, error=str(error))
            return ProbedPlaces(hosts=self.latest.probed, ports=self.latest.probed_ports)


class UnboundRules(msgspec.Struct, kw_only=True):
    """Keeps one event about the sentences of manifests that read like prohibitions and forbid nothing."""

    events: Probes
    clock: Clock
    redact: Callable[[str], str]
    node: str = ""  # the machine that reads them
    _noted: tuple[Fault, ...] | None = None  # None: an earlier daemon may have noted some

    async def note(self, estate: Estate) -> None:
        """Raise the event where the sentences have changed, and end it with the last one; raises `StoreError`."""
        unbound = estate.unbound
        if estate.unread or unbound == self._noted:
            return
        named = "; ".join(map(str, unbound[:_NAMED]))
        rest = f"; and {len(unbound) - _NAMED} more, which `claudeops doctor` names" if len(unbound) > _NAMED else ""
        message = visible(self.redact(f"Manifests seem to forbid what no gate denies: {named}{rest}."))
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint="estate:unbound")
        await self.events.note(of_node(event, self.node), over=not unbound, now=self.clock.now())
        self._noted = unbound


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as it was last read."""

    stamp: _Stamp
    manifest: Manifest | None  # None: it says nothing
    good: Manifest | None = None  # its manifest as it could last be read, without compose files
    passed_over: str = ""  # what of it is not looked at, a sentence with the remedy


class _Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All repositories as they were last read, and the estate that was made of them."""

    known: Mapping[str, _Known] = msgspec.field(default_factory=dict)
    manifests: tuple[Manifest, ...] = ()
    estate: Estate = NO_ESTATE


class EstateReader:
    """Reads repositories, and those that have not changed only once.

    Several sessions may start at once, and an abandoned reading may still go on: each makes its own values and puts
    them in place at its end, as one.
    """

    def __init__(self) -> None:
        self._last = _Reading()

    def read(self, repos_dir: Path) -> Estate:
        """Return the estate. Raises `OSError` when the directory itself cannot be read."""
        last = self._last
        known: dict[str, _Known] = {}
        names = sorted(name for name in _names(repos_dir) if (repos_dir / name).is_dir())
        found = []
        for name in names[:MOST_REPOSITORIES]:
            check_abandoned()
            manifest = _repository(repos_dir, name, last.known.get(name), known)
            found += [manifest] if manifest is not None else []
        if len(names) > MOST_REPOSITORIES:
            left = names[MOST_REPOSITORIES]
            found.append(
                _faulty(left, left, f"only {MOST_REPOSITORIES} repositories are read, and not this one: join some")
            )
        manifests = tuple(found)
        unchanged = len(manifests) == len(last.manifests) and all(map(_is, manifests, last.manifests))
        estate = last.estate if unchanged else combine(manifests)
        self._last = _Reading(known=known, manifests=manifests, estate=estate)
        return estate


def _repository(repos_dir: Path, name: str, before: _Known | None, known: dict[str, _Known]) -> Manifest | None:
    """Return what a repository says; what was read of it is put into ``known``."""
    root = repos_dir / name
    try:
        files, passed_over = _files(root)
        stamp = tuple(_stamp(root, path) for path in files)
    except OSError as error:
        sentence = f"this repository cannot be read ({error.strerror}): let the daemon's user read it"
        if before is None:
            return _faulty(name, name, sentence)
        known[name] = before  # what it forbade is still forbidden
        return _with(before.manifest or Manifest(repository=name), name, sentence)
    if before is None or before.stamp != stamp or before.passed_over != passed_over:
        before = replace(_read(root, name, files, stamp, before.good if before else None), passed_over=passed_over)
        if passed_over:
            before = replace(before, manifest=_with(before.manifest or Manifest(repository=name), name, passed_over))
    known[name] = before
    return before.manifest


def _is(one: Manifest, other: Manifest) -> bool:
    return one is other


def _read(root: Path, name: str, files: list[str], stamp: _Stamp, good: Manifest | None) -> _Known:
    """Return what the files of a repository say, the manifest first.

    A manifest that can no longer be read says what it said last (``good``): an edit that went wrong allows nothing.
    """
    if not files:
        return _Known(stamp=stamp, manifest=None)
    good = good if FILE in files else None
    manifest = good or Manifest(repository=name)
    composed: list[Compose] = []
    for path in files:
        check_abandoned()
        place = f"{name}/{path}"
        try:
            text = _text(root, path)
            if path == FILE:
                digest = hashlib.sha256(text.encode()).hexdigest()
                manifest = good = replace(parse_manifest(text, repository=name, path=place), digest=digest)
            else:
                composed.append(parse_compose(text, path=place))
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            manifest = _with(manifest, place, "this file is not UTF-8: save it as UTF-8", line)
        except OSError as error:
            manifest = _with(manifest, place, f"this file cannot be read ({error.strerror}): make it a plain file here")
        except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
            # A fault of ours. It may not stop every session because of one repository.
            manifest = _with(
                manifest, place, f"claudeops fails on this file ({type(error).__name__}): please report it"
            )
    manifest = with_compose(manifest, composed)
    read = {f"{name}/{path}" for path in files}
    others = (fault for file in composed for path, fault in file.others if path not in read)
    return _Known(stamp=stamp, manifest=replace(manifest, faults=(*manifest.faults, *others)), good=good)


def _with(manifest: Manifest, path: str, sentence: str, line: int | None = None) -> Manifest:
    fault = Fault(source=StatementSource(path=path, line=line), sentence=sentence)
    return replace(manifest, faults=(*manifest.faults, fault))


def _faulty(repository: str, path: str, sentence: str) -> Manifest:
    return _with(Manifest(repository=repository), path, sentence)


# --- files --------------------------------------------------------------------------------------------


def _names(directory: Path) -> list[str]:
    """Return the names in a directory, hidden ones left out."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES) if not entry.name.startswith(".")]


def _files(root: Path) -> tuple[list[str], str]:
    """Return which files of a repository are read, its manifest first, and what is passed over, in a sentence."""
    manifest = [FILE] if os.path.lexists(root / FILE) else []
    composed: list[str] = []
    level, looked = [""], 0
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for place in level[: _MOST_DIRECTORIES - looked]:
            check_abandoned()
            files, directories = _entries(root, place)
            composed += files
            below += directories
        looked += len(level)
        level = below
    passed_over = ""
    if looked > _MOST_DIRECTORIES:
        passed_over = f"only {_MOST_DIRECTORIES} directories are looked into for compose files: divide this repository"
    if len(composed) > MOST_COMPOSE_FILES:
        left = composed[MOST_COMPOSE_FILES]
        passed_over = f"only {MOST_COMPOSE_FILES} compose files are read, and not {left}: divide this repository"
    return manifest + composed[:MOST_COMPOSE_FILES], passed_over


def _entries(root: Path, place: str) -> tuple[list[str], list[str]]:
    """Return the compose files in a directory of a repository, and the directories that may hold more."""
    try:
        with os.scandir(root / place) as entries:
            found = sorted(itertools.islice(entries, _MOST_ENTRIES), key=lambda entry: entry.name)
    except OSError:
        if not place:
            raise
        return [], []  # a directory that nobody may look into need not hold anything of ours
    files = [f"{place}{entry.name}" for entry in found if _COMPOSE.fullmatch(entry.name)]
    inner = (entry for entry in found if not entry.name.startswith(".") and entry.name not in _PASSED_OVER)
    return files, [f"{place}{entry.name}/" for entry in inner if entry.is_dir(follow_symlinks=False)]


def _stamp(root: Path, path: str) -> tuple[str, int, int, int, int]:
    try:
        found = (root / path).stat()
    except OSError as error:
        return (path, error.errno or -1, 0, 0, 0)
    return (path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def _text(root: Path, path: str) -> str:
    """Return the text of a file. Raises `OSError` for anything but a regular file within the repository."""
    home = os.path.realpath(root)
    _refuse_outside(os.path.realpath(root / path), home, path)
    _refuse_odd((root / path).stat(), path)  # even opening a device may do something
    descriptor = os.open(root / path, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_odd(os.fstat(descriptor), path)
        # A link may have changed since: what was opened is what counts.
        _refuse_outside(os.path.realpath(f"/proc/self/fd/{descriptor}"), home, path)
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"longer than {MOST_BYTES // 1024} KiB", path)
    return content.decode("utf-8-sig")


def _refuse_odd(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def _refuse_outside(real: str, home: str, path: str) -> None:
    if os.path.commonpath((real, home)) != home:
        raise OSError(errno.ELOOP, "a link leads out of the repository", path)
