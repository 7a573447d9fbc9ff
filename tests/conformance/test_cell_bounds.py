"""What a session may use, tried from inside of each cell with the real CLI: processes, files, disk.

Every bomb here is small: so many sleeps that are started once, and no more. Nothing forks for ever.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.sessions import Ending, Session
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell, IsolationLevel
from claudeops.engine.cell.cgroups import Bounds, Groups
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.structs import replace
from support.caged import Caged, caged
from support.control_groups import groups_here
from support.doses import drawn
from support.operating import look
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
PROCESSES = 128
ATTEMPTED = 300


@pytest.fixture(scope="session")
def groups() -> Groups | None:
    return groups_here()


def bomb(number: int) -> str:
    """Return a command that starts so many sleeps, each once, and waits; who cannot fork goes on without."""
    return (
        f"for i in $(/usr/bin/seq {ATTEMPTED}); do /bin/sh -c '/usr/bin/setsid /bin/sleep {number}.'$i' &' "
        "< /dev/null > /dev/null 2>&1 || true; done; sleep 20"
    )


def sleeping(number: int) -> int:
    return sum(
        (process.info["cmdline"] or [])[:1] == ["/bin/sleep"] and process.info["cmdline"][1].startswith(f"{number}.")
        for process in psutil.process_iter(["cmdline"])
    )


async def most_at_once(count: Callable[[], int], most: list[int]) -> None:
    """Note how many there were at most, until this is cancelled."""

    def count_again() -> bool:
        most[0] = max(most[0], count())
        return False

    await until(count_again, seconds=math.inf)


async def ended(cage: Caged) -> Ending:
    with anyio.fail_after(PATIENCE_SECONDS):
        return await cage.run()


def events(ending: Ending) -> list[str | None]:
    return [event.fingerprint for event in ending.events if event.fingerprint]


def bounded_by(counted: str, cell: Cell, groups: Groups | None) -> Groups | None:
    """Return the groups for a way of counting; skips where this machine or this level does not offer it."""
    if counted == "cgroup":
        if groups is None:
            pytest.skip("this machine leaves no control groups to us")
        return groups
    if (counted == "rlimit") is not cell.counts_processes():
        pytest.skip(f"at this level, as this user, processes are not bounded by {counted}")
    return None


BUBBLEWRAP_DAILY = pytest.mark.parametrize(
    "level",
    [
        each if each is IsolationLevel.BUBBLEWRAP else pytest.param(each, marks=pytest.mark.long)
        for each in IsolationLevel
    ],
    indirect=True,
    ids=str,
)
"""For the dearest of them: at the other levels they are a long dose."""


@BUBBLEWRAP_DAILY
@pytest.mark.parametrize("counted", ["cgroup", "rlimit", "watch"])
async def test_a_fork_bomb_is_bounded_and_other_sessions_go_on(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, counted: str, groups: Groups | None
) -> None:
    number = 500_000 + os.getpid()
    most, endings = [0], {}
    async with caged(tmp_path, level, steps=[look(bomb(number))], second=[look("sleep 4; echo done")],
                     binary=everybodys_cli) as cage:  # fmt: skip
        cage.estate.with_context(
            bounds=Bounds(processes=PROCESSES), groups=bounded_by(counted, cage.estate.context.confinement.cell, groups)
        )
        await cage.estate.queue()
        await cage.estate.queue()
        first, second = await cage.estate.claim(1), await cage.estate.claim(2)
        runner = SessionRunner(context=cage.estate.context)

        async def run(session: Session) -> None:
            endings[session.id] = await runner.run(session, StopControl())

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as watching:
                watching.start_soon(most_at_once, lambda: sleeping(number), most)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run, first)
                    await until(lambda: sleeping(number) > 20)
                    tasks.start_soon(run, second)
                watching.cancel_scope.cancel()
    ending = endings[first.id]
    assert str(ending.outcome) == "out_of_processes"
    assert events(ending) == ["out_of_processes"]
    assert isinstance(ending.cost_usd, float)  # stopped politely: what it cost is known
    assert str(endings[second.id].outcome) == "success"
    assert 20 < most[0] < (ATTEMPTED + 1 if counted == "watch" else PROCESSES)
    assert sleeping(number) == 0
    if groups is not None:
        assert list(groups.place.glob(f"{groups.prefix}-*")) == []


@BUBBLEWRAP_DAILY
async def test_many_files_are_bounded(tmp_path: Path, level: IsolationLevel, everybodys_cli: Path) -> None:
    """695 MB were had from inside; here they are 695 files, until it is stopped."""
    write = "i=0; while [ $i -lt 695 ]; do head -c 1048576 /dev/zero > $i; i=$((i+1)); sleep 0.02; done; sleep 20"
    most = [0]
    async with caged(tmp_path, level, write, binary=everybodys_cli) as cage:
        workspaces = cage.estate.context.workspaces()
        cage.estate.with_context(bounds=Bounds(disk_mb=64))
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as watching:
                watching.start_soon(most_at_once, lambda: below(workspaces), most)
                ending = await ended(cage)
                watching.cancel_scope.cancel()
    assert (str(ending.outcome), events(ending)) == ("out_of_disk", ["out_of_disk"])
    assert 64 * MIB < most[0] < 400 * MIB


def below(directory: Path) -> int:
    total = 0
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - as os.walk says it
            except FileNotFoundError:
                continue
    return total


EVERYBODYS = "where every user may write"
HIDDEN = {
    "names that are gone": "exec 7> x; rm x; head -c 200000000 /dev/zero >&7; sleep 20",
    "a closed directory": "mkdir d; head -c 200000000 /dev/zero > d/x; chmod 000 d; sleep 20",
    "names without content": "mkdir d; cd d; seq 60000 | xargs touch; sleep 20",
    EVERYBODYS: "head -c 200000000 /dev/zero > /tmp/x-$$ ; sleep 20; rm -f /tmp/x-$$",
    "deeper than a path": (
        "python3 -c \"import os\nfor _ in range(60): os.mkdir('d' * 100); os.chdir('d' * 100)\n"
        "open('x', 'w').write('y')\"; sleep 20"
    ),
}


@pytest.fixture
def swept() -> Iterator[None]:
    """Remove what a session of its own user left where every user may write."""
    before = set(Path("/tmp").glob("x-*"))  # noqa: S108 - what this test's session writes to
    yield
    for left in set(Path("/tmp").glob("x-*")) - before:  # noqa: S108
        left.unlink()


@BUBBLEWRAP_DAILY
@pytest.mark.parametrize("way", drawn(HIDDEN, count=2))
@pytest.mark.usefixtures("swept")
async def test_disk_that_is_hidden_counts_as_well(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, way: str
) -> None:
    if level is IsolationLevel.NONE and way == EVERYBODYS:
        pytest.skip("at this level the files of a session in /tmp cannot be told from the daemon's")
    async with caged(tmp_path, level, HIDDEN[way], binary=everybodys_cli) as cage:
        cage.estate.with_context(bounds=Bounds(disk_mb=64))
        ending = await ended(cage)
    assert (str(ending.outcome), events(ending)) == ("out_of_disk", ["out_of_disk"])


IN_MEMORY = ("names that are gone", "names without content", EVERYBODYS)


@pytest.mark.parametrize("way", IN_MEMORY)
async def test_files_in_memory_are_bounded_by_the_kernel_and_the_session_ends_as_on_the_disk(
    tmp_path: Path, everybodys_cli: Path, way: str
) -> None:
    most = [0]
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, HIDDEN[way], binary=everybodys_cli) as cage:
        cell = cage.estate.context.confinement.cell
        assert isinstance(cell, BubblewrapCell)
        if cell.no_files:
            pytest.skip(cell.no_files)
        cage.estate.with_context(bounds=Bounds(disk_mb=64), files_room_mb=128)
        workspaces = cage.estate.context.workspaces()
        async with anyio.create_task_group() as watching:
            watching.start_soon(most_at_once, lambda: below(workspaces), most)
            ending = await ended(cage)
            watching.cancel_scope.cancel()
    assert (str(ending.outcome), events(ending)) == ("out_of_disk", ["out_of_disk"])
    assert isinstance(ending.cost_usd, float)  # stopped politely: what it cost is known
    assert most[0] < MIB  # on the disk


async def test_one_huge_file_is_bounded(tmp_path: Path, level: IsolationLevel, everybodys_cli: Path) -> None:
    most = [0]
    async with caged(
        tmp_path, level, "head -c 300000000 /dev/zero > x; ls -l x; sleep 20", binary=everybodys_cli
    ) as cage:
        workspaces = cage.estate.context.workspaces()
        cage.estate.with_context(bounds=Bounds(file_mb=16, disk_mb=2048))
        async with anyio.create_task_group() as watching:
            watching.start_soon(most_at_once, lambda: below(workspaces), most)
            ending = await ended(cage)
            watching.cancel_scope.cancel()
    assert (str(ending.outcome), events(ending)) == ("file_too_large", ["file_too_large"])
    assert 16 * MIB <= most[0] < 64 * MIB


async def test_a_bound_that_was_reached_in_the_last_moment_is_told_too(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    """Whether the watch looked in time must not decide what a session's end is called."""
    async with caged(tmp_path, level, "head -c 300000000 /dev/zero > x", binary=everybodys_cli) as cage:
        cage.estate.with_context(bounds=Bounds(file_mb=16))
        ending = await ended(cage)
    assert str(ending.outcome) == "file_too_large"


async def test_the_usual_bounds_are_none_to_the_real_cli(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, groups: Groups | None
) -> None:
    """Its threads count, its binary is large, and tools run side by side."""
    tools = "for i in 1 2 3 4 5 6 7 8; do (seq 100000 | sort -r | gzip > $i.gz) & done; wait; ls *.gz | wc -l"
    inside = "ulimit -c; ulimit -f"
    async with caged(tmp_path, level, tools, inside, binary=everybodys_cli) as cage:
        cage.estate.with_context(
            bounds=Bounds(processes=1024, file_mb=1024, disk_mb=2048), session_memory_mb=4096, groups=groups
        )
        ending = await ended(cage)
        outputs = cage.outputs()
    assert (str(ending.outcome), ending.error, events(ending)) == ("success", None, [])
    assert outputs[0].strip() == "8"
    assert outputs[1].split() == ["0", str(1024 * 1024)]


async def test_nothing_in_a_namespace_can_be_filled_that_is_not_counted(tmp_path: Path, everybodys_cli: Path) -> None:
    """Bubblewrap makes /dev of half of the machine's memory, for whoever is inside to write to."""
    asked = "for d in / /dev /dev/pts /run /etc /usr /proc /var; do : > $d/filled && echo WRITTEN $d; done; echo asked"
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, asked, "echo > /dev/null && head -c 2 /dev/zero | wc -c",
                     binary=everybodys_cli) as cage:  # fmt: skip
        await ended(cage)
        outputs = cage.outputs()
    assert "WRITTEN" not in outputs[0]
    assert "asked" in outputs[0]
    assert outputs[1].strip() == "2"


async def test_what_a_session_was_given_is_not_held_against_it(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    """An operator's home may be larger than what a session may add to it."""
    home = Path(shutil.copytree(tmp_path, tmp_path / "home", ignore=lambda *_: ["home"]))
    (home / "large").write_bytes(b"x" * (80 * MIB))
    async with caged(tmp_path / "estate", level, "ls -l ~/large; sleep 2", binary=everybodys_cli) as cage:
        tiers = {number: replace(tier, template_home=home) for number, tier in cage.estate.context.tiers.items()}
        cage.estate.with_context(tiers=tiers, bounds=Bounds(file_mb=16, disk_mb=64))
        ending = await ended(cage)
    assert str(ending.outcome) == "success"
