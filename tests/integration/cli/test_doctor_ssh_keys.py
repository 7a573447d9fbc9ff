"""What the doctor says of the ssh keys of tiers: how many the agent has, for how many hosts, and which it has not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from claudeops.cli.doctor.ssh_keys import ssh_keys
from claudeops.engine.cell.cell import IsolationLevel
from support.levels import PATH, needs
from support.settings_world import World, make_world
from support.ssh_servers import make_key, needs_ssh

pytestmark = pytest.mark.anyio

CASE: Final = cast("DoctorContext", SimpleNamespace())
"""Not looked at by this check."""
MANIFEST: Final = "# Services\n\n| service | host |\n| --- | --- |\n| shop | web1 |\n| mail | web2 |\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    (made.root / "repos" / "estate" / "CLAUDE-OPS.md").write_text(MANIFEST)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    needs(IsolationLevel.BUBBLEWRAP)
    needs_ssh()
    found = tmp_path / "of-tier-2"
    public = make_key(found / ".ssh" / "id_ed25519")
    (found / ".ssh" / "known_hosts").write_text(f"web1,web9 {public}\n")
    return found


async def found(world: World, **environ: str) -> Finding:
    return await ssh_keys(CASE, world.settings(PATH=PATH, **environ))


async def test_keys_and_hosts_are_counted(world: World, home: Path) -> None:
    told = await found(world, CLAUDEOPS_TIER2_HOME=str(home))
    assert told.status is FindingStatus.OK
    assert "Tier 2: 1 of 1 keys in the agent, for 1 hosts." in told.text
    assert "Not for web2: their keys are not in known_hosts there." in told.text


async def test_a_key_with_a_passphrase_is_named_with_the_remedy(world: World, home: Path) -> None:
    make_key(home / ".ssh" / "locked", "a passphrase")
    told = await found(world, CLAUDEOPS_TIER2_HOME=str(home))
    assert told.status is FindingStatus.WARNING
    assert "1 of 2 keys in the agent" in told.text
    assert ".ssh/locked: it has a passphrase" in told.text
    assert "ssh-keygen -p -N '' -f .ssh/locked" in told.text


async def test_an_agent_of_the_operators_own_stands_in_the_way(world: World, home: Path) -> None:
    told = await found(
        world, CLAUDEOPS_TIER2_HOME=str(home), CLAUDEOPS_TIER2_ENV="SSH_AUTH_SOCK", SSH_AUTH_SOCK="/run/own.sock"
    )
    assert told.status is FindingStatus.WARNING
    assert ".ssh/id_ed25519: the tier's SSH_AUTH_SOCK names an agent of its own" in told.text


async def test_keys_that_sessions_see_as_files_are_named_with_the_remedy(
    world: World, home: Path, tmp_path: Path
) -> None:
    """The settings refuse a key that is named itself; what lies in a directory shows when somebody looks."""
    for name in ("read/deep/key", "named/key"):
        make_key(tmp_path / name)
    told = await found(
        world,
        CLAUDEOPS_TIER2_HOME=str(home),
        CLAUDEOPS_TIER1_READ=str(tmp_path / "read"),
        CLAUDEOPS_TIER3_ENV="DEPLOY_KEY",
        DEPLOY_KEY=str(tmp_path / "named" / "key"),
    )
    assert told.status is FindingStatus.WARNING
    assert "Tier 1: no key. Tier 2: 1 of 1 keys in the agent, for 1 hosts. Tier 3: no key." in told.text
    assert told.text.endswith(f"_ENV names: {tmp_path}/read/deep/key, {tmp_path}/named/key.")
    assert (told.remedy or "").startswith("Move what is seen as a file into CLAUDEOPS_TIER{n}_HOME")


async def test_a_key_elsewhere_is_named_with_the_remedy(world: World, home: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "elsewhere")
    (home / ".ssh" / "config").write_text(f"IdentityFile {tmp_path}/elsewhere\nIdentityAgent none\n")
    told = await found(world, CLAUDEOPS_TIER2_HOME=str(home))
    assert told.status is FindingStatus.WARNING
    assert f"{tmp_path}/elsewhere: it lies outside of the tier's directory" in told.text
    assert "; whatever its configuration gives another IdentityAgent than SSH_AUTH_SOCK." in told.text


async def test_without_keys_nothing_needs_to_be_done(world: World, tmp_path: Path) -> None:
    assert (await found(world)).text == "No tier has a directory with keys."
    (tmp_path / "bare").mkdir()
    assert (await found(world, CLAUDEOPS_TIER1_HOME=str(tmp_path / "bare"))).status is FindingStatus.OK


async def test_at_another_level_it_says_that_keys_are_files(world: World, home: Path) -> None:
    told = await found(world, CLAUDEOPS_TIER2_HOME=str(home), CLAUDEOPS_ISOLATION="none")
    assert told.text == "At level none sessions get the keys of their tier as files."
