"""A verdict with all that it is based on, as the shell and the pages show it."""

from __future__ import annotations

import msgspec

from claudeops.domain.model import Action, VerdictKind
from claudeops.domain.policy.judge import Judgement


class TierVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate would say of a call at a tier."""

    tier: int
    verdict: VerdictKind
    reason: str
    parts: tuple[str, ...]  # the commands in a Bash call, wrapped ones too
    actions: tuple[Action, ...]
    writes: tuple[str, ...]  # what it would change in addition to its actions
    runs: str  # the command text that runs instead of the given one; empty: it does not run
    needed: int  # how many people must say yes; 0: it asks for none
    names: tuple[str, ...] = ()  # of the services, containers and the like at which it looks
    hosts: tuple[str, ...] = ()  # on which it looks, or which it asks over the network


def tier_verdict(tier: int, found: Judgement) -> TierVerdict:
    """Return a judgement as it is shown."""
    verdict, look = found.verdict, found.verdict.look
    return TierVerdict(
        tier=tier,
        verdict=verdict.kind,
        reason=verdict.reason,
        parts=found.parts,
        actions=verdict.actions,
        writes=found.writes,
        runs=found.runs,
        needed=verdict.needed if verdict.kind is VerdictKind.ASK else 0,
        names=() if look is None else tuple(sorted(look.names)),
        hosts=() if look is None else tuple(sorted({*look.hosts, *(address.host for address in look.addresses)})),
    )
