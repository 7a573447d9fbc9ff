"""The environment of a rehearsal: small services, which are real processes with real faults, and really restart."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.errors import RehearsalError
from claudeops.rehearsal import small_service
from claudeops.rehearsal.scenario import (
    Cure,
    DiskFull,
    ExpiredCertificate,
    Failing,
    Fault,
    Scenario,
    ScenarioService,
    ServiceState,
    Silent,
    Stopped,
)

GOOD_VERSION: Final = "1.4.2"
BAD_VERSION: Final = "1.4.3"  # deployed where only a redeployment helps

_STATUS_SECONDS: Final = 5.0

_START_SECONDS: Final = 20.0  # usually 0.1; a loaded machine takes longer
_STOP_SECONDS: Final = 2.0
_STDERR: Final = "stderr"
_CERTIFICATE: Final = "certificate.pem"
_EXPIRED: Final = "expired.pem"


@asynccontextmanager
async def running_environment(scenario: Scenario, directory: Path) -> AsyncIterator[Environment]:
    """Start a scenario's services below ``directory``; they end when the block is left, in whatever way.

    Raises `RehearsalError` when one does not start.
    """
    async with AsyncExitStack() as stack:
        services = {}
        for name, service in scenario.services.items():
            faults = [fault for fault in scenario.faults if fault.service == name]
            running = _prepare(name, service, faults, directory / name)
            stack.callback(running.reserved.close)
            stack.push_async_callback(running.stop)
            services[name] = running
        for running in services.values():
            running.needs = {need: services[need].port for need in running.service.needs}
        await _start_all(services.values())
        yield Environment(services)


class Environment(msgspec.Struct, frozen=True):
    """The services of a rehearsal, by name."""

    services: Mapping[str, Running]

    def placeholders(self) -> dict[str, str]:
        """Return the values of the placeholders that a scenario's texts may use for its services."""
        values = {}
        for name, running in self.services.items():
            values[f"{name}.url"] = running.url
            values[f"{name}.host"] = f"127.0.0.1:{running.port}"
            values[f"{name}.port"] = str(running.port)
        return values

    async def states(self) -> dict[str, ServiceState]:
        """Request every service over HTTP, as anybody could, and return how each one answers."""
        states = {}
        for name, running in self.services.items():
            status = await get_status(running.url)
            states[name] = (
                ServiceState.DOWN
                if status is None
                else ServiceState.UP
                if status < HTTPStatus.BAD_REQUEST
                else ServiceState.FAILING
            )
        return states


@dataclass(kw_only=True)
class Running:
    """One service: its process, its faults and its files."""

    name: str
    service: ScenarioService
    directory: Path
    port: int
    reserved: socket.socket  # bound but never listening: keeps the port while the service is down
    faults: list[Fault]  # that it has now
    away: list[Fault] = field(default_factory=list)  # that have gone by themselves and may come again
    needs: Mapping[str, int] = field(default_factory=dict)  # ports of the services that it needs
    process: Process | None = None
    restarts: int = 0
    deployments: list[str] = field(default_factory=list)  # versions, oldest first
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def url(self) -> str:
        """Where the service answers, or would if it ran."""
        return f"{'https' if self.service.tls else 'http'}://127.0.0.1:{self.port}/"

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    @property
    def data(self) -> Path | None:
        """Its data directory, if it has one."""
        return None if self.service.disk_kib is None else self.directory / "data"

    @property
    def certificate(self) -> Path:
        """The certificate that it shows, with its key."""
        is_expired = any(isinstance(fault, ExpiredCertificate) for fault in self.faults)
        return self.directory / (_EXPIRED if is_expired else _CERTIFICATE)

    @property
    def beats(self) -> bool:
        """Whether it sends its heartbeat, if it has one."""
        return self.is_running and not any(isinstance(fault, Silent) for fault in self.faults)

    @property
    def version(self) -> str:
        """The deployed version."""
        return self.deployments[-1]

    def log_lines(self) -> list[str]:
        """Return its log, oldest line first."""
        try:
            return (self.directory / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def used_kib(self) -> int:
        """Return the size of its data, in whole KiB, rounded up."""
        return 0 if self.data is None else -(-small_service.used_bytes(self.data) // 1024)

    def note(self, *lines: str) -> None:
        """Write lines to its log on its behalf, while it cannot write them itself."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with (self.directory / "log").open("a", encoding="utf-8") as file:
            file.writelines(f"{at} {line}\n" for line in lines)

    # --- the process ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start its process and wait until it answers; if a fault keeps it down, log that instead."""
        self.started_at = datetime.now(UTC)
        for fault in self.faults:
            if isinstance(fault, Stopped):
                self.note(*(fault.log or (f"{self.name} exits with status 1",)))
                return
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()), encoding="utf-8")
        program = str(Path(small_service.__file__))
        with (self.directory / _STDERR).open("ab") as stderr:
            self.process = await anyio.open_process(
                [sys.executable, "-I", "-S", program, str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,  # a pipe that nobody reads would fill up
                cwd=self.directory,
                # Stays in our own process session: of processes in others, only those that a session started are ours.
            )
        await self._until_ready(self.process)

    async def stop(self) -> None:
        """End its process, politely first; bounded."""
        process, self.process = self.process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
                with anyio.move_on_after(_STOP_SECONDS):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.aclose()

    async def restart(self) -> None:
        """End the process and start a new one, without the faults that a restart cures."""
        async with self.lock:
            self.restarts += 1
            self._cure(Cure.RESTART)
            await self.stop()
            await self.start()

    async def redeploy(self) -> None:
        """Deploy the good version, without the faults that a restart or a redeployment cures."""
        async with self.lock:
            self._cure(Cure.RESTART, Cure.REDEPLOYMENT)
            self.deployments.append(GOOD_VERSION)
            self.note(f"{self.name} {GOOD_VERSION} is deployed")
            await self.stop()
            await self.start()

    async def strike(self, fault: Fault, *, again: bool = False) -> datetime | None:
        """Let a fault begin, and return when it did; ``None`` if it was cured while it was away."""
        async with self.lock:
            if again and fault not in self.away:
                return None
            began_at = datetime.now(UTC)
            self.away = [other for other in self.away if other != fault]
            self.faults.append(fault)
            if isinstance(fault, (Silent, ExpiredCertificate)):
                self.note(*fault.log)
            if not isinstance(fault, Silent):
                await self._become()
        return began_at

    async def recover(self, fault: Fault) -> bool:
        """Let a fault go by itself, until it comes again; ``False`` if it was cured before."""
        async with self.lock:
            if fault not in self.faults:
                return False
            self.faults = [other for other in self.faults if other != fault]
            self.away.append(fault)
            await self._become()
        return True

    async def _become(self) -> None:
        """Start the process anew, as the faults of now want it."""
        await self.stop()
        await self.start()

    def _cure(self, *cures: Cure) -> None:
        self.faults = [fault for fault in self.faults if fault.cured_by not in cures]
        self.away = [fault for fault in self.away if fault.cured_by not in cures]

    async def _until_ready(self, process: Process) -> None:
        if process.stdout is None:
            raise AssertionError("its output was asked for as a pipe")
        try:
            with anyio.fail_after(_START_SECONDS):
                await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 100)
        except (TimeoutError, anyio.IncompleteRead):
            stderr = (self.directory / _STDERR).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = stderr[-1] if stderr else "it printed nothing"
            raise RehearsalError(f"The service {self.name} of the rehearsal did not start: {reason}") from None

    def _config(self) -> small_service.Config:
        failing = next((fault for fault in self.faults if isinstance(fault, Failing)), None)
        full = next((fault for fault in self.faults if isinstance(fault, DiskFull)), None)
        return {
            "name": self.name,
            "port": self.port,
            "answers": self.service.answers,
            "log": str(self.directory / "log"),
            "data": "" if self.data is None else str(self.data),
            "disk_kib": self.service.disk_kib or 0,
            "status": 0 if failing is None else failing.status,
            "every": 1 if failing is None else failing.every,
            "complaints": [] if failing is None else list(failing.log or (f"answered {failing.status}",)),
            "disk_complaints": list((full and full.log) or ("write /data/upload: No space left on device",)),
            "certificate": str(self.certificate) if self.service.tls else "",
            "needs": dict(self.needs),
        }


async def get_status(url: str) -> int | None:
    """Return the status of a GET, or ``None`` when nothing answers within five seconds."""
    return await anyio.to_thread.run_sync(_request_status, url)


def _request_status(url: str) -> int | None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # self-signed, and on loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_STATUS_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


async def _start_all(services: Iterable[Running]) -> None:
    failures: list[RehearsalError] = []

    async def start(running: Running) -> None:
        try:
            await running.start()
        except RehearsalError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for running in services:
            tasks.start_soon(start, running)
    if failures:
        raise failures[0]


def _prepare(name: str, service: ScenarioService, faults: list[Fault], directory: Path) -> Running:
    directory.mkdir(parents=True)
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    at_first = [fault for fault in faults if fault.after_seconds is None]
    needs_redeployment = any(fault.cured_by is Cure.REDEPLOYMENT for fault in faults)
    running = Running(
        name=name,
        service=service,
        directory=directory,
        port=reserved.getsockname()[1],
        reserved=reserved,
        faults=at_first,
        deployments=[GOOD_VERSION, BAD_VERSION] if needs_redeployment else [GOOD_VERSION],
    )
    if service.tls:
        from claudeops.rehearsal.certificate import write_certificate  # noqa: PLC0415 - slow to import

        write_certificate(directory / _CERTIFICATE, name=name, days=service.certificate_days)
        write_certificate(directory / _EXPIRED, name=name, days=-1)
    if running.data is not None and service.disk_kib is not None:
        _fill(running.data, service.disk_kib, at_first)
    running.note(*service.log)
    return running


def _fill(data: Path, disk_kib: int, faults: list[Fault]) -> None:
    """Make the data directory, a quarter of it used; with a full-disk fault, fill it to the last KiB."""
    data.mkdir()
    used = disk_kib // 4
    (data / "photos.db").write_bytes(bytes(used * 1024))
    for fault in faults:
        if isinstance(fault, DiskFull):
            (data / fault.file).write_bytes(bytes((disk_kib - used) * 1024))
