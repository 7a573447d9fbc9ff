"""A policy as frozen values, once its file has been read, and the operator's tool patterns.

The patterns are written as the CLI writes them: ``Read``, ``Bash(docker ps:*)``, ``Write(/srv/notes/**)``. They only
ever narrow what the policy allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.actions import Action, ActionLimit
from claudeops.domain.estate.service_names import counted_by
from claudeops.domain.network.destination import Destination
from claudeops.policy.identity import plain_name
from claudeops.policy.reach import matches
from claudeops.policy.rule_book import RuleBook
from claudeops.text import glob, regex

HANDOFF: Final = "{handoff}"
"""Among the writable places: the file by which a session with an older prompt asks for the next tier."""

_SUBAGENTS: Final = ("Task", "Agent")
_LISTED: Final = regex.Pattern(r"[^\s,(]+(?:\([^)]*\))?")
_PATTERN: Final = regex.Pattern(r"([A-Za-z_][\w-]*)(?:\((.*)\))?")


class ApprovalRules(msgspec.Struct, frozen=True, kw_only=True):
    """What needs a person's yes first."""

    commands: tuple[str, ...] = ()  # beginnings of commands: ``docker compose up``
    actions: tuple[str, ...] = ()  # kinds
    services: tuple[str, ...] = ()  # patterns
    tools: tuple[str, ...] = ()  # names, or patterns for those of MCP servers
    people: int = 1  # how many must say yes to whatever this tier asks about

    def wanted_for(self, lines: list[str], actions: list[Action], names: Mapping[str, Collection[str]]) -> str | None:
        """Return which of the commands and actions needs a yes, or None.

        ``names``: all names of the actions' services, by the name that they are counted by.
        """
        for line in lines:
            if (command := self.command_of(line)) is not None:
                return command
        for action in actions:
            called = (action.service, plain_name(action.service), *names.get(action.service, ()))
            if action.kind in self.actions or any(matches(name, each) for each in self.services for name in called):
                return f"{action.kind} of {action.service}"
        return None

    def command_of(self, line: str) -> str | None:
        """Return which of the commands a line begins with, or None."""
        return next((each for each in self.commands if line == each or line.startswith(f"{each} ")), None)

    def wanted_for_tool(self, name: str) -> str | None:
        """Return the tool when its every call needs a yes, or None."""
        return name if any(glob.matches(name, pattern) for pattern in self.tools) else None


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an MCP server that a tier may use."""

    name: str  # ``mcp__grafana__query``; ``*`` stands for any text
    tier: int = 1  # the lowest tier that may use it
    action: str = ""  # the kind of action that a call of it is
    service: str = ""  # the key of its input that names the service of the action
    changes: bool = True  # False: it only looks, so a dry run lets it pass
    people: int = 0  # how many must say yes to each call; 0: nobody is asked


class TierRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy says about one tier."""

    tools: tuple[str, ...]  # built-in tools that exist at all, besides the one that delivers the report
    action_kinds: tuple[str, ...]
    hosts: tuple[str, ...]
    urls: tuple[str, ...]
    services: tuple[str, ...]
    read: tuple[str, ...]  # directories; ``{workdir}``, ``{tmpdir}``, ``{repos}`` are the session's
    write: tuple[str, ...]  # likewise, and ``{handoff}``
    network: tuple[Destination, ...]  # hosts and ports that are on the list whatever the estate names
    asks_when_unclear: bool  # a call that cannot be understood waits for a person instead of being denied
    asks_about_strangers: bool  # so does a call to a host or compose directory that the estate does not name
    approvals: ApprovalRules

    @property
    def read_only(self) -> bool:
        """Whether it may write no file but the handoff."""
        return set(self.write) <= {HANDOFF}


class ActionRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of action."""

    verb: str  # for sentences: ``restart``
    limit: ActionLimit
    people: int = 0  # how many must say yes to each; 0: only whom a tier asks


class Never(msgspec.Struct, frozen=True, kw_only=True):
    """What the file forbids at every tier, in addition to what is always forbidden."""

    paths: tuple[str, ...] = ()  # files and directories, with everything below
    commands: tuple[str, ...] = ()  # globs over whole command lines
    services: tuple[str, ...] = ()  # patterns
    hosts: tuple[str, ...] = ()  # patterns


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A whole policy."""

    tiers: Mapping[int, TierRules]
    actions: Mapping[str, ActionRule]  # by kind
    never: Never
    tools: tuple[NamedTool, ...]
    book: RuleBook = field(repr=False)
    other_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # of a service → its name
    holds_in_maintenance: bool = True  # actions on a service wait for the end of its maintenance window
    most_people: int = 1  # that any action or command needs: what cannot be understood may be that one

    def counted_name(self, name: str) -> str:
        """Return the name that a service is counted by: the main name if this is another name of it, or its own."""
        return counted_by(self.other_names)(name)

    @property
    def limits(self) -> Mapping[str, ActionLimit]:
        """By kind of action, for each service, in a sliding window."""
        return {kind: rule.limit for kind, rule in self.actions.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class TierPolicy:
    """What one tier may do, as narrowed by the operator's variables."""

    number: int
    level: int  # the tier of the policy whose rules apply
    policy: Policy = field(repr=False)
    rules: TierRules
    tools: tuple[str, ...]  # built-in ones, narrowed
    named_only: frozenset[str] | None = None  # the only tools of MCP servers; None = not narrowed
    named_out: frozenset[str] = frozenset()  # tools that the operator removed
    allowed: tuple[tuple[ToolPattern, ...], ...] = ()  # the operator's conditions: one of each group must match
    disallowed: tuple[ToolPattern, ...] = ()  # none of these may match

    def may_use_named(self, name: str) -> bool:
        """Whether the operator's patterns leave a tool of an MCP server to the policy."""
        return name not in self.named_out and (self.named_only is None or name in self.named_only)

    @property
    def action_kinds(self) -> tuple[str, ...]:
        """The kinds of actions that it may take."""
        return self.rules.action_kinds

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing: no action, and no file but the handoff."""
        return self.rules.read_only and not self.rules.action_kinds


class ToolPattern(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern; ``body`` is None when it names the whole tool."""

    tool: str
    body: str | None = None

    def matches(self, subject: str) -> bool:
        """Whether it matches a command line (of Bash) or a path (of the file tools)."""
        if self.body is None or self.body in {"*", ":*"}:
            return True
        if self.body.endswith(":*"):
            prefix = " ".join(self.body[:-2].split())
            return subject == prefix or subject.startswith(f"{prefix} ")
        body = "/" + self.body.lstrip("/") if self.body.startswith("//") else self.body
        return subject == body or glob.matches(subject, regex.sub(r"\*+", "*", body).replace("[", "[[]"))


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a list of patterns at commas and blanks outside parentheses: ``Read, Bash(docker ps:*)``."""
    return tuple(part[0] for part in _LISTED.finditer(text))


def parse_patterns(patterns: Sequence[str]) -> tuple[ToolPattern, ...]:
    """Parse patterns. An unreadable one becomes the name of a tool that does not exist: it allows nothing."""
    found = [_PATTERN.fullmatch(pattern.strip()) for pattern in patterns if pattern.strip()]
    return tuple(
        ToolPattern(tool=tool, body=match[2] if match else None)
        for match in found
        for tool in with_both_names([match[1] if match else ""])
    )


def with_both_names(tools: Sequence[str]) -> tuple[str, ...]:
    """Return tools with both names of the one that starts subagents: CLI 2.1 lists ``Task`` and calls ``Agent``."""
    other = [name for name in _SUBAGENTS if name not in tools and any(tool in _SUBAGENTS for tool in tools)]
    return (*tools, *other)
