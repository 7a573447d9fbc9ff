"""The machine's files as one session sees them, looked up for its gate.

A path is followed link by link in the session's own view: a link to ``/tmp/x`` leads into the session's ``/tmp``, and
what a mount covers is not there. Links in ``/proc`` are never followed, since they would lead to the daemon's own
process. Blocks on the disk: it runs where judging runs.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claudeops.engine.cell.bubblewrap import Mount, MountKind
from claudeops.text import regex

_MOST_LINKS: Final = 40  # as for Linux
_MOST_FOUND: Final = 1_000  # names for one pattern; the policy takes fewer
_PROC: Final = "/proc"
_WILD: Final = regex.Pattern(r"[*?\[]")
_PART: Final = regex.Pattern(r"(?s)\*|\?|\[[!^]?\]?[^\]]*\]|.")


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    """What a session sees of the files of this machine."""

    mounts: tuple[Mount, ...] | None = None  # None: all of the machine
    most_entries: int = 20_000  # of directories, looked at for one pattern
    _places: dict[str, Mount] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {str(mount.place): mount for mount in self.mounts or ()})

    @property
    def writable(self) -> tuple[str, ...]:
        """Return the places where the session may write, as far as they are mounts."""
        return tuple(place for place, mount in self._places.items() if mount.kind is MountKind.WRITABLE)

    def resolve(self, path: str) -> str:
        """Return an absolute path without links, as the session would be led; what is not there stays as written."""
        done, rest, links = "/", path.split("/")[::-1], 0
        while rest:
            name = rest.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                done = posixpath.dirname(done)
                continue
            done = posixpath.join(done, name)
            target = None if done == _PROC or done.startswith(f"{_PROC}/") else self._link(done)
            if target is None:
                continue
            links += 1
            if links > _MOST_LINKS:
                return path
            rest += target.split("/")[::-1]
            done = "/" if target.startswith("/") else posixpath.dirname(done)
        return done

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to a regular file, or to nothing."""
        outside = self.outside(self.resolve(path))
        try:
            return outside is None or stat.S_ISREG(Path(outside).lstat().st_mode)
        except OSError:
            return True

    def expand(self, pattern: str) -> tuple[str, ...] | None:
        """Return the paths that an absolute pattern finds, in the order of their bytes; None: too many to look at."""
        found = ["/"]
        looked_at = 0
        for part in pattern.strip("/").split("/"):
            if not _WILD.search(part):
                found = [posixpath.join(each, part) for each in found]
                continue
            expression = _expression(part)
            names: list[str] = []
            for directory in found:
                for name in self._names(directory):
                    looked_at += 1
                    if looked_at > self.most_entries or len(names) > _MOST_FOUND:
                        return None
                    if (name[0] != "." or part[0] == ".") and expression.fullmatch(name):
                        names.append(posixpath.join(directory, name))
            found = names
        if pattern.endswith("/"):
            return tuple(f"{each}/" for each in sorted(found) if self._is_directory(each))
        listed = _WILD.search(pattern.rpartition("/")[2])  # then the names come from the disk
        return tuple(sorted(each for each in found if listed or self._is_there(each)))

    def _names(self, directory: str) -> Iterator[str]:
        """Yield the names in a directory that a text can hold."""
        outside = self.outside(self.resolve(directory))
        try:
            with os.scandir(outside or "/nonexistent") as entries:
                yield from (entry.name for entry in entries if entry.name.isprintable())
        except OSError:
            return

    def _is_there(self, path: str) -> bool:
        outside = self.outside(posixpath.join(self.resolve(posixpath.dirname(path)), posixpath.basename(path)))
        return outside is not None and os.path.lexists(outside)

    def _is_directory(self, path: str) -> bool:
        real = self.resolve(path)
        mount, outside = self._places.get(real), self.outside(real)
        return (mount is not None and mount.kind is MountKind.EMPTY) or (outside is not None and Path(outside).is_dir())

    def _link(self, path: str) -> str | None:
        """Return where a link leads; None for what is no link."""
        mount = self._places.get(path)
        if mount is not None and mount.kind is MountKind.LINK:
            return str(mount.source)
        outside = self.outside(path)
        try:
            return None if outside is None else str(Path(outside).readlink())
        except PermissionError:  # somebody else may be led anywhere from here
            return _PROC
        except OSError:
            return None

    def outside(self, path: str) -> str | None:
        """Return where we reach a path without links; None where the session sees nothing there."""
        if self.mounts is None:
            return path
        place = path
        while (mount := self._places.get(place)) is None and place != "/":
            place = posixpath.dirname(place)
        if mount is None or mount.kind is MountKind.EMPTY:
            return None
        return posixpath.normpath(posixpath.join(mount.source, posixpath.relpath(path, place)))


MACHINE: Final = SessionView()
"""All of this machine."""


def _expression(part: str) -> regex.Pattern[str]:
    """Return a pattern for one name as an expression (glob(7))."""
    written = ""
    for found in _PART.finditer(part):
        piece = found[0]
        if piece == "*":
            written += ".*"
        elif piece == "?":
            written += "."
        elif len(piece) > 1:
            inside = piece[1:-1]
            negated = inside[:1] in {"!", "^"}
            letters = regex.sub(r"([\\\[\]^&~|])", lambda letter: f"\\{letter[1]}", inside[negated:])
            written += f"[{'^' if negated else ''}{letters}]"
        else:
            written += regex.escape(piece)
    try:
        regex.check(f"(?s){written}")
    except regex.ExpressionError:  # a range whose ends are not in order matches nothing
        return regex.Pattern(r"[^\s\S]")
    return regex.Pattern(f"(?s){written}")
