"""``curl`` for machines that have none: GET and HEAD of the rehearsal's own services, as far as sessions need it."""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio.to_thread

from claudeops.rehearsal.commands.answer import Answer, Arguments, failed, read

if TYPE_CHECKING:
    from claudeops.rehearsal.estate import Estate, Running

_VALUED: Final = frozenset({"-o", "--output", "-w", "--write-out", "-m", "--max-time", "--connect-timeout", "--retry"})
_SECONDS: Final = 10.0
_REFUSED: Final = 7  # curl(1): failed to connect
_NOT_VERIFIED: Final = 60  # same: the certificate is not one of those that are trusted


@dataclass(frozen=True, kw_only=True, slots=True)
class _Got:
    status: int
    body: str
    seconds: float
    notes: tuple[str, ...] = ()  # what ``-v`` shows


async def curl(estate: Estate, arguments: tuple[str, ...]) -> Answer:
    """Fetch one URL of a service of this rehearsal."""
    given = read(_apart(arguments), valued=_VALUED)
    running = next((found for found in estate.services.values() for url in given.words if _is_of(url, found)), None)
    if len(given.words) != 1 or running is None:
        return failed("curl: this machine has none, and the rehearsal's own asks one of its services only", status=2)
    if running.service.tls and given.get("-k", "--insecure") is None:
        return failed("curl: (60) SSL certificate problem: self-signed certificate", status=_NOT_VERIFIED)
    method = "HEAD" if given.get("-I", "--head") is not None else "GET"
    try:
        got = await anyio.to_thread.run_sync(_fetch, running, method)
    except OSError:
        words = f"curl: (7) Failed to connect to 127.0.0.1 port {running.port}: Couldn't connect to server"
        return Answer(out=_written(given, None), err=[words], status=_REFUSED)
    return Answer(out=_written(given, got), err=got.notes if given.get("-v", "--verbose") is not None else ())


def _apart(arguments: tuple[str, ...]) -> list[str]:
    """Return the arguments with ``-sSk`` as ``-s -S -k``."""
    apart: list[str] = []
    for argument in arguments:
        joined = len(argument) > 2 and argument[0] == "-" and argument[1] != "-"  # noqa: PLR2004 - a dash and a letter
        apart += [f"-{letter}" for letter in argument[1:]] if joined else [argument]
    return apart


def _is_of(url: str, running: Running) -> bool:
    parts = urlsplit(url)
    return (parts.scheme, parts.hostname, parts.port) == (urlsplit(running.url).scheme, "127.0.0.1", running.port)


def _fetch(running: Running, method: str) -> _Got:
    began = time.monotonic()
    notes: tuple[str, ...] = ()
    if running.service.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", running.port, timeout=_SECONDS, context=context
        )
        notes = ("* Server certificate:", f"*  expire date: {_last_day(running)}")
    else:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=_SECONDS)
    try:
        connection.request(method, "/")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    finally:
        connection.close()
    return _Got(status=answer.status, body=body, seconds=time.monotonic() - began, notes=notes)


def _last_day(running: Running) -> str:
    from cryptography import x509  # noqa: PLC0415 - takes as long as all the rest

    pem = (running.directory / "certificate.pem").read_bytes()
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return certificate.not_valid_after_utc.strftime("%b %e %H:%M:%S %Y GMT")


def _written(given: Arguments, got: _Got | None) -> list[str]:
    """Return the body, unless it goes elsewhere, and what ``-w`` asks for, as lines."""
    text = got.body if got is not None and given.get("-o", "--output") in (None, "-") else ""
    template = (given.get("-w", "--write-out") or "").replace("\\n", "\n").replace("\\t", "\t")
    text += template.replace("%{http_code}", f"{got.status if got else 0:03d}").replace(
        "%{time_total}", f"{got.seconds if got else 0:.6f}"
    )
    return text.removesuffix("\n").split("\n") if text else []
