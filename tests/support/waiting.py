"""Waiting for what another process does: on a condition, never on time alone, and never for ever."""

from __future__ import annotations

import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio

PATIENCE_SECONDS = 240
"""A guard against hanging, on a machine that may be four times slower; no test waits for it to pass."""

LOOK_SECONDS = 0.03  # between looks


def hears(pid: int) -> bool:
    """Tell whether a process handles SIGTERM: before that it has done nothing but start its interpreter."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        caught = int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)
    return False


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as a condition holds; raises `TimeoutError`."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - nobody in another process can set an event of ours
            await anyio.sleep(LOOK_SECONDS)


async def until_it(asked: Callable[[], Awaitable[object]], seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as a question is answered with something, where the answer itself is waited for, as a row's is."""
    with anyio.fail_after(seconds):
        while not await asked():  # noqa: ASYNC110 - a database sets no event
            await anyio.sleep(LOOK_SECONDS)


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Block until a condition holds, where there is no event loop; raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not hold within {seconds:.0f} s")
        time.sleep(LOOK_SECONDS)
