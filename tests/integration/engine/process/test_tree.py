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

import psutil
import pytest

from claudeops.engine.process.tree import ProcessId, await_end, children, kill_all, members, still_there, tree_of
from support.estate import Estate, deliver, look, report

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
