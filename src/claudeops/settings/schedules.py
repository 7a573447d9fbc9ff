"""The operator's file of schedules.

It is named by its variable, else ``/app/config/schedules.toml``, if that exists. It is read at the start, by
``claudeops doctor``, and again by the running daemon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.errors import ConfigurationError
from claudeops.formats.schedules import Surroundings, read_plans
from claudeops.settings.files import read_text, read_toml, toml_file

VARIABLE: Final = "CLAUDEOPS_SCHEDULES_PATH"
_PROMPT_BYTES: Final = 16_000  # as much of a request as a session is shown


def schedules_file(named: Path | None, *, root: Path) -> Path | None:
    """Return the file of schedules: the named one, else the one in ``/app/config`` if it is there."""
    return toml_file(named, "schedules.toml", root=root)


def load_schedules(path: Path, *, highest_tier: int, timezone: str, site: str) -> tuple[SchedulePlan, ...]:
    """Return the schedules of a file. Raises `ConfigurationError` with file, line and remedy."""
    around = Surroundings(
        highest_tier=highest_tier,
        timezone=timezone,
        site=site,
        prompt_file=lambda name: _prompt(path.parent / name),
        origin=str(path),
    )
    return read_toml(path, lambda text: read_plans(text, around), variable=VARIABLE, what="file of schedules")


def _prompt(path: Path) -> str:
    """Return the text of a prompt beside the file; raises `ValueError` with a clause."""
    try:
        return read_text(path, origin="it", what="prompt", limit=_PROMPT_BYTES)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from None
