"""Records what an operator sees who asks from the shell, beside a rehearsal and after it: `make excerpt-shell`.

Runs the shipped scenario `service-down` with the claudeops of this checkout, on a terminal of 110 columns, and writes
docs/excerpts/shell.txt. The model is scripted, so it costs nothing and needs no credentials. Only the paths of
this machine are replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
EXCERPT = PROJECT / "docs" / "excerpts" / "shell.txt"
CLAUDEOPS = Path(os.environ.get("CLAUDEOPS", PROJECT / ".venv" / "bin" / "claudeops"))
SCENARIO = "service-down"
PACE = "1.5"  # seconds before each step of the model, so that there is something to look at
COLUMNS, LINES = 110, 200
LONGEST_SECONDS = 120.0
KEPT = ("HOME", "PATH")
DURING = ("status", "list-events")
AFTERWARDS = ("chain 1", "list-events", "list-checks shop", "list-actions", "spend", "doctor")


def main() -> int:
    """Rehearse, ask, write; return the exit status of the rehearsal."""
    with tempfile.TemporaryDirectory(prefix="claudeops-shell-") as directory:
        root = Path(directory)
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {"LANG": "C.UTF-8", "NO_COLOR": "1", "PAGER": "cat", "CLAUDEOPS_STATE_DIR": str(root / "state")}
        rehearsal = subprocess.Popen(
            [CLAUDEOPS, "rehearse", "--pace", PACE, SCENARIO],
            cwd=root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stage = until(lambda: next(iter((root / "state").glob("rehearsals/*/state")), None))
        there = environment | {
            "CLAUDEOPS_STATE_DIR": str(stage),
            "CLAUDEOPS_REPOS_DIR": str(stage.parent / "repos"),
            "CLAUDEOPS_RESULTS_DIR": str(stage.parent / "results"),
        }
        until(lambda: at_work(root, there))
        text = [asked(root, there, command) for command in DURING]
        status = rehearsal.wait(LONGEST_SECONDS)
        text += [asked(root, there, command) for command in AFTERWARDS]
    written = "\n".join(text).replace(str(stage.parent), "/srv/claudeops").replace(str(PROJECT), "/opt/claudeops")
    EXCERPT.write_text(written, encoding="utf-8")
    return status


def at_work(root: Path, environment: dict[str, str]) -> bool:
    """Return whether the second session runs, by what the command itself says to programs."""
    told = subprocess.run(
        [CLAUDEOPS, "status", "--output-format", "json"],
        cwd=root,
        env=environment,
        capture_output=True,
        check=False,
    )
    running = json.loads(told.stdout).get("running") or []
    return any(session["tier"] > 1 for session in running)


def asked(root: Path, environment: dict[str, str], command: str) -> str:
    """Run a command on a terminal; return what a person sees."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [CLAUDEOPS, *command.split()], cwd=root, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # EIO: nobody writes any more
        while part := terminal.read(65536):
            printed += part
    process.wait(LONGEST_SECONDS)
    # What was said while a person waited is gone from the screen too.
    lines = [line.rpartition("\x1b[2K")[2].rstrip() for line in printed.decode().replace("\r\n", "\n").split("\n")]
    text = "\n".join(lines).strip("\n")
    return f"$ claudeops {command}\n{text}\n"


def until(look):  # noqa: ANN001, ANN201 - any look, and what it finds
    """Look until something is found; return it."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the rehearsal did not get so far within {LONGEST_SECONDS:g} s")
        time.sleep(0.1)
    return found


if __name__ == "__main__":
    sys.exit(main())
