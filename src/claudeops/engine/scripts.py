"""Which scripts a call names, with what stands in them: an answer of a person is bound to that, too."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.approval import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SHOWN_CHARACTERS: Final = 20_000
"""So much of a script is shown to people; the answer is bound to all of it."""

_MOST: Final = 50  # files; a call that names more is shown with the first ones and bound to all names
_CHUNK: Final = 1 << 20
_LARGEST: Final = 64 << 20  # bytes that are read of one file; nobody reads such a script
_SUFFIXES: Final = (
    *(".sh", ".bash", ".zsh", ".py", ".pl", ".rb", ".js", ".mjs", ".ts", ".lua", ".php", ".awk", ".sed", ".jq"),
    *(".sql", ".mk", ".tf", ".hcl", ".yml", ".yaml", ".json", ".toml", ".conf"),
)
_BETWEEN: Final = regex.Pattern(rf"[{regex.SPACE}'\"`;|&<>(){{}}$=,]+")


def named_scripts(
    given: Mapping[str, object], *, own: Iterable[str], workdir: str, shown: Callable[[str], str]
) -> tuple[Script, ...]:
    """Return the scripts that the texts of a call's input name, in the order of their paths. Blocks on the disk.

    A script is a file that may be run or that steers what is run: executable, with a shebang, of a usual suffix, or in
    a directory of the session's ``own``, where it could be written. ``shown`` redacts.
    """
    found: dict[str, Script] = {}
    roots = tuple(os.path.realpath(root) for root in own)
    for path in _paths(given, workdir):
        if path not in found and len(found) < _MOST and (script := _script(path, roots, shown)) is not None:
            found[path] = script
    return tuple(found[path] for path in sorted(found))


def _paths(given: object, workdir: str) -> Iterator[str]:
    if isinstance(given, str):
        for word in dict.fromkeys(_BETWEEN.split(given)):
            if word and "\x00" not in word:
                yield os.path.realpath(f"{workdir}/{word}" if not word.startswith("/") else word)
    elif isinstance(given, dict):
        for value in given.values():
            yield from _paths(value, workdir)
    elif isinstance(given, list):
        for value in given:
            yield from _paths(value, workdir)


def _script(path: str, roots: tuple[str, ...], shown: Callable[[str], str]) -> Script | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            first = file.read(_CHUNK)
            if not _may_steer(path, about.st_mode, first, roots):
                return None
            digest = hashlib.sha256(first)
            read = len(first)
            while read < _LARGEST and (chunk := file.read(_CHUNK)):
                digest.update(chunk)
                read += len(chunk)
            digest.update(str(about.st_size).encode())  # what is not read counts by its length
        except OSError:
            return None
    text = shown(first.decode("utf-8", "replace"))[:SHOWN_CHARACTERS]
    return Script(path=path, sha256=digest.hexdigest(), text=text)


def _may_steer(path: str, mode: int, first: bytes, roots: tuple[str, ...]) -> bool:
    if any(path.startswith(f"{root}/") for root in roots) or first.startswith(b"#!"):
        return True
    return bool(mode & 0o111) or path.endswith(_SUFFIXES)
