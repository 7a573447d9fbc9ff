"""Real git in its cell, on repositories that lead it elsewhere: nothing foreign is printed, and no program runs."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from claudeops.domain.looks import InRepository, LookCall
from claudeops.engine.cell.cell import Cell, IsolationLevel, PlainCell
from claudeops.engine.cell.git import GitCell, find_git_cell, find_repository
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.look_cell import LookRefusedError
from claudeops.policy.programs.git import read_git
from claudeops.policy.shell.language import Literal
from support.levels import PATH, needs
from support.strange_repositories import MARKER, PIPES, SETUPS, StrangeRepository
from support.waiting import PATIENCE_SECONDS

LOOKS = (
    "log --stat --all", "log -p --all -- compose.yml", "log -1 --format=%aN%d%N", "show --stat HEAD",
    "show HEAD:compose.yml", "show HEAD -- compose.yml", "show --stat stolen", "diff HEAD~1 HEAD -- compose.yml",
    "branch -av", "tag -n3", "describe --tags --always", "rev-parse HEAD", "shortlog -se", "show-ref",
)  # fmt: skip


@pytest.fixture(scope="module")
def cell() -> GitCell:
    needs(IsolationLevel.BUBBLEWRAP)
    found = find_git_cell(_bubblewrap(), PATH)
    assert not isinstance(found, str), found
    return found


@pytest.fixture
def repository(tmp_path: Path) -> StrangeRepository:
    return StrangeRepository(tmp_path)


def _bubblewrap() -> Cell:
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


def look(repository: StrangeRepository, text: str, directory: Path | None = None) -> LookCall:
    read = read_git(tuple(map(Literal, text.split())), str(directory or repository.path))
    where = InRepository(directory=read.directory, root=str(repository.repos))
    return LookCall(id="x-1", program="git", arguments=read.arguments, where=where)


def run(cell: GitCell, call: LookCall, seconds: float = PATIENCE_SECONDS) -> tuple[int, str]:
    """Return the exit status and the output of a look."""
    done = subprocess.run(
        cell.command(call), env={}, capture_output=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


@pytest.mark.parametrize("setup", SETUPS)
def test_a_repository_shows_nothing_but_itself_and_runs_nothing(
    cell: GitCell, repository: StrangeRepository, setup: str
) -> None:
    SETUPS[setup](repository)
    shown = ""
    for text in LOOKS:
        try:
            shown += run(cell, look(repository, text))[1]
        except LookRefusedError as refusal:
            shown += str(refusal)
    assert MARKER not in shown
    assert list(repository.ran.iterdir()) == []


def test_an_ordinary_repository_is_seen_as_by_its_owner(cell: GitCell, repository: StrangeRepository) -> None:
    for text in LOOKS:
        if "stolen" in text:
            continue
        read = look(repository, text)
        assert (text, *run(cell, read)) == (text, 0, f"{repository.git(*read.arguments)}\n".lstrip("\n"))


def test_git_itself_follows_such_a_repository(repository: StrangeRepository) -> None:
    """The tests above can fail: in no cell git prints what is foreign, and runs programs."""
    SETUPS["alternates"](repository)
    assert MARKER in repository.git("log", "-1")


def test_git_itself_runs_such_a_repositorys_programs(repository: StrangeRepository) -> None:
    SETUPS["drivers, filters, hooks"](repository)
    repository.git("config", "--unset", "core.worktree")
    with suppress(subprocess.CalledProcessError):  # the program says nothing that git would understand
        repository.git("diff", "HEAD~1", "HEAD")
    assert list(repository.ran.iterdir()) != []


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_a_repository_is_refused_or_ended(cell: GitCell, repository: StrangeRepository, name: str) -> None:
    repository.pipe(name)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            run(cell, look(repository, "log --all"), seconds=1)
    except LookRefusedError as refusal:
        assert "not an ordinary one" in str(refusal)  # noqa: PT017 - one of the two ways


def test_a_pipe_in_the_place_of_the_repository_is_refused(repository: StrangeRepository) -> None:
    os.mkfifo(repository.other / ".git")
    with pytest.raises(LookRefusedError, match="not an ordinary one"):
        find_repository(repository.other, repository.repos)


def test_a_linked_working_tree_is_seen_with_the_branch_that_it_has_checked_out(
    cell: GitCell, repository: StrangeRepository
) -> None:
    repository.git("worktree", "add", "-q", "-b", "topic", str(repository.other))
    (repository.other / "new.yml").write_text("new\n", encoding="utf-8")
    repository.git("add", "-A", at=repository.other)
    repository.git("commit", "-qm", "on the topic", at=repository.other)
    assert run(cell, look(repository, "log -1 --format=%s", repository.other)) == (0, "on the topic\n")
    assert run(cell, look(repository, "branch --show-current", repository.other)) == (0, "topic\n")
    assert run(cell, look(repository, "log -1 --format=%s")) == (0, "ordinary 3\n")


def test_paths_are_those_of_the_directory_in_which_the_look_is(cell: GitCell, repository: StrangeRepository) -> None:
    (repository.path / "deep").mkdir()
    (repository.path / "deep" / "one.yml").write_text("one\n", encoding="utf-8")
    repository.git("add", "deep")
    repository.git("commit", "-qm", "deep")
    assert run(cell, look(repository, "log --format=%s -- one.yml", repository.path / "deep")) == (0, "deep\n")
    assert run(cell, look(repository, "rev-parse --show-toplevel", repository.path / "deep")) == (
        0, f"{repository.path}\n",
    )  # fmt: skip


def test_a_bare_repository_and_a_shallow_one_are_seen(cell: GitCell, repository: StrangeRepository) -> None:
    repository.git("clone", "-q", "--bare", str(repository.path), str(repository.repos / "bare.git"))
    assert run(cell, look(repository, "log -1 --format=%s", repository.repos / "bare.git")) == (0, "ordinary 3\n")
    shallow = repository.repos / "shallow"
    repository.git("clone", "-q", "--depth=1", f"file://{repository.path}", str(shallow))
    assert run(cell, look(repository, "log --format=%s", shallow)) == (0, "ordinary 3\n")


@pytest.mark.parametrize("place", ["foreign/repo", "foreign", ".", "repos/app/gone", "repos/app/compose.yml"])
def test_a_directory_that_is_in_no_repository_below_the_root_is_refused(
    repository: StrangeRepository, place: str
) -> None:
    with pytest.raises(LookRefusedError, match="in no repository"):
        find_repository(repository.repos.parent / place, repository.repos)


def test_a_link_out_of_the_repositories_is_followed_before_it_is_judged(repository: StrangeRepository) -> None:
    (repository.path / "way").symlink_to(repository.foreign / "repo")
    with pytest.raises(LookRefusedError, match="in no repository"):
        find_repository(repository.path / "way", repository.repos)


def test_a_repository_above_the_root_is_not_looked_for(repository: StrangeRepository) -> None:
    with pytest.raises(LookRefusedError, match="in no repository"):
        find_repository(repository.other, repository.other)
    repository.git("init", "-q", at=repository.repos)
    with pytest.raises(LookRefusedError, match="in no repository"):
        find_repository(repository.other, repository.other)


def test_a_format_that_this_git_would_take_for_another_is_refused(repository: StrangeRepository) -> None:
    repository.git("init", "-q", "--object-format=sha256", str(repository.other))
    with pytest.raises(LookRefusedError, match="sha256"):
        find_repository(repository.other, repository.repos)


def test_no_hash_stands_for_the_content_of_a_file_that_is_not_named(
    cell: GitCell, repository: StrangeRepository
) -> None:
    blob = repository.blob()
    repository.git("tag", "stolen", blob)
    for name in (blob, blob[:6], "stolen", f"v1-0-g{blob[:7]}"):
        for form in ("show --stat {}", "show -s {}", "show {} -- compose.yml", "log -p {} -- compose.yml",
                     "diff {} HEAD -- compose.yml", "log {}", "describe --always {}", "rev-list {}", "shortlog {}",
                     "ls-tree {}"):  # fmt: skip
            assert MARKER not in run(cell, look(repository, form.format(name)))[1], (form, name)
    assert MARKER in repository.git("show", "--stat", "stolen")


def test_what_a_repository_wastes_is_bounded(cell: GitCell, repository: StrangeRepository) -> None:
    tight = GitCell(bubblewrap=cell.bubblewrap, git=cell.git, memory_mb=64, cpu_seconds=1)
    tree = repository.git("rev-parse", "HEAD^{tree}")
    for _ in range(9):  # 10^9 files
        lines = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
        made = subprocess.run(
            ["git", "mktree"], cwd=repository.path, input=lines, capture_output=True, text=True, check=True, timeout=20
        )
        tree = made.stdout.strip()
    bomb = repository.git("commit-tree", tree, "-m", "bomb")
    repository.git("update-ref", "refs/heads/bomb", bomb)
    assert run(tight, look(repository, "log --stat bomb"))[0] >= 128
    assert run(tight, look(repository, "log -1 --format=%s bomb")) == (0, "bomb\n")


def test_a_large_file_is_not_compared_line_by_line(cell: GitCell, repository: StrangeRepository) -> None:
    for text in ("one\n", "two\n"):
        (repository.path / "large.txt").write_text(text * (5 * 1024 * 1024), encoding="utf-8")
        repository.git("add", "large.txt")
        repository.git("commit", "-qm", text)
    status, shown = run(cell, look(repository, "show HEAD -- large.txt"))
    assert (status, "Binary files" in shown) == (0, True)


def test_the_cell_holds_git_and_nothing_that_could_be_started_besides(
    cell: GitCell, repository: StrangeRepository
) -> None:
    words = cell.command(look(repository, "log"))
    shown = {words[at + 2] for at, word in enumerate(words) if word in {"--ro-bind", "--bind", "--dev-bind"}}
    own = {str(repository.own / name) for name in ("HEAD", "objects", "refs")}
    assert shown == own | {"/dev/null", str(cell.program), *map(str, cell.git.libraries)}
    assert "--unshare-net" in words


def test_without_bubblewrap_there_is_no_cell_for_git(tmp_path: Path) -> None:
    found = find_git_cell(PlainCell(), PATH)
    assert isinstance(found, str)
    assert "bubblewrap" in found
    needs(IsolationLevel.BUBBLEWRAP)
    assert find_git_cell(_bubblewrap(), str(tmp_path)) == "there is no git on PATH"
