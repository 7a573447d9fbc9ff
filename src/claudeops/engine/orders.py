"""Does what operators ask of a running daemon; their commands are other processes, so they ask through the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.orders import OrderName
from claudeops.domain.outcome import StopCause
from claudeops.engine.trouble import DatabaseTrouble
from claudeops.errors import StoreError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudeops.engine.ports import Clock, Store
    from claudeops.logs import Logger

LOOK_SECONDS: Final = 1.0
"""How soon an order is noticed."""


async def obey(store: Store, clock: Clock, stop_all: Callable[[StopCause], int], log: Logger) -> None:
    """Take orders and do them until cancelled. A database that fails keeps them waiting."""
    trouble = DatabaseTrouble(log, "orders")
    while True:
        pause = LOOK_SECONDS
        try:
            for order in await store.take_orders(now=clock.now()):
                log.warning(LogEvent.ORDER_TAKEN, order=order.name, requested_by=order.requested_by)
                if order.name == OrderName.STOP_SESSIONS:
                    result, error = f"{stop_all(StopCause.PAUSED)} sessions were asked to stop", None
                else:
                    result, error = None, "this release does not know the order"
                await store.end_order(order.id, result=result, error=error, now=clock.now())
        except StoreError as error_of_database:
            pause = trouble.failed(error_of_database)
        else:
            trouble.over()
        await anyio.sleep(pause)
