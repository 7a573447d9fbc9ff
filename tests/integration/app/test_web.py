"""The listener as a daemon has it: on a real port and a real database."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import random
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from claudeops import logs
from claudeops.app.web import Parts, Web, connection_rules, keep_listening
from claudeops.clock import Clock
from claudeops.domain.access.logins import Role
from claudeops.domain.access.tokens import SECRET_BYTES, NewToken, digest_of, written
from claudeops.domain.access.users import NewUser
from claudeops.store.store import Store
from claudeops.web.endpoints import Endpoint, WebCall
from claudeops.web.ports import ReadinessCheck
from support.listening import CHAT_KEY, SHARED, HeldIntake, HeldSources
from support.loopback_http import Answer, ask
from support.settings_world import make_world
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until

pytest_plugins = ("support.store_fixtures",)


@dataclass
class House:
    """A listener, its database and its log."""

    store: Store
    root: Path
    intake: HeldIntake = field(default_factory=HeldIntake)
    log: io.StringIO = field(default_factory=io.StringIO)
    url: str = ""

    def told(self, event: str) -> Sequence[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]

    async def token(self, *scopes: str) -> dict[str, str]:
        """Make a token as the command does; return the header with it."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        new = NewToken(
            name="am", scopes=scopes, digest=digest_of(secret), created_at=datetime.now(UTC), created_by="ada"
        )
        return {"authorization": f"Bearer {written((await self.store.tokens.create(new)).id, secret)}"}

    async def ask(self, target: str, raw: bytes = b"", /, *, method: str = "POST", **headers: str) -> Answer:
        return await ask(f"{self.url}{target}", method=method, raw=raw, headers=headers)

    @asynccontextmanager
    async def connected(self, first: bytes) -> AsyncIterator[anyio.abc.SocketStream]:
        parts = urlsplit(self.url)
        async with await anyio.connect_tcp(str(parts.hostname), int(parts.port or 0)) as stream:
            await stream.send(first)
            yield stream


@asynccontextmanager
async def listening(
    house: House, port: int = 0, pages: Callable[[], Awaitable[Parts]] | None = None, **changes: str
) -> AsyncIterator[House]:
    """Listen for the length of the block."""
    logs.configure(level="info", fmt="json", stream=house.log, redact=str)
    given = {"CLAUDEOPS_DASHBOARD_PORT": str(port), "CLAUDEOPS_CHAT_API_KEY": CHAT_KEY, **changes}
    web = Web(
        settings=make_world(house.root).settings(given, ANTHROPIC_API_KEY="sk-ant-none"),
        clock=Clock(),
        log=logs.get_logger(),
        tokens=house.store.tokens,
        pings=house.store.probes,
        readiness=lambda: [ReadinessCheck(name="disk", ok=True)],
        sources=HeldSources(),
        intake=house.intake,
        pages=pages,
        retry_seconds=0.05,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_listening, web)
        if port == 0:
            await until(lambda: bool(house.told("web_ready")))
            house.url = str(house.told("web_ready")[0]["url"])
        yield house
        tasks.cancel_scope.cancel()


@pytest.fixture
async def house(sqlite: Database, tmp_path: Path) -> AsyncIterator[House]:
    async with opened(sqlite) as store:
        yield House(store, tmp_path / "world")


async def test_a_token_made_in_the_shell_opens_its_source_and_its_use_is_on_record(house: House) -> None:
    async with listening(house):
        header = await house.token("alerts:prometheus")
        taken = await house.ask("/api/v1/alerts/prometheus", b"{}", **header)
        other = await house.ask("/api/v1/alerts/scripts", b"{}", **header)
        key = await house.ask("/api/v1/webhook", b"{}", authorization=f"Bearer {CHAT_KEY}")

    assert (taken.status, other.status, key.status) == (202, 403, 202)
    (token,) = await house.store.tokens.known()
    assert token.last_used_at is not None


async def test_the_operators_proxy_names_a_user_and_no_other_caller_does(house: House) -> None:
    async def looked(call: WebCall) -> dict[str, str]:
        assert call.caller is not None
        assert call.caller.login is not None
        return {"by": call.caller.login.name}

    row = Endpoint(method="GET", path="/who", scope="operate", answer=dict, handler=looked, summary="Says who it is.")
    at = datetime.now(UTC)
    await house.store.users.add(NewUser(name="Bea", role=Role.OPERATOR, created_at=at, created_by="ada"))
    parts = Parts(endpoints=(row,), logins=house.store.logins, users=house.store.users)

    async def made() -> Parts:
        return parts

    async with listening(house, pages=made, CLAUDEOPS_TRUSTED_PROXY_SECRET=SHARED):
        named = {"remote-user": "bea", "x-claudeops-proxy-secret": SHARED}
        ours = await house.ask("/who", method="GET", **named)
        other = await house.ask("/who", method="GET", **{**named, "x-claudeops-proxy-secret": SHARED[:-1]})

    assert (ours.status, other.status) == (200, 403)


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_network_is_trusted_where_the_operator_says_so(tmp_path: Path, is_trusted: bool) -> None:
    given = {"CLAUDEOPS_DASHBOARD_INSECURE": str(is_trusted).lower()}
    settings = make_world(tmp_path).settings(given, ANTHROPIC_API_KEY="sk-ant-none")
    assert connection_rules(settings).is_network_trusted is is_trusted


async def test_a_heartbeat_reaches_its_probe(house: House, sqlite: Database) -> None:
    sqlite.execute(
        "INSERT INTO probes (name, service, kind, state, detail, failures, successes, interval_seconds, explained_by,"
        " incident, counters) VALUES ('backup', 'backup', 'heartbeat', 'unknown', '', 0, 0, 30, '', '', '')"
    )
    async with listening(house):
        header = await house.token("heartbeats:backup", "heartbeats:nothing")
        heard = await house.ask("/api/v1/heartbeats/backup/fail", b"no space left", **header)
        nobody = await house.ask("/api/v1/heartbeats/nothing", **header)

    assert (heard.status, nobody.status) == (200, 404)
    pings = (await house.store.probes.pings())["backup"]
    assert pings.fail is not None


async def test_health_is_told_to_everybody_on_this_machine_and_by_its_public_name(house: House) -> None:
    async with listening(house, CLAUDEOPS_PUBLIC_URL="https://ops.example.com, http://claudeops:8080"):
        hosts = {
            host: (await house.ask("/readyz", method="GET", host=host)).status for host in ("claudeops", "evil.example")
        }

    assert hosts == {"claudeops": 200, "evil.example": 421}


async def test_a_taken_port_stops_nothing_and_is_tried_until_it_is_free(house: House) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = int(other.getsockname()[1])
        async with listening(house, port=port):
            await until(lambda: bool(house.told("web_not_listening")))
            assert str(port) in str(house.told("web_not_listening")[0]["error"])
            other.close()
            await until(lambda: bool(house.told("web_ready")))
            house.url = f"http://127.0.0.1:{port}"
            assert (await house.ask("/healthz", method="GET")).status == 200
    assert len(house.told("web_not_listening")) == 1


async def test_switched_off_it_listens_nowhere(house: House) -> None:
    web_off = make_world(house.root).settings(CLAUDEOPS_LISTENER="off", ANTHROPIC_API_KEY="sk-ant-none")
    web = Web(
        settings=web_off,
        clock=Clock(),
        log=logs.get_logger(),
        tokens=house.store.tokens,
        pings=house.store.probes,
        readiness=list,
    )
    with anyio.fail_after(PATIENCE_SECONDS):
        await keep_listening(web)


async def test_its_end_waits_for_no_sender(house: House) -> None:
    house.intake.hold = anyio.Event()  # never set
    head = b"POST /api/v1/alerts/prometheus HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\n"
    # Nobody lets the intake go on, and the senders stay: whoever waited for one of them would wait for ever.
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(PATIENCE_SECONDS))
        async with listening(house):
            header = await house.token("alerts:prometheus")
            proof = f"authorization: {header['authorization']}\r\n\r\n".encode()
            for first in (head, head + proof, head + proof + b"{}"):
                await stack.enter_async_context(house.connected(first))
            assert (await house.ask("/healthz", method="GET")).status == 200


async def test_who_owes_a_body_blocks_nobody(house: House) -> None:
    async with listening(house):
        header = await house.token("alerts:prometheus")
        head = b"POST /api/v1/alerts/scripts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n"
        async with house.connected(head + b"\r\n"), house.connected(head[:20]):
            answer = await house.ask("/api/v1/alerts/prometheus", b"{}", **header)
    assert answer.status == 202


async def test_garbage_on_the_wire_leaves_it_listening_and_the_log_short(house: House) -> None:
    chance = random.Random(16)  # noqa: S311 - the same garbage every time
    starts = (
        b"",
        b"POST /api/v1/webhook HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: ",
        b"POST / HTTP/1.1\r\nhost: a\r\n",
    )
    async with listening(house):
        for turn in range(200):
            async with house.connected(starts[turn % len(starts)] + chance.randbytes(chance.randrange(200))):
                pass
        assert (await house.ask("/healthz", method="GET")).status == 200
    assert len(house.log.getvalue().splitlines()) < 10
    assert house.told("request_crashed") == []


UNCLEAR = {
    "length first": b"HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
    "length last": b"HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n",
    "no length at all": b"HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nContent-Length: 0\r\n",
    "older than chunks": b"HTTP/1.0\r\ntransfer-encoding: chunked\r\n",
    "two lengths": b"HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n",
}


@pytest.mark.parametrize("path", ["/api/v1/alerts/prometheus", "/api/v1/alerts/scripts", "/healthz", "/nothing"])
@pytest.mark.parametrize("how", UNCLEAR)
async def test_a_request_whose_length_can_be_read_in_two_ways_ends_its_connection(
    house: House, path: str, how: str
) -> None:
    async with listening(house):
        header = await house.token("alerts:prometheus")
        line = f"POST {path} ".encode() + UNCLEAR[how]
        head = line + b"host: 127.0.0.1\r\nauthorization: " + header["authorization"].encode() + b"\r\n\r\n"
        smuggled = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        with anyio.fail_after(PATIENCE_SECONDS):
            async with house.connected(head + b"0\r\n\r\n" + smuggled) as stream:
                answered = b"".join([chunk async for chunk in stream])  # to the end, which comes
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1 ") == 1
    assert house.intake.taken == []


async def test_who_owes_signed_bodies_keeps_no_signer_out(house: House) -> None:
    async with listening(house), AsyncExitStack() as stack:
        stamp = str(int(datetime.now(UTC).timestamp()))
        forged = f"x-claudeops-signature: t={stamp},v1={'0' * 64}\r\n".encode()
        head = b"POST /api/v1/alerts/scripts HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900000\r\n" + forged
        for _ in range(40):
            await stack.enter_async_context(house.connected(head + b"\r\n" + b"x" * 10_000))
        answers = [await house.ask("/api/v1/alerts/scripts", body, **signature(body)) for body in (b"{}", b"[1]") * 5]
    assert [answer.status for answer in answers] == [202] * 10


def signature(body: bytes) -> dict[str, str]:
    stamp = str(int(datetime.now(UTC).timestamp()))
    proof = hmac.new(SHARED.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"x-claudeops-signature": f"t={stamp},v1={proof}"}
