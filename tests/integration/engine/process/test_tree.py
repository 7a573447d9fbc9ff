"""Looks at processes: who is found, what that costs, and that nobody's event loop waits for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import IsolationLevel, SandboxSpec
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.process.child import kill, spawn
from claudeops.engine.process.tree import (
    ProcessId,
    await_end,
    children,
    has_ended,
    kill_all,
    marked,
    members,
    open_namespace,
    still_there,
    tree_of,
)
from claudeops.harness.protocol import CliCommand
from support.estate import STAND_IN, Estate, deliver, look, report
from support.levels import PATH, needs

pytestmark = pytest.mark.anyio

OTHERS = re.compile(r"/proc/(?!self|thread-self|sys/)[^/]+/")
NURSERY = """
import subprocess, sys
children = [subprocess.Popen(["sleep", "60"], start_new_session=bool(number)) for number in range(2)]
print("ready", flush=True)
sys.stdin.read()
"""

_watched: list[tuple[str, int]] | None = None  # files opened, each with the thread that did it


def _see(event: str, args: tuple[object, ...]) -> None:
    if _watched is not None and event in {"open", "os.listdir"}:
        _watched.append((os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else "", threading.get_ident()))


sys.addaudithook(_see)  # cannot be removed again; it listens while a block below runs


@contextmanager
def watched_files() -> Iterator[list[tuple[str, int]]]:
    global _watched  # noqa: PLW0603 - an audit hook has no other way to know
    seen: list[tuple[str, int]] = []
    _watched = seen
    try:
        yield seen
    finally:
        _watched = None


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with two children, one of them in a session of its own."""
    with subprocess.Popen([sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        yield parent
        kill_all(tree_of(parent.pid))


async def test_the_event_loop_reads_nothing_of_other_processes_and_a_session_costs_few_looks_at_all_of_them(
    estate: Estate,
) -> None:
    with watched_files() as seen:
        row = await estate.finished({"stray": str(estate.root / "stray.pid")}, look(), deliver(report()))

    assert row["outcome"] == "success"
    here = [path for path, thread in seen if OTHERS.match(path) and thread == threading.get_ident()]
    assert here == []
    looks = Counter(path for path, _ in seen if path in {"/proc", "/proc/"})
    assert sum(looks.values()) <= 3  # one finds nobody; one more for what was still ending


async def test_the_end_of_a_namespace_is_known_without_a_look_at_any_other_process(estate: Estate) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH, binaries=(STAND_IN,)))
    assert not isinstance(cell, str), cell
    estate.with_context(cell=cell)
    with watched_files() as seen:
        row = await estate.finished({"stray": "left"}, look(), deliver(report()))  # in its own directory

    assert row["outcome"] == "success"
    assert [path for path, _ in seen if path.endswith("/environ")] == []


async def test_a_namespace_is_one_for_as_long_as_anything_runs_in_it(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(cell, str), cell
    (tmp_path / "repos").mkdir()
    workspace = workspaces.make(tmp_path / "session", template_home=None)
    cell.hand_over(workspace)
    spec = SandboxSpec(workspace=workspace, binary=Path("/bin/bash"), repos_dir=tmp_path / "repos", path=PATH)
    argv = ("/bin/bash", "-c", "sleep 600 & read -r line; exit 3")
    command, mark = CliCommand(argv=argv, env={"PATH": PATH}), f"{tmp_path}#1;"
    child = await spawn(command, cwd=workspace.workdir, mark=mark, sandboxed=cell.enclose(spec))
    try:
        await child.note_namespace()
        namespace = open_namespace(child.pid)
        assert namespace is not None
        assert not has_ended(namespace, 0)
        assert not await child.namespace_ended()
        await child.stdin.send(b"go\n")
        assert await child.process.wait() == 3
        assert await child.namespace_ended()
        assert marked(mark) == frozenset()
        os.close(namespace)
    finally:
        await kill(child)
        await child.aclose()


def test_a_process_without_a_namespace_has_none(nursery: subprocess.Popen[bytes]) -> None:
    assert open_namespace(nursery.pid) is None


async def test_a_session_that_is_stopped_is_listed_without_a_look_at_all_processes(estate: Estate) -> None:
    estate.with_context(session_memory_mb=100)
    with watched_files() as seen:
        row = await estate.finished({"ignore": ["SIGTERM", "SIGINT", "interrupt"]}, {"eat": 300}, {"hang": True})

    assert row["outcome"] == "out_of_memory"
    assert [path for path, thread in seen if OTHERS.match(path) and thread == threading.get_ident()] == []
    assert sum(path in {"/proc", "/proc/"} for path, _ in seen) <= 4


def test_a_tree_is_what_it_is_by_the_machines_own_count(nursery: subprocess.Popen[bytes]) -> None:
    found = {child.pid for child in psutil.Process(nursery.pid).children(recursive=True)}

    assert len(found) == 2
    assert set(children(nursery.pid)) == found
    assert set(members(nursery.pid)) == {nursery.pid, *found}
    assert {process.pid for process in tree_of(nursery.pid)} == {nursery.pid, *found}
    assert tree_of(2**22 + 1) == frozenset()


def test_who_took_over_a_number_is_somebody_else(nursery: subprocess.Popen[bytes]) -> None:
    (own,) = [process for process in tree_of(nursery.pid) if process.pid == nursery.pid]
    earlier = ProcessId(own.pid, own.started - 1)

    assert (still_there(own), still_there(earlier)) == (True, False)
    assert kill_all([earlier]) == 0
    assert nursery.poll() is None


def test_the_end_of_processes_is_waited_for_and_no_longer_than_that(nursery: subprocess.Popen[bytes]) -> None:
    tree = tree_of(nursery.pid)
    await_end(tree, 0.02)
    assert any(still_there(process) for process in tree)

    assert kill_all(tree) == 3
    await_end(tree, 20)

    assert not any(still_there(process) for process in tree)  # a zombie, which the nursery is, is not there


async def test_a_start_that_is_cancelled_half_way_leaves_no_socket_and_no_process(tmp_path: Path) -> None:
    def sockets() -> set[str]:
        here = (str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        return {target for target in here if target.startswith("socket:")}

    command, before = CliCommand(argv=("/bin/sleep", "600"), env={}), sockets()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await spawn(command, cwd=tmp_path, mark="")

    assert scope.cancelled_caught
    assert sockets() <= before
    assert not [child for child in psutil.Process().children() if child.name() == "sleep"]
