"""The way from a filter to the API server of a context, with the credentials of its user."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
from anyio.abc import ByteStream

from claudeops.engine.filtering.connection import EngineConnection

CONNECT_SECONDS: Final = 10.0
_TOKEN_BYTES: Final = 64 * 1024
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A context of a kubeconfig, with all that its files held but for a token's, which is read anew each time."""

    name: str
    server: str  # an http or https URL
    namespace: str  # its own
    is_current: bool
    tls_name: str = ""  # that the certificate must have; empty: the host
    verifies: bool = True
    authority: str = field(default="", repr=False)  # PEM; empty: the machine's authorities
    certificate: str = field(default="", repr=False)  # PEM, with the key
    token: str = field(default="", repr=False)
    token_file: str = ""

    @property
    def url(self) -> SplitResult:
        """Return its server."""
        return urlsplit(self.server)

    async def current_token(self) -> str:
        """Return the token that says who asks, "" for none; raises `OSError` where its file cannot be read.

        In plain text none is sent, as kubectl sends none.
        """
        if self.url.scheme != "https":
            return ""
        if self.token or not self.token_file:
            return self.token
        with anyio.fail_after(CONNECT_SECONDS):
            return await anyio.to_thread.run_sync(_read, self.token_file, abandon_on_cancel=True)

    async def headers(self, sent: Sequence[tuple[str, str]], token: str | None = None) -> list[tuple[str, str]]:
        """Return the headers of a request: which server is meant, who asks (`current_token`), and the others."""
        token = await self.current_token() if token is None else token
        who = [("Authorization", f"Bearer {token}")] if token else []
        return [("Host", self.url.netloc), *who, ("Accept-Encoding", "identity"), *sent]

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[EngineConnection]:
        """Hold a connection for one request; raises `OSError` and its like, and `ssl.SSLError`."""
        with anyio.fail_after(CONNECT_SECONDS):
            stream = await self._stream()
        async with stream:
            yield EngineConnection(stream=stream)

    async def _stream(self) -> ByteStream:
        url = self.url
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        if url.scheme == "http":
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(
            host, port, ssl_context=_tls(self), tls_standard_compatible=False, tls_hostname=self.tls_name or host
        )


_CONTEXTS: Final[dict[Context, ssl.SSLContext]] = {}


def _tls(context: Context) -> ssl.SSLContext:
    """Return how TLS is spoken with a context's server; reading the machine's authorities takes milliseconds."""
    if (made := _CONTEXTS.get(context)) is None:
        made = ssl.create_default_context(cadata=context.authority or None)
        if not context.verifies:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        made.set_alpn_protocols(["http/1.1"])
        if context.certificate:
            loaded(made, context.certificate)
        _CONTEXTS[context] = made
    return made


def loaded(tls: ssl.SSLContext, pem: str) -> None:
    """Give TLS a certificate and its key; ssl reads them from a path, so from memory that has one."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        tls.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _read(file: str) -> str:
    with Path(file).open(encoding="ascii") as opened:
        return opened.read(_TOKEN_BYTES).strip()
