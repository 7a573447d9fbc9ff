"""The scripted API as a server: what goes over the wire, what is recorded, and that it ends at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import Process

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.scripted_api.requests import (
    REDACTED,
    Recorded,
    RequestKind,
    ResponseEnding,
    ScriptProblem,
    Served,
    Traffic,
)
from claudeops.scripted_api.script import Script, Usage
from claudeops.scripted_api.server import MessagesApi, load, main, serve
from support.loopback_http import Answer, ask

pytestmark = pytest.mark.anyio

HANGING = {"hang": True}
SILENT_IN_THE_MIDDLE = {"hang": True, "text": "well"}
SLOW = {"delay_seconds": 3600, "text": "at last"}


def read_journal(path: Path) -> Traffic:
    """Read back what another process served so far; a line that is still being written is left out."""
    traffic = Traffic()
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            traffic.add(msgspec.json.decode(line, type=Recorded | Served | ScriptProblem))
    return traffic


def script(*steps: dict[str, Any], repeat_last: bool = False) -> Script:
    return Script.from_mapping({"tiers": {"haiku": {"steps": list(steps), "repeat_last": repeat_last}}})


async def turn(api: MessagesApi | str, session: str = "s", *, key: str = "k", **body: object) -> Answer:
    """Ask as the CLI does."""
    url = api if isinstance(api, str) else api.url
    asked = {"model": "claude-haiku-4-5", "messages": [], "tools": [{"name": "Bash"}], "stream": True, **body}
    headers = {"x-claude-code-session-id": session, "x-api-key": key}
    return await ask(f"{url}/v1/messages?beta=true", body=asked, headers=headers)


@asynccontextmanager
async def begun(url: str, session: str = "s") -> AsyncIterator[None]:
    """Ask as the CLI does, and keep the connection once the answer has begun."""
    body = msgspec.json.encode({"model": "claude-haiku-4-5", "messages": [], "tools": [{}], "stream": True})
    headers = f"host: x\r\nx-api-key: k\r\nx-claude-code-session-id: {session}\r\ncontent-length: {len(body)}"
    async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as stream:
        await stream.send(f"POST /v1/messages HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body)
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
        yield


@asynccontextmanager
async def started(command: Sequence[str]) -> AsyncIterator[Process]:
    """Run a process that does not outlive the block."""
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


def watched_sockets() -> set[int]:
    """Return the descriptors on which the event loop waits."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    return set(loop._selector.get_map())  # type: ignore[attr-defined]  # asyncio has no public way to ask


def one_served(traffic: Traffic) -> bool:
    return len(traffic.served) == 1


async def test_a_streamed_answer_arrives_whole() -> None:
    async with serve(script({"text": "hello"})) as api:
        answer = await turn(api)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert answer.is_whole
    assert answer.body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


async def test_an_answer_that_is_not_streamed_is_one_object() -> None:
    async with serve(script({"text": "hello"})) as api:
        answer = await turn(api, stream=False)
    assert (answer.headers["content-type"], answer.is_whole) == ("application/json", True)
    assert answer.json["content"] == [{"type": "text", "text": "hello"}]


async def test_the_root_answers_and_everything_else_is_not_found() -> None:
    async with serve(script({"text": "hello"})) as api:
        head, get = await ask(api.url, method="HEAD"), await ask(api.url, method="GET")
        lost = await ask(f"{api.url}/v1/models?limit=1", method="GET")
    assert (head.status, head.body, get.status) == (200, b"", 200)
    assert lost.status == 404
    error = {"type": "not_found_error", "message": "no such endpoint: GET /v1/models?limit=1"}
    assert lost.json["error"] == error
    assert [seen.kind for seen in api.requests] == [RequestKind.OTHER] * 3


async def test_a_body_over_the_limit_of_the_api_is_refused() -> None:
    async with serve(script({"text": "hello"})) as api:
        answer = await ask(f"{api.url}/v1/messages", raw=b" " * (32 * 1024 * 1024 + 1))
    assert answer.status == 413
    assert "request_too_large" in answer.body.decode()


async def test_another_key_is_refused_whichever_header_carries_it() -> None:
    async with serve(script({"text": "hello"}), expected_key="right") as api:
        wrong = await turn(api, key="wrong")
        missing = await ask(f"{api.url}/v1/messages", body={})
        bearer = {"authorization": "Bearer right"}
        known = await ask(f"{api.url}/v1/messages", body={"model": "haiku", "messages": []}, headers=bearer)
    assert (wrong.status, missing.status, known.status) == (401, 401, 200)


async def test_a_cut_stream_breaks_off_without_an_end() -> None:
    async with serve(script({"text": "hello", "cut": True})) as api:
        answer = await turn(api)
        assert (answer.status, answer.is_whole) == (200, False)
        assert b"message_start" in answer.body
        assert b"message_stop" not in answer.body
        assert [served.ending for served in api.served] == [ResponseEnding.CUT]


@pytest.mark.parametrize("step", [HANGING, SILENT_IN_THE_MIDDLE, SLOW], ids=["hanging", "silent", "slow"])
async def test_the_server_stops_at_once_though_an_answer_is_pending(step: dict[str, Any]) -> None:
    answers: list[Answer] = []
    async with anyio.create_task_group() as tasks, serve(script(step)) as api:

        async def client() -> None:
            answers.append(await turn(api))

        tasks.start_soon(client)
        await api.wait_for(lambda traffic: traffic.requests)
    assert [answer.is_whole for answer in answers] == [False]
    assert [served.ending for served in api.served] == [ResponseEnding.CLOSED]


@pytest.mark.parametrize("step", [HANGING, SILENT_IN_THE_MIDDLE, SLOW], ids=["hanging", "silent", "slow"])
async def test_a_client_that_leaves_ends_its_pending_answer(step: dict[str, Any]) -> None:
    async with serve(script(step)) as api:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, api)
            await api.wait_for(lambda traffic: traffic.requests)
            tasks.cancel_scope.cancel()
        await api.wait_for(one_served)
    assert [served.ending for served in api.served] == [ResponseEnding.GONE]


async def test_an_answer_that_goes_silent_has_begun_and_is_booked_as_far_as_it_came() -> None:
    async with serve(script(SILENT_IN_THE_MIDDLE)) as api:
        async with begun(api.url):
            pass
        await api.wait_for(one_served)
        served = api.served[0]
    assert (served.status, served.ending, served.input_tokens, served.output_tokens) == (
        200,
        ResponseEnding.GONE,
        12,
        1,
    )


async def test_an_idle_connection_does_not_hold_the_server() -> None:
    async with serve(script({"text": "hello"})) as api:
        stream = await anyio.connect_tcp("127.0.0.1", int(api.url.rpartition(":")[2]))
        await stream.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        await stream.receive()
    async with stream:
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_a_request_that_stays_unfinished_does_not_hold_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(script({"text": "hello"})) as api:
        stream = await anyio.connect_tcp("127.0.0.1", int(api.url.rpartition(":")[2]))
        await stream.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
    await stream.aclose()
    assert api.requests == []
    assert caplog.messages == []


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with serve(script({"text": "hello"})):
            raise LookupError("mine")


async def test_a_cancelled_caller_leaves_nothing_open() -> None:
    watched = watched_sockets()
    with anyio.CancelScope() as scope:
        async with serve(script(HANGING)) as api:
            scope.cancel()
            await anyio.sleep_forever()
    assert watched_sockets() == watched
    with pytest.raises(OSError, match="connect"):
        await ask(api.url, method="GET")


async def test_several_servers_in_one_process_do_not_mix() -> None:
    async with serve(script({"text": "one"})) as one, serve(script({"text": "two"})) as two:
        answers = [await turn(one, stream=False), await turn(two, stream=False)]
    assert [answer.json["content"] for answer in answers] == [
        [{"type": "text", "text": text}] for text in ("one", "two")
    ]
    assert (len(one.requests), len(two.requests)) == (1, 1)


async def test_nothing_is_written_or_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(script({"text": "hello"}, {"text": "hello", "cut": True}, HANGING)) as api:
        await turn(api)
        await turn(api)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, api)
            await api.wait_for(lambda traffic: len(traffic.requests) == 3)
            tasks.cancel_scope.cancel()
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "localhost"])  # noqa: S104 - refused
async def test_no_address_but_loopback_is_served(host: str) -> None:
    with pytest.raises(ConfigurationError, match="loopback"):
        async with serve(script({"text": "hello"}), host=host):
            pass


async def test_a_port_that_is_taken_is_named() -> None:
    async with serve(script({"text": "hello"})) as api:
        port = int(api.url.rpartition(":")[2])
        with pytest.raises(ConfigurationError, match=f"port {port} on 127.0.0.1"):
            async with serve(script({"text": "hello"}), port=port):
                pass


async def test_what_is_booked_is_what_went_out() -> None:
    usage = {"input_tokens": 5, "output_tokens": 70}
    steps = ({"text": "a", "usage": usage}, {"text": "b", "cut": True, "usage": usage}, {"error": {"status": 529}})
    async with serve(script(*steps)) as api:
        for _ in steps:
            await turn(api)
        await turn(api, tools=[])
        booked = [(served.kind, served.status, served.input_tokens, served.output_tokens) for served in api.served]
    assert booked == [("main", 200, 5, 70), ("main", 200, 5, 1), ("main", 529, 0, 0), ("side", 200, 12, 60)]
    cached = {"cache_creation_input_tokens": 1800, "cache_read_input_tokens": 10800}
    assert api.traffic.tokens("haiku", "s") == Usage(input_tokens=22, output_tokens=131, **cached)


async def test_what_the_client_has_read_stands_in_the_record() -> None:
    async with serve(script({"text": "a"}, repeat_last=True)) as api:
        for number in range(5):
            await turn(api, f"s{number}")
            assert len(api.served) == number + 1
    assert api.traffic.sessions("haiku") == ["s0", "s1", "s2", "s3", "s4"]
    assert [seen.session for seen in api.traffic.main("haiku", "s3")] == ["s3"]


async def test_a_secret_that_reached_the_model_is_found_and_the_key_is_not_kept() -> None:
    async with serve(script({"text": "a"})) as api:
        await turn(api, key="sk-secret", system="password is hunter2")
    assert [seen.number for seen in api.traffic.mentioning("hunter2")] == [1]
    assert api.traffic.mentioning("sk-secret") == []
    assert api.requests[0].headers["x-api-key"] == REDACTED


async def test_a_problem_is_recorded_once_though_the_client_insists() -> None:
    async with serve(script({"text": "a"})) as api:
        answers = [await turn(api) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 400, 400]
    assert api.problems == ["tiers.haiku.steps[1]: the script ends here, but another request came (session s)"]


async def test_as_a_process_it_tells_its_url_keeps_a_journal_and_stops_on_sigterm(tmp_path: Path) -> None:
    path, journal, key = tmp_path / "script.json", tmp_path / "journal", tmp_path / "key"
    path.write_bytes(msgspec.json.encode({"tiers": {"haiku": {"steps": [{"text": "a"}, SILENT_IN_THE_MIDDLE]}}}))
    key.write_text("k\n")
    arguments = [str(path), "--journal", str(journal), "--expected-key-file", str(key)]
    command = [sys.executable, "-W", "error", "-m", "claudeops.scripted_api.server", *arguments]
    async with started(command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = msgspec.json.decode(await process.stdout.receive())["url"]
        refused, answer = await turn(url, key="wrong"), await turn(url, system="kö\nnig")
        async with begun(url):
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        with pytest.raises(anyio.EndOfStream):
            await process.stderr.receive()
    seen = read_journal(journal)
    assert (refused.status, answer.status) == (401, 200)
    assert [(served.status, served.ending) for served in seen.served] == [
        (401, "complete"),
        (200, "complete"),
        (200, "closed"),
    ]
    assert seen.requests[1].system_text == "kö\nnig"
    assert journal.stat().st_mode & 0o777 == 0o600


def test_a_journal_that_is_being_written_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_bytes(b'{"event":"problem","number":1,"text":"first"}\n{"event":"problem","num')
    assert read_journal(journal).problems == ["first"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(None, "script.json: cannot be read: No such file or directory", id="missing"),
        pytest.param(b"{", "script.json: not JSON: Input data was truncated", id="no_json"),
        pytest.param(b'{"tiers":{}}', "tiers: name at least one, such as haiku", id="no_script"),
    ],
)
def test_a_script_file_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "script.json"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 78
    assert capsys.readouterr().err.rstrip().endswith(sentence)
    with pytest.raises(MissingInputError if content is None else ConfigurationError):
        load(path)


async def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        async with serve(script({"text": "a"}), journal=tmp_path / "missing" / "journal"):
            pass
