"""A server that speaks as much of the Docker Engine API as a test gives it, and remembers every request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import SocketStream

Raw = Callable[[SocketStream], Awaitable[None]]
Answer = tuple[int, object] | Raw
"""Status with a body as JSON, or what writes the answer itself."""


@dataclass(kw_only=True)
class ScriptedEngine:
    """The engine."""

    socket: Path
    answers: dict[str, Answer] = field(default_factory=dict)  # by "METHOD /path", the version and parameters left out
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)  # method, target, body

    def targets(self, method: str = "POST") -> list[str]:
        """Return what was asked with a method."""
        return [target for asked, target, _ in self.requests if asked == method]

    async def serve(self, stream: SocketStream) -> None:
        """Answer one request."""
        async with stream:
            raw = b""
            while b"\r\n\r\n" not in raw:
                raw += await stream.receive()
            head, _, body = raw.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            method, target, _ = first.split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            while len(body) < int(headers.get("content-length", "0")):
                body += await stream.receive()
            self.requests.append((method, target, body))
            parts = target.partition("?")[0].split("/")[1:]
            path = "/" + "/".join(part for part in parts if not part.startswith("v1."))
            answer = self.answers.get(f"{method} {path}", (404, {"message": f"no {path} here"}))
            if not isinstance(answer, tuple):
                await answer(stream)
                return
            status, content = answer
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            text = b"" if status == 204 else text
            await stream.send(
                f"HTTP/1.1 {status} X\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(text)}\r\n\r\n".encode()
                + (b"" if method == "HEAD" else text)
            )


def container(name: str, number: str, **labels: str) -> dict[str, object]:
    """Return what the engine says of a container; ``number`` makes its id."""
    return {
        "Id": number * 64,
        "Name": f"/{name}",
        "State": {"Status": "running"},
        "Config": {"Labels": labels, "Env": ["PASSWORD=hunter2hunter2"], "Cmd": ["serve", "--key=hunter3hunter3"]},
    }


@asynccontextmanager
async def scripted_engine(socket: Path, **answers: Answer) -> AsyncIterator[ScriptedEngine]:
    """Serve for the length of the block. It knows the container ``web-1``, whose id is all a."""
    web = container("web-1", "a")
    engine = ScriptedEngine(
        socket=socket,
        answers={
            "HEAD /_ping": (200, b""),
            "GET /containers/json": (200, [{"Id": "a" * 64, "Names": ["/web-1"], "Labels": {"token": "hunter4-4"}}]),
            "GET /containers/web-1/json": (200, web),
            f"GET /containers/{'a' * 64}/json": (200, web),
            f"POST /containers/{'a' * 64}/restart": (204, b""),
            f"POST /containers/{'a' * 64}/exec": (201, {"Id": "e" * 64}),
            **answers,
        },
    )
    async with await anyio.create_unix_listener(socket) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, engine.serve)
        yield engine
        tasks.cancel_scope.cancel()
