"""Google's Vertex AI as the CLI sees it, in front of the scripted Messages API: the same answers at other addresses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import msgspec
from starlette.types import Receive, Scope, Send

from claudeops.http_server import listen
from claudeops.scripted_api.server import MessagesApi
from support.loopback_http import ask

_PATH = re.compile(
    r"/projects/(?P<project>[^/]+)/locations/[^/]+/publishers/anthropic/models/(?P<model>[^/@:]+)(?:@\d+)?"
    r":streamRawPredict"
)
_OURS = {"host", "content-length", "accept-encoding", "connection"}


@dataclass
class Vertex:
    """Takes what is meant for Vertex AI, and asks the scripted API for it."""

    api: MessagesApi
    url: str = ""
    projects: list[str] = field(default_factory=list)  # of the calls, in their order
    credentials: list[str] = field(default_factory=list)  # that came along

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.credentials += [headers[name] for name in ("x-api-key", "authorization") if name in headers]
        found = _PATH.fullmatch(scope["path"])
        body = await _body(receive)
        if found is None:
            return await _answer(send, 404, "text/plain", b"")
        self.projects.append(found["project"])
        question = {**msgspec.json.decode(body), "model": found["model"], "stream": True}
        passed = {name: value for name, value in headers.items() if name not in _OURS}
        answer = await ask(
            f"{self.api.url}/v1/messages", body=question, headers={**passed, "x-api-key": "of-the-tests"}
        )
        await _answer(send, answer.status, answer.headers["content-type"], answer.body)
        return None


@asynccontextmanager
async def vertex(api: MessagesApi) -> AsyncIterator[Vertex]:
    """Serve it on loopback for the length of the block."""
    served = Vertex(api)
    async with listen(served, host="127.0.0.1", port=0, closing=anyio.Event()) as served.url:
        yield served


async def _body(receive: Receive) -> bytes:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


async def _answer(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
