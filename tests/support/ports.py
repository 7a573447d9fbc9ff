"""Ports for servers that are to be found at a number that is known before they start, and that no other test gets.

A port that the kernel has chosen, and that is closed again, may be anybody's before the server begins: the next
connection of any process may leave from it. These lie below those that the kernel gives away, and a lock keeps each of
them from other workers and other runs. Where a product can say which port it was given, it is started with port 0.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FIRST: Final = 20_000
COUNT: Final = 4_000  # Linux gives away those from 32768 on
LOCKS: Final = Path(tempfile.gettempdir()) / f"claudeops-ports-of-tests-{os.geteuid()}"


@contextmanager
def kept_port() -> Iterator[int]:
    """Give a port on which nobody listens, and that is this test's until the block is left."""
    LOCKS.mkdir(exist_ok=True)
    for port in range(FIRST, FIRST + COUNT):
        with (LOCKS / str(port)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if _is_free(port):
                yield port
                return
    raise RuntimeError(f"none of the ports {FIRST} to {FIRST + COUNT} is free")


def _is_free(port: int) -> bool:
    """Tell whether somebody could listen; what is left of closed connections is in nobody's way."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
