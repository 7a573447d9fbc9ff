"""Everything that a rehearsal needs beside claudeops itself: services, commands, a repository, a model."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.rehearsal.estate import running_estate
from claudeops.rehearsal.manifest import write_manifest
from claudeops.rehearsal.marks import REPOS
from claudeops.rehearsal.messages_api import serve
from claudeops.rehearsal.orders import serve_orders
from claudeops.rehearsal.scenario_script import play_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from claudeops.rehearsal.estate import Estate
    from claudeops.rehearsal.messages_api import MessagesApi
    from claudeops.rehearsal.scenario import Scenario

KEY: Final = "rehearsal-key-that-opens-nothing"
"""What the scripted API takes as a key, and nothing else does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Where a rehearsal takes place."""

    estate: Estate
    api: MessagesApi
    repos_dir: Path
    commands_dir: Path  # to stand first on the sessions' PATH
    state_dir: Path  # not made yet
    results_dir: Path  # same


@asynccontextmanager
async def set_up(scenario: Scenario, root: Path, *, path: str, pace_seconds: float = 0) -> AsyncIterator[Stage]:
    """Set everything up below ``root``, an empty directory; when the block is left nothing of it runs any more.

    ``path`` is the ``PATH`` on which sessions find their commands otherwise. Files stay. Raises `RehearsalError` when a
    service does not start.
    """
    repos_dir, commands_dir = root / "repos", root / "commands"
    async with (
        running_estate(scenario, root / "services") as estate,
        serve_orders(estate, commands_dir, path=path),
    ):
        write_manifest(estate, repos_dir)
        values = {**estate.marks(), REPOS: str(repos_dir)}
        script = play_of(scenario, values, pace_seconds=pace_seconds)
        async with serve(script, expected_key=None) as api:
            yield Stage(
                estate=estate,
                api=api,
                repos_dir=repos_dir,
                commands_dir=commands_dir,
                state_dir=root / "state",
                results_dir=root / "results",
            )
