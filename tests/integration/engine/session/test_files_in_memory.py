"""Sessions whose files are in memory: the daemon reads everything that it reads of files on the disk."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.cgroups import Bounds
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.gate.approvals import named_scripts
from claudeops.engine.gate.view import SessionView
from claudeops.policy.tiers import JudgeScope
from claudeops.structs import replace
from support.estate import Estate, allow, deliver, look, open_estate, report
from support.levels import PATH, needs
from support.loop_time import LeapingClock
from support.waiting import until

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
HANDOFF = {
    "schema_version": 1,
    "recommended_tier": 2,
    "services_affected": ["web"],
    "check_results": [{"service": "web", "check_type": "http", "status": "down", "error": "502"}],
    "investigation_findings": "The upstream is gone.",
}


@dataclass
class Node:
    """An estate whose sessions have their files in memory, and what its gate was called with."""

    estate: Estate
    scopes: list[JudgeScope] = field(default_factory=list)

    @property
    def view(self) -> SessionView:
        """Return what the last session of the gate saw."""
        found = getattr(self.scopes[-1].expand, "__self__", None)
        assert isinstance(found, SessionView)
        return found

    def outside(self, path: str) -> Path:
        found = self.view.outside(path)
        assert found is not None
        return Path(found)

    def logged(self, event: str) -> list[Mapping[str, object]]:
        lines = map(json.loads, self.estate.logged.getvalue().splitlines())
        return [line for line in lines if line["event"] == event]


@asynccontextmanager
async def node(root: Path, *, disk_mb: int = 16, room_mb: int = 64) -> AsyncIterator[Node]:
    needs(IsolationLevel.BUBBLEWRAP)
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(cell, BubblewrapCell), cell
    if cell.no_files:
        pytest.skip(cell.no_files)
    async with open_estate(root) as estate:
        (root / "signals").mkdir()
        tiers = {
            number: replace(tier, read=(estate.steps_file, root / "signals"))
            for number, tier in estate.context.tiers.items()
        }
        estate.with_context(
            cell=cell, path=PATH, tiers=tiers, repair_turn=False, files_room_mb=room_mb, bounds=Bounds(disk_mb=disk_mb)
        )
        found = Node(estate)

        def judge(call: ToolCall, scope: JudgeScope) -> Verdict:
            found.scopes.append(scope)
            return allow(call, scope)

        estate.with_judge(judge)
        yield found


async def test_a_handoff_is_read_when_the_session_has_gone(tmp_path: Path) -> None:
    async with node(tmp_path) as memory:
        row = await memory.estate.finished(
            look(), {"leave": {"handoff.json": json.dumps(HANDOFF)}}, {"result": {}}, {"await_eof": True}
        )
        assert (row["extraction_method"], row["decision_reason"]) == ("markers", "escalated")
        assert [line["files"] for line in memory.logged("session_spawned")] == ["memory"]
        assert list((tmp_path / "state" / "sessions").glob("*")) == []


async def test_the_last_message_of_a_cli_without_a_conversation_is_read(tmp_path: Path) -> None:
    done = {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}
    lines = [{"type": "thread.started", "thread_id": "th_1"}, {"type": "turn.started"}, done]
    async with node(tmp_path) as memory:
        row = await memory.estate.one_shot("codex", lines=lines, last=json.dumps(report()))
        assert (row["outcome"], row["extraction_method"]) == ("success", "structured")
        assert memory.logged("session_spawned")[-1]["files"] == "memory"


async def test_the_gate_looks_up_names_where_the_session_has_its_files_in_every_process(tmp_path: Path) -> None:
    found: list[object] = []
    async with node(tmp_path) as memory:

        def judge(call: ToolCall, scope: JudgeScope) -> Verdict:
            pattern = f"{scope.workdir.removesuffix('work')}state/x-*"
            found.append(scope.expand(pattern))
            elsewhere = "import pickle, sys; expand, pattern = pickle.load(sys.stdin.buffer); print(expand(pattern))"
            done = subprocess.run(
                [sys.executable, "-c", elsewhere],
                input=pickle.dumps((scope.expand, pattern)),
                capture_output=True,
                check=True,
            )
            found.append(done.stdout.decode().strip())
            return allow(call, scope)

        memory.estate.with_judge(judge)
        row = await memory.estate.finished({"leave": {"x-1": "a", "y": "b"}}, look(), deliver(report()))
        assert row["outcome"] == "success"
        names, elsewhere = found[:2]  # it is judged again when the session has ended
        assert found[2:] == found[:2]
        assert isinstance(names, tuple)
        assert [Path(name).name for name in names] == ["x-1"]
        assert elsewhere == str(names)


async def test_people_are_shown_the_scripts_that_the_session_has_written(tmp_path: Path) -> None:
    """They approve the text that will run, so it must be the one in memory."""
    shown: list[tuple[str, str]] = []
    async with node(tmp_path) as memory:

        def judge(call: ToolCall, scope: JudgeScope) -> Verdict:
            memory.scopes.append(scope)
            state = scope.workdir.removesuffix("work") + "state"
            texts = {"command": f"sh {state}/mend; sh /tmp/other"}
            memory.outside("/tmp/other").write_text("echo of the session")  # noqa: S108 - the session's own
            scripts = named_scripts(texts, own=(), workdir=scope.workdir, redact=str, view=memory.view)
            shown.extend((Path(script.path).name, script.text) for script in scripts)
            return allow(call, scope)

        memory.estate.with_judge(judge)
        await memory.estate.finished({"leave": {"mend": "restart web"}}, look(), deliver(report()))
    assert sorted(set(shown)) == [("mend", "restart web"), ("other", "echo of the session")]


async def test_a_cli_that_says_nothing_but_writes_its_transcript_in_memory_is_alive(tmp_path: Path) -> None:
    clock, rows = LeapingClock(), list[dict[str, object]]()
    async with node(tmp_path) as memory:
        estate = memory.estate
        estate.with_context(clock=clock, timeouts=replace(estate.context.timeouts, silence=300, session=3600))
        grown = [f"grown-{number}" for number in range(3)]
        steps: list[Mapping[str, object]] = []
        for name in grown:
            steps += [{"grow": "x" * 100, "every": 0.01, "times": 1}, {"touch": name}]
            steps += [{"await": str(tmp_path / "signals" / name)}]

        async def run() -> None:
            rows.append(await estate.finished(look(), *steps, deliver(report())))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: bool(memory.scopes))
            for name in grown:
                await until(memory.outside(f"{memory.scopes[0].workdir}/{name}").exists)
                await clock.leap(200, noticed=True)
                (tmp_path / "signals" / name).touch()
        assert (rows[0]["outcome"], rows[0]["decision_reason"]) == ("success", "healthy")


@pytest.mark.parametrize(
    ("bounds", "outcome"),
    [(Bounds(disk_mb=4), "out_of_disk"), (Bounds(disk_mb=16, file_mb=4), "file_too_large")],
    ids=["all of it", "one file"],
)
async def test_a_session_that_fills_its_memory_ends_as_one_that_fills_the_disk(
    tmp_path: Path, bounds: Bounds, outcome: str
) -> None:
    async with node(tmp_path) as memory:
        memory.estate.with_context(bounds=bounds)
        ending = await memory.estate.run(look(), {"fill": 8}, {"result": {}}, {"await_eof": True})
        assert (str(ending.outcome), [event.fingerprint for event in ending.events]) == (outcome, [outcome])
        (line,) = memory.logged("bound_reached")
        assert f"{4} MiB of CLAUDEOPS_SESSION_" in str(line["detail"])
        assert memory.logged("session_spawned")[-1]["files"] == "memory"


async def test_a_home_that_does_not_fit_leaves_the_session_on_the_disk(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "large").write_bytes(bytes(60 * MIB))
    async with node(tmp_path / "node") as memory:
        context = memory.estate.context
        tiers = {number: replace(tier, template_home=home) for number, tier in context.tiers.items()}
        memory.estate.with_context(tiers=tiers)
        row = await memory.estate.finished(look(), deliver(report()))
        assert row["outcome"] == "success"
        assert memory.logged("session_spawned")[-1]["files"] == "disk"


@pytest.mark.parametrize("size_mb", [20, 40])
async def test_what_a_session_was_given_is_not_held_against_it_in_memory(tmp_path: Path, size_mb: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "large").write_bytes(bytes(size_mb * MIB))
    async with node(tmp_path / "node", room_mb=128) as memory:
        context = memory.estate.context
        tiers = {number: replace(tier, template_home=home) for number, tier in context.tiers.items()}
        memory.estate.with_context(tiers=tiers, bounds=Bounds(disk_mb=16, file_mb=17))
        row = await memory.estate.finished(look(), {"fill": 8}, deliver(report()))
        assert (row["outcome"], memory.logged("session_spawned")[-1]["files"]) == ("success", "memory")


async def test_a_session_that_cannot_be_moved_into_memory_does_not_start_and_leaves_nothing(tmp_path: Path) -> None:
    async with node(tmp_path / "node") as memory:
        bwrap = tmp_path / "bwrap"
        cell = memory.estate.context.confinement.cell
        assert isinstance(cell, BubblewrapCell)
        # It fills the file system before the daemon may copy anything into it.
        bwrap.write_text(
            f"#!/bin/bash\ncd {tmp_path}/node/state/sessions/*/memory && head -c 99999999 /dev/zero > full\n"
            f'exec {cell.program} "$@"\n'
        )
        bwrap.chmod(0o755)
        home = tmp_path / "home"
        home.mkdir()
        (home / "key").write_text("the key")
        tiers = {n: replace(tier, template_home=home) for n, tier in memory.estate.context.tiers.items()}
        memory.estate.with_context(cell=replace(cell, program=str(bwrap)), tiers=tiers)
        row = await memory.estate.finished(look(), deliver(report()))
        assert row["outcome"] == "spawn_failed"
        assert "No space left on device" in str(row["error"])
        assert list((tmp_path / "node" / "state" / "sessions").glob("*")) == []
        assert memory.scopes == []
