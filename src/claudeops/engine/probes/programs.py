"""The kinds that run a program: `command` and `systemd`; and how a program is run to its end, with its whole tree."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream

from claudeops.domain.probes.probe import CommandLook, Saw, SystemdLook
from claudeops.engine.probes.results import Attempt, LookResult, blind, down, quote
from claudeops.engine.probes.stream import Means
from claudeops.engine.process import SESSION_MARK
from claudeops.engine.process import child as process
from claudeops.engine.process.child import Child
from claudeops.errors import HarnessError
from claudeops.harness.protocol import CliCommand

MOST_OUTPUT: Final = 256 * 1024
"""Bytes of output that a program may write; one that writes more is ended."""

_READ_BYTES: Final = 16 * 1024
_LAST_SECONDS: Final = 0.5  # for output that is on its way when the program has ended
_USUAL_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_NUMBERS: Final = itertools.count(1)


class ProgramRun(msgspec.Struct, frozen=True):
    """A program that was run."""

    exit_code: int | None  # None: it was ended, as ``cut`` says
    output: str  # of both kinds, as it came
    cut: str = ""  # why it was ended


class NotRun(msgspec.Struct, frozen=True):
    """A program that was not run."""

    why: str


RunCommand = Callable[[str, float], Awaitable[ProgramRun | NotRun]]
"""Runs the text of a command in the cell, for at most so many seconds; cancelled, it leaves nothing running."""


async def look_command(look: CommandLook, run: RunCommand | None, attempt: Attempt) -> LookResult:
    """Run a reading command and hold its exit code and output against what is expected; raises `LookFailedError`."""
    if run is None:
        raise blind("commands are run by the daemon only, in its cell")
    attempt.begin("the command was still running")
    ran = await run(look.command, attempt.left)
    if isinstance(ran, NotRun):
        raise blind(ran.why)
    said = quote(ran.output.strip().rpartition("\n")[2]) if ran.output.strip() else "nothing"
    if ran.exit_code is None:
        raise down(f"{ran.cut}, and was ended: it said {said}")
    if ran.exit_code in look.degraded:
        return LookResult(Saw.DEGRADED, f"exit code {ran.exit_code}, and said {said}")
    if ran.exit_code != 0:
        return LookResult(Saw.DOWN, f"exit code {ran.exit_code}, and said {said}")
    if look.text and look.text not in ran.output:
        return LookResult(Saw.DOWN, f"its output is without {quote(look.text)}, and ends with {said}")
    return LookResult(Saw.UP, f"it said {said}")


# --- systemd -----------------------------------------------------------------------------------------------

_PASSED: Final = ("PATH", "DBUS_SYSTEM_BUS_ADDRESS")
_SHOWN: Final = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts")


async def look_systemd(look: SystemdLook, means: Means, attempt: Attempt) -> LookResult:
    """Ask systemd for the state of a unit; raises `LookFailedError`."""
    attempt.asks_other = True
    attempt.begin("waiting for systemctl")
    told = await ask_systemd((f"--property={','.join(_SHOWN)}", "--no-pager", "--", look.unit), means)
    states = dict(line.partition("=")[::2] for line in told.splitlines())
    return judged(look.unit, states)


async def ask_systemd(arguments: Sequence[str], means: Means) -> str:
    """Return what ``systemctl show`` says; raises `LookFailedError`."""
    argv = ("systemctl", "show", *arguments)
    passed = {name: means.environment[name] for name in _PASSED if name in means.environment}
    ran = await run_program(argv, env={"PATH": _USUAL_PATH, **passed, "LC_ALL": "C", "SYSTEMD_COLORS": "0"})
    if isinstance(ran, NotRun):
        raise blind("there is no systemctl here: such a probe needs the daemon on the machine itself")
    if ran.exit_code != 0:
        raise blind(f"systemd cannot be asked, since no bus is here: {quote(ran.output)}")
    return ran.output


def judged(unit: str, states: Mapping[str, str]) -> LookResult:
    """Return how a unit stands, given what ``systemctl show`` says of it."""
    load, active, sub = (states.get(name, "") for name in ("LoadState", "ActiveState", "SubState"))
    if load == "not-found":
        return LookResult(Saw.DOWN, f"there is no unit {quote(unit)}")
    if not active:
        raise blind("systemd says nothing about the state of the unit")
    told = f"it is {active} ({sub})"
    told += f", result {quote(result)}" if (result := states.get("Result", "")) not in {"", "success"} else ""
    told += f", restarted {restarts} times" if (restarts := states.get("NRestarts", "0")) not in {"", "0"} else ""
    told += f", {load}" if load not in {"", "loaded"} else ""
    if active in {"active", "reloading", "refreshing"}:
        return LookResult(Saw.UP, told)
    # Between a crash and the next start systemd calls a unit activating.
    starting = active == "activating" and sub not in {"auto-restart", "auto-restart-queued"}
    return LookResult(Saw.DEGRADED if starting else Saw.DOWN, told)


# --- a program, to its end -----------------------------------------------------------------------------------


async def run_program(argv: tuple[str, ...], *, env: Mapping[str, str]) -> ProgramRun | NotRun:
    """Run a program of the machine outside of the cell; one of ours, never one that somebody else names."""
    mark = f"claudeops-probe#{os.getpid()}.{next(_NUMBERS)};"
    try:
        child = await process.spawn(CliCommand(argv=argv, env={**env, SESSION_MARK: mark}), cwd=Path("/"), mark=mark)
    except HarnessError as error:
        return NotRun(str(error))
    return await run_to_end(child)


async def run_to_end(child: Child) -> ProgramRun:
    """Return what a program says until it ends or has said too much; its whole tree ends with this call."""
    output = _Output()
    try:
        with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            await child.stdin.send_eof()
        async with anyio.create_task_group() as tasks:
            for stream in (child.stdout, child.stderr):
                tasks.start_soon(output.read, stream)
            tasks.start_soon(output.wait, child)
            await output.over.wait()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):  # each of them bounds itself
            if not child.exited or child.lifeline is not None:
                await process.kill(child)
            await process.sweep(child)
            await child.aclose()
    text = bytes(output.content[:MOST_OUTPUT]).decode("utf-8", "replace")
    if len(output.content) > MOST_OUTPUT:
        return ProgramRun(None, text, f"it wrote more than {MOST_OUTPUT // 1024} KiB")
    return ProgramRun(child.process.returncode, text)


class _Output(msgspec.Struct):
    """What a program has written so far; it is over when the program has ended, or has written too much."""

    content: bytearray = msgspec.field(default_factory=bytearray)
    over: anyio.Event = msgspec.field(default_factory=anyio.Event)
    read_to_end: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _ends: int = 0

    async def read(self, stream: ByteReceiveStream) -> None:
        """Read one of the two streams."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while len(self.content) <= MOST_OUTPUT:
                self.content += await stream.receive(_READ_BYTES)
            self.over.set()
        self._ends += 1
        if self._ends == 2:  # noqa: PLR2004 - streams
            self.read_to_end.set()

    async def wait(self, child: Child) -> None:
        """Wait for the end; what still holds the streams open by then was left behind, and is not waited for."""
        await child.process.wait()
        with anyio.move_on_after(_LAST_SECONDS):
            await self.read_to_end.wait()
        self.over.set()
