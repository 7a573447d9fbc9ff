"""The operator's file of schedules.

It is named by its variable, else ``/app/config/schedules.toml``, if that exists. It is read at the start, by
``claudeops doctor``, and again by the running daemon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from claudeops.domain.schedules.plan import Plan
from claudeops.errors import ConfigurationError
from claudeops.files import is_file
from claudeops.formats.schedules import ScheduleFault, Surroundings, read_plans
from claudeops.settings.files import read_text

VARIABLE: Final = "CLAUDEOPS_SCHEDULES_PATH"
_FILE: Final = Path("app") / "config" / "schedules.toml"
_MOST_BYTES: Final = 1024 * 1024
_PROMPT_BYTES: Final = 16_000  # as much of a request as a session is shown


def schedules_file(named: Path | None, *, root: Path) -> Path | None:
    """Return the file of schedules: the named one, else the one in ``/app/config`` if it is there."""
    placed = root / _FILE
    return placed if named is None and is_file(placed) else named


def load_schedules(path: Path, *, highest_tier: int, timezone: str, site: str | None) -> tuple[Plan, ...]:
    """Return the schedules of a file. Raises `ConfigurationError` with file, line and remedy."""
    text = read_text(path, origin=VARIABLE, what="file of schedules", limit=_MOST_BYTES)
    around = Surroundings(
        highest_tier=highest_tier,
        timezone=timezone,
        site=site or "",
        prompt_file=lambda name: _prompt(path.parent / name),
        origin=str(path),
    )
    try:
        return read_plans(text, around)
    except ScheduleFault as fault:
        raise ConfigurationError(f"{VARIABLE}: {path}, line {fault.line}: {fault}.") from None


def _prompt(path: Path) -> str:
    """Return the text of a prompt beside the file; raises `ValueError` with a clause."""
    try:
        return read_text(path, origin="it", what="prompt", limit=_PROMPT_BYTES)
    except ConfigurationError as error:
        raise ValueError(str(error).rstrip(".")) from None
