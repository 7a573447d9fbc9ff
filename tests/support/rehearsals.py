"""An operator who rehearses: the installed command in an empty directory, without credentials."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil

from claudeops.engine.process import SESSION_MARK
from support.forks import can_fork, run_forked
from support.operating import COMMAND, Completed
from support.waiting import PATIENCE_SECONDS


def environment(root: Path, **changes: str) -> dict[str, str]:
    """Return an environment with nothing in it but what a shell needs."""
    (root / "home").mkdir(exist_ok=True)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(root / "home"),
        "PYTHONWARNINGS": "error",
        **changes,
    }


@dataclass(frozen=True)
class Rehearser:
    """Runs ``claudeops rehearse`` below ``root``."""

    root: Path

    @property
    def directories(self) -> list[Path]:
        """What each rehearsal left, oldest first."""
        return sorted((self.root / ".claudeops" / "rehearsals").glob("*"))

    async def run(self, *arguments: str, **changes: str) -> Completed:
        env = environment(self.root, **changes)
        with anyio.fail_after(PATIENCE_SECONDS):
            if can_fork(env):
                done = await run_forked(("rehearse", *arguments), env=env, cwd=self.root)
            else:
                command = [*COMMAND, "rehearse", *arguments]
                done = await anyio.run_process(command, env=env, cwd=self.root, check=False)
        return Completed(done.returncode, done.stdout.decode(), done.stderr.decode())


def processes_about(root: Path) -> dict[int, str]:
    """Return every process that was started below ``root``, has it in its command line, or is of a session of it.

    A session of another user works elsewhere, and is known by its mark.
    """
    found = {}
    for process in psutil.process_iter():
        try:
            told = " ".join([process.cwd(), *process.cmdline(), process.environ().get(SESSION_MARK, "")])
            runs = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            continue
        if str(root) in told and process.pid != psutil.Process().pid and runs:
            found[process.pid] = told
    return found
