"""The checks of what the sessions of each tier may connect to, and of the headers that are added on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.limits import tier_policies
from claudeops.app.start.trial import surroundings
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, fine, skipped
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.engine.cell.levels import choose
from claudeops.engine.cell.own_network import NameLookup, Network, resolved
from claudeops.engine.cell.reach import Needs, list_of
from claudeops.engine.estate import read_estate
from claudeops.errors import ConfigurationError
from claudeops.formats.network.destinations import Exclusions
from claudeops.formats.network.headers import of_tier
from claudeops.policy.policy import TierPolicy
from claudeops.settings import Settings, TierSettings

_SHOWN: Final = 8  # names in a sentence


async def network(_case: DoctorContext, settings: Settings) -> Finding:
    """Make the list of each tier, and look its names up; nothing is connected to."""
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    if not chosen.cell.has_network:
        return fine("Sessions have this machine's network: no list holds them.")
    try:
        estate = await anyio.to_thread.run_sync(read_estate, settings.places.repos_dir)
    except OSError:
        estate = NO_ESTATE
    names, policies = NameLookup(), tier_policies(settings)
    lists: dict[str, list[str]] = {}
    unknown: set[str] = set()
    left_out: set[str] = set()
    for tier in settings.tiers:
        listed, found = await _list(tier, policies[tier.number], settings, estate, names)
        lists.setdefault(listed, []).append(str(tier.number))
        unknown |= {*found.unknown}
        left_out |= {*found.left_out}
    says = " ".join(f"Tier {', '.join(numbers)}: {listed}." for listed, numbers in lists.items())
    if unknown:
        return doubtful(f"{says} No address is known for {_shown(unknown)}.", "Correct these names, or take them away.")
    if left_out:
        return doubtful(
            f"{says} Not all ports of {_shown(left_out)} fit on a list.",
            "Name fewer hosts, or the ports that are needed.",
        )
    return fine(says)


async def headers(_case: DoctorContext, settings: Settings) -> Finding:
    """Say for which hosts headers are added, and whether sessions have a network on which they can be."""
    if not settings.headers:
        return fine("The daemon adds no header to what sessions send.")
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    places = sorted({f"{header.place} ({header.name})" for header in settings.headers})
    if not chosen.cell.has_network:
        return doubtful(
            f"No header is added for {_shown(set(places))}: sessions have this machine's network.",
            "Let sessions run in bubblewrap, with CLAUDEOPS_CELL_NETWORK=listed, or unset CLAUDEOPS_HEADERS_PATH.",
        )
    policies = tier_policies(settings)
    shut = {
        header.place
        for header in settings.headers
        for number, policy in policies.items()
        if number in header.tiers and Exclusions(policy, NO_ESTATE).has(header.host)
    }
    if shut:
        return doubtful(
            f"The policy excludes {_shown(shut)} at a tier for which a header would be added there.",
            "Take the host out of never.hosts and of the '!' entries of hosts, or the tier out of the header's tiers.",
        )
    return fine(f"The daemon adds headers for {_shown(set(places))}.")


async def _list(
    tier: TierSettings, policy: TierPolicy, settings: Settings, estate: Estate, names: NameLookup
) -> tuple[str, Network]:
    """Return a tier's list in a few words, and as it was looked up."""
    with tempfile.TemporaryDirectory(prefix="claudeops-doctor-") as directory:
        needs = Needs(
            tier=policy,
            estate=estate,
            environment={**settings.environment.inherited, **tier.env},
            home=tier.home or Path(directory),
            headers=of_tier(settings.headers, tier.number),
        )
        listed = await list_of(needs)
    found = await resolved(listed, names, excluded=Exclusions(policy, estate).has)
    places = len(found.tcp) + len(found.udp)
    networks = f" and {len(found.networks)} networks" if found.networks else ""
    return f"{len(listed)} hosts on its list, {places} addresses with ports{networks}", found


def _shown(names: set[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(sorted(names)[:_SHOWN])}{more}"
