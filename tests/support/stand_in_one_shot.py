#!/usr/bin/env -S python3 -P
"""A CLI that takes one task and answers without a question, as ``codex exec`` and ``caliban -p`` do.

It reads its stdin to the end, then plays what the JSON file named by ``STAND_IN_STEPS`` says:

``seen``     path: what it was started with goes there as JSON (argv, environment, stdin, open files, the schema)
``stray``    path: leave a process in its own group; its pid goes to path
``lines``    printed as they are
``stderr``   written to stderr
``last``     written to the file of ``--output-last-message``
``link``     that file becomes a symbolic link to here
``touch``    path: tell the test that this point was reached
``hang``     wait for signals: ``"SIGINT"`` ends at that one, ``"SIGTERM"`` ignores SIGINT, ``"SIGKILL"`` both
``rc``       exit status; negative: end by that signal

Started with -P: a neighbour of this file has the name of a module of the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def value_of(flag: str) -> str | None:
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else None


def look_around(path: str, prompt: str) -> None:
    schema = value_of("--output-schema")
    seen = {
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "stdin": prompt,
        "descriptors": [number for number in range(3, 64) if Path(f"/proc/self/fd/{number}").exists()],
        "schema": None if schema is None else json.loads(Path(schema).read_text(encoding="utf-8")),
    }
    Path(path).write_text(json.dumps(seen), encoding="utf-8")


def leave_stray(path: str) -> None:
    stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
    Path(path).write_text(str(stray.pid), encoding="ascii")


def leave_last_message(steps: dict[str, Any]) -> None:
    last = value_of("--output-last-message")
    if last is None:
        return
    if "link" in steps:
        Path(last).symlink_to(steps["link"])
    elif "last" in steps:
        Path(last).write_text(steps["last"], encoding="utf-8")


def hang(until: str) -> None:
    if until in {"SIGTERM", "SIGKILL"}:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if until == "SIGKILL":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if until == "SIGINT":
        signal.signal(signal.SIGINT, lambda *_: os._exit(124))


def main() -> None:
    prompt = sys.stdin.read()
    steps = json.loads(Path(os.environ["STAND_IN_STEPS"]).read_text(encoding="utf-8"))
    if "seen" in steps:
        look_around(steps["seen"], prompt)
    if "stray" in steps:
        leave_stray(steps["stray"])
    for line in steps.get("lines", ()):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    sys.stderr.write(steps.get("stderr", ""))
    sys.stderr.flush()
    leave_last_message(steps)
    if "hang" in steps:
        hang(steps["hang"])
        Path(steps["touch"]).touch()
        while True:
            signal.pause()
    rc = steps.get("rc", 0)
    if rc < 0:
        os.kill(os.getpid(), -rc)
    os._exit(rc)


main()
