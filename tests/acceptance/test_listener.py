"""The daemon as a process that others call: senders, heartbeats, whoever asks for its health, and its own sessions."""

from __future__ import annotations

import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio
import pytest

from support.checkout import ROOT
from support.loopback_http import ask
from support.operating import COMMAND, conclude, look, operator, say
from support.ports import kept_port
from support.senders import starts_nothing, token, url_of
from support.streaming import reading
from support.waiting import PATIENCE_SECONDS, until_it

pytestmark = pytest.mark.anyio

PROBES: Final = """
[[probe]]
name = "backup"
kind = "heartbeat"
every = "24h"
"""
LISTENS: Final = {"CLAUDEOPS_LISTENER": "on", "CLAUDEOPS_DASHBOARD_PORT": "0", "CLAUDEOPS_INTERVAL": "1000000"}


ROW: Final = re.compile(r"^\| `GET` \| `(/[^`]*)` \| `read` ", re.MULTILINE)
NUMBERED: Final = {"/sessions/{id}": "/sessions/1", "/chains/{root}": "/chains/1"}
PAGES: Final = tuple(
    NUMBERED.get(path, path)
    for path in ROW.findall((ROOT / "docs" / "reference" / "pages.md").read_text(encoding="utf-8"))
    if path in NUMBERED or "{" not in path
)
API: Final = tuple(
    re.sub(r"\{\w+\}", "1", path)
    for path in re.findall(
        r"^\| `(/api/[^`]*)` \|", (ROOT / "docs/reference/api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
)


async def status_of(url: str, path: str, *, method: str = "GET", **headers: str) -> int:
    return (await ask(f"{url}{path}", method=method, headers=headers)).status


async def until_status(url: str, path: str, wanted: int, **headers: str) -> None:
    async def is_as_wanted() -> bool:
        return await status_of(url, path, **headers) == wanted

    await until_it(is_as_wanted)


async def test_a_sender_with_a_token_is_heard_until_it_is_revoked(tmp_path: Path) -> None:
    probes = tmp_path / "probes.toml"
    probes.write_text(PROBES, encoding="utf-8")
    async with (
        operator(tmp_path, haiku=[say("nobody asks")]) as node,
        node.daemon(**LISTENS, CLAUDEOPS_PROBES_PATH=str(probes)) as daemon,
    ):
        url = await url_of(daemon)
        await until_status(url, "/readyz", 200)
        number, header = await token(node, "heartbeats:backup")
        path = "/api/v1/heartbeats/backup"
        await until_status(url, path, 200, **header)
        said = "\u202epassed \x1b[1m with sk-ant-" + "a" * 30
        assert (await ask(f"{url}{path}", method="POST", raw=said.encode(), headers=header)).status == 200
        assert await status_of(url, path) == 401
        assert (await node.run("token", "revoke", str(number))).code == 0
        await until_status(url, path, 401, **header)
        listed = (await node.run("token", "list", "--all", "-o", "json")).document
        assert await daemon.stop() == 0
    assert listed["tokens_count"] == 1
    (row,) = node.rows("SELECT ping_success_at, ping_text FROM probes WHERE name = 'backup'")
    assert row["ping_success_at"] is not None
    assert row["ping_text"] == "\\u202epassed \\u001b[1m with [redacted]"
    (used,) = node.rows("SELECT last_used_at FROM api_tokens")
    assert used["last_used_at"] is not None


@pytest.mark.long
async def test_health_is_told_while_the_database_is_away(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[say("nobody asks")]) as node, node.daemon(**LISTENS) as daemon:
        url = await url_of(daemon)
        await until_status(url, "/readyz", 200)
        with node.locked():
            await until_status(url, "/readyz", 503)
            assert await status_of(url, "/healthz") == 200
        await until_status(url, "/readyz", 200)


async def test_a_stop_says_bye_to_those_who_read_and_waits_for_no_drain_because_of_them(tmp_path: Path) -> None:
    patient = {**LISTENS, **starts_nothing(tmp_path), "CLAUDEOPS_DRAIN_TIMEOUT": str(100 * PATIENCE_SECONDS)}
    async with operator(tmp_path, haiku=[look(), conclude()]) as node, node.daemon(**patient) as daemon:
        _, header = await token(node, "read")
        url = await url_of(daemon)
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(reading(f"{url}/stream", header)) for _ in range(10)]
            assert await daemon.stop() == 0
            assert [(await stream.to_end())[-1].name for stream in streams] == ["bye"] * 10


async def test_a_port_that_is_taken_does_not_keep_the_daemon_from_its_work(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with (
            operator(tmp_path, haiku=[look(), conclude()]) as node,
            node.daemon(CLAUDEOPS_LISTENER="on", CLAUDEOPS_DASHBOARD_PORT=port) as daemon,
        ):
            await daemon.until_logged("web_not_listening")
            await node.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) > 0)
            assert await daemon.stop() == 0


async def test_a_session_gets_no_further_than_anybody_without_a_token(tmp_path: Path) -> None:
    answers = {"/healthz": "200", "/readyz": "200", "/login": "200", "/api/v1/heartbeats/backup/fail": "401"}
    answers |= dict.fromkeys(PAGES, "303") | dict.fromkeys(API, "401")
    with kept_port() as port:
        at = f"http://127.0.0.1:{port}"
        ask = " ".join(f"-o /dev/null {at}{path}" for path in answers)
        asked = look(f"curl -s -w '<%{{http_code}} %{{url_effective}}>' {ask}")
        async with (
            operator(tmp_path, haiku=[asked, conclude()]) as node,
            node.daemon(
                CLAUDEOPS_LISTENER="on",
                CLAUDEOPS_DASHBOARD_PORT=str(port),
                CLAUDEOPS_CELL_NETWORK="shared",  # on its own network a session does not reach it at all
            ) as daemon,
        ):
            await node.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) > 0)
            _, header = await token(node, "read")
            outside = {path: await status_of(at, path, **header) for path in (*PAGES, *API)}
            assert await daemon.stop() == 0
            told = [result.text for seen in node.api.traffic.main("haiku") for result in seen.tool_results]
    assert set(outside.values()) == {200, 404}  # no incident, no service is on record
    assert [path for path, status in outside.items() if status == 404 and "1" not in path] == []
    missing = [path for path, status in answers.items() if not any(f"<{status} {at}{path}>" in text for text in told)]
    assert missing == [], told


async def test_a_colleague_logs_in_by_a_password_as_a_viewer_and_not_after_he_was_removed(tmp_path: Path) -> None:
    password = "correct horse battery"
    async with operator(tmp_path, haiku=[say("nobody asks")]) as node, node.daemon(**LISTENS) as daemon:
        url = await url_of(daemon)
        await until_status(url, "/readyz", 200)
        add = [*COMMAND, "user", "add", "bea", "--role", "viewer", "--password-stdin"]
        await anyio.run_process(add, input=password.encode(), env=node.environment(), cwd=node.root)
        sent = [f"name=Bea&password={text}".replace(" ", "+").encode() for text in ("wrong", password)]
        wrong, right = [await ask(f"{url}/login", raw=body) for body in sent]
        assert (wrong.status, right.status) == (403, 303)
        cookie = {"cookie": right.headers["set-cookie"].partition(";")[0]}
        assert await status_of(url, "/events", **cookie) == 200
        assert (await node.run("user", "remove", "bea")).code == 0
        await until_status(url, "/events", 303, **cookie)
        assert await daemon.stop() == 0
    assert password not in (node.root / "daemon-1.log").read_text(encoding="utf-8")
