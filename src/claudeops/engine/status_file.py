"""``<state>/daemon.json``: what the running daemon is doing, readable when the database is away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.to_thread
import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from claudeops.domain.model import Owner, Session


@dataclass(frozen=True, slots=True)
class StatusFile:
    """Written whole and renamed into place, so that a reader never sees half of it."""

    path: Path
    owner: Owner
    started_at: datetime

    async def write(self, *, ready: bool, running: Sequence[Session], at: datetime) -> None:
        """Replace the file; raises `OSError`."""
        content = orjson.dumps(
            {
                "ready": ready,
                "pid": self.owner.pid,
                "owner": self.owner.name,
                "started_at": self.started_at,
                "written_at": at,
                "running": [
                    {"session_id": session.id, "chain": session.root_session_id, "tier": session.tier}
                    for session in running
                ],
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
        await anyio.to_thread.run_sync(self._replace, content)

    def _replace(self, content: bytes) -> None:
        beside = self.path.with_suffix(".json.new")
        beside.write_bytes(content)
        os.replace(beside, self.path)  # noqa: PTH105 - os.replace says that it is atomic

    async def remove(self) -> None:
        """Remove the file: no daemon runs."""
        await anyio.to_thread.run_sync(lambda: self.path.unlink(missing_ok=True))
