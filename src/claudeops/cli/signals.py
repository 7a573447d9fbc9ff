"""Signals, at the rim: they become requests to stop and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from claudeops.cli import early_signals
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claudeops.engine.shutdown import Shutdown
    from claudeops.logs import Logger


@contextmanager
def listening(shutdown: Shutdown, log: Logger) -> Iterator[None]:
    """Take SIGINT and SIGTERM as requests to stop, those first that came before the block. On the event loop.

    What comes after the block is kept and has no effect: by then everything ends anyway.
    """
    ear = early_signals.hear()

    def heed() -> None:
        for number in early_signals.heard():
            log.warning(LogEvent.SIGNAL_RECEIVED, signal=number.name)
            shutdown.request()

    loop = asyncio.get_running_loop()
    heed()
    loop.add_reader(ear, heed)
    try:
        yield
    finally:
        loop.remove_reader(ear)
