"""The library as the daemon reads it: the built-in texts and the repositories' ``.claude-ops``, before every session.

Repositories hold what anybody wrote and may lie on a disk that hangs. So each is read in a thread of its own, within a
bound of time, of files and of bytes. Directories and files are opened one below the other and no link is followed, so
nothing outside the repository is read, whoever changes it meanwhile. One repository never stops the others: one that
does not answer, and a file that was good before, serve as they were last read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.domain.estate.estate import Fault, StatementSource
from claudeops.engine.prompt_files import Notices
from claudeops.formats.library import (
    BUILT_IN,
    MOST_BYTES,
    NO_LIBRARY,
    Library,
    LibraryKind,
    combine,
    merge,
    origin_fault,
    parse,
)
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads, check_abandoned

DIRECTORY: Final = ".claude-ops"
"""Where a repository keeps its texts."""

MOST_FILES: Final = 64  # of one kind in one repository
_MOST_ENTRIES: Final = 1_000  # of a directory that are looked at
_MOST_REPOSITORIES: Final = 500
_REPOSITORY_SECONDS: Final = 5.0
_ALL_SECONDS: Final = 10.0
_AT_ONCE: Final = 8
_READERS: Final = Threads(most=4 * _AT_ONCE)  # those that hang in the kernel count on
_PARSED: Final = 256  # files, of some kilobytes each: to parse one takes longer than to read it, and few change
_SHOWN_FAULTS: Final = 3  # in an event; the log has them all
_SHOWN_CHARACTERS: Final = 60
_SUFFIX: Final = ".md"
_IGNORED: Final = "README.md"
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe that nobody writes to would keep us waiting, and a link may lead anywhere."""

Files = Mapping[str, Library]  # by path, as faults name it


class LibraryPlace(msgspec.Struct, frozen=True):
    """Where the texts of one origin lie."""

    directory: Path
    repository: str | None = None  # its name; None: the built-in library

    @property
    def label(self) -> str:
        """The name to show: that of a directory may hold anything."""
        if self.repository is None:
            return BUILT_IN
        return self.repository if origin_fault(self.repository) is None else _shown(self.repository)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was last read of one place."""

    files: Files = msgspec.field(default_factory=dict)  # the last good reading of each file that is still there
    library: Library = NO_LIBRARY


class Libraries:
    """The library as last read."""

    def __init__(self, builtin: Path | None = None, repos_dir: Path | None = None, *, node: str = "") -> None:
        """Read the built-in texts from ``builtin``, those of repositories below ``repos_dir``; ``None``: no texts.

        ``node`` is the machine that reads them.
        """
        self.latest = NO_LIBRARY
        self.notices = Notices(node)
        self._builtin = () if builtin is None else (LibraryPlace(builtin),)
        self._repos_dir = repos_dir
        self._known: dict[LibraryPlace, _Known] = {}

    async def look(self, log: Logger) -> Library:
        """Read all texts anew and return the library; what does not answer serves as it was last read."""
        listed = await self._repositories(log)
        before = self._known
        stay = [place for place in before if place.repository is not None] if listed is None else []
        # A dictionary of this call's own: another session's look may be under way.
        known = {place: before.get(place) or _Known() for place in (*self._builtin, *(listed or ()), *stay)}
        read = {*stay}
        slots = anyio.Semaphore(_AT_ONCE)

        async def look_at(place: LibraryPlace) -> None:
            async with slots:
                known[place] = await _read(place, known[place])
            read.add(place)

        with anyio.move_on_after(_ALL_SECONDS):
            async with anyio.create_task_group() as tasks:
                for place in known.keys() - stay:
                    tasks.start_soon(look_at, place)
        for place in known.keys() - read:
            known[place] = _unread(place, known[place], f"all of the library took longer than {_ALL_SECONDS:g} s")
        self._known = known
        for place in (*known, *(before.keys() - known.keys())):
            self._tell(place, known[place].library.faults if place in known else (), log)
        builtin = [one.library for place, one in known.items() if place.repository is None]
        others = [one.library for place, one in known.items() if place.repository is not None]
        self.latest = combine(merge(builtin), others)
        return self.latest

    async def _repositories(self, log: Logger) -> tuple[LibraryPlace, ...] | None:
        """Return the places of all repositories; ``None`` if their directory does not answer, or is gone."""
        if (repos_dir := self._repos_dir) is None:
            return ()
        try:
            names = await _READERS.run(
                partial(_listed, repos_dir), seconds=_REPOSITORY_SECONDS, what=f"listing {repos_dir}"
            )
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._known.keys() <= {*self._builtin}:
                return ()  # no repositories so far either: doctor says so
            log.warning(LogEvent.LIBRARY_NOT_READ, path=str(repos_dir), error=str(error))
            return None
        return tuple(LibraryPlace(repos_dir / name, name) for name in names)

    def _tell(self, place: LibraryPlace, faults: tuple[Fault, ...], log: Logger) -> None:
        condition = f"library:{place.label}"
        if not faults:
            self.notices.over(condition)
            return
        shown = "; ".join(str(fault) for fault in faults[:_SHOWN_FAULTS])
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        if self.notices.tell(condition, f"Not all of the library can be used as it is written: {shown}{more}."):
            log.warning(LogEvent.LIBRARY_FAULTY, origin=place.label, faults=[str(fault) for fault in faults])


async def _read(place: LibraryPlace, before: _Known) -> _Known:
    """Return what is in a place now; of what cannot be used or read, the texts as they were before."""
    try:
        files = await _READERS.run(
            partial(read_files, place), seconds=_REPOSITORY_SECONDS, what=f"reading {place.label}"
        )
    except OSError as error:
        return _unread(place, before, error.strerror or str(error))
    good = {path: read if read.texts else before.files.get(path, NO_LIBRARY) for path, read in files.items()}
    texts = merge(Library(texts=read.texts) for read in good.values())
    faults = tuple(fault for read in files.values() for fault in read.faults)
    return _Known(
        files={path: read for path, read in good.items() if read.texts},
        library=Library(texts=texts.texts, faults=faults + texts.faults),
    )


def _unread(place: LibraryPlace, before: _Known, reason: str) -> _Known:
    fault = _fault(place.label, f"it could not be read ({reason}): what was last read of it serves")
    return _Known(files=before.files, library=Library(texts=before.library.texts, faults=(fault,)))


# --- the disk: called in a thread ---------------------------------------------------------------------


def _listed(repos_dir: Path) -> list[str]:
    with os.scandir(repos_dir) as entries:
        names = sorted(entry.name for entry in islice(entries, _MOST_ENTRIES))
    return [name for name in names if not name.startswith(".")][:_MOST_REPOSITORIES]


def read_files(place: LibraryPlace) -> Files:
    """Return the files of one place with what is in them; raises `OSError` when its directory cannot be opened."""
    directory, path = place.directory, f"{place.directory}/"
    steps: tuple[str, ...] = ()
    if place.repository is not None:
        directory = place.directory.resolve()
        if not directory.is_dir() or not _is_there(directory / DIRECTORY):
            return {}
        path, steps = f"{place.label}/", (DIRECTORY,)
        if (reason := _refused(place.repository, directory, place.directory.parent)) is not None:
            return {place.label: Library(faults=(_fault(place.label, reason),))}
    found: dict[str, Library] = {}
    with contextlib.ExitStack() as held:
        above = _opened(held, str(directory), None)
        for name in steps:
            path += f"{name}/"
            below = _directory(held, name, above, path, found)
            if below is None:
                return found
            above = below
        for kind in LibraryKind:
            texts = _directory(held, kind.value, above, f"{path}{kind}/", found)
            if texts is not None:
                found |= _read_kind(texts, kind, place.label, f"{path}{kind}/")
    return found


def _refused(repository: str, directory: Path, repos_dir: Path) -> str | None:
    """Return why a repository cannot be used, and the remedy; ``directory`` is its real path."""
    root = repos_dir.resolve()
    if directory == root or not directory.is_relative_to(root):
        return f"it is a link that leads out of {repos_dir}: put the repository itself there"
    return origin_fault(repository)


def _read_kind(directory: int, kind: LibraryKind, origin: str, path: str) -> Files:
    found: dict[str, Library] = {}
    with os.scandir(directory) as entries:
        names = sorted(entry.name for entry in islice(entries, _MOST_ENTRIES) if _is_text(entry.name))
    for name in names[:MOST_FILES]:
        check_abandoned()
        shown = f"{path}{name if name.isascii() and name.isprintable() else _shown(name)}"
        try:
            content = _content(name, directory)
        except UnicodeDecodeError:
            found[shown] = Library(faults=(_fault(shown, "it is not UTF-8: save it as UTF-8"),))
        except OSError as error:
            found[shown] = Library(faults=(_fault(shown, error.strerror or str(error)),))
        else:
            found[shown] = _parsed(content, kind, origin, shown)
    if len(names) > MOST_FILES:
        found[path] = Library(faults=(_fault(path, f"it has more than {MOST_FILES} texts: the rest is left out"),))
    return found


@lru_cache(maxsize=_PARSED)
def _parsed(content: str, kind: LibraryKind, origin: str, path: str) -> Library:
    return parse(content, kind=kind, origin=origin, path=path)


def _content(name: str, directory: int) -> str:
    """Return the text of a file; raises `OSError`, with what is wrong and the remedy, and `UnicodeDecodeError`."""
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(0, "it is a link, and links are not followed: put the file itself there")
    if not stat.S_ISREG(mode):  # before opening: that alone can start something at a device
        raise OSError(0, "it is no file: remove it")
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except OSError as error:
        raise OSError(0, f"it cannot be read ({error.strerror}): let the daemon's user read it") from None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no file: remove it")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(0, f"it is longer than {MOST_BYTES} bytes: shorten it, or make it two")
    return data.decode()


def _directory(held: contextlib.ExitStack, name: str, above: int, path: str, found: dict[str, Library]) -> int | None:
    """Return the descriptor of a directory; ``None`` if there is none, or it cannot be used, which is a fault then."""
    try:
        return _opened(held, name, above)
    except FileNotFoundError:
        return None
    except NotADirectoryError:  # also for a link
        reason = "it is no directory of its own, and links are not followed: put the directory itself there"
    except OSError as error:
        reason = f"it cannot be read ({error.strerror}): let the daemon's user read it"
    found[path] = Library(faults=(_fault(path, reason),))
    return None


def _opened(held: contextlib.ExitStack, name: str, above: int | None) -> int:
    descriptor = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=above)
    held.callback(os.close, descriptor)
    return descriptor


def _is_text(name: str) -> bool:
    return name.endswith(_SUFFIX) and not name.startswith(".") and name != _IGNORED


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading it says why not
    return True


def _fault(path: str, sentence: str) -> Fault:
    return Fault(source=StatementSource(path=path), sentence=sentence)


def _shown(name: str) -> str:
    return ascii(name)[:_SHOWN_CHARACTERS]
