"""How long a tool call may take by its own rules, as far as the call says it.

The CLI ends a Bash command itself: after the ``timeout`` of its input (milliseconds), else after two minutes. What
stands open for longer than that is the CLI's fault, not the command's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

BASH_DEFAULT_SECONDS: Final = 120.0
"""What a Bash call gets that names no time (CLI 2.1)."""

_DELEGATING: Final = frozenset({"Task", "Agent"})  # renamed in CLI 2.1.63


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolTime:
    """What is known of a call's time."""

    own_seconds: float | None = None  # after that the CLI itself ends it; None: it has no such limit
    delegates: bool = False  # it is as alive as the subagent that it waits for


def tool_time(name: str, given: Mapping[str, object] | None) -> ToolTime:
    """Return what a call says about its time; ``given`` is its input, ``None`` where that did not parse."""
    if name in _DELEGATING:
        return ToolTime(delegates=True)
    if name != "Bash":
        return ToolTime()
    timeout = (given or {}).get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        return ToolTime(own_seconds=BASH_DEFAULT_SECONDS)
    return ToolTime(own_seconds=timeout / 1000)
