"""Memories as values: what is stored, what a session's end changes, and who it is that has learnt."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.report.evidence import NOTHING_BEFORE, Background, KnownServices, looks_at
from claudeops.structs import replace
from claudeops.text import clip

OPERATORS_TIER: Final = 0
"""The tier of what operators say themselves."""

_MOST_LOOKS: Final = 10  # that evidence names
_MOST_PLACES: Final = 10
_PLACE_LENGTH: Final = 120  # characters
_MOST_CHAINS: Final = 20  # the first one and the latest ones


class ChangeKind(StrEnum):
    """What happens to a memory."""

    ADDED = "added"
    REINFORCED = "reinforced"
    REVIVED = "revived"  # reinforced after it had become inactive
    CONFIRMED = "confirmed"  # out of quarantine
    CONTRADICTED = "contradicted"
    SUPERSEDED = "superseded"  # another one stands in its place
    FORGOTTEN = "forgotten"  # by an operator
    RESTORED = "restored"  # by an operator


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory comes from; of a bounded size, and stored as JSON."""

    root_session_id: int | None = None  # the chain that reported it first
    tool_use_ids: tuple[str, ...] = ()  # of the looks of its session that bear on its service
    looked_at: tuple[str, ...] = ()  # what these looked at
    chains: tuple[int, ...] = ()  # that have said it: the first one and the latest ones
    doubts: tuple[str, ...] = ()  # why its session was not clean

    def said_by(self, chain: int) -> Evidence:
        """Return the evidence after one more chain has said the same."""
        chains = tuple(dict.fromkeys((*self.chains, chain)))
        bounded = chains if len(chains) <= _MOST_CHAINS else (chains[0], *chains[1 - _MOST_CHAINS :])
        return replace(self, chains=bounded)


NO_EVIDENCE: Final = Evidence()


class Trust(ClosedSet):
    """Whose word a memory is, whatever its confidence. Prompts show the first two."""

    OPERATOR = "operator", "an operator's own: it never fades, and no report changes it"
    CONFIRMED = "confirmed", "a clean session has learnt it, or what was in quarantine was confirmed"
    QUARANTINED = "quarantined", "it waits until another chain, or an operator, confirms it"


class KnownMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A stored memory, active or not; ``confidence`` as of ``updated_at``."""

    id: int
    service: str | None
    category: str
    observation: str
    confidence: float  # 0 to 1
    active: bool
    updated_at: datetime
    trust: Trust = Trust.CONFIRMED
    supersedes: int | None = None  # id of the memory in whose place it stands, or will stand once it is confirmed
    evidence: Evidence = NO_EVIDENCE
    forgotten_at: datetime | None = None  # when an operator had it forgotten
    created_at: datetime | None = None
    session_id: int | None = None  # the session that reported it first
    tier: int | None = None  # of that session; 0: an operator
    changed_by: str | None = None  # the operator who last changed it


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """One row to insert (``id`` is ``None``) or to update."""

    kind: ChangeKind
    id: int | None
    service: str | None
    category: str
    observation: str
    confidence: float
    active: bool
    trust: Trust = Trust.CONFIRMED
    supersedes: int | None = None
    evidence: Evidence = NO_EVIDENCE
    keeps_time: bool = False  # ``updated_at`` stays as it is, so that nothing is lost by undoing the change


class Learner(msgspec.Struct, frozen=True, kw_only=True):
    """The session whose report is merged."""

    chain: int  # its first session
    trust: Trust = Trust.CONFIRMED  # of what it has learnt
    doubts: tuple[str, ...] = ()  # why it is not clean
    shown: frozenset[int] = frozenset()  # ids of the memories in its prompt
    looks: tuple[EvidenceLook, ...] = ()  # its own, without an error
    before: Background = NOTHING_BEFORE
    names: KnownServices = msgspec.field(default_factory=lambda: KnownServices({}, clip))

    def looks_at(self, service: str | None) -> tuple[EvidenceLook, ...]:
        """Return this session's own looks that bear on a service."""
        return looks_at(service, self.looks, before=self.before, names=self.names)

    def evidence(self, service: str | None) -> Evidence:
        """Return the evidence of a memory that this session is the first to report."""
        looks = self.looks_at(service)
        places = {place: None for look in looks for place in _places(look)}
        return Evidence(
            root_session_id=self.chain,
            tool_use_ids=tuple(clip(look.tool_use_id) for look in looks if look.tool_use_id)[:_MOST_LOOKS],
            looked_at=tuple(places)[:_MOST_PLACES],
            chains=(self.chain,),
            doubts=self.doubts,
        )


def _places(look: EvidenceLook) -> list[str]:
    addresses = sorted(f"{each.host}:{each.port}{each.path}" for each in look.addresses)
    return [place[:_PLACE_LENGTH] for place in (*sorted(look.names), *addresses)]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """An active memory that was selected for a prompt."""

    id: int
    service: str | None
    category: str
    observation: str
    confidence: float  # 0 to 1
    updated_at: datetime
    trust: Trust = Trust.CONFIRMED
