"""Reading settings that may be wrong in several places: each fault is told, and the rest is read all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.cli.doctor.values import Case
from claudeops.errors import ConfigurationError
from claudeops.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

_OURS: Final = ("CLAUDEOPS_", "ANTHROPIC_", "CLAUDE_", "BROWSER_CRED_", "WATCHDOG_")


def gather(environ: Mapping[str, str], *, cwd: Path, now: datetime) -> Case:
    """Return the settings, with every variable left out that makes them impossible.

    A sentence of the settings tells of the first thing that is wrong. Whose fault it is, is found by leaving out one
    variable after the other and looking whether the sentence changes.
    """
    left = dict(environ)
    refused: dict[str, str] = {}
    while True:
        try:
            loaded = load_settings(left, cwd=cwd)
        except ConfigurationError as error:
            culprit = _culprit(left, str(error), cwd=cwd)
            if culprit is None:
                return Case(settings=None, fault=str(error), refused=refused, warnings=(), now=now)
            refused[culprit] = str(error)
            del left[culprit]
        else:
            return Case(settings=loaded.settings, fault=None, refused=refused, warnings=loaded.warnings, now=now)


def _culprit(environ: Mapping[str, str], sentence: str, *, cwd: Path) -> str | None:
    """Return the variable without which the settings say something else; those that the sentence names go first."""
    ours = [name for name in sorted(environ) if name.startswith(_OURS)]
    for name in sorted(ours, key=lambda name: name not in sentence):
        without = {other: value for other, value in environ.items() if other != name}
        try:
            load_settings(without, cwd=cwd)
        except ConfigurationError as error:
            if str(error) == sentence:
                continue
        return name
    return None
