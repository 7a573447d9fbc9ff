"""What a session learns from its prompt, as values: about itself, about the estate, and what is on record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from claudeops.domain.actions import ActionLimit
from claudeops.domain.cases import Case
from claudeops.domain.chains.cooldown import Left
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.memories.selection import Selection
from claudeops.domain.report.report import ServiceStatus
from claudeops.formats.library import LibraryText


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a session learns about itself and its surroundings."""

    now: datetime  # timezone-aware
    timezone: str  # IANA name, in which ``now`` is displayed
    tier: int
    tier_name: str
    max_tier: int
    dry_run: bool
    repos_dir: str
    repositories: tuple[str, ...]  # names below ``repos_dir``
    workdir: str
    state_dir: str  # the session's own
    session_id: int
    chain_id: int
    actions: tuple[str, ...]  # kinds of action that the tier's policy grants
    limits: Mapping[str, ActionLimit] = msgspec.field(default_factory=dict)  # by action kind
    max_turns: int | None = None
    max_budget_usd: float | None = None
    time_limit_seconds: float | None = None
    access: tuple[str, ...] = ()  # sentences about what cannot be reached from here


class LastVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a service was last seen."""

    service: str
    status: ServiceStatus
    detail: str | None
    at: datetime
    by_probe: bool


class EarlierCall(msgspec.Struct, frozen=True, kw_only=True):
    """An action or a denied call of an earlier session of the chain."""

    session_id: int
    what: str  # ``restart of web``, or the tool and its input
    result: str  # ``succeeded``, ``failed``, ``no result seen``, or why it was denied


class KnownFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows that a session should know; healthy services come last in every list."""

    cooldowns: tuple[Left, ...] = ()
    last_verdicts: tuple[LastVerdict, ...] = ()
    cases: tuple[Case, ...] = ()
    tried: tuple[EarlierCall, ...] = ()


NOTHING_ON_RECORD = KnownFacts()


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """Everything variable that a session learns beside its own facts."""

    estate: Estate = NO_ESTATE
    services: tuple[str, ...] = ()  # that the chain is about; empty: a whole round
    texts: tuple[LibraryText, ...] = ()
    listing: str = ""  # the names of all texts that exist for the tier
    memories: Selection = msgspec.field(default_factory=Selection)
    on_record: KnownFacts = NOTHING_ON_RECORD
    probes: tuple[str, ...] = ()  # how they stand, a line each; empty: left out
