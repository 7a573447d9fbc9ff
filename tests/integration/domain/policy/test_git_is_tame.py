"""Real git on a hostile repository: what the policy allows runs none of the repository's programs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from claudeops.domain.model import VerdictKind
from claudeops.harness.base import git_environment
from support.hostile_repository import HostileRepository
from support.policy_cases import SCOPE, judged
from support.waiting import PATIENCE_SECONDS

LOOKS = (
    "log -n 3", "log --oneline --all", "log --stat", "log --name-only -5", "log -1 --format='%h %an %s'",
    "log -p --no-ext-diff --no-textconv HEAD -- compose.yml", "log --graph --decorate HEAD~1..HEAD",
    "show --stat", "show -s HEAD", "show --name-only v1", "show HEAD:compose.yml",
    "show --no-ext-diff --no-textconv HEAD -- compose.yml", "diff --stat HEAD~2..HEAD --",
    "diff --name-only HEAD~1..HEAD --", "branch -a", "branch --show-current", "tag -l", "remote",
    "rev-parse --short HEAD", "rev-parse --abbrev-ref HEAD", "describe --tags --always", "rev-list --count HEAD",
    "shortlog -sn HEAD", "reflog -n 5", "ls-tree -r --name-only HEAD", "ls-files", "for-each-ref --count=3", "show-ref",
    "merge-base HEAD HEAD~1", "stash list", "worktree list", "count-objects -v", "--no-pager log -n 2",
)  # fmt: skip
"""Every form in which the policy lets git be used, behind ``git -C DIRECTORY``."""

REFUSED = (
    "status", "status -s", "--no-optional-locks status", "diff", "diff HEAD", "diff HEAD~1 HEAD", "diff --stat",
    "diff --stat HEAD compose.yml", "diff --stat HEAD~1..HEAD", "diff --cached", "show", "show HEAD", "log -p",
    "log -p HEAD -- compose.yml", "blame compose.yml", "grep one", "log -1 --format=%G?", "log --show-signature",
    "show HEAD:.env", "log -p --no-ext-diff --no-textconv HEAD -- .env", "verify-commit HEAD", "fetch", "pull", "push",
    "push --force", "clone x", "ls-remote", "remote -v", "config -l", "-c core.fsmonitor=x log", "--exec-path=/x log",
    "--git-dir=/x log", "-p log", "log --ext-diff", "log --textconv", "log --output=/x", "describe --dirty", "st",
    "checkout HEAD", "commit -m x", "reset --hard", "clean -fd", "branch x", "branch -D x", "tag x", "stash",
    "submodule update", "worktree add /x", "gc", "archive HEAD", "bisect run x", "rebase -x y", "filter-branch",
    "ls-tree -r HEAD", "ls-files -s", "cat-file -p HEAD:.env", "rev-parse HEAD:.env",
)  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> HostileRepository:
    return HostileRepository(tmp_path)


def run(repository: HostileRepository, command: str, env: dict[str, str]) -> str:
    """Run a command in the shell, as a session's Bash tool does; its output."""
    done = subprocess.run(
        ["/bin/bash", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "HOME": str(repository.ran), **env},
    )  # fmt: skip
    return done.stdout


def test_what_is_allowed_runs_nothing_of_the_repositorys(repository: HostileRepository) -> None:
    scope = replace(SCOPE, repos_dir=str(repository.path.parent), forbidden_paths=())
    environment = git_environment()
    for look in LOOKS:
        command = f"git -C {repository.path} {look}"
        verdict = judged(command.replace(str(repository.path), "/repos/estate"), 1, scope)
        assert (look, verdict.kind) == (look, VerdictKind.ALLOW), verdict.reason
        shown = run(repository, command, environment)
        assert (look, repository.programs_that_ran()) == (look, set())
        assert "hunter2" not in shown, look


def test_the_repository_would_run_its_programs_otherwise(repository: HostileRepository) -> None:
    """The test above can fail: without the environment, or with what is refused, programs run."""
    bare: dict[str, str] = {}
    run(repository, f"git -C {repository.path} log -n 3", bare)
    assert "gpg" in repository.programs_that_ran()
    run(repository, f"git -C {repository.path} log -p --no-ext-diff --no-textconv HEAD -- compose.yml", bare)
    assert "ssh" in repository.programs_that_ran()
    run(repository, f"git -C {repository.path} ls-files", bare)
    assert "fsmonitor" in repository.programs_that_ran()
    for refused, program in (("status", "clean"), ("show", "textconv"), ("diff --stat HEAD compose.yml", "clean")):
        run(repository, f"git -C {repository.path} {refused}", git_environment())
        assert program in repository.programs_that_ran(), refused


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_every_other_use_of_git_is_denied(tier: int) -> None:
    allowed = [look for look in REFUSED if judged(f"git -C /repos/x {look}", tier).kind is not VerdictKind.DENY]
    assert allowed == []


@pytest.mark.parametrize(
    "wrapped",
    ["sudo {}", "env -i {}", "env -u GIT_ALLOW_PROTOCOL {}", "ssh host {}", "docker exec web {}", "GIT_PAGER=x {}",
     "env GIT_CONFIG_COUNT=0 {}", "sudo bash -c '{}'", "ssh host 'timeout 5 {}'"],
)  # fmt: skip
def test_git_is_denied_where_the_sessions_environment_does_not_reach(wrapped: str) -> None:
    assert judged(wrapped.format("git -C /repos/x log -n 3"), 3).kind is VerdictKind.DENY
    assert judged("timeout 5 bash -c 'git -C /repos/x log -n 3'", 1).kind is VerdictKind.ALLOW
