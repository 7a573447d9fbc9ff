"""How long a tool call waits for the gate: request line in → judged → recorded → answer line out."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from anyio.abc import UNIXSocketStream

from benchmarks.table import Setup, Table, percentile, spread, verdict
from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.engine.gate.gate import Gate
from claudeops.engine.gate.judging import Judging, SessionJudge, judge_in_process
from claudeops.engine.owners import this_owner
from claudeops.engine.process.channel import Channel
from claudeops.engine.session_log.writer import CHUNK_BYTES, OutputReader, SessionLog
from claudeops.formats.stream import StreamFrame
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.protocol import GateRequest, Spec
from claudeops.policy.tiers import JudgeScope, judge, parse_policy, tier_policy
from claudeops.settings.files import packaged
from claudeops.settings.policy import default_text
from claudeops.store.database import uncounted
from claudeops.store.migrate import migrate
from claudeops.store.store import Store, open_store
from claudeops.text.redact import Redactor

TARGET_MILLISECONDS: Final = 10.0
"""On top of one fsync of this disk, at the 99th percentile."""

_CALLS_A_REPEAT: Final = 150
_STARTS_A_REPEAT: Final = 5
WARM_UP: Final = 20  # calls that are not counted: the parser, the prepared statements
_BLOCK: Final = b"x" * 4096
_SECRETS: Final = ("sk-ant-api03-NeverInTheStream-0123456789",)
COMMANDS: Final = (
    "uptime && df -h /",
    "docker ps --format '{{.Names}} {{.Status}}' | grep -v Up | head -20",
    "for name in web db cache; do curl -sS -m 2 -o /dev/null -w '%{http_code}\\n' http://$name/health; done",
    "ssh host1 'docker logs --tail 50 web 2>&1 | grep -i error'",
    "cat /etc/shadow",
    "docker restart web",
)


def latency(setup: Setup) -> Table:
    """Measure with one call at a time, as a model mostly makes them, and print the disk's fsync beside it."""
    taken = anyio.run(measured, setup)
    started = anyio.run(_starts, setup)
    synced = fsyncs(setup.directory, len(taken))
    p99, disk = percentile(taken, 0.99), percentile(synced, 0.99)
    met = verdict(met=p99 <= TARGET_MILLISECONDS + disk)
    return Table(
        title="Gate, a part: a request line → redacted, logged, judged, recorded (SQLite) → answer line",
        columns=("", "calls", "median ms", "p99 ms", "longest ms", "target p99"),
        rows=[
            ("gate", str(len(taken)), *spread(taken), f"{TARGET_MILLISECONDS + disk:.2f} ({met})"),
            ("the first call of a session, judged only", str(len(started)), *spread(started), ""),
            ("this disk's fsync", str(len(synced)), *spread(synced), ""),
        ],
        notes=(
            "In the process that measures, without a CLI: timed by a thread at the other end of a socket pair. Every",
            "verdict is a commit.",
            "Judged in a process of its own, as a session's calls are; its first call starts it.",
            f"Target: p99 at most {TARGET_MILLISECONDS:g} ms plus that of appending 4 KiB and its fsync on this disk.",
        ),
        samples={"gate": taken},
    )


def fsyncs(directory: Path, count: int) -> list[float]:
    """Return milliseconds that appending 4 KiB and its fsync take on a directory's disk, each time."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(_BLOCK)
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    return taken


async def _starts(setup: Setup) -> list[float]:
    """Return milliseconds until a process that was not there has judged a call."""
    taken = []
    for number in range(_STARTS_A_REPEAT * setup.repeats):
        call = ToolCall(tool_use_id=f"toolu_{number}", tool_name="Bash", input={"command": COMMANDS[0]})
        async with judge_in_process(_policy(setup.directory)) as judging:
            started = time.perf_counter()
            await judging(call)
            taken.append((time.perf_counter() - started) * 1000)
    return taken


async def measured(setup: Setup, url: str | None = None) -> list[float]:
    """Return milliseconds a call, in the order of the calls."""
    with tempfile.TemporaryDirectory(dir=setup.directory) as name:
        async with answering(Path(name), url=url) as asked:
            return await asked.calls(_CALLS_A_REPEAT * setup.repeats)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A session's gate that answers on this event loop, and the CLI that asks it."""

    store: Store
    client: Client

    async def calls(self, count: int) -> list[float]:
        """Make calls, one after the other; return milliseconds for each."""
        return await anyio.to_thread.run_sync(self.client.calls, count)


@asynccontextmanager
async def answering(
    directory: Path, *, url: str | None = None, wrote: Callable[[float | None], None] = uncounted
) -> AsyncIterator[Asked]:
    """Have a gate answer, warmed up, over the SQLite file in a directory, which is made if it is missing, or a ``url``.

    ``wrote`` is called with the seconds that each transaction takes.
    """
    url = url or f"sqlite:///{directory / 'claudeops.db'}"
    migrate(url, migrations_dir=packaged("migrations"), backup_dir=directory)
    store = open_store(url, wrote=wrote)
    try:
        ours, theirs = socket.socketpair()
        with closing(Client(theirs)) as client:
            async with judge_in_process(_policy(directory)) as judging, anyio.create_task_group() as tasks:
                tasks.start_soon(_serve, ours, await _gate(store, judging), directory)
                asked = Asked(store=store, client=client)
                await asked.calls(WARM_UP)
                yield asked
                client.close()
    finally:
        await store.close()


class Client:
    """The CLI's side: asks, waits for the answer, asks again. It blocks, for a thread of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("rb")
        self._asked = 0

    def calls(self, count: int) -> list[float]:
        """Make calls, one after the other; return milliseconds for each."""
        taken = []
        for number in range(self._asked, self._asked + count):
            line = _request(number)
            started = time.perf_counter()
            self._connection.sendall(line)
            self._answers.readline()
            taken.append((time.perf_counter() - started) * 1000)
        self._asked += count
        return taken

    def close(self) -> None:
        """Go, which ends the conversation."""
        self._answers.close()
        self._connection.close()


def _request(number: int) -> bytes:
    asked = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": COMMANDS[number % len(COMMANDS)], "description": "look"},
        "tool_use_id": f"toolu_{number}",
    }
    request = {"subtype": "hook_callback", "callback_id": "gate", "input": asked, "tool_use_id": f"toolu_{number}"}
    return json.dumps({"type": "control_request", "request_id": f"r{number}", "request": request}).encode() + b"\n"


def _policy(directory: Path) -> SessionJudge:
    here = str(directory)
    scope = JudgeScope(
        repos_dir="/repos", workdir=here, tmpdir=here, home=here, forbidden_paths=(), resolve=os.path.realpath
    )
    return partial(judge, tier=tier_policy(parse_policy(default_text()), 2), scope=scope)


async def _gate(store: Store, judging: Judging) -> Gate:
    rules = EscalationRules(max_tier=3, dry_run=False, tiers=(TierChoice(number=2, model="sonnet"),), limits={})
    redactor, clock = Redactor(_SECRETS), Clock()
    new = NewSession(tier=2, trigger=Trigger.MANUAL, model="sonnet", prompt_text="web does not answer")
    await store.recovery.reconcile(this_owner(), now=clock.now(), alive=lambda _: False)
    await store.queue.enqueue(new, rules=rules, now=clock.now())
    (session,) = await store.claims.claim(
        this_owner(), rules=rules, now=clock.now(), cli_session_id=lambda: "card", log_path=lambda _: "card.ndjson"
    )

    def shown(call: ToolCall) -> str:
        return redactor.line(json.dumps(dict(call.input)).encode()).decode()

    return Gate(
        session=session,
        judge=judging,
        rules=rules,
        calls=store.calls,
        clock=clock,
        display_input=shown,
        log=logs.get_logger(),
    )


async def _serve(ours: socket.socket, gate: Gate, directory: Path) -> None:
    """Take lines and answer them as a conversation does, until the other side has gone."""
    harness, spec = ClaudeHarness(), _spec(directory)
    async with (
        await UNIXSocketStream.from_socket(ours) as stream,
        SessionLog(directory / "session.ndjson") as sink,
        anyio.create_task_group() as tasks,
    ):
        channel = Channel(stream)

        async def answer(request: GateRequest) -> None:
            await gate.answer(request, harness=harness, channel=channel)

        with OutputReader(redactor=Redactor(_SECRETS), sink=sink, clock=gate.clock) as intake:
            try:
                while True:
                    for taken in intake.push(await stream.receive(CHUNK_BYTES)):
                        signal = (
                            harness.signal(taken.asked.body, spec) if isinstance(taken.asked, StreamFrame) else None
                        )
                        if isinstance(signal, GateRequest):
                            tasks.start_soon(answer, signal)
            except anyio.EndOfStream:
                return


def _spec(directory: Path) -> Spec:
    return Spec(
        binary="claude",
        model="sonnet",
        cli_session_id="card",
        schema_text="{}",
        task="",
        system="",
        tools=("Bash",),
        max_turns=1,
        max_budget_usd=1.0,
        home=str(directory),
        workdir=str(directory),
        tmpdir=str(directory),
        state_dir=str(directory),
        path="/bin",
    )
