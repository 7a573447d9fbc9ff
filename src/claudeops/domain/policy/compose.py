"""Where ``docker compose`` acts: only in a directory that the manifests or the repositories name.

A project is what its files say, and its name is its directory's: a compose file that somebody has laid anywhere would
be whatever service its author calls it. What runs names its files or its directory by an absolute path, because compose
otherwise takes the files of a directory above, and the project's name with them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.policy import paths
from claudeops.domain.policy.paths import Place
from claudeops.domain.policy.rule_book import Found
from claudeops.domain.policy.rules import Option

_FILE, _DIRECTORY, _NAME = "--file", "--project-directory", "--project-name"
_BY_FILES: Final = ("docker compose up", "docker compose pull")
"""What needs a project's files; everything else finds its containers by the labels with the project's name."""

_IN_DIRECTORY: Final = Option((_DIRECTORY,), "project")


def located(found: Found, place: Place) -> Found:
    """Return a command with its project's directory written out where nothing but the working directory says it."""
    if place.cwd is None or not _depends_on_directory(found):
        return found
    *groups, (given, subcommand) = found.steps
    return replace(found, steps=(*groups, ((*given, (_IN_DIRECTORY, place.cwd)), subcommand)))


def refuse_project(found: Found, place: Place) -> str | None:
    """Return why compose may not act on a project, or None; a `Stranger` where only nothing names its directory."""
    if _depends_on_directory(found):
        if found.path in _BY_FILES:
            return "it is not known where this runs: name the project's file by --file, or cd to its directory"
        return "name the project with -p" + ("" if found.path.endswith(" exec") else ", or cd to its directory")
    reasons = [_refuse_directory(path, place) for path in _directories(found)]
    certain = (reason for reason in reasons if reason and not isinstance(reason, Stranger))
    return next(certain, None) or next(filter(None, reasons), None)


def _depends_on_directory(found: Found) -> bool:
    named = bool(list(_values(found, _NAME))) and found.path not in _BY_FILES
    return not named and not any(True for _ in _directories(found))


def _directories(found: Found) -> Iterator[str]:
    """Yield the project's directory, and those of its files."""
    yield from _values(found, _DIRECTORY)
    yield from (posixpath.dirname(path) or "." for path in _values(found, _FILE))


def _values(found: Found, name: str) -> Iterator[str]:
    return (value for option, value in found.given if value is not None and name in option.names)


def _refuse_directory(text: str, place: Place) -> str | None:
    path = paths.absolute(text, place)
    if path is None:
        return f"{text}: write the absolute path, or cd to the project's directory"
    if (reason := paths.project(path, place)) is not None:
        return reason
    if place.local and paths.in_repositories(path, place):
        return None
    if paths.is_within(path, place.scope.estate.directories, place):
        return None
    return Stranger(
        f"{path} is neither in the repositories nor named by a manifest: name the compose project's directory in a "
        "CLAUDE-OPS.md below the repositories directory"
    )
