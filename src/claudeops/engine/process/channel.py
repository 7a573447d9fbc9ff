"""The only writer of a child's stdin: opening, answers, interrupt, repair; then end of file."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.abc import ByteSendStream

SEND_SECONDS: Final = 20.0
"""How long a message may wait for the child to read; a child that takes longer is treated as gone."""


class Channel:
    """Sends whole messages in the order of the calls; messages are never interleaved.

    Once the child has gone, or stopped reading, every further message is dropped: a call that gets no answer
    does not run, so losing an answer is safe.
    """

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream
        self._lock = anyio.Lock()
        self._closed = False

    async def send(self, message: bytes) -> bool:
        """Write one message; ``False`` when the child no longer takes any. Bounded by `SEND_SECONDS`."""
        with anyio.move_on_after(SEND_SECONDS):
            async with self._lock:
                if self._closed:
                    return False
                try:
                    await self._stream.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return False
                return True
        # A message may be half written: nothing that follows it could be understood.
        await self.close()
        return False

    async def close(self) -> None:
        """Give the child end-of-file. Safe to call twice."""
        self._closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(1):
            await self._stream.aclose()
