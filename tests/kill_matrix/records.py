"""What a trial left behind, read by its own means: rows, logs, the daemons' own logs, processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil

from kill_matrix.databases import Row
from kill_matrix.world import Machine, World


@dataclass(frozen=True, slots=True)
class SessionLog:
    """A session's log as anybody could read it."""

    exists: bool
    lines: Sequence[Mapping[str, object]] = ()  # those that are JSON objects
    broken: int = 0  # lines that are not, the last one cut short not counted

    @property
    def results(self) -> Sequence[Mapping[str, object]]:
        """The complete result lines."""
        return [line for line in self.lines if line.get("type") == "result"]

    @property
    def reports(self) -> Sequence[Mapping[str, object]]:
        """The result lines that hold a report: a session that was interrupted says what it cost, and no more."""
        return [line for line in self.results if "structured_output" in line]

    @property
    def sessions(self) -> set[object]:
        """The CLI sessions that it names."""
        return {line["session_id"] for line in self.lines if "session_id" in line}


@dataclass
class Records:
    """Everything that can be looked at after a trial."""

    world: World
    _tables: dict[str, list[Row]] = field(default_factory=dict)

    def rows(self, table: str) -> list[Row]:
        """Return a table in the order of its rows."""
        if table not in self._tables:
            self._tables[table] = self.world.database.table(table)
        return self._tables[table]

    def of_session(self, table: str, session_id: object) -> list[Row]:
        """Return the rows of a table that belong to a session."""
        return [row for row in self.rows(table) if row["session_id"] == session_id]

    @cached_property
    def sessions(self) -> list[Row]:
        """Every session."""
        return self.rows("sessions")

    def children(self, session_id: object) -> list[Row]:
        """Return the sessions that were queued because of one."""
        return [row for row in self.sessions if row["parent_session_id"] == session_id]

    def written_at(self, session: Row) -> str:
        """Return when the end of a session was written: of one that was recovered that is later than it says."""
        return self._recovered.get(session["id"], str(session["ended_at"]))

    @cached_property
    def _recovered(self) -> Mapping[object, str]:
        """When sessions were recovered, as a database writes times, by their ids."""
        return {
            line["session_id"]: str(line["timestamp"]).replace("T", " ").removesuffix("Z")
            for line in self.told()
            if line.get("event") == "session_recovered"
        }

    @cached_property
    def logs(self) -> Mapping[object, SessionLog]:
        """The log of every session that was ever claimed, by the session's id."""
        return {row["id"]: read_log(Path(str(row["log_path"]))) for row in self.sessions if row["log_path"]}

    @cached_property
    def log_files(self) -> set[str]:
        """Every log that there is."""
        return {str(path) for machine in self.world.machines for path in machine.results.glob("*.ndjson")}

    def told(self) -> Iterator[Mapping[str, object]]:
        """Yield the lines of the daemons' own logs; what is no JSON is a line with ``text`` alone."""
        for output in sorted(self.world.root.glob("**/daemon-*.log")):
            for line in output.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"level": "none", "text": line}


def read_log(path: Path) -> SessionLog:
    """Read a log line by line; what a kill cut short at its end is no line."""
    if not path.exists():
        return SessionLog(exists=False)
    lines: list[Mapping[str, object]] = []
    broken = 0
    pieces = path.read_bytes().split(b"\n")
    for piece in pieces:
        try:
            found = json.loads(piece)
        except ValueError:
            broken += bool(piece) and piece is not pieces[-1]
            continue
        lines.append(found)
    return SessionLog(exists=True, lines=lines, broken=broken)


def strays(machine: Machine) -> list[str]:
    """Return the processes that carry a mark of a node's sessions, or work below its directory."""
    mark = f"CLAUDEOPS_SESSION_MARK={machine.sessions}#".encode()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            marked = mark in Path(f"/proc/{process.pid}/environ").read_bytes()
            if marked or process.cwd().startswith(f"{machine.root}/"):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
    return found
