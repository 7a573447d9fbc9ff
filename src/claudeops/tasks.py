"""A task group for code whose errors have a caller to read them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import TaskGroup


@asynccontextmanager
async def open_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that lets a single exception out as it is: what the caller's block raises is the caller's.

    Groups of one within groups of one are opened too.
    """
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        failure = group.exceptions[0]
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
    if failure is not None:
        raise failure
