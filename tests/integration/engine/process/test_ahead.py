"""A launcher that was started ahead: what it becomes is what would have been started, and it never stays."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.estate.estate import Estate as DeclaredEstate
from claudeops.domain.sessions import Outcome
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LAUNCHER
from claudeops.engine.cell.cell import IsolationLevel, SandboxSpec
from claudeops.engine.cell.cgroups import ControlGroup, Groups
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import StopControl
from claudeops.engine.estate import Estates
from claudeops.engine.process.child import spawn, sweep
from claudeops.engine.process.leaders import Ahead, Launchers, open_launchers, started_ahead
from claudeops.engine.prompt_files import PromptFiles, Template
from claudeops.engine.session.runner import SessionRunner
from claudeops.errors import SpawnError
from claudeops.harness.protocol import CliCommand
from claudeops.logs import Logger
from claudeops.structs import replace
from support.control_groups import groups_or_skip
from support.estate import STAND_IN, Estate, deliver, report
from support.levels import PATH, needs
from support.waiting import until

pytestmark = pytest.mark.anyio

LOOKS = """
echo "$PWD $HOME $EMPTY $SAYS"; env | sort | tr '\\n' ' '; cat /dev/fd/$1; set -- /proc/self/fd/*; echo $#
read -r line; echo "$line"; echo bad >&2; exit 7
"""


async def ran(
    root: Path,
    ahead: Ahead | None,
    *,
    cwd: Path | None = None,
    script: str = LOOKS,
    group: ControlGroup | None = None,
) -> tuple[str, str, int]:
    """Return what a script prints and how it ends; it is given a descriptor, and a line to read."""
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(cell, str), cell
    workspace = workspaces.make(root / "session", template_home=None)
    (root / "repos").mkdir(exist_ok=True)
    cell.hand_over(workspace)
    reading, writing = os.pipe()
    os.write(writing, b"the secret\n")
    os.close(writing)
    spec = SandboxSpec(workspace=workspace, binary=Path("/bin/bash"), repos_dir=root / "repos", path=PATH, group=group)
    env = {"LC_ALL": "C", "HOME": "/home", "PATH": PATH, "SAYS": "a=b\nc", "EMPTY": ""}
    argv = ("/bin/bash", "-c", script, "bash", str(reading))
    try:
        child = await spawn(
            CliCommand(argv=argv, env=env),
            cwd=cwd or workspace.workdir,
            mark=f"{root}#1;",
            sandboxed=cell.enclose(spec),
            pass_fds=[reading],
            ahead=ahead,
        )
    finally:
        os.close(reading)
    assert (ahead is not None and ahead.process.pid == child.pid) == (ahead is not None)
    await child.stdin.send(b"a line\n")
    printed = {"out": b"", "err": b""}

    async def keep(name: str, stream: anyio.abc.ByteReceiveStream) -> None:
        async for some in stream:
            printed[name] += some

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep, "out", child.stdout)
        tasks.start_soon(keep, "err", child.stderr)
    code = await child.process.wait()
    await sweep(child)
    await child.aclose()
    return printed["out"].decode(), printed["err"].decode(), code


@pytest.fixture
def groups() -> Groups:
    return groups_or_skip()


def members(group: ControlGroup | None) -> list[int]:
    assert group is not None
    return [int(pid) for pid in group.door.read_text(encoding="ascii").split()]


async def test_what_it_becomes_sees_and_does_what_it_would_without(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    seen = []
    for begun in (nullcontext(), started_ahead()):
        async with begun as ahead:
            seen.append(await ran(tmp_path, ahead))
    assert seen[0] == seen[1]
    printed, said, code = seen[1]
    assert (said, code) == ("bad\n", 7)
    assert printed.startswith(f"{tmp_path}/session/work /home  a=b\nc\n")
    assert "the secret" in printed
    assert "a line" in printed


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    async with started_ahead() as ahead:
        with pytest.raises(SpawnError, match="No such file or directory"):
            await ran(tmp_path, ahead, cwd=tmp_path / "gone")


async def test_one_that_no_session_needs_has_ended_with_the_block() -> None:
    async with started_ahead() as ahead:
        assert ahead is not None
        assert ahead.process.returncode is None
    assert ahead.process.returncode is not None


async def begun(before: set[psutil.Process]) -> psutil.Process:
    """Return the one process that has begun since ``before``: what runs the tests has others."""
    await until(lambda: len(set(psutil.Process().children()) - before) == 1)
    (found,) = set(psutil.Process().children()) - before
    return found


async def test_one_for_an_expected_session_is_the_one_that_leads_it() -> None:
    before = set(psutil.Process().children())
    async with open_launchers() as launchers:
        launchers.expect()
        launchers.expect()  # two reports at once: one is enough
        expected = await begun(before)
        async with launchers.started_ahead() as ahead:
            assert ahead is not None
            assert ahead.process.pid == expected.pid
            async with launchers.started_ahead() as another:  # nothing is expected any more
                assert another is not None
                assert another.process.pid != expected.pid
        await until(lambda: ahead.process.returncode is not None)


async def test_one_whose_session_never_comes_ends_with_the_daemon() -> None:
    before = set(psutil.Process().children())
    async with open_launchers() as launchers:
        launchers.expect()
        expected = await begun(before)
    assert not expected.is_running()


async def test_one_is_in_a_control_group_of_its_own_before_its_session_is_known_and_it_goes_with_it(
    groups: Groups, tmp_path: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    async with open_launchers() as launchers:
        launchers.expect(groups)
        async with launchers.started_ahead(groups) as ahead, started_ahead(groups) as another:
            assert ahead is not None
            assert another is not None
            assert ahead.group is not None
            assert another.group is not None
            assert ahead.group.directory != another.group.directory
            await until(lambda: members(ahead.group) == [ahead.process.pid])
            looks = 'cat /proc/self/cgroup; read -r line; test "$line" = "a line"'
            printed, _, code = await ran(tmp_path, ahead, script=looks)
            assert code == 0
            assert printed
            assert members(ahead.group) == []  # all that was in it has ended
        await until(lambda: not list(groups.place.glob(f"{groups.prefix}-*")))


async def test_a_session_is_in_the_group_that_its_launcher_joined(groups: Groups, tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    script = f'read -r line; echo "$line" > {tmp_path}/ran'
    async with started_ahead(groups) as ahead:
        assert ahead is not None
        assert ahead.group is not None
        ahead.group.bound(1, None)
        with pytest.raises(SpawnError):  # bubblewrap may start nothing
            await ran(tmp_path, ahead, script=script)
    assert not (tmp_path / "ran").exists()


async def test_one_that_cannot_join_its_group_leads_a_session_that_says_why(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    async with started_ahead() as ahead:
        assert ahead is not None
        ahead.group = gone = ControlGroup(tmp_path / "gone")
        await ahead.join(gone)
        with pytest.raises(SpawnError, match="its control group: No such file or directory"):
            await ran(tmp_path, ahead, group=gone)  # whether or not its end has been noticed


async def test_a_machine_without_threads_does_not_end_the_daemon_over_a_session_that_is_expected() -> None:
    class Exhausted(Groups, frozen=True):
        @asynccontextmanager
        async def lease(self) -> AsyncIterator[ControlGroup]:
            if self.prefix:
                raise RuntimeError("can't start new thread")
            yield ControlGroup(self.place)

    exhausted = Exhausted(place=Path("/sys/fs/cgroup"), prefix="x")
    async with open_launchers() as launchers:
        launchers.expect(exhausted)
        async with launchers.started_ahead(exhausted) as ahead:
            assert ahead is not None
            assert ahead.group is None


async def test_one_without_a_group_to_have_leaves_that_to_its_session(tmp_path: Path) -> None:
    async with started_ahead(Groups(place=tmp_path / "gone", prefix="x")) as ahead:
        assert ahead is not None
        assert ahead.group is None


async def test_one_that_has_died_while_it_waited_leads_nothing() -> None:
    before = set(psutil.Process().children())
    async with open_launchers() as launchers:
        launchers.expect()
        (await begun(before)).kill()
        async with launchers.started_ahead() as ahead:
            assert ahead is not None
            await ahead.process.wait()
            assert not ahead.leads((*LAUNCHER, "more"))


@pytest.mark.parametrize(("needed", "max_tier", "expected"), [(True, 3, 1), (True, 1, 0), (False, 3, 0)])
async def test_a_next_tiers_launcher_starts_once_a_report_asks_for_it(
    estate: Estate, needed: bool, max_tier: int, expected: int
) -> None:
    class Counted(Launchers):
        count = 0

        def expect(self, _groups: Groups | None = None) -> None:
            self.count += 1

    async with anyio.create_task_group() as tasks:
        launchers = Counted(tasks)
        estate.with_context(launchers=launchers, rules=replace(estate.context.rules, max_tier=max_tier))
        estate.script(deliver(report(needed=needed, status="down" if needed else "healthy")))
        await estate.queue()
        await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
    assert launchers.count == expected


@pytest.mark.parametrize("sent", [b"", b"\n", b"\n" + (100).to_bytes(8, "big") + b"/\0"])
async def test_one_whose_daemon_dies_ends_wherever_it_is(sent: bytes) -> None:
    async with started_ahead() as ahead:
        assert ahead is not None
        if sent:
            with closing(_pipe_end()) as given:
                await ahead.door.send_fds(sent, [given.fileno()])
        await ahead.door.aclose()
        assert await ahead.process.wait() == (0 if not sent else 1)


async def test_it_leads_nothing_but_what_it_was_made_for() -> None:
    async with started_ahead() as ahead:
        assert ahead is not None
        assert ahead.leads((*LAUNCHER, "more"))
        assert not ahead.leads((sys.executable, "-I", "-S", "/guardian.py", "more"))
        ahead.is_used = True
        assert not ahead.leads((*LAUNCHER, "more"))
        ahead.is_used = False


async def test_a_session_is_led_by_what_was_started_before_anything_else_of_it(estate: Estate) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    before = set[int]()

    class Watched(Estates):
        """An estate whose look is the first thing that a session waits for."""

        async def look(self, log: Logger) -> DeclaredEstate:
            before.update(process.pid for process in psutil.Process().children())
            return await super().look(log)

    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH, binaries=(STAND_IN,)))
    assert not isinstance(cell, str), cell
    estate.with_context(cell=cell, estates=Watched())
    estate.script(deliver(report()))
    await estate.queue()
    await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
    lines = [json.loads(line) for line in estate.logged.getvalue().splitlines()]
    assert [line["pid"] in before for line in lines if line["event"] == "session_spawned"] == [True]


async def test_a_session_without_a_prompt_ran_nothing_though_its_cell_was_there(estate: Estate) -> None:
    needs(IsolationLevel.BUBBLEWRAP)

    class Away(PromptFiles):
        """Prompts on a disk that does not answer once the cell is there."""

        async def template(self, tier: int) -> Template:
            await until(lambda: any("bwrap" in process.name() for process in psutil.Process().children(recursive=True)))
            raise TimeoutError(f"the prompt of tier {tier} is away")

    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH, binaries=(STAND_IN,)))
    assert not isinstance(cell, str), cell
    estate.with_context(cell=cell, prompts=Away({}, log=estate.context.log))
    estate.script({"touch": str(estate.root / "ran")}, deliver(report()))
    await estate.queue()
    ending = await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
    assert (ending.outcome, ending.error) == (Outcome.SPAWN_FAILED, "the prompt of tier 1 is away")
    assert not (estate.root / "ran").exists()


async def test_a_cell_does_not_wait_for_the_interpreter_that_puts_the_prompt_together(estate: Estate) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    begun: list[bool] = []

    class Watched(PromptFiles):
        async def template(self, tier: int) -> Template:
            workspace = Workspace(estate.context.workspaces() / workspaces.workspace_name(1))
            begun.append(workspace.hosts.exists())  # the last thing that is written before the cell is made
            return await super().template(tier)

    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH, binaries=(STAND_IN,)))
    assert not isinstance(cell, str), cell
    estate.with_context(cell=cell, prompts=Watched({1: Template.of("Look.")}, log=estate.context.log))
    estate.script(deliver(report()))
    await estate.queue()
    ending = await SessionRunner(context=estate.context).run(await estate.claim(), StopControl())
    assert (ending.outcome, begun) == (Outcome.SUCCESS, [True])


def _pipe_end() -> _Descriptor:
    reading, writing = os.pipe()
    os.close(writing)
    return _Descriptor(reading)


class _Descriptor:
    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        os.close(self._number)
