"""The trial of the levels of isolation, and of the programs for sessions, beside the rest of a start.

Another process tries them (`claudeops.app.start.trial_process`), and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from claudeops.app.start.checks import binaries, forbidden_paths
from claudeops.app.start.trial_process import TrialProcess, end, found_looks, order_looks, started, try_isolation
from claudeops.engine.cell.cell import SHARED
from claudeops.engine.cell.levels import HostContext, Selected
from claudeops.engine.cell.look_cell import FoundLooks
from claudeops.settings import Settings


def surroundings(settings: Settings) -> HostContext:
    """Return what the levels of isolation need to know of this machine to be tried."""
    homes = (tier.home for tier in settings.tiers if tier.home is not None)
    return HostContext(
        path=settings.environment.path,
        binaries=tuple(binaries(settings).values()),
        repos_dir=settings.places.repos_dir,
        shares_network=settings.cell.network == SHARED,
        hidden=(*map(Path, forbidden_paths(settings)), *homes, *settings.private_files),
    )


class Trial(msgspec.Struct, frozen=True):
    """What was begun, and is known later."""

    isolation: Future[Selected]  # raises `ConfigurationError` when the demanded level does not work
    looks: Future[FoundLooks]  # tried in the cell that was chosen, once they are ordered
    order_looks: Callable[[], None]  # once, after the first answer; does not block


@asynccontextmanager
async def trying(settings: Settings, process: TrialProcess | None = None) -> AsyncIterator[Trial]:
    """Try both while the block runs, in a process that may have been started; on leaving it, it has ended.

    Before a start's the directories were made: a trial would wait without a bound for a disk that does not answer.
    """
    process = process or started()
    thread = ThreadPoolExecutor(1, thread_name_prefix="trial")
    isolation = thread.submit(try_isolation, process, settings.cell.isolation, surroundings(settings))
    looks = thread.submit(found_looks, process, isolation)
    thread.shutdown(wait=False)  # once both are done
    try:
        yield Trial(isolation, looks, partial(order_looks, process))
    finally:
        looks.cancel()  # unless they are waited for by now
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(end, process, (isolation, looks))
