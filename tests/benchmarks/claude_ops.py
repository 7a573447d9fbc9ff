"""What a binary of Claude Ops does with the stand-in, measured in a network of its own, because it listens everywhere.

``python -m benchmarks.claude_ops BINARY DIRECTORY REPEATS STREAM_BYTES`` prints the figures as one JSON document. It is
run by `benchmarks.beside` in a network namespace, in which it first brings the loopback interface up.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import frames
from support.estate import STAND_IN, deliver, report

PORT: Final = 8080
"""In a network of its own, where no other process listens."""

IDLE_SECONDS: Final = 10.0

_PATIENCE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.0005
_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS
_UP: Final = 0x1  # IFF_UP
_LINES: Final = {"200 B": 200, "5 KB": 5_000}
_PRODUCER: Final = Path(__file__).with_name("producer.py")

# Claude Ops gives its CLI no stdin, so the stand-in asks no gate. `result` is touched just before the result line.
_CLI: Final = """#!/bin/sh
printf '%s %s\\n' "$(date +%s.%N)" "$(stat -c %.9Y {root}/result 2>/dev/null)" >>{root}/began
exec {python} {stand_in}
"""
_STREAMING: Final = """#!/bin/sh
date +%s.%N >{root}/streams
{python} -I -S {producer} {root}/stream 2>/dev/null </dev/null
date +%s.%N >>{root}/streams
exec {python} {stand_in}
"""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A Claude Ops in a directory of its own."""

    binary: Path
    root: Path

    @property
    def began(self) -> list[tuple[float, float]]:
        """Return for each CLI: when it began, and when the one before it printed its result, in seconds."""
        file = self.root / "began"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(float(line[0]), float(line[1]) if line[1:] else 0.0) for line in lines]

    def prepare(self, *, needed: bool, streams: bool = False) -> None:
        """Lay out what it needs, with a CLI whose sessions end by a report."""
        for name in ("state", "results", "repos", "bin"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "prompt.md").write_text("Look at every service.\n")
        (self.root / "mcp.json").write_text("{}\n")
        steps = [{"touch": str(self.root / "result")}, deliver(report(needed=needed, status="down"))]
        (self.root / "steps.json").write_text(json.dumps(steps))
        script = _STREAMING if streams else _CLI
        words = {"root": self.root, "python": sys.executable, "stand_in": STAND_IN, "producer": _PRODUCER}
        cli = self.root / "bin" / "claude"
        cli.write_text(script.format_map({name: shlex.quote(str(value)) for name, value in words.items()}))
        cli.chmod(0o755)
        for name in ("began", "streams", "result"):
            (self.root / name).unlink(missing_ok=True)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run it while the block runs."""
        with (self.root / "output").open("ab") as output:
            process = subprocess.Popen(
                [self.binary], env=self._environment(), cwd=self.root, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _environment(self) -> Mapping[str, str]:
        prompts = dict.fromkeys(("PROMPT", "TIER2_PROMPT", "TIER3_PROMPT"), self.root / "prompt.md")
        places = {"STATE_DIR": "state", "RESULTS_DIR": "results", "REPOS_DIR": "repos", "MCP_CONFIG": "mcp.json"}
        return {
            "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.root),
            "STAND_IN_STEPS": str(self.root / "steps.json"),
            "CLAUDEOPS_DASHBOARD_PORT": str(PORT),
            "CLAUDEOPS_INTERVAL": "1000000",
            **{f"CLAUDEOPS_{name}": str(path) for name, path in prompts.items()},
            **{f"CLAUDEOPS_{name}": str(self.root / path) for name, path in places.items()},
        }

    def ended(self, count: int) -> bool:
        """Return whether so many chains have ended by now."""
        return (self.root / "output").read_text().count("Sleeping ") >= count


def measure(binary: Path, directory: Path, repeats: int, stream_bytes: int) -> dict[str, Sequence[float]]:
    """Return the figures by name; times in milliseconds, memory in MiB, processor time in per cent of a core."""
    found: dict[str, Sequence[float]] = {"start": [], "wish": [], "next tier": []}
    for number in range(repeats):
        beside = Beside(binary=binary, root=directory / str(number))
        beside.root.mkdir()
        for name, values in _one_run(beside).items():
            found[name] = [*found.get(name, ()), *values]
    beside = Beside(binary=binary, root=directory / "streams")
    beside.root.mkdir()
    for name, line_bytes in _LINES.items():
        content = frames.stream(line_bytes, stream_bytes // (4 if name == "200 B" else 1))
        (beside.root / "stream").write_bytes(content)
        found[f"stream {name}"] = [len(content) / 1e6 / _streamed(beside) for _ in range(min(3, repeats))]
    return found


def _one_run(beside: Beside) -> dict[str, list[float]]:
    beside.prepare(needed=False)
    with beside.running():  # makes the database
        _until(lambda: beside.ended(1), "its first session")
    (beside.root / "output").unlink()
    beside.prepare(needed=False)
    started = time.time()
    with beside.running() as process:
        _until(_answers, "its dashboard")
        start = time.time() - started
        _until(lambda: beside.ended(1), "the session of its start")
        wished = time.time()
        _trigger()
        _until(lambda: len(beside.began) > 1, "the session of a person")
        wish = beside.began[1][0] - wished
        _until(lambda: _is_idle(process.pid), "its rest")
        idle = _idle(process.pid)
    (beside.root / "output").unlink()
    beside.prepare(needed=True)
    with beside.running():
        _until(lambda: len(beside.began) > 2, "tier 3")
    steps = [(began - printed) * 1000 for began, printed in beside.began[1:]]
    return {"start": [start * 1000], "wish": [wish * 1000], "next tier": steps, **idle}


def _answers() -> bool:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=1)
        connection.request("GET", "/api/v1/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    return False


def _trigger() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    form = urllib.parse.urlencode({"prompt": "Look at web.", "tier": "1"})
    connection.request("POST", "/sessions/trigger", form, {"Content-Type": "application/x-www-form-urlencoded"})
    if connection.getresponse().status >= http.HTTPStatus.BAD_REQUEST:
        raise AssertionError("the session was refused")


def _is_idle(pid: int) -> bool:
    return not Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _idle(pid: int) -> dict[str, list[float]]:
    before = _processor_seconds(pid)
    time.sleep(IDLE_SECONDS)
    used = (_processor_seconds(pid) - before) / IDLE_SECONDS * 100
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return {"idle CPU": [used], "idle memory": [pss / 1024]}


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _streamed(beside: Beside) -> float:
    """Return the seconds from the producer's start to its end, which its reader delays."""
    beside.prepare(needed=False, streams=True)
    (beside.root / "output").unlink(missing_ok=True)
    with beside.running():
        _until(lambda: beside.ended(1), "a session that streams")
    began, ended = map(float, (beside.root / "streams").read_text().split())
    return ended - began


def _until(holds: object, what: str) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while not (callable(holds) and holds()):
        if time.monotonic() > ends:
            raise AssertionError(f"Claude Ops did not get to {what}")
        time.sleep(_LOOK_SECONDS)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


if __name__ == "__main__":
    _loopback_up()
    figures = measure(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(json.dumps(figures))
