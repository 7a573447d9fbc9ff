"""Which alerts share one chain.

An incident is about one service, so alerts share a chain where they are about the same one, whatever the sender has
put into one body. Two cases differ: the operator's ``group_by`` says otherwise; and where a sender's own group holds
more services at once than chains may start, their trouble is taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import PROBES, AlertState, Key, matchable
from claudeops.domain.alerts.register import AlertGroup
from claudeops.domain.alerts.rules import Grouping, StormRules, rank
from claudeops.text import casefold_key

_SERVICE: Final = "service:"
_MOST: Final = 500  # alerts of a group that are looked at for how grave it is


class Bundle(msgspec.Struct, frozen=True):
    """Groups whose chain is one."""

    key: str
    alerts: tuple[Key, ...]
    is_whole: bool = False  # they have only the sender's group in common
    has_chain: bool = False  # a chain runs that is about all of it, and began when they were due


class Room:
    """How many chains alerts may start, of which the last one is for all the rest of a storm."""

    def __init__(self, storm: StormRules, starts: Iterable[datetime]) -> None:
        self._storm = storm
        self._starts = sorted(starts)

    @property
    def reserved(self) -> int:
        """Chains that are kept for the rest."""
        return 0 if self._storm.sessions == 1 else 1

    def left(self, now: datetime) -> int:
        """Return how many may start now."""
        self._starts = [at for at in self._starts if now - self._storm.window < at <= now]
        return self._storm.sessions - len(self._starts)

    def take(self, now: datetime) -> None:
        """Note that one starts."""
        self._starts.append(now)

    def free_at(self) -> datetime:
        """Return when one more may start than now."""
        return self._starts[0] + self._storm.window


def group_key(state: AlertState, grouping: Grouping) -> str:
    """Return the key of the group that an alert waits in."""
    if grouping.by:
        labels = matchable(state, state.source)
        return ", ".join(f"{name}={labels.get(name, '')}" for name in grouping.by)
    if state.source == PROBES and state.sender_group:  # whose failures have been looked at together
        return sender_key(state)
    return f"{_SERVICE}{casefold_key(state.service)}"


def sender_key(state: AlertState) -> str:
    """Return the key of what a sender has grouped; "" where it does not group."""
    return f"sender:{state.source}:{state.sender_group}" if state.sender_group else ""


def bundles(
    due: Iterable[AlertGroup],
    state_of: Callable[[Key], AlertState],
    *,
    room: int,
    begun_at: Callable[[str], datetime | None],
) -> Iterator[Bundle]:
    """Yield groups whose time has come, those of one sender's group as one where there are more than there is room for.

    The gravest come first, since not each may start a chain of its own.

    ``room``: chains that may start; ``begun_at``: when the running chain about all of a sender's group began.
    """
    by_sender: dict[tuple[str, str], list[AlertGroup]] = {}  # a group without a sender's is alone
    for group in sorted(due, key=lambda group: -max(rank(state_of(key).severity) for key in group.alerts[:_MOST])):
        sender = sender_key(state_of(group.alerts[0])) if group.key.startswith(_SERVICE) else ""
        by_sender.setdefault((sender, "" if sender else group.key), []).append(group)
    for (key, _), groups in by_sender.items():
        began = begun_at(key) if key else None
        left = [group for group in groups if began is not None and group.due_at <= began]
        new = [group for group in groups if group not in left] if left else groups
        if left:
            yield Bundle(key, _all_of(left), is_whole=True, has_chain=True)
        if key and len(new) > room > 0:
            yield Bundle(key, _all_of(new), is_whole=True)
        else:
            yield from (Bundle(group.key, group.alerts) for group in new)


def _all_of(groups: Iterable[AlertGroup]) -> tuple[Key, ...]:
    return tuple(key for group in groups for key in group.alerts)


def weight(state: AlertState) -> tuple[int, float, Key]:
    """Return what sorts the most severe alert first, of equals the one that began first."""
    begins = state.starts_at or state.began
    return (-rank(state.severity), begins.timestamp(), state.key)
