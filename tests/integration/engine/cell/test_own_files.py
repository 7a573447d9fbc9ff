"""A session's files in memory: bounded by the kernel, seen by the session alone, read when it has gone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel, SandboxSpec
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_files import FilesBound, MemoryFiles, open_files, prepared_bytes
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.process.channel import Channel
from claudeops.engine.process.child import Child, kill, spawn, sweep
from claudeops.harness.protocol import CliCommand
from support.levels import PATH, needs
from support.waiting import until

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
BOUND = FilesBound(most_bytes=4 * MIB, most_files=200)


def tried(path: str = PATH) -> BubblewrapCell:
    needs(IsolationLevel.BUBBLEWRAP)
    cell = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=path))
    assert isinstance(cell, BubblewrapCell), cell
    return cell


@pytest.fixture
def cell() -> BubblewrapCell:
    found = tried()
    if found.no_files:
        pytest.skip(found.no_files)
    return found


@dataclass
class Running:
    files: MemoryFiles
    workspace: Workspace
    child: Child

    def inside(self, name: str) -> Path:
        return self.files.outside(self.workspace.workdir / name)

    async def ended(self) -> int:
        """Let the program go on to its end, and wait for that."""
        await Channel(self.child.stdin).close()
        await self.child.process.wait()
        await sweep(self.child)
        return self.child.process.returncode or 0


@asynccontextmanager
async def running(
    cell: BubblewrapCell, root: Path, script: str, *, home: Path | None = None, **environment: str
) -> AsyncIterator[Running]:
    """Run a script in a cell whose files are in memory; at its end it waits until its stdin is closed."""
    workspace = workspaces.make(root / "session", template_home=home)
    (root / "repos").mkdir()
    cell.hand_over(workspace)
    env: Mapping[str, str] = {"HOME": str(workspace.home), "TMPDIR": str(workspace.tmpdir), "PATH": PATH, **environment}
    async with open_files(BOUND, workspace) as files:
        assert files is not None
        spec = SandboxSpec(
            workspace=workspace,
            binary=Path("/bin/bash"),
            repos_dir=root / "repos",
            path=PATH,
            files=files.sandboxed,
        )
        child = await spawn(
            CliCommand(argv=("/bin/bash", "-c", f'{script}\n: > "$HOME/../work/reached"; read -r _'), env=env),
            cwd=workspace.workdir,
            mark=f"{root}#1;",
            sandboxed=cell.enclose(spec),
            before_go=files.move_in,
        )
        try:
            yield Running(files=files, workspace=workspace, child=child)
        finally:
            await kill(child)
            await sweep(child)
            await child.aclose()


FULL = {
    "a nameless file": 'exec 7> x; rm x; head -c 9000000 /dev/zero >&7 2>> "$HOME/said" || :',
    "names that are gone": "for i in {1..8}; do exec {f}> x; rm x; head -c 1000000 /dev/zero >&$f; done 2>&1 || :",
    "one large file": "head -c 9000000 /dev/zero > large 2>&1 || :",
    "the temporary directory of everybody": "head -c 9000000 /dev/zero > /tmp/large 2>&1 || :",
}


@pytest.mark.parametrize("way", FULL)
async def test_no_way_of_writing_takes_more_than_the_bound(cell: BubblewrapCell, tmp_path: Path, way: str) -> None:
    """The last page is kept for the file that says that all is done."""
    async with running(cell, tmp_path, f": > reached; rm reached\n{FULL[way]}") as session:
        await until(lambda: os.fstatvfs(session.files.descriptor).f_bavail == 0 and session.inside("reached").exists())
        kernel = os.fstatvfs(session.files.descriptor)
        assert kernel.f_blocks * kernel.f_frsize == 4 * MIB


async def test_files_without_content_are_bounded_too(cell: BubblewrapCell, tmp_path: Path) -> None:
    script = ": > reached; i=0; while [ $i -lt 500 ]; do true > e$i 2>/dev/null || break; i=$((i+1)); done"
    async with running(cell, tmp_path, script) as session:
        await until(lambda: os.fstatvfs(session.files.descriptor).f_favail == 0)
        made = list(session.inside("").glob("e*"))
        assert 150 < len(made) < 200


async def test_what_the_daemon_has_prepared_is_there_and_what_the_session_leaves_can_be_read_afterwards(
    cell: BubblewrapCell, tmp_path: Path
) -> None:
    home = tmp_path / "keys"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("the key")
    (home / ".ssh" / "id").chmod(0o600)
    (home / "link").symlink_to("/etc/hosts")
    script = 'cat ~/.ssh/id > copied; stat -c %a ~/.ssh/id > mode; echo "left" > "$HOME/../state/handoff.json"'
    async with running(cell, tmp_path / "node", script, home=home) as session:
        await until(session.inside("reached").exists)
        assert await session.ended() == 1  # of read, at the end of the file
        files = session.files.reached
        assert (files.workdir / "copied").read_text() == "the key"
        assert (files.workdir / "mode").read_text() == "600\n"
        assert (files.state_dir / "handoff.json").read_text() == "left\n"
        assert (files.home / "link").readlink() == Path("/etc/hosts")
        seen = await anyio.run_process(
            [sys.executable, "-I", "-c", f"print(open('{files.workdir}/copied').read())"],
        )
        assert seen.stdout == b"the key\n"  # by another process, as the one that judges is


async def test_nothing_is_to_be_seen_at_the_place_while_the_session_runs_and_nothing_is_left(
    cell: BubblewrapCell, tmp_path: Path
) -> None:
    async with running(cell, tmp_path, "echo x > here") as session:
        await until(session.inside("reached").exists)
        workspace, root = session.workspace, session.files.reached.root
        assert list(workspace.memory.iterdir()) == []
        assert list(workspace.workdir.iterdir()) == []
        assert str(workspace.memory) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert not (root / "work").exists()
    shutil.rmtree(workspace.root)  # nothing is mounted there


async def test_a_session_reaches_no_other_door_to_its_files_than_its_directories(
    cell: BubblewrapCell, tmp_path: Path
) -> None:
    script = 'ls /proc/$$/fd > open; ls -d "$HOME/../memory" 2>/dev/null; unshare -m true 2>/dev/null && : > escaped'
    async with running(cell, tmp_path, script) as session:
        await until(session.inside("reached").exists)
        descriptors = session.inside("open").read_text().split()
        assert {"0", "1", "2"} <= set(descriptors)
        assert set(descriptors) <= {"0", "1", "2", "3", "255"}  # 3: of the listing itself
        assert not session.inside("escaped").exists()


def test_a_home_with_holes_is_measured_as_memory_will_hold_it(tmp_path: Path) -> None:
    workspace = workspaces.make(tmp_path / "session", template_home=None)
    with (workspace.home / "sparse").open("wb") as file:
        file.truncate(3 * MIB)
    (workspace.home / "small").write_text("x")
    assert prepared_bytes(workspace) == 3 * MIB + 4096 + 2 * 4096


def test_where_a_file_system_in_memory_is_refused_the_level_holds_without_it(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    real = shutil.which("bwrap", path=PATH)
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/bash\nif grep -q ' - tmpfs tmpfs .*nr_inodes=64' /proc/self/mountinfo; then\n"
        f'echo "bwrap: not here" >&2; exit 1; fi; exec {real} "$@"\n'
    )
    program.chmod(0o755)
    assert tried(f"{tmp_path}:{PATH}").no_files == "bwrap: not here"
