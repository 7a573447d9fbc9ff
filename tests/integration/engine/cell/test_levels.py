"""Which level a machine gets: what works is taken, what does not says why, and what was demanded is not replaced."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import IsolationLevel, SandboxSpec
from claudeops.engine.cell.levels import HostContext, check_level, choose
from claudeops.errors import ConfigurationError
from support.levels import PATH, needs, unavailable


def broken_bwrap(directory: Path, says: str) -> HostContext:
    """Return surroundings in which the only bubblewrap does not work."""
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\necho 'bwrap: {says}' >&2\nexit 1\n")
    program.chmod(0o755)
    return HostContext(path=str(directory))


def test_the_strongest_level_that_works_is_taken() -> None:
    works = [level for level in IsolationLevel if unavailable(level) is None]
    chosen = choose("auto", HostContext(path=PATH))
    assert (chosen.cell.level, len(chosen.passed_over)) == (works[0], list(IsolationLevel).index(works[0]))


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_a_level_that_works_has_no_reason_against_it(level: IsolationLevel) -> None:
    needs(level)
    assert check_level(level.value, HostContext(path=PATH)) is None


def test_without_bubblewrap_the_next_level_is_taken_and_the_reason_kept(tmp_path: Path) -> None:
    chosen = choose("auto", HostContext(path=str(tmp_path)))
    assert chosen.cell.level is (IsolationLevel.USER if os.geteuid() == 0 else IsolationLevel.NONE)
    assert "apt-get install bubblewrap" in chosen.passed_over[IsolationLevel.BUBBLEWRAP]


def test_a_user_that_cannot_reach_the_repositories_is_no_level_that_works(tmp_path: Path) -> None:
    """Sessions would start, and read nothing of what they are to watch: in a directory of root's own, for one."""
    needs(IsolationLevel.USER)
    repos = tmp_path / "closed" / "repos"
    repos.mkdir(parents=True)
    assert check_level("user", HostContext(path=PATH, repos_dir=repos)) is None
    repos.parent.chmod(0o700)
    why = check_level("user", HostContext(path=PATH, repos_dir=repos))
    assert why is not None
    assert f"{repos} cannot be entered by user" in why
    assert check_level("user", HostContext(path=PATH, repos_dir=tmp_path / "gone")) is None


def test_a_bubblewrap_that_does_not_work_is_quoted_with_the_remedy(tmp_path: Path) -> None:
    surroundings = broken_bwrap(tmp_path, "No permissions to create new namespace")
    why = check_level("bubblewrap", surroundings)
    assert why is not None
    assert "No permissions to create new namespace" in why
    assert "unprivileged_userns_clone" in why


def test_a_demanded_level_that_does_not_work_is_refused_and_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="CLAUDEOPS_ISOLATION is bubblewrap") as caught:
        choose("bubblewrap", broken_bwrap(tmp_path, "no"))
    assert "set it to auto" in str(caught.value)


def test_a_bubblewrap_that_only_runs_what_it_is_given_is_not_taken_for_a_cell(tmp_path: Path) -> None:
    """Success is not believed: the script in it looks around."""
    (tmp_path / "bwrap").write_text('#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    why = check_level("bubblewrap", HostContext(path=f"{tmp_path}:{PATH}"))
    assert why is not None
    assert "its processes are not its own" in why


@pytest.mark.parametrize("daemon_is_there", [True, False])
def test_in_a_namespace_nothing_starts_without_a_word_from_the_daemon(tmp_path: Path, *, daemon_is_there: bool) -> None:
    """It may have died before bubblewrap asked the kernel to be ended with it: then nobody would end the session."""
    needs(IsolationLevel.BUBBLEWRAP)
    cell = choose("bubblewrap", HostContext(path=PATH)).cell
    workspace = workspaces.make(tmp_path / "session", template_home=None)
    (tmp_path / "repos").mkdir()
    inside = SandboxSpec(workspace=workspace, binary=Path("/bin/sh"), repos_dir=tmp_path / "repos", path=PATH)
    cell.hand_over(workspace)
    enclosed = cell.enclose(inside)
    ours, theirs = socket.socketpair()
    if daemon_is_there:
        ours.sendall(b"go\n")
    ours.shutdown(socket.SHUT_WR)
    with ours, theirs:
        command = [*enclosed.before, str(theirs.fileno()), "/bin/sh", "-c", 'touch "$HOME/ran"']
        done = subprocess.run(command, env={"HOME": str(workspace.home)}, pass_fds=(theirs.fileno(),), check=False)
    assert done.returncode == (0 if daemon_is_there else 125)
    assert (workspace.home / "ran").exists() == daemon_is_there
