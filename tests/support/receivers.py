"""Receivers of notices on loopback: HTTP servers that record, and misbehave as they are told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """A server that takes what Apprise's ``json://`` posts."""

    statuses: list[int] = field(default_factory=list)  # of the next answers; then 200
    holds: bool = False  # it takes requests and never answers
    drips: bool = False  # its answers never end, but go on a little
    heard: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        """Where Apprise finds it; the path is a secret."""
        return f"json://127.0.0.1:{self.port}/0123456789abcdef-of-the-receiver"

    @property
    def titles(self) -> list[str]:
        """What has been heard, by its titles."""
        return [said["title"] for said in self.heard]

    @property
    def bodies(self) -> list[str]:
        """What has been heard, in full."""
        return [said["message"] for said in self.heard]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.heard.append(json.loads(content))
            if receiver.holds:
                receiver.released.wait()
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            while receiver.drips and not receiver.released.wait(0.2):
                self.wfile.write(b"X-Drip: 1\r\n")
                self.wfile.flush()
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.released.set()
            server.shutdown()
            thread.join()
