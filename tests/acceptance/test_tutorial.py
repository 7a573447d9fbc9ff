"""The tutorial, played as it stands: its files are written, its commands typed, and what it shows is what comes.

Times, numbers of processes and names of users are masked, as the page says. Ports are those of this test. Where the
page shows what comes after a while, a command that only looks is called again, as the page tells its reader.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from support.checkout import ROOT
from support.ports import kept_port
from support.rehearsals import environment, processes_about
from support.waiting import PATIENCE_SECONDS, until, until_it

pytestmark = pytest.mark.anyio

PAGE: Final = (ROOT / "docs" / "tutorial" / "watch-a-service-of-your-own.md").read_text(encoding="utf-8")
PORTS: Final = ("8097", "8098", "8099")
"""Those of the page, each of which stands there for nothing else."""

BLOCK: Final = re.compile(
    r"(?:`(?P<name>[^`\s]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
LEFT_OUT: Final = "…"
LOOKS: Final = re.compile(
    r"claudeops (?:status|tail|chain|incident|doctor|probe|list-\w+|policy test|audit verify)\b|curl -sS http:\S+$"
)
"""Commands that change nothing, and may be called again until they show what the page shows."""

MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:d|h|m|s|ms)\b(?: \d+(?:d|h|m|s)\b)*"), "SPAN"),
    (re.compile(r"\bpid \d+"), "PID"),
    (re.compile(r"(?<=/setup/)[\w-]+"), "SECRET"),
    (re.compile(r"\b(approved by|in as) (?:uid )?\S+"), r"\1 NAME"),
    (re.compile(r"\s+"), " "),  # columns are as wide as what stands in them
)


@dataclass(frozen=True)
class Typed:
    """A command of the page, and what the page shows below it."""

    command: str
    shown: Sequence[str]


def blocks() -> list[re.Match[str]]:
    return list(BLOCK.finditer(PAGE))


def typed(text: str) -> Iterator[Typed]:
    """Return the commands of a block."""
    for part in text.split("$ ", 1)[1].split("\n$ "):
        command, *shown = part.strip("\n").split("\n")
        yield Typed(command, shown)


def masked(lines: Sequence[str]) -> list[str]:
    masked_lines = []
    for line in lines:
        text = line.rstrip()
        for mask, stands_for in MASKS:
            text = mask.sub(stands_for, text)
        masked_lines.append(text)
    return masked_lines


def is_shown(printed: Sequence[str], shown: Sequence[str]) -> bool:
    """Return whether lines are what the page shows, which may leave lines out."""
    pattern = "".join("(?:.*\n)*?" if line == LEFT_OUT else f"{re.escape(line)}\n" for line in masked(shown))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in masked(printed))) is not None


@dataclass
class Shell:
    """The one shell in which the reader types."""

    process: Process
    answers: BufferedByteReceiveStream
    output: Path
    home: Path

    async def type(self, command: str) -> list[str]:
        """Run a command to its end and return the lines that it has printed."""
        assert self.process.stdin is not None
        with anyio.fail_after(PATIENCE_SECONDS):
            await self.process.stdin.send(f"{{ {command}\n}} >'{self.output}' 2>&1 </dev/null; echo\n".encode())
            await self.answers.receive_until(b"\n", 1)
        return self.output.read_text(encoding="utf-8").replace(str(self.home), "~").splitlines()

    async def play(self, step: Typed) -> None:
        """Type a command of the page, again and again where it may be, until it prints what the page shows."""
        printed: list[str] = []

        async def shows() -> bool:
            nonlocal printed
            printed = await self.type(step.command)
            if is_shown(printed, step.shown):
                return True
            if not LOOKS.match(step.command):
                pytest.fail(self._difference(step, printed))
            return False

        try:
            await until_it(shows)
        except TimeoutError:
            pytest.fail(self._difference(step, printed))

    def _difference(self, step: Typed, printed: Sequence[str]) -> str:
        return "\n".join([f"$ {step.command}", *printed, "--- and the page shows:", *step.shown])


@asynccontextmanager
async def shell(root: Path) -> AsyncIterator[Shell]:
    """Give a shell in which claudeops is found; what was started in it ends with the block."""
    env = environment(root)
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "LANG": "C.UTF-8"}
    async with await anyio.open_process(
        ["bash", "--noprofile", "--norc"], cwd=root, env=env, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Shell(process, BufferedByteReceiveStream(process.stdout), root / "printed", root / "home")
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await until(lambda: not (processes_about(root).keys() - {process.pid}))
                with suppress(ProcessLookupError):
                    process.kill()


def test_every_block_of_the_page_is_a_file_or_is_typed() -> None:
    others = [block["text"] for block in blocks() if block["name"] is None and not block["text"].startswith("$ ")]

    assert others == ["make shell\n"]
    assert [block["name"] for block in blocks() if block["name"] is not None] == [
        *("guestbook.py", "repos/home/CLAUDE-OPS.md", "probes.toml", "policy.toml", "model.json"),
    ]


def test_what_differs_is_seen_and_what_is_masked_is_not() -> None:
    printed = ["ID  SINCE", " 1  5s ago", "pid 7"]

    assert is_shown(printed, ["ID   SINCE", " 1  2m 10s ago", "pid 12"])
    assert is_shown(printed, ["ID  SINCE", LEFT_OUT])
    assert not is_shown(printed, ["ID  SINCE", " 2  5s ago", LEFT_OUT])
    assert not is_shown(printed, ["ID  SINCE"])


async def test_the_tutorial_is_what_happens(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, and the tutorial says that its reader needs it")
    with ExitStack() as kept:
        ports = {port: str(kept.enter_context(kept_port())) for port in PORTS}
        async with shell(tmp_path) as reader:
            for block in blocks():
                text = re.sub("|".join(PORTS), lambda found: ports[found[0]], block["text"])
                if block["name"] is not None:
                    (tmp_path / "home" / "guestbook" / block["name"]).write_text(text, encoding="utf-8")
                elif text.startswith("$ "):
                    for step in typed(text):
                        await reader.play(step)
            assert list(processes_about(tmp_path)) == [reader.process.pid]
