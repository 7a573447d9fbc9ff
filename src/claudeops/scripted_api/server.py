"""Serves a script as a Messages API on loopback, so that the real CLI can run at no cost.

It answers ``POST /v1/messages`` (streamed or not), ``POST /v1/messages/count_tokens``, ``GET`` and ``HEAD /``, and
refuses everything else in the API's own error format. The player decides the replies; this module has the connections,
the clock and the record.

As a process of its own, ``python -m claudeops.scripted_api.server SCRIPT.json --port 0 --journal FILE`` prints
``{"url": …}`` once it takes connections, and stops on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import hmac
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.http_server import disconnected, drop, listen
from claudeops.scripted_api.player import Finish, Player, ScriptedReply, too_large
from claudeops.scripted_api.requests import Journal, Recorded, ResponseEnding, ScriptProblem, Served, Traffic
from claudeops.scripted_api.responses import BEGUN_OUTPUT_TOKENS
from claudeops.scripted_api.script import NOTHING, Script
from claudeops.structs import replace

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""The API's own limit for a request: https://docs.anthropic.com/en/api/errors."""

_BAD_CONFIGURATION: Final = 78


@asynccontextmanager
async def serve(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    expected_key: str | None = None,
    journal: Path | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncIterator[MessagesApi]:
    """Serve a script in the caller's event loop until the block is left.

    With ``expected_key``, any other key is refused as the API would. Leaving the block drops whatever is open, hanging
    replies included, within about a second. Several servers may run in one process; the event loop must be asyncio's.
    Raises `ConfigurationError` when the address or the journal cannot be used.
    """
    with ExitStack() as files:
        lines = None if journal is None else files.enter_context(Journal(journal))
        api = MessagesApi(script, expected_key=expected_key, journal=lines, now=now)
        async with listen(api, host=host, port=port, closing=api.closing) as api.url:
            yield api


class MessagesApi:
    """A running scripted API and everything it has seen; made by `serve`."""

    def __init__(
        self, script: Script, *, expected_key: str | None, journal: Journal | None, now: Callable[[], datetime]
    ) -> None:
        self.url = ""  # for ANTHROPIC_BASE_URL; set once the server takes connections
        self.traffic = Traffic()
        self._player = Player(script)
        self._expected_key = expected_key
        self._journal = journal
        self._now = now
        self.closing = anyio.Event()  # set by `serve` at the end; releases everything that waits
        self._changed = anyio.Event()

    @property
    def requests(self) -> list[Recorded]:
        """Every request, in order of arrival."""
        return self.traffic.requests

    @property
    def served(self) -> list[Served]:
        """Every request that has ended, in order of its end."""
        return self.traffic.served

    @property
    def problems(self) -> list[str]:
        """What the script did not foresee, one sentence each; a good rehearsal has none."""
        return self.traffic.problems

    async def wait_for(self, condition: Callable[[Traffic], object]) -> None:
        """Return as soon as the traffic meets a condition; the caller bounds the wait."""
        while not condition(self.traffic):
            await self._changed.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        request = Request(scope, receive)
        started = self._now()
        try:
            body = await _read(request)
        except ClientDisconnect:
            return
        headers = {name.lower(): value for name, value in request.headers.items()}
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        seen = self._player.see(method=request.method, path=path, headers=headers, body=body or b"")
        self._note(seen)
        reply = too_large(seen) if body is None else self._player.reply(seen, authorised=self._is_authorised(headers))
        if reply.problem is not None:
            self._note(ScriptProblem(number=seen.number, text=reply.problem))

        def note_end(response: ResponseStream, ending: ResponseEnding) -> None:
            self._note(_served(seen, reply, started=started, ending=ending, answered=response.started))

        response = ResponseStream(reply, closing=self.closing, on_end=note_end)
        try:
            await response(scope, receive, send)
        finally:
            response.end(ResponseEnding.CLOSED)  # has an effect only when the server's grace period is over

    def _is_authorised(self, headers: Mapping[str, str]) -> bool:
        if self._expected_key is None:
            return True
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), self._expected_key.encode())

    def _note(self, entry: Recorded | Served | ScriptProblem) -> None:
        self.traffic.add(entry)
        if self._journal is not None:
            self._journal.append(entry)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class ResponseStream:
    """Sends a reply until it is complete, the client leaves or the server closes, whichever comes first."""

    def __init__(
        self, reply: ScriptedReply, *, closing: anyio.Event, on_end: Callable[[ResponseStream, ResponseEnding], None]
    ) -> None:
        self.started = False  # whether anything was sent
        self._sent = False  # whether the whole reply was sent
        self._ending: ResponseEnding | None = None  # None until it has ended
        self._reply = reply
        self._closing = closing
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run as an ASGI response; the request's body must have been read before."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_client, receive, tasks.cancel_scope)
            tasks.start_soon(self._watch_server, tasks.cancel_scope)
            await self._run(send)
            tasks.cancel_scope.cancel()
        if not self._sent:
            await drop(scope, receive, unsent=self._ending is ResponseEnding.CUT)

    def end(self, ending: ResponseEnding) -> None:
        """Record how it ended. The first call counts: uvicorn also reports a disconnection after every response."""
        if self._ending is None:
            self._ending = ending
            self._on_end(self, ending)

    async def _run(self, send: Send) -> None:
        await anyio.sleep(self._reply.delay_seconds)
        if self._reply.status is not None:
            await self._send_pieces(send, self._reply.status)
        if self._reply.finish is Finish.SILENCE:
            await anyio.sleep_forever()
        if not self._sent:
            self.end(ResponseEnding.CUT)

    async def _send_pieces(self, send: Send, status: int) -> None:
        headers = [(name.encode("ascii"), value.encode("ascii")) for name, value in self._reply.headers.items()]
        self.started = True
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_whole = self._reply.finish is Finish.END
        for piece in self._reply.pieces[:-1] if is_whole else self._reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if is_whole:
            self.end(ResponseEnding.COMPLETE)  # before the last piece: what a client has read is in the record
            await send({"type": "http.response.body", "body": self._reply.pieces[-1], "more_body": False})
            self._sent = True

    async def _watch_client(self, receive: Receive, response: anyio.CancelScope) -> None:
        await disconnected(receive)
        self.end(ResponseEnding.GONE)
        response.cancel()

    async def _watch_server(self, response: anyio.CancelScope) -> None:
        await self._closing.wait()
        self.end(ResponseEnding.CLOSED)
        response.cancel()


async def _read(request: Request) -> bytes | None:
    """Return the whole body; ``None`` when it exceeds the API's limit."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


def _served(
    seen: Recorded, reply: ScriptedReply, *, started: datetime, ending: ResponseEnding, answered: bool
) -> Served:
    usage = NOTHING
    if answered and reply.usage is not None:
        whole = ending is ResponseEnding.COMPLETE
        usage = reply.usage if whole else replace(reply.usage, output_tokens=BEGUN_OUTPUT_TOKENS)
    return Served(
        number=seen.number,
        kind=seen.kind,
        tier=seen.tier,
        session=seen.session,
        model=seen.model,
        place=reply.place,
        status=reply.status if answered else None,
        ending=ending,
        started=started,
        **msgspec.structs.asdict(usage),
    )


# --- as a process of its own -----------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a script until SIGTERM or SIGINT; returns the exit status."""
    parser = argparse.ArgumentParser(prog="claudeops.scripted_api.server", description="Serve a script on loopback.")
    parser.add_argument("script", type=Path, help="the script, a JSON file")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0, the default, takes any free one")
    parser.add_argument("--journal", type=Path, help="file to which everything seen and served is appended")
    parser.add_argument("--expected-key-file", type=Path, help="file with the only API key that is accepted")
    options = parser.parse_args(arguments)
    try:
        script = load(options.script)
        key = _contents(options.expected_key_file).decode().strip() if options.expected_key_file else None
        anyio.run(_serve_until_signalled, script, options.port, key, options.journal)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_CONFIGURATION
    return 0


def load(path: Path) -> Script:
    """Read a script from a JSON file.

    Raises `MissingInputError` when the file cannot be read, `ConfigurationError` when it is not a script.
    """
    try:
        return Script.from_mapping(msgspec.json.decode(_contents(path)))
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from error


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingInputError(f"{path}: cannot be read: {error.strerror}") from error


async def _serve_until_signalled(script: Script, port: int, key: str | None, journal: Path | None) -> None:
    # The handlers are installed before the URL is printed: who has read it may stop us at once.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serve(script, port=port, expected_key=key, journal=journal) as api:
            sys.stdout.buffer.write(msgspec.json.encode({"url": api.url}) + b"\n")
            sys.stdout.flush()
            await anext(signals)


if __name__ == "__main__":
    sys.exit(main())
