"""The check of the ssh keys of each tier: which of them the agent of its sessions has, and for which hosts."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.cell import surroundings
from claudeops.app.wiring import tier_policies
from claudeops.cli.doctor.values import Case, Finding, doubtful, fine, skipped
from claudeops.domain.estate.model import NO_ESTATE, Estate
from claudeops.domain.policy.policy import TierPolicy
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.levels import choose
from claudeops.engine.cell.reach import Needs, list_of
from claudeops.engine.cell.ssh_keys import find_keys
from claudeops.engine.estate import read_estate
from claudeops.engine.process.ssh_agent import MOST_KEYS, open_agent
from claudeops.engine.session.keys import AGENT_VARIABLE, OTHER_AGENT
from claudeops.errors import ConfigurationError
from claudeops.logs import get_logger
from claudeops.settings import Settings, TierSettings

_SHOWN: Final = 8  # names in a sentence


@dataclass(frozen=True, slots=True)
class _Found:
    """What a tier's sessions get."""

    says: str = ""
    left: tuple[str, ...] = ()  # keys, each with the reason
    unknown: tuple[str, ...] = ()  # hosts


async def ssh_keys(_case: Case, settings: Settings) -> Finding:
    """Start the agent of each tier as a session would, and end it again; no host is contacted."""
    homes = [(tier, tier.home) for tier in settings.tiers if tier.home is not None]
    if not homes:
        return fine("No tier has a directory with keys.")
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    if not isinstance(chosen.cell, BubblewrapCell):
        return fine(f"At level {chosen.cell.level.value} sessions get the keys of their tier as files.")
    try:
        estate = await anyio.to_thread.run_sync(read_estate, settings.repos_dir)
    except OSError:
        estate = NO_ESTATE
    policies = tier_policies(settings)
    found = {
        str(tier.number): await _found(chosen.cell, tier, home, (settings, policies[tier.number], estate))
        for tier, home in homes
    }
    return _judged(found)


async def _found(
    cell: BubblewrapCell, tier: TierSettings, home: Path, world: tuple[Settings, TierPolicy, Estate]
) -> _Found:
    settings, policy, estate = world
    environment = {**settings.inherited_env, **tier.env}
    keys = await anyio.to_thread.run_sync(find_keys, home)
    if not keys.found:
        return _Found("no key")
    if AGENT_VARIABLE in environment:
        return _Found("none of its keys", tuple(f"{name}: {OTHER_AGENT}" for name in keys.names[:MOST_KEYS]))
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-") as directory:
        workspace = await workspaces.create(Path(directory) / "session", template_home=home, without=keys.files)
        listed = await list_of(Needs(tier=policy, estate=estate, environment=environment, home=workspace.home))
        async with open_agent(cell, workspace, keys, listed, get_logger()) as agent:
            pass
    more = f", and not for {_listed(agent.scope.left_out)}, which are too many" if agent.scope.left_out else ""
    says = f"{len(agent.keys)} of {len(keys.found)} keys in the agent, for {len(agent.scope.hosts)} hosts{more}"
    return _Found(says, tuple(f"{key.name}: {key.reason}" for key in agent.left), agent.scope.unknown)


def _judged(found: dict[str, _Found]) -> Finding:
    says = " ".join(f"Tier {number}: {each.says}." for number, each in found.items())
    left = tuple(dict.fromkeys(sentence for each in found.values() for sentence in each.left))
    unknown = tuple(dict.fromkeys(host for each in found.values() for host in each.unknown))
    if unknown:
        says += f" Not for {_listed(unknown)}: their keys are not in known_hosts there."
    if left:
        return doubtful(f"{says} Not in it: {'; '.join(left[:_SHOWN])}.", "Mend these keys, or take them away.")
    return fine(says)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
