"""The real CLI, the real gate and real git: a session looks at a repository, and the daemon runs git for it."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from claudeops.engine.cell.bubblewrap import LOOK_CLIENT
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.git import find_git_cell
from claudeops.policy.tiers import judge
from claudeops.structs import replace
from support.caged import caged
from support.levels import PATH
from support.strange_repositories import MARKER, SETUPS, StrangeRepository

pytestmark = pytest.mark.anyio


async def test_a_session_sees_the_repository_and_nothing_that_it_names_runs(tmp_path: Path) -> None:
    app = tmp_path / "repos" / "app"
    commands = (
        f"git -C {app} log --format=%s | tail -n 1",
        f'git -C {app} rev-parse --show-toplevel && echo "top: $?"',
        f"git -C {app} log gone || echo refused by git",
        f'last="$(git -C {app} log -1 --format=%s)"; echo "last: $last"',
        f"for each in app other; do git -C {tmp_path}/repos/$each log -1 --format=%s; done",
        f"git -C {app} status",
        f"git -C {tmp_path}/foreign/repo log",
    )
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *commands) as cage:
        repository = StrangeRepository(tmp_path)
        SETUPS["drivers, filters, hooks"](repository)
        context = cage.estate.context
        git = find_git_cell(context.confinement.cell, PATH)
        assert not isinstance(git, str), git
        program = partial(shutil.which, path=PATH)
        tiers = {
            number: replace(
                tier,
                judge=judge,
                scope=replace(
                    tier.scope, look_client=LOOK_CLIENT, looks={"git": ""}, resolve=os.path.realpath, program=program
                ),
            )
            for number, tier in context.tiers.items()
        }
        cage.estate.with_context(looks={"git": git}, tiers=tiers)
        ending = await cage.run()
        shown = cage.outputs()
    assert (str(ending.outcome), ending.calls_ran) == ("success", 5), shown
    assert [text.strip() for text in shown[:2]] == ["ordinary 1", f"{app}\ntop: 0"]
    assert "git: the repository has no such revision or path" in shown[2]
    assert "refused by git" in shown[2]
    assert shown[3].strip() == "last: ordinary 3"
    assert "ordinary 3" in shown[4]
    assert "git: this directory is in no repository" in shown[4]
    assert "the working tree is not looked at" in shown[5]
    assert "go to a repository below" in shown[6]
    assert MARKER not in "".join(shown)
    assert list(repository.ran.iterdir()) == []
