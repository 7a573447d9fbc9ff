"""The tables of a policy file, their keys and what the values may be."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Final

import msgspec

from claudeops.domain import regex
from claudeops.domain.policy.never import NEVER_TOOLS
from claudeops.domain.policy.rule_faults import RuleFault
from claudeops.domain.policy.rules import CommandGroup, CommandRule
from claudeops.domain.policy.wrappers import WRAPPERS

BUILT_IN_TOOLS: Final = (
    *("Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Grep", "Glob", "LS", "WebFetch", "WebSearch"),
    *("TodoWrite", "Task", "Agent"),
)
"""Tools of the CLI that the gate can judge."""

PLACES: Final = ("{workdir}", "{tmpdir}", "{repos}", "{handoff}")
"""What stands for a session's own places in paths."""

_DURATION: Final = regex.Pattern(r"(\d+)([smhd])")
_UNIT: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # seconds


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """A table of the file."""


class AskEntry(Entry, frozen=True, kw_only=True):
    """``[tiers.N.ask]``."""

    commands: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class TierEntry(Entry, frozen=True, kw_only=True):
    """``[tiers.N]``."""

    tools: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ("*",)
    urls: tuple[str, ...] = ("*",)
    services: tuple[str, ...] = ("*",)
    read: tuple[str, ...] = ("/",)
    write: tuple[str, ...] = ()
    not_understood: str = "deny"
    ask: AskEntry = AskEntry()

    def fault(self, document: Document) -> tuple[str, str] | None:
        """Return the key that is wrong and why, or None."""
        for tool in self.tools:
            if tool not in BUILT_IN_TOOLS:
                near = difflib.get_close_matches(tool, BUILT_IN_TOOLS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "tools of MCP servers stand under [[tools]]"
                return "tools", f"{tool!r} is no tool that can be judged: {hint}"
        for kind in (*self.actions, *self.ask.actions):
            if kind not in document.actions:
                return "actions", f"the action {kind!r} has no limit: add [actions.{kind}], or correct the name"
        for key in ("read", "write"):
            for path in getattr(self, key):
                if not path.startswith(("/", *PLACES)) or ".." in path.split("/"):
                    return key, f"{path!r} is no absolute directory: begin with / or one of {', '.join(PLACES)}"
        if self.not_understood not in {"deny", "ask"}:
            return "not_understood", f"{self.not_understood!r} is not known: write 'deny' or 'ask'"
        return None


class ActionEntry(Entry, frozen=True, kw_only=True):
    """``[actions.KIND]``."""

    limit: int
    window: str
    verb: str = ""

    def fault(self) -> str | None:
        """Return what is wrong, or None."""
        if self.limit < 1:
            return f"a limit of {self.limit} would never allow it: leave the action out of the tiers instead"
        if _DURATION.fullmatch(self.window) is None:
            return f"{self.window!r} is no time: write a number with s, m, h or d, such as '4h'"
        return None

    @property
    def window_seconds(self) -> float:
        """Length of the sliding window."""
        found = _DURATION.fullmatch(self.window)
        return float(found[1]) * _UNIT[found[2]] if found else 0.0


class NeverEntry(Entry, frozen=True, kw_only=True):
    """``[never]``."""

    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class ToolEntry(Entry, frozen=True, kw_only=True):
    """``[[tools]]``: a tool of an MCP server."""

    name: str
    tier: int = 1
    action: str = ""
    service: str = ""
    changes: bool = True

    def check(self, document: Document, *, highest: int) -> None:
        """Raise `RuleFault` for what is wrong."""
        if not regex.fullmatch(r"mcp__[\w*-]+__[\w*-]+", self.name) or self.name in NEVER_TOOLS:
            raise RuleFault("name", f"{self.name!r} is no tool of a server: write mcp__SERVER__TOOL")
        if not 1 <= self.tier <= highest:
            raise RuleFault("tier", f"there is no tier {self.tier}: tiers go from 1 to {highest}")
        if self.action and self.action not in document.actions:
            raise RuleFault("action", f"the action {self.action!r} has no limit: add [actions.{self.action}]")
        if bool(self.action) != bool(self.service):
            raise RuleFault("action", "an action and the key of the input that names its service belong together")


class Document(Entry, frozen=True, kw_only=True):
    """A whole file."""

    extends: str | tuple[str, ...] | None = None
    tiers: dict[str, TierEntry] = {}
    actions: dict[str, ActionEntry] = {}
    services: dict[str, tuple[str, ...]] = {}
    never: NeverEntry = NeverEntry()
    commands: tuple[CommandRule, ...] = ()
    groups: tuple[CommandGroup, ...] = ()
    wrappers: dict[str, int] = {}
    aliases: dict[str, str] = {}
    tools: tuple[ToolEntry, ...] = ()
    without: tuple[str, ...] = ()

    def wrapper_fault(self, name: str, lowest: int) -> str | None:
        """Return why a wrapper's tier is wrong, or None."""
        known = {each for wrapper in WRAPPERS for each in wrapper.name.split("|")}
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            return f"{name!r} is no command that is known to run others: {hint}"
        if not 1 <= lowest <= max(map(int, self.tiers), default=0):
            return f"{name!r}: there is no tier {lowest}; to forbid it everywhere, add it to 'without'"
        return None


def _keys(kind: type[Entry]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind))


TABLES: Final[dict[tuple[str | int, ...], frozenset[str]]] = {
    (): _keys(Document),
    ("tiers", "*"): _keys(TierEntry),
    ("tiers", "*", "ask"): _keys(AskEntry),
    ("actions", "*"): _keys(ActionEntry),
    ("never",): _keys(NeverEntry),
    ("tools", "*"): _keys(ToolEntry),
    ("commands", "*"): frozenset(field.name for field in dataclasses.fields(CommandRule)),
    ("groups", "*"): frozenset(field.name for field in dataclasses.fields(CommandGroup)),
}
"""The keys of each table; ``*`` stands for what the operator names and for positions."""
