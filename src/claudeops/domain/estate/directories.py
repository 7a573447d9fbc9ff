"""The directories of this machine and others that a manifest names, wherever in its text: ``cd /srv/media && …``.

A path of a file that is YAML, as compose files are, names its directory. What stands within an address
(``https://shop.example/health``) or begins at somebody's home (``~/media``) names none.
"""

from __future__ import annotations

import posixpath
from typing import Final

from claudeops.domain.text import regex

_PATH: Final = regex.Pattern(r"""(?m)(?:^|[\s`'"(\[|=:,])((?:/[\w.@+-]+)+)""")
_MOST: Final = 500  # of one manifest
_LONGEST: Final = 500  # characters


def directories_in(text: str) -> tuple[str, ...]:
    """Return the directories that a text names, each once."""
    found: dict[str, None] = {}
    for path in _PATH.finditer(text):
        directory = _directory(path[1].rstrip("."))
        if directory and len(found) < _MOST:
            found[directory] = None
    return tuple(found)


def _directory(path: str) -> str:
    if len(path) > _LONGEST or ".." in path.split("/"):
        return ""
    plain = posixpath.normpath(path)
    plain = posixpath.dirname(plain) if plain.endswith((".yml", ".yaml")) else plain
    return "" if plain == "/" else plain
