"""The way from the meter to the model API: through a proxy, below a path, with a password in the address."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import h11
import pytest
from anyio.abc import SocketStream

from claudeops.engine.meter.upstream import ModelUpstream
from support.metering import KEY, bench
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio

SAYS = {"text": "I look at the services."}
ANSWER = (
    b'{"type": "message", "model": "claude-haiku-4-5", "content": [], "usage": {"input_tokens": 5, "output_tokens": 7}}'
)
ALICE = b"Basic " + base64.b64encode(b"alice:open sesame")


class Host:
    """Takes requests and says what they were; what it is asked to connect to, it refuses with 407."""

    def __init__(self) -> None:
        self.requests: list[h11.Request] = []
        self.port = 0

    async def serve(self, stream: SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        async with stream:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive())
                elif isinstance(event, h11.Request):
                    self.requests.append(event)
            status = 407 if self.requests[-1].method == b"CONNECT" else 200
            head = h11.Response(status_code=status, headers=[("content-length", str(len(ANSWER)))])
            for said in (head, h11.Data(data=ANSWER), h11.EndOfMessage()):
                await stream.send(connection.send(said) or b"")

    def headers(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.requests[0].headers if key == name]


@asynccontextmanager
async def host() -> AsyncIterator[Host]:
    served = Host()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        served.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - a socket, and no query
        tasks.start_soon(listener.serve, served.serve)
        yield served
        tasks.cancel_scope.cancel()


async def test_a_call_takes_the_operators_proxy_and_shows_it_the_password(sqlite: Database) -> None:
    async with host() as proxy:
        network = {"http_proxy": f"http://alice:open%20sesame@127.0.0.1:{proxy.port}"}
        way = ModelUpstream(base_url="http://gateway.example:8080/anthropic", secret=KEY, network=network)
        async with bench(sqlite, SAYS, upstream=way) as the, the.account() as account:
            answer = await the.ask(account)
        assert (answer.status, answer.body) == (200, ANSWER)
        assert proxy.requests[0].target == b"http://gateway.example:8080/anthropic/v1/messages?beta=true"
        assert proxy.headers(b"proxy-authorization") == [ALICE]
        assert proxy.headers(b"x-api-key") == [KEY.encode()]
        assert proxy.headers(b"host") == [b"gateway.example:8080"]
        assert [(call["input_tokens"], call["output_tokens"]) for call in the.calls] == [(5, 7)]


async def test_a_proxy_that_refuses_the_way_is_told_and_costs_nothing(sqlite: Database) -> None:
    async with host() as proxy:
        network = {"https_proxy": f"http://alice:open%20sesame@127.0.0.1:{proxy.port}"}
        way = ModelUpstream(base_url="https://gateway.example", secret=KEY, network=network)
        async with bench(sqlite, SAYS, upstream=way) as the, the.account() as account:
            answer = await the.ask(account)
        assert answer.status == 502
        assert "could not be reached (ProxyError)" in str(answer.json["error"])
        assert proxy.requests[0].target == b"gateway.example:443"
        assert proxy.headers(b"proxy-authorization") == [ALICE]
        assert [(call["error"], call["charged_usd"]) for call in the.calls] == [("ProxyError", 0)]


async def test_a_password_in_the_address_of_a_gateway_is_shown_to_it(sqlite: Database) -> None:
    async with host() as gateway:
        way = ModelUpstream(base_url=f"http://alice:open%20sesame@127.0.0.1:{gateway.port}", secret=KEY)
        async with bench(sqlite, SAYS, upstream=way) as the, the.account() as account:
            assert (await the.ask(account)).status == 200
        assert gateway.requests[0].target == b"/v1/messages?beta=true"
        assert gateway.headers(b"authorization") == [ALICE]
        assert gateway.headers(b"host") == [b"127.0.0.1:%d" % gateway.port]
