"""The file in which the CLI itself keeps its session: while it grows, the CLI is at work."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from claudeops.tasks import Threads

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_SECONDS: Final = 1.0
_LOOKED_AT: Final = 100  # directories; the CLI makes one, a session could make as many as it likes


class CliTranscript:
    """``<home>/.claude/projects/<project>/<session id>.jsonl``; the project's name is the CLI's own business."""

    def __init__(self, home: Path, cli_session_id: str) -> None:
        self._projects = home / ".claude" / "projects"
        self._name = f"{cli_session_id}.jsonl"
        self._found: Path | None = None
        self._known = 0
        self._one_look = Threads(most=1)

    async def size(self) -> int:
        """Return the file's size in bytes; 0 while there is none, and the last one known while its disk hangs."""
        with suppress(TimeoutError):
            self._known = await self._one_look.run(self._size, seconds=_LOOK_SECONDS, what="a look at the transcript")
        return self._known

    def _size(self) -> int:
        try:
            if self._found is None:
                self._found = self._look()
            return 0 if self._found is None else self._found.lstat().st_size
        except OSError:
            self._found = None
            return 0

    def _look(self) -> Path | None:
        with os.scandir(self._projects) as entries:
            for entry in islice(entries, _LOOKED_AT):
                candidate = self._projects / entry.name / self._name
                if entry.is_dir(follow_symlinks=False) and candidate.is_file():
                    return candidate
        return None
