"""The program of a rehearsal's small service: answers HTTP on loopback until its standard input ends.

It runs as a file, ``python -I -S small_service.py CONFIG``, on the standard library alone, so that it is up at once.
CONFIG is a JSON file (`Config`). The program prints ``ready`` once it takes connections. Its parent holds the other end
of its standard input, so that the program ends when the parent is gone, in whatever way.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
import threading
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, TypedDict, cast

_UPLOAD_BYTES: Final = 4096  # that a request writes to the data directory, and removes again
_NEED_SECONDS: Final = 1.0  # in which a service that is needed must take a connection


class Config(TypedDict):
    """What a service is, and what is wrong with it."""

    name: str
    port: int
    answers: str
    log: str  # path of its log file
    data: str  # path of its data directory; "" = it has none
    disk_kib: int
    status: int  # of failing answers; 0 = none fail
    every: int  # one request in so many fails
    complaints: list[str]  # log lines of a failing answer
    disk_complaints: list[str]  # log lines when the data directory is full
    certificate: str  # path of certificate and key; "" = plain HTTP
    needs: dict[str, int]  # services without which it cannot work, and their ports


def used_bytes(directory: Path) -> int:
    """Return the size of all files in a data directory."""
    return sum(entry.stat().st_size for entry in os.scandir(directory) if entry.is_file())


class SmallService(ThreadingHTTPServer):
    """The server with its configuration and its log."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._asked = 0
        self._log = Path(config["log"]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - as long as we live
        super().__init__(("127.0.0.1", config["port"]), Handler)
        if config["certificate"]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(config["certificate"])
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def server_bind(self) -> None:
        """Bind beside the rehearsal's own socket, which keeps the port while this service is down."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()

    def note(self, text: str) -> None:
        """Write a line to the log."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._lock:
            self._log.write(f"{at} {text}\n")

    def answer(self) -> tuple[int, str]:
        """Return status and body of the next answer, and log what goes with it."""
        config = self.config
        with self._lock:
            turn, self._asked = self._asked, self._asked + 1
        if config["data"] and not self._writes():
            for line in config["disk_complaints"]:
                self.note(line)
            return HTTPStatus.INSUFFICIENT_STORAGE, "disk full"
        if (missing := self._missing()) is not None:
            self.note(f"ERROR {missing} does not answer")
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{missing} does not answer"
        if config["status"] and turn % config["every"] == 0:
            for line in config["complaints"]:
                self.note(line)
            return config["status"], "error"
        return HTTPStatus.OK, config["answers"]

    def _missing(self) -> str | None:
        """Return a service that is needed and takes no connections."""
        for name, port in self.config["needs"].items():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=_NEED_SECONDS).close()
            except OSError:
                return name
        return None

    def _writes(self) -> bool:
        """Return whether the data directory has room for a file, by writing one as an upload would."""
        directory = Path(self.config["data"])
        if used_bytes(directory) + _UPLOAD_BYTES > self.config["disk_kib"] * 1024:
            return False
        upload = directory / f".upload-{threading.get_ident()}"
        upload.write_bytes(bytes(_UPLOAD_BYTES))
        upload.unlink()
        return True


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests for any path."""

    timeout = 10  # seconds, for a client that sends nothing
    server_version = "small-service"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Write to the service's own log, not to stderr."""
        cast("SmallService", self.server).note(format % args)

    def _answer(self, *, with_body: bool) -> None:
        status, text = cast("SmallService", self.server).answer()
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(path: str) -> None:
    """Serve until SIGTERM or the end of standard input."""
    # Ctrl-C at the terminal is for the rehearsal, which then stops its services itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config: Config = json.loads(Path(path).read_text(encoding="utf-8"))
    service = SmallService(config)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    service.note(f"{config['name']} is up")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    service.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
