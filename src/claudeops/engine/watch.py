"""Watches the CLI: what its stream shows, beside what the gate answered.

The gate's word counts only as long as the CLI asks. So every call that the stream shows to have run is looked up among
those that got a yes; what the CLI refused itself is kept for the record; a result line that comes while allowed calls
are open is not the CLI's. What runs is not what the stream shows but what the gate has answered: the CLI tells it in
the hook after a call, and it is compared with the answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import CliRefusal, ToolCall, ToolEnd

if TYPE_CHECKING:
    from datetime import datetime

    from claudeops.domain.stream import ResultSeen, ToolDenied, ToolEnded, ToolStarted
    from claudeops.engine.gate import Gate
    from claudeops.harness.protocol import CallRan

_CLI_ERROR: Final = "<tool_use_error>"
"""How the CLI begins the result of a call that it refuses before it asks the gate: an unknown tool, input that does not
fit. A failed command's result begins with ``Exit code``, so no tool can imitate it. Seen with 2.1.329."""

_REASON_CHARACTERS: Final = 500


@dataclass(kw_only=True, slots=True)
class Watch:
    """One session's calls as its stream shows them."""

    gate: Gate
    ends: list[ToolEnd] = field(default_factory=list)
    refusals: list[CliRefusal] = field(default_factory=list)
    _shown: dict[str, ToolStarted] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)  # by the CLI itself
    _ended: set[str] = field(default_factory=set)

    @property
    def ran(self) -> frozenset[str]:
        """The ids of calls that got our yes and that the CLI did not refuse itself."""
        return frozenset(self.gate.allowed - self._refused)

    def started(self, fact: ToolStarted) -> None:
        """Take a call."""
        self._shown[fact.tool_use_id] = fact
        self.gate.repetition.started(fact.tool_use_id, fact.name, fact.input)

    def denied(self, fact: ToolDenied, now: datetime) -> None:
        """Take the CLI's word that its own rules refuse a call; our own denials are no news."""
        if fact.tool_use_id in self.gate.allowed:
            self._refuse(fact.tool_use_id, fact.message, now)

    def ended(self, fact: ToolEnded, now: datetime, *, stopping: bool) -> str | None:
        """Take a result; return why the CLI is not to be trusted any more, or ``None``.

        ``stopping``: the session was asked to stop, which ends open calls with errors of the CLI's making.
        """
        name = fact.tool_use_id
        self._ended.add(name)
        self.ends.append(ToolEnd(tool_use_id=name, ended_at=now, is_error=fact.is_error))
        self.gate.ended(name, is_error=fact.is_error)
        self.gate.repetition.ended(name, is_error=fact.is_error, text=fact.text)
        if name in self.gate.allowed:
            return None
        if not fact.is_error:
            return f"a tool call ran without the gate's yes ({name})"
        if name in self.gate.asked or stopping:
            return None
        if (fact.text or "").startswith(_CLI_ERROR):
            self._refuse(name, fact.text or "", now)
            return None
        return f"a tool call failed that the gate was never asked about ({name})"

    def told(self, fact: CallRan) -> str | None:
        """Take with which input a call has run; return why the CLI is not to be trusted any more, or ``None``."""
        wanted = self.gate.ran.get(fact.tool_use_id, {})
        # What runs a command may be given nothing beside what was judged; other tools' inputs the CLI may complete.
        added = {name for name, value in fact.input.items() if value and "command" in wanted} - set(wanted)
        others = sorted({*added, *(name for name, value in wanted.items() if fact.input.get(name) != value)})
        if not others:
            return None
        return f"a tool call ran with another {others[0]} than the gate's yes was for ({fact.tool_use_id})"

    def result(self, fact: ResultSeen) -> str | None:
        """Take a result line; return why it is not to be believed, or ``None``.

        Only one that claims success: the CLI's own limits (turns, budget) may end a turn with a call open.
        """
        still_open = self.gate.allowed - self._ended
        if fact.is_error or fact.subtype != "success" or not still_open:
            return None
        return f"a result line came while {len(still_open)} allowed calls were open ({', '.join(sorted(still_open))})"

    def _refuse(self, tool_use_id: str, words: str, now: datetime) -> None:
        if tool_use_id in self._refused:
            return
        self._refused.add(tool_use_id)
        shown = self._shown.get(tool_use_id)
        given = dict(shown.input or {}) if shown else {}
        said = " ".join(words.removeprefix(_CLI_ERROR).removesuffix("</tool_use_error>").split())
        self.refusals.append(
            CliRefusal(
                call=ToolCall(tool_use_id=tool_use_id, tool_name=shown.name if shown else "", input=given),
                # Of the redacted stream, so there is nothing left to hide.
                shown_input=json.dumps(given, default=str),
                reason=f"refused by the CLI itself: {said[:_REASON_CHARACTERS]}",
                at=now,
            )
        )
