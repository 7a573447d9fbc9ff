"""Repetition: notices a model that keeps making the same failing call, or reports that never fit the schema.

Pure: the stream's facts in, a sentence out. Two calls are the same when tool and arguments are (a command's blanks and
its description do not count), two failures when their texts are. A call that fails in another way, or succeeds, starts
the count anew.

Beside it, how long a tool call may take by its own rules, as far as the call says. The CLI ends a Bash command itself:
after the ``timeout`` in its input (milliseconds), or after two minutes. A call that stays open longer than that is the
CLI's fault, not the command's.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from claudeops.domain.calls import ToolCall
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL

REFUSED_AFTER: Final = 5
"""Consecutive failures after which the same call is denied, with the reason. A session that waits for a service to come
back asks a few times, and the sentence is a model's best chance to try something else."""

STOPPED_AFTER: Final = 8
"""Consecutive failures, denied calls included, after which the session is ended: it ignores the sentence."""

REPORTS: Final = 10
"""Reports that do not fit the schema, after which the session is ended. The CLI gives up after five in a turn, and
there is one repair turn; more than that means that the session has got around the CLI's own limit."""


class Repetition(msgspec.Struct):
    """The failures of one session."""

    _calls: dict[str, str] = msgspec.field(default_factory=dict)  # open calls: key by tool_use_id
    _streaks: dict[str, _Streak] = msgspec.field(default_factory=dict)
    _refused: set[str] = msgspec.field(default_factory=set)  # ids of calls that were denied for repetition
    _failed_reports: int = 0
    _reports: set[str] = msgspec.field(default_factory=set)  # open calls that deliver a report
    _exhausted_reason: str | None = None

    def started(self, tool_use_id: str, name: str, given: Mapping[str, object] | None) -> None:
        """Take a call from the stream."""
        if name == STRUCTURED_OUTPUT_TOOL:
            self._reports.add(tool_use_id)
        else:
            self._calls[tool_use_id] = _key(name, given or {})

    def ended(self, tool_use_id: str, *, is_error: bool, text: str | None) -> None:
        """Take the result of a call."""
        if tool_use_id in self._reports:
            self._reports.discard(tool_use_id)
            self._failed_reports += is_error
            if self._failed_reports >= REPORTS:
                self._exhausted_reason = f"{self._failed_reports} reports in this session did not fit the schema"
            return
        key = self._calls.pop(tool_use_id, None)
        if key is None:
            return
        if not is_error:
            self._streaks.pop(key, None)
            return
        streak = self._streaks.setdefault(key, _Streak())
        error = sha256((text or "").encode("utf-8", "replace")).hexdigest()
        if tool_use_id in self._refused:
            error = streak.error  # the gate's own refusal; the call would have failed as before
        streak.count = streak.count + 1 if streak.error == error else 1
        streak.error = error
        if streak.count >= STOPPED_AFTER:
            self._exhausted_reason = f"the same call failed {streak.count} times in a row in the same way"

    def refusal(self, call: ToolCall) -> str | None:
        """Return why a call that has failed too often is denied, or ``None``."""
        streak = self._streaks.get(_key(call.tool_name, call.input))
        if streak is None or streak.count < REFUSED_AFTER:
            return None
        self._refused.add(call.tool_use_id)
        return (
            f"this call has failed {streak.count} times in a row in the same way: do something else, or deliver the "
            "report with what you know"
        )

    @property
    def exhausted_reason(self) -> str | None:
        """Why the session must end, or ``None``."""
        return self._exhausted_reason


class _Streak(msgspec.Struct):
    """How often a call has failed in a row, and how."""

    count: int = 0
    error: str = ""


def _key(name: str, given: Mapping[str, object]) -> str:
    compared = {key: value for key, value in given.items() if key != "description"}
    if isinstance(command := compared.get("command"), str):
        compared["command"] = " ".join(command.split())
    return sha256(msgspec.json.encode((name, compared), order="deterministic", enc_hook=str)).hexdigest()


# --- a tool call's own time limit ---------------------------------------------------------------------


BASH_DEFAULT_SECONDS: Final = 120.0
"""The time limit of a Bash call that names none (CLI 2.1)."""

_DELEGATING: Final = frozenset({"Task", "Agent"})  # renamed in CLI 2.1.63


class ToolTime(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a call's own time limit."""

    own_seconds: float | None = None  # after this the CLI itself ends it; None: it has no such limit
    delegates: bool = False  # it waits for a subagent, and is alive as long as that one is


def tool_time(name: str, given: Mapping[str, object] | None) -> ToolTime:
    """Return a call's own time limit; ``given`` is its input, ``None`` where that did not parse."""
    if name in _DELEGATING:
        return ToolTime(delegates=True)
    if name != "Bash":
        return ToolTime()
    timeout = (given or {}).get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        return ToolTime(own_seconds=BASH_DEFAULT_SECONDS)
    return ToolTime(own_seconds=timeout / 1000)
