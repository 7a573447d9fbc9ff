"""The file in which the CLI itself keeps its session: while it grows, the CLI is at work."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LOOKED_AT: Final = 100  # directories; the CLI makes one, a session could make as many as it likes


class CliTranscript:
    """``<home>/.claude/projects/<project>/<session id>.jsonl``; the project's name is the CLI's own business."""

    def __init__(self, home: Path, cli_session_id: str) -> None:
        self._projects = home / ".claude" / "projects"
        self._name = f"{cli_session_id}.jsonl"
        self._found: Path | None = None

    def size(self) -> int:
        """Return the file's size in bytes; 0 while there is none. Never raises, never takes long."""
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
