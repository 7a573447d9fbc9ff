"""Waiting for what another process does: on a condition, never on time alone, and never for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 40
LOOK_SECONDS = 0.03  # between looks


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Return as soon as a condition holds; raises `TimeoutError`."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - nobody in another process can set an event of ours
            await anyio.sleep(LOOK_SECONDS)
