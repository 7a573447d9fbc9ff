"""The stages in which a node starts, and the state that each last had: a small file for people who ask afterwards.

Only the process that holds the lock of the database writes it, so a second daemon, which is refused, changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from claudeops.clock import Clock
from claudeops.errors import ClaudeopsError, ConfigurationError, StoppedError

FILE: Final = "startup.json"

STAGES: Final = {
    "settings": "The settings, prompts, policy and schema are read and checked.",
    "directories": "The state and results directories are made.",
    "lock": "The database is claimed, so that no second daemon runs on it.",
    "isolation": "The level of isolation of sessions is chosen and tried.",
    "clis": "The CLIs of the tiers are found, and their gate is tried.",
    "migrations": "The tables are brought to this version, after a backup.",
    "store": "The database is opened.",
    "leftovers": "Processes of a dead daemon's sessions are ended.",
    "meter": "The way to the model API is checked: its proxy and certificates.",
    "estate": "The manifests of the repositories are read.",
    "approvals": "The key that signs answers of people is read or made.",
    "recovery": "Sessions of dead daemons are taken up, from their logs.",
    "ready": "Sessions may start.",
}
"""Every stage in its order, with what is done in it."""

_BEFORE_THE_LOCK: Final = ("settings", "directories", "lock")


class StageState(StrEnum):
    """How far a stage came."""

    WAITING = "waiting"  # its turn has not come
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class StageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stage in the file."""

    name: str
    state: StageState
    at: datetime | None = None  # UTC; when it was entered
    error: str | None = None  # why it failed, one sentence


class StartUp(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    pid: int
    stages: tuple[StageEntry, ...]


class StageWriter(msgspec.Struct, kw_only=True):
    """Writes the file while a node starts. A file that cannot be written keeps nothing from starting."""

    file: Path
    clock: Clock
    write: Callable[[Callable[[], None]], Awaitable[None]]  # runs the work where it may block
    _entered: dict[str, datetime] = msgspec.field(default_factory=dict)

    async def enter(self, name: str) -> None:
        """Say that a stage begins, and so that the one before it is done."""
        self._entered[name] = self.clock.now()
        await self._tell(StageState.DONE if name == "ready" else StageState.RUNNING)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[StageWriter]:
        """Begin behind the lock; an error within the block is that of the stage which had been entered."""
        now = self.clock.now()
        self._entered = dict.fromkeys(_BEFORE_THE_LOCK, now)
        try:
            yield self
        except (ClaudeopsError, OSError) as error:
            if "ready" not in self._entered and not isinstance(error, StoppedError):
                await self._tell(StageState.FAILED, str(error))
            raise

    async def _tell(self, state: StageState, error: str | None = None) -> None:
        content = msgspec.json.encode(StartUp(pid=os.getpid(), stages=tuple(self._stages(state, error))))

        def replace() -> None:
            beside = self.file.with_suffix(".json.new")
            beside.write_bytes(content)
            beside.replace(self.file)

        with suppress(OSError, ConfigurationError):  # the start itself says what is wrong with its directory
            await self.write(replace)

    def _stages(self, state: StageState, error: str | None) -> list[StageEntry]:
        latest = list(self._entered)[-1]
        found = []
        for name in STAGES:
            if name not in self._entered:
                found.append(StageEntry(name=name, state=StageState.WAITING))
                continue
            at = self._entered[name]
            own = state if name == latest else StageState.DONE
            found.append(StageEntry(name=name, state=own, at=at, error=error if name == latest else None))
        return found


def read_stages(file: Path) -> StartUp | None:
    """Return what the last start came to; ``None``: there is no such file, or not of this version."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=StartUp)
    except (OSError, msgspec.DecodeError):
        return None
