"""What an operator sees while a chain runs, with the real CLI: on a terminal, in a pipe, and on standard output."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from support.operating import COMMAND, Operator, conclude, look, operator
from support.senders import starts_nothing
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

HOSTILE = {"level": "critical", "service": "web", "message": "web is \u202edown\x1b[2J"}
TIERS = {
    "haiku": [look("echo looked"), look("docker restart web"), conclude(needed=True, status="down", events=[HOSTILE])],
    "sonnet": [look("sleep 1"), look(), conclude()],
}
STORY = [
    r"tier 1  starts    session 1 · haiku · manual",
    r"tier 1  allowed   Running: echo looked",
    r"tier 1  answer    looked",
    r"tier 1  denied    Running: docker restart web .*needs tier 2",
    r"tier 1  critical  web: web is \\u202edown\\x1b\[2J",
    r"tier 1  finds     Looked at web",
    r"tier 1  ended     success · \$0\.\d{4} · \d turns · [\d.]+ s",
    r"tier 1  next      hands over to tier 2 \(session 2\)",
    r"tier 2  starts    session 2 · sonnet · escalation .*web answers 502",
    r"tier 2  next      healthy: there is nothing left to do",
]
RESULTS = ["tier 1 (haiku) session 1: success · escalated", "tier 2 (sonnet) session 2: success · healthy"]


def in_order(text: str) -> None:
    """Check that the story is told in its order."""
    at = 0
    for pattern in STORY:
        found = re.compile(pattern, re.MULTILINE).search(text, at)
        assert found is not None, f"{pattern} is missing in {text[at:]}"
        at = found.end()


def without_times(told: str) -> str:
    return re.sub(r"^\d\d:\d\d:\d\d ", "", told, flags=re.MULTILINE)


async def test_piped_the_story_is_on_stderr_and_the_results_alone_are_on_stdout_and_tail_tells_it_again(
    tmp_path: Path,
) -> None:
    async with operator(tmp_path, **TIERS) as someone:
        done = await someone.bootstrap("--live")
        afterwards = await someone.run("tail", "1")
        unwritten = [await _on_a_full_disk(someone, "tail", *words) for words in (["1"], ["1", "-o", "stream-json"])]

    assert [code for code, _ in unwritten] == [73, 73]
    assert all("standard output cannot be written (No space left on device)" in told for _, told in unwritten)
    in_order(done.stderr)
    assert [line.split(" · $")[0] for line in done.stdout.splitlines()] == RESULTS
    in_order(without_times(afterwards.stdout))


async def _on_a_full_disk(someone: Operator, *arguments: str) -> tuple[int, str]:
    full = ["/bin/sh", "-c", 'exec "$@" >/dev/full', "sh", *COMMAND, *arguments]
    with anyio.fail_after(PATIENCE_SECONDS):
        done = await anyio.run_process(full, env=someone.environment(), cwd=someone.root, check=False)
    return done.returncode, done.stderr.decode()


async def test_on_a_terminal_the_story_comes_with_progress_and_nothing_hostile_reaches_it(tmp_path: Path) -> None:
    async with operator(tmp_path, **TIERS) as someone:
        raw = await _on_a_terminal(someone)

    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw)
    in_order("\n".join(line.rpartition("\r")[2].rstrip() for line in shown.replace("\r\n", "\n").splitlines()))
    assert re.search(r"tier 2 · Running: sleep 1  \d s", shown), "no progress while one waits"
    assert "\x1b[2J" not in raw
    assert "\u202e" not in raw
    assert raw.rstrip().endswith("wrote down what was there.")


async def test_beside_a_daemon_the_same_story_is_told_from_its_logs(tmp_path: Path) -> None:
    async with (
        operator(tmp_path, **TIERS) as someone,
        someone.daemon(**starts_nothing(tmp_path)) as daemon,
    ):
        await daemon.until_logged("daemon_ready")
        done = await someone.bootstrap("--live")

    in_order(done.stderr)
    assert [line.split(" session ")[0] for line in done.stdout.splitlines()] == ["tier 1 (haiku)", "tier 2 (sonnet)"]


@pytest.mark.long
async def test_tail_tells_the_story_afterwards_in_every_form(tmp_path: Path) -> None:
    async with operator(tmp_path, **TIERS) as someone:
        await someone.bootstrap()
        text = await someone.run("tail", "1")
        stream = await someone.run("tail", "1", "--output-format", "stream-json")
        whole = await someone.run("tail", "1", "--output-format", "json")
        second = await someone.run("tail", "2")
        newest = await someone.run("tail", "--no-follow")
        unknown = await someone.run("tail", "7", "--output-format=json")

    in_order(without_times(text.stdout))
    facts = [json.loads(line) for line in stream.stdout.splitlines()]
    assert [fact["kind"] for fact in facts].count("session_ended") == 2
    assert (whole.document["session_id"], whole.document["lines"]) == (1, facts)
    assert "tier 2  starts" in second.stdout
    assert "tier 1  starts" not in second.stdout
    assert newest.stdout == text.stdout
    assert (unknown.code, unknown.document["found"]) == (1, False)
    assert unknown.document["error"] == {
        "kind": "session_not_found",
        "message": "session 7 does not exist",
        "retryable": False,
    }


async def test_tail_ends_quietly_when_nobody_reads_or_ctrl_c_is_pressed(tmp_path: Path) -> None:
    slow = {"haiku": [look("echo looked"), look("sleep 20"), conclude()]}
    async with (
        operator(tmp_path, **slow) as someone,
        someone.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as daemon,
    ):
        await daemon.until_logged("tool_call_judged")
        follow = f"{' '.join(COMMAND)} tail -f"
        environment = someone.environment()
        with anyio.fail_after(PATIENCE_SECONDS):
            head = await anyio.run_process(
                ["bash", "-c", f"set -o pipefail; {follow} | head -n 1"], env=environment, check=False
            )
            pressed = await anyio.open_process([*COMMAND, "tail", "-f"], env=environment)
            async with pressed:
                assert pressed.stdout is not None
                assert b"starts" in await pressed.stdout.receive()
                pressed.send_signal(signal.SIGINT)
                code = await pressed.wait()
                assert pressed.stderr is not None
                complaints = b"".join([chunk async for chunk in pressed.stderr])

    assert (head.returncode, head.stderr) == (0, b"")
    assert b"starts" in head.stdout
    assert (code, complaints) == (0, b"")


async def _on_a_terminal(someone: Operator) -> str:
    """Run a chain on a terminal of 200 columns; return everything that was written there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    received: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65536):
                received.append(chunk)
        except OSError:
            pass  # how Linux says that nobody holds the other end any more

    environment = someone.environment(TERM="xterm-256color")
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            command = [*COMMAND, "bootstrap"]
            process = await anyio.open_process(
                command, env=environment, cwd=someone.root, stdin=theirs, stdout=theirs, stderr=theirs
            )
            os.close(theirs)
            tasks.start_soon(anyio.to_thread.run_sync, read)
            await process.wait()
            await process.aclose()
    os.close(ours)
    return b"".join(received).decode()
