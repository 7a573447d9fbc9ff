"""A listener whose fleet stream carries facts at a steady pace: ``python fed.py RATE`` prints its address.

Serves until its standard input ends, then prints the processor seconds that it took.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from claudeops.domain.live import AssistantSaid
from claudeops.http_server import listen
from claudeops.web.endpoints import EndpointTable
from claudeops.web.streams import Streams, stream_endpoints
from support.listening import Door, token_for


async def serve(rate: float) -> None:
    """Publish and serve."""
    door = Door()
    # A caller has at most twenty streams.
    door.tokens.kept = {number: token_for(number, "read") for number in range(1, 11)}
    streams = Streams(live=door.hub, logs=door.logs)
    door.listener.table = EndpointTable(stream_endpoints(streams))
    async with listen(door.listener, host="127.0.0.1", port=0, closing=anyio.Event()) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, door, rate)
            await anyio.to_thread.run_sync(sys.stdin.read)
            tasks.cancel_scope.cancel()
    sys.stdout.write(f"{time.process_time()}\n")


async def publish(door: Door, rate: float) -> None:
    """Publish facts that say when they were."""
    due = anyio.current_time()
    while True:
        text = f"{time.monotonic():.6f} " + "x" * 250
        door.hub.publish(AssistantSaid(at=datetime.now(UTC), session_id=1, chain=1, tier=1, text=text))
        due += 1 / rate
        await anyio.sleep(max(0.0, due - anyio.current_time()))


if __name__ == "__main__":
    anyio.run(serve, float(sys.argv[1]))
