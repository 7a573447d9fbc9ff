"""One connection of a session to the filter: requests are read, judged, sent on to the engine, and answered masked.

Requests that are sent one behind another are judged one by one. The engine gets a connection for each request, with a
request that is written anew: nothing but what was understood goes there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import urlencode

import anyio
import h11
import msgspec
from anyio.abc import SocketStream

from claudeops.domain.gate.docker_grants import EXEC, LABELS, DockerChange, Execution
from claudeops.engine.filtering.connection import (
    ERROR,
    MOST_BODY,
    SWITCHING,
    Client,
    EngineConnection,
    PeerGoneError,
    ResponseHead,
    both_ways,
)
from claudeops.engine.filtering.process import DaemonLine, FilterRefusal
from claudeops.policy.docker_api.masks import holds_mask, masked_body, masked_line
from claudeops.policy.docker_api.requests import (
    EXEC_START,
    CreateExec,
    DockerAct,
    DockerAnswerKind,
    DockerRead,
    DockerRefusal,
    ExecCommand,
    ReadExec,
    StartExec,
    exec_body,
    read_act_body,
    read_exec,
    read_exec_start,
    read_request,
)
from claudeops.tasks import open_tasks
from claudeops.text.redact import Redactor

_MOST_ANSWER: Final = 64 * 1024 * 1024  # bytes that are masked at once
_MOST_LINE: Final = 4 * 1024 * 1024  # bytes of a line of a stream
_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 120.0
_CHANGE_SECONDS: Final = 660.0  # a stop waits for up to ten minutes
_NOT_SENT: Final = 0
_TOO_MANY: Final = 429
_NO_LEAVE: Final = "the gate has allowed no such change, or it has been made already: call it anew, as one command"

_KEPT: Final = frozenset({b"api-version", b"docker-experimental", b"ostype", b"builder-version", b"server", b"swarm"})
"""What a client learns from the head of an answer, beside its type."""

_HEADERS: Final = (("Host", "docker"), ("Accept", "application/json"))
_WITH_BODY: Final = (*_HEADERS, ("Content-Type", "application/json"))
_RAW: Final = frozenset({DockerAnswerKind.PING, DockerAnswerKind.LOGS})
"""Answers that are no JSON."""


Passed = DockerRead | DockerAct | CreateExec | StartExec | ReadExec
"""What a request is that is not refused."""

T = TypeVar("T")


class DockerRefusedError(Exception):
    """A request is refused."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.refused = DockerRefusal(status=status, sentence=sentence)


class Engine(msgspec.Struct, kw_only=True):
    """The engine, and what one session has started in its containers."""

    socket: Path
    redactor: Redactor
    daemon: DaemonLine
    execs: set[str] = msgspec.field(default_factory=set)  # ids that may be started, once
    started: set[str] = msgspec.field(default_factory=set)  # ids that may be looked at

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection, until it ends."""
        client = Client(stream=stream, worded=_worded)
        with suppress(PeerGoneError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while (request := await client.request()) is not None:
                await self._answer(client, *request)
                if not client.goes_on():
                    return

    async def _answer(self, client: Client, request: h11.Request, body: bytes) -> None:
        method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
        wanted = read_request(method, target)
        try:
            if isinstance(wanted, DockerRefusal):
                raise DockerRefusedError(wanted.status, wanted.sentence)  # noqa: TRY301 - as every other refusal
            await self._served(client, method, wanted, body)
        except DockerRefusedError as error:
            refused = error.refused
        except (OSError, h11.RemoteProtocolError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            if client.has_begun:
                raise PeerGoneError from error
            reason = str(error) or type(error).__name__
            refused = DockerRefusal(status=502, sentence=f"docker's engine does not answer: {reason}")
        else:
            return
        await self.daemon.refused(
            FilterRefusal(method=method, target=target, status=refused.status, sentence=refused.sentence)
        )
        await client.send(refused.status, _worded(refused.status, refused.sentence), head=method == "HEAD")

    async def _served(self, client: Client, method: str, wanted: Passed, body: bytes) -> None:
        """Serve a request; raises `DockerRefusedError`, and `OSError` and its like where the engine does not answer."""
        match wanted:
            case DockerRead():
                if body:
                    _passed(read_act_body(body))
                if wanted.dropped:
                    await self.daemon.dropped(wanted.target, wanted.dropped)
                await self._read(client, method, wanted)
            case ReadExec():
                await self._read(client, method, self._exec(wanted))
            case DockerAct():
                _passed(read_act_body(body))
                await self._act(client, wanted)
            case CreateExec():
                await self._create(client, wanted, _passed(read_exec(body)))
            case StartExec():
                _passed(read_exec_start(body))
                await self._start(client, wanted)

    # --- reads ------------------------------------------------------------------------------------------

    async def _read(self, client: Client, method: str, wanted: DockerRead) -> None:
        async with self._connected() as engine:
            with anyio.fail_after(_READ_SECONDS):
                head = await engine.ask(method, wanted.target, _HEADERS)
            if head.status >= ERROR:
                await self._failed(client, engine, head, method)
                return
            if method == "HEAD":
                await client.send(head.status, b"", head=True, kept=_kept(head))
            elif wanted.stream or wanted.kind in _RAW:
                await self._stream(client, engine, head, wanted.kind)
            else:
                with anyio.fail_after(_READ_SECONDS):
                    raw = await engine.whole(_MOST_ANSWER)
                if raw is None:
                    raise DockerRefusedError(502, "the engine's answer is too long to be masked: ask for less")
                if (answer := masked_body(wanted.kind, raw, self.redactor)) is None:
                    raise DockerRefusedError(502, "the engine's answer is no JSON, and cannot be masked")
                await client.send(head.status, answer, kept=_kept(head))

    async def _stream(
        self, client: Client, engine: EngineConnection, head: ResponseHead, kind: DockerAnswerKind
    ) -> None:
        """Pass on what has no end, until either side ends it."""
        await client.begin(head.status, [*_kept(head), (b"content-type", _type(head))])
        async with open_tasks() as tasks:
            tasks.start_soon(client.until_gone, tasks.cancel_scope)
            async for chunk in engine.chunks() if kind in _RAW else self._lines(engine, kind):
                await client.go_on(chunk)
            tasks.cancel_scope.cancel()
        await client.finish()

    async def _lines(self, engine: EngineConnection, kind: DockerAnswerKind) -> AsyncIterator[bytes]:
        kept = b""
        async for chunk in engine.chunks():
            *lines, kept = (kept + chunk).split(b"\n")
            for line in lines:
                if safe := masked_line(kind, line, self.redactor):
                    yield safe + b"\n"
            if len(kept) > _MOST_LINE:
                return
        if safe := masked_line(kind, kept, self.redactor):
            yield safe

    async def _failed(self, client: Client, engine: EngineConnection, head: ResponseHead, method: str) -> None:
        """Pass on why the engine refuses."""
        with anyio.fail_after(_READ_SECONDS):
            raw = await engine.whole(MOST_BODY) or b""
        try:
            sentence = json.loads(raw)["message"]
        except (ValueError, KeyError, TypeError):
            sentence = "docker's engine refuses it"
        await client.send(head.status, self.redactor.line(_worded(head.status, str(sentence))), head=method == "HEAD")

    def _exec(self, wanted: ReadExec) -> DockerRead:
        if wanted.exec_id not in self.started:
            raise DockerRefusedError(404, f"No such exec instance: {wanted.exec_id[:64]}")
        target = f"{wanted.version}/exec/{wanted.exec_id}/json"
        return DockerRead(target=target, kind=DockerAnswerKind.EXEC, stream=False, dropped=())

    # --- changes ----------------------------------------------------------------------------------------

    async def _act(self, client: Client, wanted: DockerAct) -> None:
        given = dict(wanted.parameters)
        change = await self._change(wanted.version, wanted.container, wanted.verb, signal=given.get("signal", ""))
        query = f"?{urlencode(wanted.parameters)}" if wanted.parameters else ""
        target = f"{wanted.version}/containers/{change.id}/{wanted.verb}{query}"
        await self._granted(client, change, target, b"")

    async def _create(self, client: Client, wanted: CreateExec, command: ExecCommand) -> None:
        execution = Execution(
            command=command.command,
            user=command.user,
            directory=command.directory,
            environment=command.environment,
            takes_input=command.attach_stdin,
        )
        change = await self._change(wanted.version, wanted.container, EXEC, execution=execution)
        target = f"{wanted.version}/containers/{change.id}/exec"
        await self._granted(client, change, target, exec_body(command))

    async def _granted(self, client: Client, change: DockerChange, target: str, body: bytes) -> None:
        """Make a change that the gate has allowed; `DockerRefusal` where it has not."""
        if holds_mask(body):
            raise DockerRefusedError(400, "it holds a mask in the place of a secret: that would destroy it")
        grant = await self.daemon.allows(change)
        if not grant:
            raise DockerRefusedError(403, f"{change}: {_NO_LEAVE}")
        status = _NOT_SENT
        try:
            async with self._connected() as engine:
                status = -1  # from here on nobody knows what came of it, unless the engine says so
                with anyio.fail_after(_CHANGE_SECONDS):
                    head = await engine.ask("POST", target, _WITH_BODY, body)
                    status = head.status
                    if status >= ERROR:
                        await self._failed(client, engine, head, "POST")
                        return
                    raw = await engine.whole(MOST_BODY) or b""
            if change.verb == EXEC:
                self._note_exec(raw)
            await client.send(status, raw, kept=_kept(head))
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CONNECT_SECONDS):
                await self.daemon.ended(grant, _NOT_SENT if status == _TOO_MANY else status)

    def _note_exec(self, raw: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError):
            made = str(json.loads(raw)["Id"])
            self.execs.add(made)
            self.started.add(made)

    async def _start(self, client: Client, wanted: StartExec) -> None:
        if wanted.exec_id not in self.execs:
            raise DockerRefusedError(404, f"No such exec instance, or it has run: {wanted.exec_id[:64]}")
        if not client.may_switch:
            raise DockerRefusedError(400, "a command in a container is started over a connection that upgrades")
        self.execs.discard(wanted.exec_id)
        target = f"{wanted.version}/exec/{wanted.exec_id}/start"
        async with self._connected() as engine:
            with anyio.fail_after(_READ_SECONDS):
                head = await engine.ask("POST", target, _WITH_BODY, EXEC_START, upgrade="tcp")
            if head.status >= ERROR:
                await self._failed(client, engine, head, "POST")
                return
            if head.status != SWITCHING:
                raise DockerRefusedError(502, "docker's engine does not upgrade the connection")
            kept = [(name, value) for name, value in head.headers if name == b"content-type"]
            await client.switch([*kept, (b"connection", b"Upgrade"), (b"upgrade", b"tcp")])
            await both_ways(client, engine)

    async def _change(
        self, version: str, named: str, verb: str, *, signal: str = "", execution: Execution | None = None
    ) -> DockerChange:
        """Return which container a request means, as the engine says."""
        async with self._connected() as engine:
            with anyio.fail_after(_READ_SECONDS):
                head = await engine.ask("GET", f"{version}/containers/{named}/json", _HEADERS)
                raw = await engine.whole(_MOST_ANSWER) or b""
        if head.status >= ERROR:
            raise DockerRefusedError(404, f"No such container: {named}")
        try:
            found = json.loads(raw)
            labels = found["Config"].get("Labels") or {}
            return DockerChange(
                verb=verb,
                named=named,
                id=str(found["Id"]),
                name=str(found["Name"]).removeprefix("/"),
                labels={name: str(labels[name]) for name in LABELS if name in labels},
                signal=signal,
                execution=execution,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DockerRefusedError(502, f"docker's engine does not say what {named} is") from error

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[EngineConnection]:
        with anyio.fail_after(_CONNECT_SECONDS):
            stream = await anyio.connect_unix(self.socket)
        async with stream:
            yield EngineConnection(stream=stream)


def _passed(found: T | DockerRefusal | None) -> T:
    """Return what was read; raises `DockerRefusedError` where it is refused."""
    if isinstance(found, DockerRefusal):
        raise DockerRefusedError(found.status, found.sentence)
    return cast("T", found)


def _worded(_status: int, sentence: str) -> bytes:
    return json.dumps({"message": sentence}).encode()


def _kept(head: ResponseHead) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in head.headers if name in _KEPT]


def _type(head: ResponseHead) -> bytes:
    return next((value for name, value in head.headers if name == b"content-type"), b"application/json")
