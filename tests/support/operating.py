"""An operator at a shell: the installed ``claudeops`` as a process, the real CLI, the scripted Messages API.

The environment of every process is built from nothing; the API listens on loopback, the key is a dummy.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import anyio
import psutil
import sqlalchemy as sa
from anyio.abc import Process

from claudeops.engine.cell.cell import workspace_places
from claudeops.engine.cell.workspace import Workspace, workspace_name
from claudeops.engine.process import SESSION_MARK
from claudeops.engine.process.tree import marks_below
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import MessagesApi, serve
from support.forks import can_fork, fork, run_forked
from support.levels import workspaces
from support.migrated import write_migrated
from support.waiting import PATIENCE_SECONDS, until

COMMAND = (sys.executable, "-m", "claudeops")
DUMMY_KEY = "sk-ant-dummy-key-of-the-tests"


def look(command: str = "uptime", description: str = "look") -> dict[str, object]:
    """Return a scripted step: the model runs a command."""
    return {"text": "I look.", "tool": {"name": "Bash", "input": {"command": command, "description": description}}}


def conclude(*, needed: bool = False, status: str = "healthy", **changes: object) -> dict[str, object]:
    """Return a scripted step: the model delivers its report."""
    escalation: dict[str, object] = {"needed": needed}
    if needed:
        escalation |= {"reason": "web answers 502", "context": "its upstream is gone", "failed_checks": ["web http"]}
    return {
        "report": {
            "summary": "Looked at web and wrote down what was there.",
            "events": [{"level": "info", "service": "web", "message": "looked at web"}],
            "memories": [{"key": "web:timing", "value": "web answers within 40 ms"}],
            "escalation": escalation,
            "services_checked": [{"name": "web", "status": status, "detail": "uptime ran"}],
            **changes,
        }
    }


def say(text: str, times: int = 1) -> dict[str, object]:
    """Return a scripted step: the model ends its turn with text."""
    return {"text": text, "times": times}


def workdir(root: Path, session_id: int = 1) -> Path:
    """Return where a session of the operator at ``root`` works: what its level may write lies elsewhere at ``user``."""
    return Workspace(workspaces(_sessions_dir(root)) / workspace_name(session_id)).workdir


def _sessions_dir(root: Path) -> Path:
    return root / "state" / "sessions"


@dataclass(frozen=True)
class Completed:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, object]:
        loaded = json.loads(self.stdout)
        assert isinstance(loaded, dict)
        return loaded


@dataclass
class Operator:
    """What the operator has: directories, a key, and whatever can be looked at from outside."""

    root: Path
    api: MessagesApi
    daemons: int = 0  # started so far
    runs: tuple[str, ...] = (*COMMAND, "run")  # what a daemon is started by
    forks: bool = True  # processes come from one that has imported them; not where a test looks at a start

    @property
    def database(self) -> Path:
        return self.root / "state" / "claudeops.db"

    def forget_database(self) -> None:
        """Remove the database with its directory: an operator who has never started a daemon has none."""
        shutil.rmtree(self.database.parent)

    def workspaces_left(self) -> list[Path]:
        """Return what lies where sessions have their directories, whatever their level was."""
        return [left for place in workspace_places(_sessions_dir(self.root)) for left in place.glob("*")]

    def environment(self, **changes: str) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.root / "operator"),
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": DUMMY_KEY,
            "CLAUDEOPS_STATE_DIR": str(self.root / "state"),
            "CLAUDEOPS_RESULTS_DIR": str(self.root / "results"),
            "CLAUDEOPS_REPOS_DIR": str(self.root / "repos"),
            # The bundled CLI is tried once, in a test of its own; trying it in every test would double their time.
            "CLAUDEOPS_CLI_SELF_TEST": "false",
            "CLAUDEOPS_LISTENER": "off",  # many daemons run at once, and there is one default port
            "PYTHONWARNINGS": "error",
            **changes,
        }

    async def run(self, *arguments: str, **environment: str) -> Completed:
        """Run one command to its end."""
        env = self.environment(**environment)
        with anyio.fail_after(PATIENCE_SECONDS):
            if self.forks and can_fork(env):
                done = await run_forked(arguments, env=env, cwd=self.root)
            else:
                done = await anyio.run_process([*COMMAND, *arguments], env=env, cwd=self.root, check=False)
        return Completed(done.returncode, done.stdout.decode(), done.stderr.decode())

    async def bootstrap(self, *arguments: str, **environment: str) -> Completed:
        """Run one chain in the foreground."""
        return await self.run("bootstrap", *arguments, **environment)

    @asynccontextmanager
    async def daemon(self, **environment: str) -> AsyncIterator[Daemon]:
        """Run the daemon until the block is left; it is stopped by SIGTERM unless the block did that."""
        self.daemons += 1
        output = self.root / f"daemon-{self.daemons}.log"
        with output.open("xb") as sink:
            process = await self._start(sink, self.environment(**environment))
        daemon = Daemon(process, output)
        try:
            yield daemon
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    await daemon.stop()
                await process.aclose()

    async def _start(self, sink: IO[bytes], env: Mapping[str, str]) -> Process:
        if self.forks and self.runs[: len(COMMAND)] == COMMAND and can_fork(env):
            return fork(self.runs[len(COMMAND) :], env=env, cwd=self.root, stdout=sink)
        return await anyio.open_process(self.runs, env=env, cwd=self.root, stdout=sink, stderr=subprocess.STDOUT)

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Open the database as anybody else would; what is written is committed."""
        engine = sa.create_engine(f"sqlite:///{self.database}", poolclass=sa.NullPool)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep everybody else from writing to the database for as long as the block runs."""
        connection = sqlite3.connect(self.database, isolation_level=None, timeout=PATIENCE_SECONDS)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield
        finally:
            connection.close()

    def rows(self, query: str) -> Sequence[dict[str, object]]:
        """Read the database."""
        with self.connect() as connection:
            return [dict(row) for row in connection.execute(sa.text(query)).mappings()]

    async def until(self, query: str, holds: Callable[[Sequence[dict[str, object]]], bool]) -> None:
        """Return once a query's rows are as wanted."""
        await until(lambda: self.database.exists() and self._fulfilled(query, holds))

    def _fulfilled(self, query: str, holds: Callable[[Sequence[dict[str, object]]], bool]) -> bool:
        try:
            return holds(self.rows(query))
        except sa.exc.OperationalError:  # not migrated yet
            return False

    def sessions(self) -> Sequence[dict[str, object]]:
        return self.rows("SELECT * FROM sessions ORDER BY id")

    def events(self) -> list[tuple[object, object]]:
        return [(row["level"], row["message"]) for row in self.rows("SELECT * FROM events ORDER BY id")]

    def processes_of_sessions(self) -> list[int]:
        """Return every process of this machine that carries a mark of a session of ours."""
        return list(self._sessions())

    def told_to_sessions(self) -> list[str]:
        """Return the argument list and the environment of each of them, as any tool of it could read them."""
        return list(self._sessions().values())

    def _sessions(self) -> dict[int, str]:
        mark = f"{SESSION_MARK}={marks_below(_sessions_dir(self.root))}"
        found = {}
        for pid in psutil.pids():
            with contextlib.suppress(OSError):  # gone since, or not ours to look at
                process = Path(f"/proc/{pid}")
                told = (process / "cmdline").read_bytes() + b"\0" + (process / "environ").read_bytes()
                if mark.encode() in told:
                    found[pid] = told.decode(errors="replace")
        return found


@dataclass(frozen=True)
class Daemon:
    """A running ``claudeops run``."""

    process: Process
    output: Path

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def stop(self) -> int:
        """Ask politely, and insist after a while; return the exit status."""
        self.signal(signal.SIGTERM)
        with anyio.move_on_after(PATIENCE_SECONDS):
            return await self.process.wait()
        os.kill(self.process.pid, signal.SIGKILL)
        return await self.process.wait()

    async def until_logged(self, event: str) -> None:
        await until(lambda: f'"{event}"' in self.output.read_text())


@asynccontextmanager
async def operator(root: Path, **tiers: list[dict[str, object]]) -> AsyncIterator[Operator]:
    """Give an operator a small estate below ``root`` and a model that does the given steps, by tier.

    A tier's last session repeats, so that a schedule may go on for as long as the test looks. The database is there,
    and empty.
    """
    for name in ("operator", "repos/estate"):
        (root / name).mkdir(parents=True)
    (root / "state").mkdir(mode=0o700, exist_ok=True)
    write_migrated(root / "state" / "claudeops.db")
    (root / "repos" / "estate" / "CLAUDE-OPS.md").write_text("# web\nhttp://127.0.0.1:1/\n", encoding="utf-8")
    script = {"tiers": {name: {"steps": steps, "repeat_last": True} for name, steps in tiers.items()}}
    async with serve(Script.from_mapping(script)) as api:
        yield Operator(root, api)
