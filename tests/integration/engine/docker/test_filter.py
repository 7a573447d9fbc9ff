"""The filter before docker's engine: reads come back masked; a change reaches the engine once, if it was allowed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import anyio
import psutil
import pytest
from anyio.abc import SocketStream

from claudeops import logs
from claudeops.domain.gate.docker_grants import Execution, Grant
from claudeops.domain.gate.granted import Grants
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.docker.filter import open_filter
from support.aftermath import processes_of
from support.scripted_engine import Answer, ScriptedEngine, scripted_engine
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

ID = "a" * 64
KNOWN = "the-secret-of-the-daemon"
RESTART = Grant(call="toolu_1", verb="restart", container="web-1")
UPTIME = Grant(call="toolu_1", verb="exec", container="web-1", execution=Execution(command=("uptime",)))


@dataclass
class Opened:
    """A filter before a scripted engine."""

    place: Path
    grants: Grants
    engine: ScriptedEngine
    log: io.StringIO

    async def connect(self) -> SocketStream:
        return await anyio.connect_unix(self.place)

    async def ask(self, method: str, target: str, body: object = None, *, headers: str = "") -> tuple[int, str]:
        """Return status and body of the answer to one request."""
        text = b"" if body is None else json.dumps(body).encode()
        length = f"Content-Length: {len(text)}\r\n" if text else ""
        first = f"{method} {target} HTTP/1.1\r\nHost: x\r\n"
        return await self.send(f"{first}{headers}{length}Connection: close\r\n\r\n", text)

    async def send(self, head: str, body: bytes = b"") -> tuple[int, str]:
        with anyio.fail_after(PATIENCE_SECONDS):
            async with await self.connect() as stream:
                await stream.send(head.encode() + body)
                raw = b""
                try:
                    while True:
                        raw += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
        answered, _, content = raw.partition(b"\r\n\r\n")
        return int(answered.split()[1]) if answered else 0, content.decode()

    def entries(self, event: str) -> list[dict[str, object]]:
        return [entry for line in self.log.getvalue().splitlines() if (entry := json.loads(line))["event"] == event]


@asynccontextmanager
async def opened(**answers: Answer) -> AsyncIterator[Opened]:
    place = Path(mkdtemp(prefix="filter-", dir="/tmp"))
    (place / "etc").mkdir()
    written, grants = io.StringIO(), Grants()
    logs.configure(level="info", fmt="json", stream=written, redact=str)
    try:
        async with (
            scripted_engine(place / "engine.sock", **answers) as engine,
            open_filter(engine.socket, Workspace(place), (KNOWN,), grants, logs.get_logger()) as found,
        ):
            assert found is not None
            yield Opened(found, grants, engine, written)
    finally:
        shutil.rmtree(place)


def running() -> list[psutil.Process]:
    """Return the filters' processes."""
    return processes_of("claudeops.engine.docker.process")


async def test_a_tier_without_an_engine_has_no_filter(tmp_path: Path) -> None:
    async with open_filter(None, Workspace(tmp_path), (), Grants(), logs.get_logger()) as found:
        assert found is None


async def test_no_secret_of_a_container_is_in_what_a_session_reads() -> None:
    logged = {"GET /events": (200, f'{{"Type":"container","Action":"exec_create: login {KNOWN}"}}\n'.encode())}
    async with opened(**logged) as it:
        status, shown = await it.ask("GET", "/v1.41/containers/web-1/json")
        _, listed = await it.ask("GET", "/v1.41/containers/json?all=1")
        _, events = await it.ask("GET", "/v1.41/events?since=1&until=2")
    assert status == 200
    assert "PASSWORD=" in shown
    assert "/web-1" in listed
    assert "exec_create" in events
    assert "hunter" not in shown + listed + events
    assert KNOWN not in events


async def test_a_secret_that_the_daemon_knows_is_masked_wherever_it_stands() -> None:
    async with opened(**{"GET /info": (200, {"Name": f"host-{KNOWN}", "OSType": "linux"})}) as it:
        _, shown = await it.ask("GET", "/v1.41/info")
    assert json.loads(shown) == {"Name": "host-[redacted]", "OSType": "linux"}


async def test_a_parameter_that_is_not_known_is_left_out_and_said() -> None:
    async with opened() as it:
        status, _ = await it.ask("GET", "/v1.41/containers/json?all=1&secrets=1")
        assert it.engine.targets("GET") == ["/v1.41/containers/json?all=1"]
    assert status == 200
    (entry,) = it.entries("parameters_dropped")
    assert entry["names"] == ["secrets"]


async def test_the_user_of_a_session_passes_to_its_socket_and_lists_nothing_there() -> None:
    async with opened() as it:
        assert it.place.parent.stat().st_mode & 0o777 == 0o711
        assert it.place.stat().st_mode & 0o777 == 0o666


async def test_a_change_that_was_not_allowed_never_reaches_the_engine() -> None:
    async with opened() as it:
        status, said = await it.ask("POST", "/v1.41/containers/web-1/restart?t=5")
        it.grants.admit([Grant(call="toolu_1", verb="restart", container="db-1")])
        again, _ = await it.ask("POST", f"/containers/{ID}/restart")
        assert it.engine.targets() == []
    assert (status, again) == (403, 403)
    assert "the gate has allowed no such change" in json.loads(said)["message"]
    assert [entry["status"] for entry in it.entries("request_refused")] == [403, 403]


async def test_an_allowed_change_is_made_once_and_by_the_containers_id() -> None:
    async with opened() as it:
        it.grants.admit([RESTART])
        first, _ = await it.ask("POST", "/v1.41/containers/web-1/restart?t=5")
        second, _ = await it.ask("POST", "/v1.41/containers/web-1/restart?t=5")
        assert it.engine.targets() == [f"/v1.41/containers/{ID}/restart?t=5"]
    assert (first, second) == (204, 403)
    (entry,) = it.entries("change_passed_on")
    assert (entry["tool_use_id"], entry["change"], entry["status"]) == ("toolu_1", "restart web-1", 204)


async def test_a_grant_ends_with_its_call() -> None:
    async with opened() as it:
        it.grants.admit([RESTART])
        it.grants.forget("toolu_1")
        status, _ = await it.ask("POST", "/containers/web-1/restart")
    assert status == 403


async def test_an_engine_that_is_too_busy_leaves_the_grant_for_another_try() -> None:
    async with opened(**{f"POST /containers/{ID}/restart": (429, {"message": "too many requests"})}) as it:
        it.grants.admit([RESTART])
        busy, said = await it.ask("POST", "/containers/web-1/restart")
        it.engine.answers[f"POST /containers/{ID}/restart"] = (204, b"")
        again, _ = await it.ask("POST", "/containers/web-1/restart")
    assert (busy, json.loads(said)["message"], again) == (429, "too many requests", 204)


async def test_an_engine_that_fails_half_way_is_not_asked_twice_with_one_grant() -> None:
    async def hangs_up(stream: SocketStream) -> None:
        await stream.aclose()

    async with opened(**{f"POST /containers/{ID}/restart": hangs_up}) as it:
        it.grants.admit([RESTART])
        failed, said = await it.ask("POST", "/containers/web-1/restart")
        again, _ = await it.ask("POST", "/containers/web-1/restart")
        assert len(it.engine.targets()) == 1
    assert (failed, again) == (502, 403)
    assert "does not answer" in json.loads(said)["message"]


async def test_without_an_engine_a_session_reads_why_and_a_grant_stays() -> None:
    async with opened() as it:
        it.engine.socket.unlink()
        it.grants.admit([RESTART])
        status, said = await it.ask("POST", "/containers/web-1/restart")
        assert status == 502
        assert "does not answer" in json.loads(said)["message"]
        assert not it.entries("change_passed_on")


@pytest.mark.parametrize(
    "asked",
    [
        "POST /containers/create",
        "DELETE /containers/web-1",
        "GET /containers/web-1/archive?path=/",
        "POST /containers/web-1/kill",
        "GET /v1.41/../containers/json",
        "GET /containers//json",
        "POST /v1.41/build",
        "GET /secrets",
        "PUT /containers/web-1/archive",
        "POST /containers/web-1/attach",
    ],
)
async def test_what_is_not_listed_never_reaches_the_engine(asked: str) -> None:
    async with opened() as it:
        status, _ = await it.ask(*asked.split(" ", 1))
        assert it.engine.requests == []
    assert status in {400, 403, 404}


async def test_requests_that_are_sent_ahead_are_judged_one_by_one() -> None:
    async with opened() as it:
        it.grants.admit([RESTART])
        one = "POST /containers/web-1/restart HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{}\r\n"
        status, rest = await it.send(one.format("") + one.format("Connection: close\r\n"))
        assert len(it.engine.targets()) == 1
    assert status == 204
    assert " 403 " in rest


async def test_a_body_hides_no_second_request() -> None:
    hidden = b"POST /containers/web-1/restart HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    async with opened() as it:
        it.grants.admit([RESTART])
        await it.send(
            f"POST /containers/web-1/stop HTTP/1.1\r\nHost: x\r\nContent-Length: {len(hidden)}\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            hidden,
        )
        assert it.engine.targets() == []


async def test_what_is_no_request_is_answered_and_ends_nothing_else() -> None:
    async with opened() as it:
        garbage, _ = await it.send("\x16\x03\x01\r\n\r\n")
        long, _ = await it.send("GET /" + "a" * 200_000 + " HTTP/1.1\r\n\r\n")
        (first,) = running()
        status, _ = await it.ask("HEAD", "/_ping")
        (same,) = running()
    assert 400 <= garbage < 500
    assert 400 <= long < 500
    assert (status, first.pid) == (200, same.pid)


async def test_a_filter_that_was_killed_starts_anew_and_the_grants_are_the_daemons() -> None:
    async with opened() as it:
        it.grants.admit([RESTART])
        assert (await it.ask("HEAD", "/_ping"))[0] == 200
        (process,) = running()
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: bool(it.entries("filter_ended")))  # the daemon alone waits for its children
        status, _ = await it.ask("POST", "/containers/web-1/restart")
        assert status == 204


async def test_nothing_of_a_filter_is_left_when_its_session_has_ended() -> None:
    async with opened() as it:
        await it.ask("HEAD", "/_ping")
        (process,) = running()
    assert not process.is_running(), "it is ended and reaped"


async def test_the_process_holds_no_secret_in_what_others_can_read() -> None:
    async with opened() as it:
        await it.ask("HEAD", "/_ping")
        (process,) = running()
        assert Path(f"/proc/{process.pid}/environ").read_bytes() == b""
        assert KNOWN not in " ".join(process.cmdline())


# --- commands in containers -----------------------------------------------------------------------------

CREATED = {"AttachStdin": False, "AttachStdout": True, "AttachStderr": True, "Tty": False, "Cmd": ["uptime"]}
UPGRADE = "Connection: Upgrade\r\nUpgrade: tcp\r\n"


def prints(text: bytes, *, taken: list[bytes] | None = None) -> Answer:
    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n")
        await stream.send(b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + text)
        if taken is not None:
            try:
                while True:
                    taken.append(await stream.receive())
            except anyio.EndOfStream:
                await stream.send(b"and the end")

    return answer


async def start(it: Opened, given: bytes = b"", *, headers: str = UPGRADE, number: str = "e" * 64) -> str:
    body = b'{"Detach":false,"Tty":false}'
    head = f"POST /exec/{number}/start HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    with anyio.fail_after(PATIENCE_SECONDS):
        async with await it.connect() as stream:
            await stream.send(head.encode() + body + given)
            await stream.send_eof()
            raw = b""
            try:
                while True:
                    raw += await stream.receive()
            except anyio.EndOfStream:
                return raw.decode()


async def test_an_allowed_command_runs_once_in_its_container() -> None:
    async with opened(**{f"POST /exec/{'e' * 64}/start": prints(b"up 3 days")}) as it:
        it.grants.admit([UPTIME])
        made, said = await it.ask("POST", "/containers/web-1/exec", CREATED)
        first, second = await start(it), await start(it)
        again, _ = await it.ask("POST", "/containers/web-1/exec", CREATED)
        starts = [target for target in it.engine.targets() if target.startswith("/exec")]
    assert (made, json.loads(said)["Id"]) == (201, "e" * 64)
    assert first.startswith("HTTP/1.1 101")
    assert first.endswith("up 3 days")
    assert " 404 " in second.split("\r\n")[0]
    assert again == 403
    assert len(starts) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"Cmd": ["uptime", "-p"]},
        {"User": "root"},
        {"Privileged": True},
        {"Env": ["LD_PRELOAD=/x.so"]},
        {"WorkingDir": "/etc"},
        {"Tty": True},
        {"AttachStdin": True},
    ],
    ids=str,
)
async def test_a_command_that_differs_in_anything_does_not_run(changed: dict[str, object]) -> None:
    async with opened() as it:
        it.grants.admit([UPTIME])
        status, _ = await it.ask("POST", "/containers/web-1/exec", {**CREATED, **changed})
        assert it.engine.targets() == []
    assert status == 403


async def test_nobody_starts_a_command_that_another_client_of_the_engine_has_made() -> None:
    async with opened(**{f"POST /exec/{'f' * 64}/start": prints(b"theirs")}) as it:
        said = await start(it, number="f" * 64)
        looked, _ = await it.ask("GET", f"/exec/{'f' * 64}/json")
        assert it.engine.requests == []
    assert " 404 " in said.split("\r\n")[0]
    assert looked == 404


async def test_a_command_takes_its_input_to_the_end() -> None:
    taken: list[bytes] = []
    grant = Grant(call="1", verb="exec", container="web-1", execution=Execution(command=("cat",), takes_input=True))
    async with opened(**{f"POST /exec/{'e' * 64}/start": prints(b"", taken=taken)}) as it:
        it.grants.admit([grant])
        await it.ask("POST", "/containers/web-1/exec", {**CREATED, "AttachStdin": True, "Cmd": ["cat"]})
        said = await start(it, b"some input")
    assert b"".join(taken) == b"some input"
    assert said.endswith("and the end")


async def test_a_mask_is_never_written_back() -> None:
    grant = Grant(call="1", verb="exec", container="web-1", execution=Execution(command=("echo", "[redacted]")))
    async with opened() as it:
        it.grants.admit([grant])
        status, _ = await it.ask("POST", "/containers/web-1/exec", {**CREATED, "Cmd": ["echo", "[redacted]"]})
        assert it.engine.targets() == []
    assert status == 400


# --- answers without an end -----------------------------------------------------------------------------


async def test_a_session_that_stops_reading_a_stream_ends_it_at_the_engine_too() -> None:
    ended = anyio.Event()

    async def events(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        line = b'{"Type":"container","Action":"start"}\n'
        await stream.send(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            ended.set()

    async with opened(**{"GET /events": events}) as it:
        async with await it.connect() as stream:
            await stream.send(b"GET /events?since=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            raw = b""
            with anyio.fail_after(PATIENCE_SECONDS):
                while b'"start"' not in raw:
                    raw += await stream.receive()
        with anyio.fail_after(PATIENCE_SECONDS):
            await ended.wait()


async def test_logs_come_as_they_are() -> None:
    frames = b"\x01\0\0\0\0\0\0\x05hello"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n\r\n"

    async def printed(stream: SocketStream) -> None:
        await stream.send(head + frames)

    async with opened(**{"GET /containers/web-1/logs": printed}) as it:
        status, body = await it.ask("GET", "/containers/web-1/logs?stdout=1&tail=5")
    assert status == 200
    assert "hello" in body


async def test_an_answer_that_is_no_json_is_not_shown() -> None:
    async with opened(**{"GET /containers/web-1/json": (200, b"PASSWORD=hunter2hunter2")}) as it:
        status, body = await it.ask("GET", "/containers/web-1/json")
    assert status == 502
    assert "hunter" not in body


async def test_the_daemon_starts_no_process_for_a_session_that_asks_nothing() -> None:
    async with opened():
        assert running() == []
