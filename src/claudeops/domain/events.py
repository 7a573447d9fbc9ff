"""Events as values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.text import NAME_LENGTH

NODE_MARK: Final = " on node "
"""Between the name of a condition and that of the machine that has it: each machine begins and ends its own."""

FLEET_MARK: Final = "fleet:"
"""Begins the name of a condition of all machines that share a database; one of them looks for it."""

DIFFERENT: Final = f"{FLEET_MARK}different"
"""The condition that daemons that share the database decide by different things."""

DEAD: Final = f"{FLEET_MARK}dead "
"""Begins the condition that a machine's daemon has stopped without departing; the machine's name follows."""

_PER_NODE: Final = frozenset({"alerts:file", "targets:file", "probes:file", "estate:unbound", "clock"})
_PER_NODE_KINDS: Final = ("schedules_file:", "prompt_file:", "library:", "chat_deaf:")
"""Conditions that each machine has for itself. Versions that knew one machine named none."""


class EventLevel(ClosedSet):
    """Weight of an event."""

    INFO = "info", "worth knowing"
    WARNING = "warning", "worth a look in working hours"
    CRITICAL = "critical", "worth waking somebody"


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be written; the same fingerprint again raises the count of the open one."""

    level: EventLevel
    message: str
    service: str | None = None
    fingerprint: str = ""  # "" = derived from level, service and message


def on_node(name: str, node: str) -> str:
    """Return the name of a condition of one machine; without a machine that of a condition of all."""
    mark = f"{NODE_MARK}{node}" if node else ""
    return f"{name[: NAME_LENGTH - len(mark)]}{mark}"


def node_of(name: str) -> str:
    """Return the machine whose condition has a name; empty: it is no machine's own."""
    return name.rpartition(NODE_MARK)[2] if NODE_MARK in name else ""


def has_ended(name: str, nodes: Collection[str | None], *, is_alone: bool) -> bool:
    """Return whether a condition is over because none of the machines that run now has it: they report their own.

    A daemon that ``is_alone`` on the database is no fleet. In a fleet whoever looks after it ends what is over.
    """
    if name.startswith(FLEET_MARK):
        return is_alone
    plain, _, node = name.partition(NODE_MARK)
    return (plain in _PER_NODE or plain.startswith(_PER_NODE_KINDS)) and node not in nodes


def of_node(event: NewEvent, node: str) -> NewEvent:
    """Return an event as that of one machine, which its message names."""
    if not node:
        return event
    return NewEvent(
        level=event.level,
        message=f"node {node}: {event.message}",
        service=event.service,
        fingerprint=on_node(event.fingerprint, node),
    )
