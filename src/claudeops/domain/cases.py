"""Case memory: what earlier chains found about a service, what they did, and whether it held.

A case is computed from rows that exist anyway: actions in the ledger, checks, and the reason that a session gave when
it escalated. Nothing is stored for it and no text is searched. A case is about one chain and one service; cases are
chosen by the service, under whichever of its names, and by conditions (fingerprints of events) that the present chain
shares with an earlier one.

Whether an action held is read from what was seen afterwards:

- Another action on the service in the same chain, or an unhealthy check later in it, says that it did not help.
- After the chain, the first unhealthy check of the service or the next action on it ends the time for which it held.
- What a follow-up found counts as a look of its own: *held* is a healthy one, *relapsed* ends the time at once.
- An action that nobody looked at afterwards is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

from claudeops.domain.actions import PastAction, Recheck
from claudeops.domain.report.report import PastCheck, ServiceStatus
from claudeops.structs import replace
from claudeops.text import one_line

LOOKED_BACK: Final = timedelta(days=365)
MOST_CASES: Final = 3
"""The newest cases of one service that a prompt tells."""


class Result(StrEnum):
    """What an action led to."""

    HOLDS = "holds"  # until now
    HELD = "held"  # for a while
    RELAPSED = "relapsed"  # a look at it found the service broken again
    DID_NOT_HELP = "did not help"
    FAILED = "failed"  # the call itself
    UNKNOWN = "unknown"  # nobody looked afterwards


class PastChain(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier chain that dealt with the service."""

    chain: int
    began: datetime
    reason: str | None  # with which it escalated
    same_condition: bool = False  # it raised an event that the present chain has raised too


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The rows about one service, each oldest first; those of the present chain are not among them."""

    service: str
    chains: tuple[PastChain, ...]
    entries: tuple[PastAction, ...] = ()
    checks: tuple[PastCheck, ...] = ()


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a case and what it led to."""

    kind: str
    at: datetime
    result: Result
    lasted: timedelta | None = None  # for `HOLDS`, `HELD` and `RELAPSED`
    followed_up: bool = False  # a look at exactly this has found it well


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What one earlier chain found about a service and did about it."""

    service: str
    chain: int
    began: datetime
    found: str  # one line; empty: not on record
    remedies: tuple[Remedy, ...]  # oldest first; empty: nothing was done
    same_condition: bool


def cases_of(history: History, now: datetime, *, most: int = MOST_CASES) -> tuple[Case, ...]:
    """Return the newest cases of a service, newest first; those that did something go before those that did not."""
    found = [_case(history, past, now) for past in history.chains]
    telling = [case for case in found if case.remedies or case.found]
    newest = sorted(telling, key=lambda case: (bool(case.remedies), case.same_condition, case.began), reverse=True)
    return tuple(sorted(newest[:most], key=lambda case: case.began, reverse=True))


def _case(history: History, past: PastChain, now: datetime) -> Case:
    entries = [entry for entry in history.entries if entry.chain == past.chain]
    own = [check for check in history.checks if check.chain == past.chain]
    remedies = [_remedy(entry, follower, own, history, now) for entry, follower in _with_followers(entries)]
    broken = next((check for check in own if check.status is not ServiceStatus.HEALTHY), None)
    found = past.reason or (f"{broken.status}: {broken.detail or 'no detail'}" if broken else "")
    return Case(
        service=history.service,
        chain=past.chain,
        began=past.began,
        found=one_line(found),
        remedies=tuple(remedies),
        same_condition=past.same_condition,
    )


def _with_followers(entries: Sequence[PastAction]) -> Iterable[tuple[PastAction, PastAction | None]]:
    yield from pairwise(entries)
    if entries:
        yield entries[-1], None


def _remedy(
    entry: PastAction, follower: PastAction | None, own: Sequence[PastCheck], history: History, now: datetime
) -> Remedy:
    remedy = Remedy(kind=entry.kind, at=entry.at, result=Result.UNKNOWN)
    if entry.worked is False:
        return replace(remedy, result=Result.FAILED)
    until = follower.at if follower else None
    after = [check for check in own if check.at > entry.at and (until is None or check.at < until)]
    if follower is not None or (after and after[-1].status is not ServiceStatus.HEALTHY):
        return replace(remedy, result=Result.DID_NOT_HELP)
    if entry.held is Recheck.RELAPSED and entry.held_at is not None:
        return replace(remedy, result=Result.RELAPSED, lasted=max(timedelta(), min(entry.held_at, now) - entry.at))
    remedy = replace(remedy, followed_up=entry.held is Recheck.HELD)
    later = [check for check in history.checks if check.chain != entry.chain and check.at > entry.at]
    if not after and not later and not remedy.followed_up:
        return remedy
    trouble = [check.at for check in later if check.status is not ServiceStatus.HEALTHY]
    trouble += [other.at for other in history.entries if other.chain != entry.chain and other.at > entry.at]
    if not trouble:
        return replace(remedy, result=Result.HOLDS, lasted=now - entry.at)
    lasted = min(trouble) - entry.at
    helped = (
        bool(after)
        or remedy.followed_up
        or any(check.status is ServiceStatus.HEALTHY and check.at < min(trouble) for check in later)
    )
    return replace(remedy, result=Result.HELD if helped else Result.DID_NOT_HELP, lasted=lasted if helped else None)
