"""Looks that the daemon runs for a session: each once, by its id; output and exit status pass through."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.looks import InRepository, LookCall
from claudeops.engine.cell import look_client
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, BubblewrapCell
from claudeops.engine.cell.cell import Cell, IsolationLevel, SandboxSpec
from claudeops.engine.cell.git import GitCell, find_git_cell
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.network import find_network_cells
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.process.looks import BROKEN, REFUSED, TOO_LONG, SessionLooks, open_looks
from claudeops.logs import get_logger
from claudeops.structs import replace
from support.levels import PATH, needs
from support.strange_repositories import SETUPS, StrangeRepository
from support.waiting import PATIENCE_SECONDS, until, until_it

pytestmark = pytest.mark.anyio

ID = "toolu_1-1"


@dataclass
class Bench:
    """A session's looks, and a shell that has their client."""

    looks: SessionLooks
    repository: StrangeRepository
    client: str

    def admit(self, *arguments: str, name: str = ID) -> None:
        where = InRepository(directory=str(self.repository.path), root=str(self.repository.repos))
        self.looks.admit([LookCall(id=name, program="git", arguments=arguments, where=where)])

    def bound(self, seconds: float) -> None:
        """Let no look take longer."""
        (git,) = self.looks.cells.values()
        assert isinstance(git, GitCell)
        self.looks.cells = {"git": replace(git, wall_seconds=seconds)}

    async def shell(self, text: str) -> tuple[int, str, str]:
        """Run a text as a session's Bash would; ``{}`` in it is the client with the admitted id."""
        with anyio.fail_after(PATIENCE_SECONDS):
            done = await anyio.run_process(["/bin/bash", "-c", text.format(f"{self.client} {ID}")], check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def cell() -> Cell:
    needs(IsolationLevel.BUBBLEWRAP)
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


@pytest.fixture(scope="module")
def git(cell: Cell) -> GitCell:
    found = find_git_cell(cell, PATH)
    assert not isinstance(found, str), found
    return found


@pytest.fixture
def short() -> Iterator[Path]:
    """Return a directory with a short name: outside of a cell a client reaches a socket by its whole path."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
async def bench(tmp_path: Path, short: Path, git: GitCell) -> AsyncIterator[Bench]:
    async with opened(tmp_path, short, git) as found:
        yield found


@asynccontextmanager
async def opened(root: Path, place: Path, git: GitCell) -> AsyncIterator[Bench]:
    workspace = workspaces.make(place / "s", template_home=None)
    async with open_looks({"git": git}, workspace, get_logger()) as looks:
        assert looks is not None
        client = workspace.etc / "look"
        shutil.copy(look_client.__file__, client)
        yield Bench(looks, StrangeRepository(root), f"{sys.executable} -I -S {client}")


async def test_what_git_prints_is_what_the_session_gets(bench: Bench) -> None:
    bench.admit("log", "--format=%s", "HEAD", "--")
    assert await bench.shell("{}") == (0, "ordinary 3\nordinary 2\nordinary 1\n", "")


async def test_a_look_is_a_part_of_a_pipeline_like_any_program(bench: Bench) -> None:
    bench.admit("log", "--format=%s", "HEAD", "--")
    assert await bench.shell("{} | tail -n 1") == (0, "ordinary 1\n", "")


async def test_a_reader_that_has_enough_ends_the_look_as_it_ends_git(bench: Bench) -> None:
    content = "line\n" * 400_000
    (bench.repository.path / "long.txt").write_text(content, encoding="utf-8")
    bench.repository.git("add", "long.txt")
    bench.repository.git("commit", "-qm", "long")
    bench.admit("show", "HEAD:long.txt")
    assert await bench.shell('{} | head -n 2; echo "${{PIPESTATUS[0]}}"') == (0, "line\nline\n141\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("merge-base", "--is-ancestor", "HEAD", "HEAD~1"), 1, ""),
        (("rev-parse", "--verify", "-q", "gone"), 1, ""),
        (("log", "gone", "--"), 128, "git: the repository has no such revision or path"),
        (("log", "--no-such-option"), 128, "git: it failed (status 128)"),
        (("version",), 0, ""),
    ],
)
async def test_the_exit_status_is_gits_and_what_it_says_is_a_sentence_of_ours(
    bench: Bench, arguments: tuple[str, ...], status: int, says: str
) -> None:
    bench.admit(*arguments)
    ended, _, said = await bench.shell("{}")
    assert (ended, said[: len(says)], bool(said)) == (status, says, bool(says))


async def test_a_repository_that_borrows_its_objects_says_so(bench: Bench) -> None:
    SETUPS["alternates"](bench.repository)
    bench.admit("log", "HEAD", "--")
    said = "git: its objects lie in another repository, which is not looked at\n"
    assert await bench.shell("{}") == (128, "", said)


async def test_what_a_look_at_the_network_prints_and_says_is_what_the_session_gets(bench: Bench, cell: Cell) -> None:
    assert isinstance(cell, BubblewrapCell)
    found = find_network_cells(cell, PATH, frozenset({"ip"})).get("ip", "ip is not installed")
    if isinstance(found, str):
        pytest.skip(found)
    bench.looks.cells = {"ip": found}
    bench.looks.admit([LookCall(id=ID, program="ip", arguments=("-brief", "addr", "show", "lo"))])
    status, shown, said = await bench.shell("{} | head -n 1")
    assert (status, shown.split()[0], said) == (0, "lo", "")
    bench.looks.admit([LookCall(id=ID, program="ip", arguments=("link", "show", "dev", "gone"))])
    assert await bench.shell("{}") == (1, "", 'ip: Device "gone" does not exist.\n')


async def test_a_program_without_a_cell_does_not_run(bench: Bench) -> None:
    bench.looks.admit([LookCall(id=ID, program="ss", arguments=("-s",))])
    assert (await bench.shell("{}"))[:2] == (REFUSED, "")


async def test_a_look_runs_once(bench: Bench) -> None:
    bench.admit("rev-parse", "HEAD")
    assert (await bench.shell("{}"))[0] == 0
    again = "look: this look was not allowed, or has run already: nothing runs twice\n"
    assert await bench.shell("{}") == (REFUSED, "", again)


@pytest.mark.parametrize("asked", ["toolu_1-2", "", "x" * 100_000, "$'\\xff\\xfe'", "'toolu_1-1 '", "../toolu_1-1"])
async def test_an_id_that_the_gate_did_not_give_gets_nothing(bench: Bench, asked: str) -> None:
    bench.admit("rev-parse", "HEAD")
    status, shown, _ = await bench.shell(f"{bench.client} {asked}")
    assert (status in {REFUSED, BROKEN}, shown) == (True, "")
    assert (await bench.shell("{}"))[0] == 0  # the one that was given is still there


async def test_a_call_that_has_ended_takes_its_looks_with_it_and_no_others(bench: Bench) -> None:
    bench.admit("rev-parse", "HEAD")
    bench.admit("rev-parse", "HEAD", name="toolu_11-1")
    bench.looks.forget("toolu_1")
    assert (await bench.shell("{}"))[0] == REFUSED
    assert (await bench.shell(f"{bench.client} toolu_11-1"))[0] == 0


async def test_a_look_that_hangs_is_ended(bench: Bench) -> None:
    bench.bound(0.5)
    bench.repository.pipe("refs/heads/hangs")
    bench.admit("log", "--all", "--")
    assert await bench.shell("{}") == (TOO_LONG, "", "git: it took longer than 0.5 s: ask for less\n")


async def test_output_without_end_is_cut_and_says_so(bench: Bench) -> None:
    (bench.repository.path / "long.txt").write_text("line\n" * 10_000, encoding="utf-8")
    bench.repository.git("add", "long.txt")
    bench.repository.git("commit", "-qm", "long")
    bench.looks.most_output = 1024
    bench.admit("show", "HEAD:long.txt")
    status, shown, said = await bench.shell("{}")
    assert (status, len(shown), said) == (BROKEN, 1024, "git: its output ends here, after 1 KiB: ask for less\n")


async def test_a_session_that_connects_and_says_nothing_keeps_only_its_own_looks_waiting(
    bench: Bench, tmp_path: Path, git: GitCell
) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(12)]
    try:
        for each in silent:
            each.settimeout(0)
            with suppress(BlockingIOError):  # more than may wait
                each.connect(str(bench.looks.socket))
        with tempfile.TemporaryDirectory() as place:
            async with opened(tmp_path / "second", Path(place), git) as other:
                other.admit("rev-parse", "HEAD")
                assert (await other.shell("{}"))[0] == 0
    finally:
        for each in silent:
            each.close()
    bench.admit("rev-parse", "HEAD")
    assert (await bench.shell("{}"))[0] == 0


async def test_a_session_that_does_not_read_what_it_asked_for_is_not_waited_for(bench: Bench) -> None:
    (bench.repository.path / "long.txt").write_text("line\n" * 400_000, encoding="utf-8")
    bench.repository.git("add", "long.txt")
    bench.repository.git("commit", "-qm", "long")
    bench.bound(1)
    for number in range(3):  # one more than run at once
        bench.admit("show", "HEAD:long.txt", name=f"toolu_2-{number}")
    deaf = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    try:
        for number, each in enumerate(deaf):
            each.connect(str(bench.looks.socket))
            each.sendall(f"toolu_2-{number}\n".encode())

        async def runs() -> bool:
            bench.admit("rev-parse", "HEAD")
            return (await bench.shell("{}"))[0] == 0

        await until_it(runs)
    finally:
        for each in deaf:
            each.close()


async def test_the_end_of_a_session_ends_its_looks(tmp_path: Path, short: Path, git: GitCell) -> None:
    async with opened(tmp_path, short, git) as bench:
        bench.repository.pipe("refs/heads/hangs")
        bench.admit("log", "--all", "--")
        client = await anyio.open_process([*bench.client.split(), ID])
        await until(lambda: bool(running(bench.repository.path)))
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await client.wait() == BROKEN
    await client.aclose()
    await until(lambda: not running(bench.repository.path))  # a process that was killed takes a moment to go


async def test_a_session_in_namespaces_reaches_its_looks_and_nothing_else_of_the_daemon(
    tmp_path: Path, cell: Cell, git: GitCell
) -> None:
    long = tmp_path / ("x" * 120) / "000001"  # longer than the address of a socket may be
    workspace = workspaces.make(long, template_home=None)
    repository = StrangeRepository(tmp_path)
    async with open_looks({"git": git}, workspace, get_logger()) as looks:
        assert looks is not None
        bench = Bench(looks, repository, "")
        bench.admit("rev-parse", "--show-toplevel")
        text = f"{' '.join(LOOK_CLIENT)} {ID}; {' '.join(LOOK_CLIENT)} {ID}; echo $?; ls /run/claudeops"
        shown = await anyio.to_thread.run_sync(_in_cell, cell, workspace, looks.socket, text)
    shell = "bash\n" if cell.keeps_tools_apart else ""
    assert shown == f"{repository.path}\n{REFUSED}\n{shell}look\nlook.sock\n"


async def test_without_cells_a_session_has_no_looks(tmp_path: Path) -> None:
    async with open_looks({}, workspaces.make(tmp_path / "s", template_home=None), get_logger()) as looks:
        assert looks is None


def _in_cell(cell: Cell, workspace: Workspace, door: Path, text: str) -> str:
    """Run a text in a session's cell; return what it prints."""
    spec = SandboxSpec(
        workspace=workspace,
        binary=Path("/bin/bash"),
        repos_dir=workspace.root.parent,
        path=PATH,
        look_socket=door,
    )
    cell.hand_over(workspace)
    sandboxed = cell.enclose(spec)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"go\n")
        done = subprocess.run(
            [*sandboxed.before, str(theirs.fileno()), sandboxed.binary, "-c", text],
            pass_fds=(theirs.fileno(),), env={"PATH": PATH}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            timeout=PATIENCE_SECONDS, check=False, text=True,
        )  # fmt: skip
    return done.stdout


def running(repository: Path) -> list[int]:
    """Return the processes that look at a repository."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "git" and process.environ().get("GIT_WORK_TREE") == str(repository):
                found.append(process.pid)
    return found
