"""Stand-ins for ``curl``, ``systemctl`` and ``journalctl``.

``curl``, for machines that have none, does GET and HEAD of the rehearsal's own services, as far as sessions need it.
``systemctl`` and ``journalctl`` manage the services with ``runs_on = "systemd"``.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import anyio.to_thread
import msgspec

from claudeops.rehearsal.commands.answer import CommandArguments, CommandOutput, all_on, failed, find, last, read, table
from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario import RunsOn

_CURL_VALUED: Final = frozenset(
    {"-o", "--output", "-w", "--write-out", "-m", "--max-time", "--connect-timeout", "--retry"}
)
_FETCH_SECONDS: Final = 10.0
_REFUSED: Final = 7  # curl(1): failed to connect
_NOT_VERIFIED: Final = 60  # curl(1): the certificate is not trusted

_SYSTEMCTL_VALUED: Final = frozenset(
    {"-n", "--lines", "-u", "--unit", "-S", "--since", "-U", "--until", "-p", "--priority", "--state", "-t", "-o"}
)
_NOT_RUNNING: Final = 3  # systemctl(1): is-active for a unit that is not active
_UNKNOWN: Final = 4  # systemctl(1): no such unit
_LOG_LINES: Final = 10  # that `systemctl status` shows


# --- curl --------------------------------------------------------------------------------------------


async def curl(environment: Environment, arguments: tuple[str, ...]) -> CommandOutput:
    """Fetch one URL of a service of this rehearsal."""
    given = read(_split_flags(arguments), valued=_CURL_VALUED)
    running = next(
        (found for found in environment.services.values() for url in given.words if _is_of(url, found)), None
    )
    if len(given.words) != 1 or running is None:
        return failed("curl: this machine has none, and the rehearsal's own asks one of its services only", status=2)
    if running.service.tls and given.get("-k", "--insecure") is None:
        return failed("curl: (60) SSL certificate problem: self-signed certificate", status=_NOT_VERIFIED)
    method = "HEAD" if given.get("-I", "--head") is not None else "GET"
    try:
        got = await anyio.to_thread.run_sync(_fetch, running, method)
    except OSError:
        words = f"curl: (7) Failed to connect to 127.0.0.1 port {running.port}: Couldn't connect to server"
        return CommandOutput(out=_output(given, None), err=[words], status=_REFUSED)
    return CommandOutput(out=_output(given, got), err=got.notes if given.get("-v", "--verbose") is not None else ())


class _Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: str
    seconds: float
    notes: tuple[str, ...] = ()  # what ``-v`` shows


def _split_flags(arguments: tuple[str, ...]) -> list[str]:
    """Return the arguments with ``-sSk`` split into ``-s -S -k``."""
    apart: list[str] = []
    for argument in arguments:
        joined = len(argument) > 2 and argument[0] == "-" and argument[1] != "-"  # noqa: PLR2004 - a dash and a letter
        apart += [f"-{letter}" for letter in argument[1:]] if joined else [argument]
    return apart


def _is_of(url: str, running: Running) -> bool:
    parts = urlsplit(url)
    return (parts.scheme, parts.hostname, parts.port) == (urlsplit(running.url).scheme, "127.0.0.1", running.port)


def _fetch(running: Running, method: str) -> _Response:
    began = time.monotonic()
    notes: tuple[str, ...] = ()
    if running.service.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1", running.port, timeout=_FETCH_SECONDS, context=context
        )
        notes = ("* Server certificate:", f"*  expire date: {_last_day(running)}")
    else:
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=_FETCH_SECONDS)
    try:
        connection.request(method, "/")
        answer = connection.getresponse()
        body = answer.read().decode(errors="replace")
    finally:
        connection.close()
    return _Response(status=answer.status, body=body, seconds=time.monotonic() - began, notes=notes)


def _last_day(running: Running) -> str:
    from cryptography import x509  # noqa: PLC0415 - slow to import

    pem = running.certificate.read_bytes()
    certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return certificate.not_valid_after_utc.strftime("%b %e %H:%M:%S %Y GMT")


def _output(given: CommandArguments, got: _Response | None) -> list[str]:
    """Return the lines to print: the body, unless ``-o`` sends it elsewhere, and what ``-w`` asks for."""
    text = got.body if got is not None and given.get("-o", "--output") in (None, "-") else ""
    template = (given.get("-w", "--write-out") or "").replace("\\n", "\n").replace("\\t", "\t")
    text += template.replace("%{http_code}", f"{got.status if got else 0:03d}").replace(
        "%{time_total}", f"{got.seconds if got else 0:.6f}"
    )
    return text.removesuffix("\n").split("\n") if text else []


# --- systemctl and journalctl ------------------------------------------------------------------------


async def systemctl(environment: Environment, arguments: tuple[str, ...]) -> CommandOutput:
    """Run one systemctl command."""
    given = read(arguments, valued=_SYSTEMCTL_VALUED)
    match given.words:
        case []:
            return _listed(environment, failed_only="--failed" in given.options)
        case ["list-units", *_]:
            return _listed(environment, failed_only="--failed" in given.options)
        case ["is-active", *units] if units:
            return _active(environment, units)
        case ["status", unit]:
            return _status(environment, unit)
        case ["restart" | "try-restart" | "reload-or-restart" | "start" | "stop" as verb, *units] if units:
            return await _changed(environment, verb, units)
        case _:
            return failed(f"systemctl: this rehearsal knows no '{' '.join(arguments)}'")


async def journalctl(environment: Environment, arguments: tuple[str, ...]) -> CommandOutput:
    """Show the log of a unit."""
    given = read(arguments, valued=_SYSTEMCTL_VALUED)
    unit = given.get("-u", "--unit") or ""
    running = _unit(environment, unit)
    if running is None:
        return CommandOutput(out=["-- No entries --"])
    return CommandOutput(out=last(running.log_lines(), given.get("-n", "--lines")))


def _unit(environment: Environment, unit: str) -> Running | None:
    return find(environment, unit.removesuffix(".service"), RunsOn.SYSTEMD)


def _state(running: Running) -> str:
    return "active" if running.is_running else "failed"


def _listed(environment: Environment, *, failed_only: bool) -> CommandOutput:
    units = [unit for unit in all_on(environment, RunsOn.SYSTEMD) if not failed_only or not unit.is_running]
    rows = [["UNIT", "LOAD", "ACTIVE"], *([f"{unit.name}.service", "loaded", _state(unit)] for unit in units)]
    return CommandOutput(out=[*table(rows), f"{len(units)} loaded units listed."])


def _active(environment: Environment, units: Sequence[str]) -> CommandOutput:
    states = [_state(found) if (found := _unit(environment, unit)) else "inactive" for unit in units]
    return CommandOutput(out=states, status=0 if "active" in states else _NOT_RUNNING)


def _status(environment: Environment, unit: str) -> CommandOutput:
    running = _unit(environment, unit)
    if running is None:
        return failed(f"Unit {unit} could not be found.", status=_UNKNOWN)
    head = [f"{running.name}.service", f"     Active: {_state(running)} since {running.started_at.isoformat()}", ""]
    return CommandOutput(
        out=[*head, *last(running.log_lines(), str(_LOG_LINES))], status=0 if running.is_running else _NOT_RUNNING
    )


async def _changed(environment: Environment, verb: str, units: Sequence[str]) -> CommandOutput:
    for unit in units:
        running = _unit(environment, unit)
        if running is None:
            return failed(f"Failed to {verb} {unit}: Unit {unit} not found.", status=5)
        if verb == "stop":
            await running.stop()
        elif verb != "start" or not running.is_running:
            await running.restart()
        if verb != "stop" and not running.is_running:
            return failed(
                f"Job for {running.name}.service failed because the control process exited with error code.",
                f'See "systemctl status {running.name}.service" and "journalctl -xeu {running.name}.service".',
            )
    return CommandOutput()
