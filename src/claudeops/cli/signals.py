"""Signals, at the rim: they become requests to stop and nothing else."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from claudeops.engine.shutdown import Shutdown
    from claudeops.logs import Logger


async def listen(shutdown: Shutdown, log: Logger, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
    """Take SIGINT and SIGTERM as requests to stop until cancelled. Main thread only."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            log.warning(LogEvent.SIGNAL_RECEIVED, signal=signal.Signals(number).name)
            shutdown.request()
