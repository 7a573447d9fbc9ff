"""The wish to stop, as a value that everything which waits can wait on."""

from __future__ import annotations

import anyio


class Shutdown:
    """A first request drains, a second one hurries."""

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.hurried = anyio.Event()

    def request(self) -> None:
        """Ask for a stop; asked again, for a quick one."""
        (self.hurried if self.requested.is_set() else self.requested).set()
