"""A site on loopback, with TLS or without, that answers with what it was sent: headers, in many forms, and bodies."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

from support.waiting import PATIENCE_SECONDS


@dataclass
class Site:
    """What a site has seen."""

    port: int
    heads: list[dict[str, str]] = field(default_factory=list)  # of requests, names in lower case
    lines: list[str] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)  # ports of its clients


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        self._note()
        sent = self.headers.get("Authorization", "none")
        match self.path.partition("?")[0]:
            case "/forms":
                forms = (sent, quote(sent, safe=""), sent.encode().hex(), base64.b64encode(sent.encode()).decode())
                self._answer(json.dumps(forms).encode(), {"X-Echo": sent, "Set-Cookie": f"a={quote(sent)}"})
            case "/chunks":
                repeated = f"{sent} ".encode() * 50
                self._chunks([repeated[at : at + 3] for at in range(0, len(repeated), 3)])
            case "/events":
                self._chunks([f"data: {sent}\n\n".encode(), b"data: 2\n\n"])
            case "/compressed":
                self._answer(gzip.compress(sent.encode()), {"Content-Encoding": "gzip"})
            case "/elsewhere":
                self._answer(b"", {"Location": f"http://127.0.0.1:1/?key={quote(sent)}"}, status=302)
            case "/large":
                self._answer(b"0123456789abcdef" * (1 << 16))
            case "/cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"half")
                self.close_connection = True
            case "/last":
                self._answer(sent.encode(), {"Connection": "close"})
                self.close_connection = True
            case _:
                self._answer(json.dumps(dict(self.headers.items())).encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._note()
        self._answer(self._body() + b" by " + self.headers.get("Authorization", "none").encode())

    def do_PUT(self) -> None:
        self.do_POST()

    def _note(self) -> None:
        self.site.heads.append({name.lower(): value for name, value in self.headers.items()})
        self.site.lines.append(self.requestline)
        self.site.connections.add(self.client_address[1])

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _answer(self, content: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _chunks(self, parts: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (*parts, b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def log_message(self, *_: object) -> None:
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: object, client_address: object) -> None:
        if self.tls is not None:
            request.settimeout(PATIENCE_SECONDS)  # type: ignore[attr-defined]  # it is a socket
            request = self.tls.wrap_socket(request, server_side=True)  # type: ignore[arg-type]  # as above
        super().finish_request(request, client_address)  # type: ignore[arg-type]  # as above
        if self.tls is not None:
            request.close()  # type: ignore[attr-defined]  # as above

    def handle_error(self, *_: object) -> None:
        return  # a client that does not take the certificate is no news


@contextmanager
def echoing_site(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """Serve such a site for the length of the block."""

    class Handler(_Handler):
        site = Site(port=0)

    with _Server(("127.0.0.1", 0), Handler) as server:
        server.tls = tls
        site, Handler.site.port = Handler.site, server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)
