"""The keys of a session: their agent starts beside everything else, and the session not before its agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops import logs
from claudeops.domain.estate.estate import NO_ESTATE
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import Cell, IsolationLevel, PlainCell
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.reach import Needs
from claudeops.engine.session.keys import SessionKeys, keys_of, open_keys
from claudeops.structs import replace
from support.estate import Estate
from support.hung_disk import disk
from support.levels import PATH, needs
from support.ssh_servers import make_key, needs_ssh
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

SERVER = {"SERVER": "ssh://web1:22"}


@cache
def caged() -> Cell:
    needs(IsolationLevel.BUBBLEWRAP)
    needs_ssh()
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "of-tier-1"
    public = make_key(made / ".ssh" / "deploy")
    (made / ".ssh" / "deploy.pub").unlink()
    (made / ".ssh" / "known_hosts").write_text(f"web1 {public}\n")
    return made


@asynccontextmanager
async def opened(
    estate: Estate, home: Path, *, cell: Cell | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[SessionKeys, Path]]:
    """Open the keys of a session with a directory; yield them, and the session's home."""
    cell = caged() if cell is None else cell
    tier = replace(estate.context.tiers[1], template_home=home, passed_env=environment or SERVER)
    keys = await keys_of(cell, tier)
    workspace = workspaces.make(home.parent / "session", template_home=home, without=() if keys is None else keys.files)
    wanted = Needs(tier=tier.policy, estate=NO_ESTATE, environment=tier.passed_env, home=workspace.home)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with open_keys(cell, tier, (workspace, keys), wanted, logs.get_logger()) as opening:
            yield opening, workspace.home


def started() -> set[str]:
    """Return the names of the programs below this one."""
    return {child.name() for child in psutil.Process().children(recursive=True)}


async def test_whoever_waits_for_the_socket_has_the_agent_and_what_is_public(estate: Estate, home: Path) -> None:
    async with opened(estate, home) as (keys, own):
        assert "ssh-agent" not in started(), "nobody has waited yet"
        place = await keys.socket()
        assert place is not None
        assert place.is_socket()
        assert (own / ".ssh" / "deploy.pub").exists()
        assert await keys.has_agent()


async def test_a_session_that_ends_before_its_agent_has_started_leaves_nothing_behind(
    estate: Estate, home: Path
) -> None:
    async with opened(estate, home) as _:
        await until(lambda: "bwrap" in started())
    assert not {"bwrap", "bash", "ssh-agent", "ssh-add"} & started()


async def test_for_a_tier_without_keys_nothing_is_started(estate: Estate, home: Path) -> None:
    (home / ".ssh" / "deploy").unlink()
    async with opened(estate, home) as (keys, _):
        assert await keys.socket() is None
        await anyio.lowlevel.checkpoint()
        assert not {"bwrap", "ssh-agent"} & started()


@pytest.mark.parametrize("kind", ["other agent", "no walls"])
async def test_where_keys_are_no_matter_of_the_daemons_there_is_no_agent(estate: Estate, home: Path, kind: str) -> None:
    environment = {**SERVER, "SSH_AUTH_SOCK": "/run/own.sock"} if kind == "other agent" else SERVER
    async with opened(estate, home, cell=None if kind == "other agent" else PlainCell(), environment=environment) as (
        keys,
        own,
    ):
        assert not await keys.has_agent()
        assert (own / ".ssh" / "deploy").exists() is (kind == "no walls")


async def test_a_disk_that_does_not_answer_keeps_the_session_from_starting(
    estate: Estate, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudeops.engine.cell.reach.LOOK_SECONDS", 0.3)
    async with opened(estate, home) as (keys, own):
        with disk(own / ".ssh", answers=False) as away:
            with pytest.raises(TimeoutError, match="reading what a session may connect to"):
                await keys.socket()
            assert away.on_the_loop == []
    assert not {"bwrap", "ssh-agent"} & started()
