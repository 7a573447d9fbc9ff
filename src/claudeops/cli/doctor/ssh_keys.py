"""The check of the ssh keys of each tier: which its sessions' agent has, for which hosts; which they see as files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from claudeops.app.limits import tier_policies
from claudeops.app.start.trial import surroundings
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, fine, skipped
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import named_in
from claudeops.engine.cell.levels import choose
from claudeops.engine.cell.reach import Needs, list_of, ssh_text
from claudeops.engine.estate import read_estate
from claudeops.engine.session.keys import AGENT_VARIABLE, OTHER_AGENT
from claudeops.engine.ssh.agent import MOST_KEYS, open_agent
from claudeops.engine.ssh.keys import find_keys, is_ssh_key
from claudeops.errors import ConfigurationError
from claudeops.files import read_text
from claudeops.formats.network.ssh_config import SshConfig
from claudeops.logs import get_logger
from claudeops.policy.policy import TierPolicy
from claudeops.settings import Settings, TierSettings
from claudeops.structs import replace

NO_KEYS: Final = "No tier has a directory with keys."

_SHOWN: Final = 8  # names in a sentence
_MOST_FILES: Final = 10_000  # of a directory that is shown, in which keys are looked for


class _Found(msgspec.Struct, frozen=True):
    """What a tier's sessions get."""

    says: str = "no key"
    left: tuple[str, ...] = ()  # keys, each with the reason
    unknown: tuple[str, ...] = ()  # hosts
    shown: tuple[str, ...] = ()  # keys that they see as files


async def ssh_keys(_case: DoctorContext, settings: Settings) -> Finding:
    """Start the agent of each tier as a session would, and end it again; no host is contacted."""
    if not any(tier.home is not None or _named(tier, settings) for tier in settings.tiers):
        return fine(NO_KEYS)
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    if not isinstance(chosen.cell, BubblewrapCell):
        return fine(f"At level {chosen.cell.level.value} sessions get the keys of their tier as files.")
    try:
        estate = await anyio.to_thread.run_sync(read_estate, settings.places.repos_dir)
    except OSError:
        estate = NO_ESTATE
    policies = tier_policies(settings)
    found: dict[int, _Found] = {}
    for tier in settings.tiers:
        one = _Found()
        if tier.home is not None:
            one = await _found(chosen.cell, tier, tier.home, (settings, policies[tier.number], estate))
        shown = await anyio.to_thread.run_sync(_keys_below, _named(tier, settings))
        if tier.home is not None or shown:
            found[tier.number] = replace(one, shown=shown)
    return _judged(found)


def _named(tier: TierSettings, settings: Settings) -> tuple[Path, ...]:
    """Return what the operator shows a tier's sessions of this machine."""
    return (*named_in({**settings.environment.inherited, **tier.env}), *tier.read)


def _keys_below(places: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the private keys of ssh among files, and among the first files of directories."""

    def files() -> Iterator[Path]:
        for place in places:
            if place.is_dir():
                below = (Path(directory, name) for directory, _, names in os.walk(place) for name in names)
                yield from islice(below, _MOST_FILES)
            else:
                yield place.resolve()

    return tuple(dict.fromkeys(str(path) for path in files() if is_ssh_key(path)))


async def _found(
    cell: BubblewrapCell, tier: TierSettings, home: Path, world: tuple[Settings, TierPolicy, Estate]
) -> _Found:
    settings, policy, estate = world
    environment = {**settings.environment.inherited, **tier.env}
    keys = await anyio.to_thread.run_sync(find_keys, home)
    if not keys.found and not keys.outside:
        return _Found()
    if AGENT_VARIABLE in environment:
        return _Found("none of its keys", tuple(f"{name}: {OTHER_AGENT}" for name in keys.names[:MOST_KEYS]))
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-") as directory:
        workspace = await workspaces.create(Path(directory) / "session", template_home=home, without=keys.files)
        needs = Needs(tier=policy, estate=estate, environment=environment, home=workspace.home)
        async with open_agent(cell, workspace, keys, partial(list_of, needs), get_logger()) as agent:
            pass
    config = SshConfig(await anyio.to_thread.run_sync(ssh_text, home, read_text))
    left = [f"{key.name}: {key.reason}" for key in agent.left]
    if config.names_other_agent():
        left.append(f"whatever its configuration gives another IdentityAgent than {AGENT_VARIABLE}")
    more = f", and not for {_listed(agent.scope.left_out)}, which are too many" if agent.scope.left_out else ""
    says = f"{len(agent.keys)} of {len(keys.found)} keys in the agent, for {len(agent.scope.hosts)} hosts{more}"
    return _Found(says, tuple(left), agent.scope.unknown)


def _judged(found: dict[int, _Found]) -> Finding:
    says = " ".join(f"Tier {number}: {each.says}." for number, each in found.items())
    left = tuple(dict.fromkeys(sentence for each in found.values() for sentence in each.left))
    unknown = tuple(dict.fromkeys(host for each in found.values() for host in each.unknown))
    if unknown:
        says += f" Not for {_listed(unknown)}: their keys are not in known_hosts there."
    remedies: list[str] = []
    if left:
        says += f" Not in it: {'; '.join(left[:_SHOWN])}."
        remedies.append("Mend what is not in it, or take it away.")
    if shown := tuple(dict.fromkeys(path for each in found.values() for path in each.shown)):
        says += f" Sessions see as files, by what CLAUDEOPS_TIER{{n}}_READ or _ENV names: {_listed(shown)}."
        remedies.append("Move what is seen as a file into CLAUDEOPS_TIER{n}_HOME, from where an agent has it.")
    return doubtful(says, " ".join(remedies)) if remedies else fine(says or NO_KEYS)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
