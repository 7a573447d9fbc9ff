"""Calls of tools as values: what the gate answers, what a call changes, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.actions import Action
from claudeops.domain.looks import EvidenceLook, LookCall

if TYPE_CHECKING:
    from claudeops.domain.gate.granted import Grant


class VerdictKind(ClosedSet):
    """The gate's answers."""

    ALLOW = "allow", "the call runs"
    DENY = "deny", "the call does not run, and the model reads why"
    ASK = "ask", "a person decides; until then the session waits"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call as the CLI asks for it, before it runs."""

    tool_use_id: str
    tool_name: str
    input: Mapping[str, object]
    agent_id: str | None = None  # set when a subagent asks
    cwd: str = field(default="", compare=False)  # where it would run, absolute; "": in the session's own directory


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The gate's answer. An allowed call may carry several actions (``systemctl restart a b`` has two)."""

    kind: VerdictKind
    reason: str  # which the model and the operator read
    actions: tuple[Action, ...] = ()
    ran: Mapping[str, object] | None = None  # the input that runs instead of the given one; None: the given one
    look: EvidenceLook | None = field(default=None, compare=False)  # what the call looks at; not part of the answer
    needed: int = 1  # how many people must say yes, where it asks
    services: tuple[str, ...] | None = None  # all that the call in question changes; None: not all of it is known
    looks_run: tuple[LookCall, ...] = ()  # what the daemon runs for it
    grants: tuple[Grant, ...] = ()  # what filters let through for it, where there are any


class ToolEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call as the stream showed it."""

    tool_use_id: str
    ended_at: datetime
    is_error: bool


class CliRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the CLI itself refused: the gate was never asked, or had said yes."""

    call: ToolCall
    redacted_input: str  # redacted JSON
    reason: str  # in the CLI's words, redacted
    at: datetime
