"""The meter is opened for the first who wants it, once, and closed behind everybody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from claudeops.app.meter import LateMeter
from claudeops.engine.meter.meter import Meter
from claudeops.tasks import open_tasks

METER = cast("Meter", SimpleNamespace(url="http://127.0.0.1:1"))


class Opening:
    """Notes what becomes of a meter."""

    def __init__(self, fault: OSError | None = None) -> None:
        self.course: list[str] = []
        self.fault = fault

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Meter]:
        if self.fault is not None:
            raise self.fault
        self.course.append("opened")
        await anyio.lowlevel.checkpoint()
        yield METER
        self.course.append("closed")


async def test_a_meter_is_opened_once_for_all_who_want_it_and_open_until_it_is_closed() -> None:
    opening, found = Opening(), list[Meter | None]()
    meter = LateMeter(opening)

    async def want() -> None:
        found.append(await meter.opened())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meter.run)
        async with anyio.create_task_group() as wanting:
            wanting.start_soon(want)
            wanting.start_soon(want)
        before = list(opening.course)
        meter.close()

    assert (before, opening.course, found) == (["opened"], ["opened", "closed"], [METER, METER])


async def test_a_meter_that_no_session_wanted_is_not_opened_for_its_end() -> None:
    opening = Opening()
    meter = LateMeter(opening)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(meter.run)
        await anyio.lowlevel.checkpoint()
        meter.close()

    assert opening.course == []


async def test_who_wants_a_meter_that_cannot_be_opened_does_not_wait_for_it() -> None:
    meter = LateMeter(Opening(OSError("no descriptor is left")))

    async def want() -> None:
        async with open_tasks() as tasks:
            tasks.start_soon(meter.run)
            await meter.opened()

    with pytest.raises(OSError, match="no descriptor is left"):
        await want()
