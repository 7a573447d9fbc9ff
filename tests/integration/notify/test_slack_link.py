"""The ear at Slack, with the real SDK: what is pressed is heard, whatever dies."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from subprocess import DEVNULL, PIPE

import anyio
import msgspec
import psutil
import pytest

from claudeops import logs
from claudeops.notify.slack_link import SlackLink
from claudeops.notify.slack_socket import SlackRequest, is_private
from support.slack import APP_TOKEN, CHANNEL, Answer, Posted, SlackServer, slack
from support.waiting import PATIENCE_SECONDS, until

CARD = Posted(channel=CHANNEL, ts="1700000000.000001", fields={"text": "may it?"})


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack() as served:
        yield served


@dataclass
class Ear:
    """A link, and what it heard."""

    link: SlackLink
    log: io.StringIO
    heard: list[dict[str, object]] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        return [said["actions"][0]["value"] for said in self.heard]  # type: ignore[index]

    @property
    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log.getvalue().splitlines()]


@asynccontextmanager
async def listening(server: SlackServer, *, app_token: str = APP_TOKEN, patience: float = 30.0) -> AsyncIterator[Ear]:
    stream = io.StringIO()
    logs.configure(level="debug", fmt="json", stream=stream, redact=str)

    async def pressed(payload: bytes) -> None:
        ear.heard.append(json.loads(payload))

    link = SlackLink(
        app_token=app_token,
        api=server.api,
        environment={},
        pressed=pressed,
        log=logs.get_logger(),
        waits=(0.05, 0.05, 0.1),
        patience_seconds=patience,
    )
    ear = Ear(link, stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run)
        yield ear
        tasks.cancel_scope.cancel()


async def test_what_is_pressed_is_heard_and_acknowledged(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        envelopes = [server.tap(CARD, f"token-{number}", user="U1") for number in range(20)]
        await until(lambda: len(server.acks) == 20)

        await until(lambda: len(ear.heard) == 20)
        assert sorted(ear.values) == sorted(f"token-{number}" for number in range(20))
        assert server.acks.keys() == set(envelopes)
    assert ear.events == ["slack_connected"]


async def test_the_message_itself_does_not_come_along(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        server.tap(Posted(channel=CHANNEL, ts="1.1", fields={"text": "x" * 200_000}), "token", user="U1")
        await until(lambda: bool(ear.heard))

    (said,) = ear.heard
    assert set(said) == {"type", "user", "team", "channel", "container", "actions"}


async def test_what_is_no_press_is_acknowledged_and_is_no_answer(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        envelopes = {server.push("slash_commands", {"command": "/approve"}), server.push("events_api", {"event": {}})}
        await until(lambda: envelopes <= server.acks.keys())

    assert ear.heard == []


async def test_a_killed_ear_comes_back_and_hears(server: SlackServer) -> None:
    async with listening(server) as ear:
        for round_ in range(3):
            await until(lambda: ear.link.is_connected and bool(server.links))
            server.tap(CARD, f"token-{round_}", user="U1")
            await until(lambda expected=round_ + 1: len(ear.heard) == expected)  # type: ignore[misc]
            assert ear.link.pid is not None
            os.kill(ear.link.pid, signal.SIGKILL)
            await until(lambda: not ear.link.is_connected)
        await until(lambda: ear.link.is_connected)

    assert server.opened == 4
    assert ear.events == ["slack_connected", "slack_lost"] * 3 + ["slack_connected"]


async def test_a_connection_that_slack_wants_anew_is_opened_again_by_the_same_process(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        pid = ear.link.pid
        server.say({"type": "disconnect", "reason": "refresh_requested"})
        await until(lambda: server.opened == 2 and len(server.links) == 1)
        server.tap(CARD, "token", user="U1")
        await until(lambda: ear.values == ["token"])

        assert ear.link.pid == pid


@pytest.mark.long  # it shows only when four pings have had no answer
async def test_a_cut_connection_is_opened_again_by_the_same_process(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        pid = ear.link.pid
        server.cut()
        await until(lambda: server.opened == 2 and len(server.links) == 1)
        server.tap(CARD, "token", user="U1")
        await until(lambda: ear.values == ["token"])

        assert ear.link.pid == pid


@pytest.mark.long  # as above; that an ear which has ended is started again is seen where it is killed
async def test_an_ear_that_does_not_get_through_ends_and_is_started_again(server: SlackServer) -> None:
    async with listening(server, patience=0.5) as ear:
        await until(lambda: ear.link.is_connected)
        server.answers["apps.connections.open"] = [Answer(status=500)] * 2
        server.cut()
        await until(lambda: "slack_lost" in ear.events)
        await until(lambda: ear.link.is_connected)

    assert "no connection for 0.5 s" in ear.log.getvalue()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body={"ok": False, "error": "invalid_auth"}), "Slack says invalid_auth"),
        (Answer(status=500), "Slack says internal_error"),
    ],
)
async def test_a_refused_token_is_said_and_tried_again(server: SlackServer, answer: Answer, said: str) -> None:
    server.answers["apps.connections.open"] = [answer, answer]
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)

    lost = [json.loads(line) for line in ear.log.getvalue().splitlines() if "slack_lost" in line]
    assert [line["failures"] for line in lost] == [1, 2]
    assert all(said in line["error"] for line in lost)


async def test_the_token_stands_in_no_argument_and_no_environment(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        process = psutil.Process(ear.link.pid)
        begun_with = (process.cmdline(), process.environ())

    assert APP_TOKEN not in str(begun_with)
    assert APP_TOKEN not in ear.log.getvalue()
    assert {call.token for call in server.called("apps.connections.open")} == {APP_TOKEN}


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("wss://wss-primary.slack.com/link/?ticket=1", True),
        ("wss://wss-primary.slack.com:443/link/", True),
        ("wss://wss-primary.slack.com:8443/link/", False),
        ("ws://wss-primary.slack.com/link/", False),
        ("ws://wss-primary.slack.com:443/link/", False),
        ("", False),
    ],
)
def test_nothing_is_heard_without_tls_where_the_api_has_it(address: str, private: bool) -> None:
    assert is_private(address) is private


async def test_the_end_leaves_no_process(server: SlackServer) -> None:
    async with listening(server) as ear:
        await until(lambda: ear.link.is_connected)
        pid = ear.link.pid
        assert pid is not None

    assert not psutil.pid_exists(pid)


async def test_the_process_ends_when_its_parent_is_gone(server: SlackServer) -> None:
    order = SlackRequest(app_token=APP_TOKEN, api=server.api, patience_seconds=30.0)
    command = [sys.executable, "-I", "-m", "claudeops.notify.slack_socket"]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}) as child:
        assert child.stdin is not None
        await child.stdin.send(msgspec.json.encode(order) + b"\n")
        await until(lambda: bool(server.links))

        await child.stdin.aclose()  # what a parent's death does

        with anyio.fail_after(PATIENCE_SECONDS):
            assert await child.wait() == 0


async def test_nothing_is_heard_while_nobody_takes_it_and_nothing_is_lost(server: SlackServer) -> None:
    taking = anyio.Event()
    async with listening(server) as ear:
        inner = ear.link.pressed

        async def slowly(payload: bytes) -> None:
            await taking.wait()
            await inner(payload)

        ear.link.pressed = slowly
        await until(lambda: ear.link.is_connected)
        for number in range(50):
            server.tap(CARD, f"token-{number}", user="U1")
        await until(lambda: len(server.acks) == 50)  # Slack waits for three seconds, and not for us
        taking.set()
        await until(lambda: len(ear.heard) == 50)


async def test_the_daemon_itself_never_imports_the_sdk() -> None:
    check = "import sys, claudeops.app.daemon, claudeops.notify.slack_socket; sys.exit('slack_sdk' in sys.modules)"

    assert (await anyio.run_process([sys.executable, "-I", "-c", check], check=False)).returncode == 0
