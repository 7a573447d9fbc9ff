"""The tables of a policy file, their keys, and what is wrong with their values.

Faults in rules for commands are found when a policy file is read, not when a command comes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from claudeops.domain.estate.strangers import ESTATE
from claudeops.policy.arguments import KINDS, SERVICE_KINDS
from claudeops.policy.matching import ARGUMENT_CHECKS
from claudeops.policy.never import NEVER_TOOLS, refuse_line
from claudeops.policy.programs import kubectl
from claudeops.policy.programs.network import PROGRAMS
from claudeops.policy.reach import EntryFault, parse_entry
from claudeops.policy.rule_book import WRAPPERS
from claudeops.policy.rules import READINGS, CommandGroup, CommandRule, option_table
from claudeops.text import regex
from claudeops.text.toml_file import KeyFault, nearest

BUILT_IN_TOOLS: Final = (
    *("Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Grep", "Glob", "LS", "WebFetch", "WebSearch"),
    *("TodoWrite", "Task", "Agent"),
)
"""Tools of the CLI that the gate can judge."""

LOOKS: Final = ("", "git", "network", "processes", "docker", "kubectl")
FILTERS: Final = ("", "docker", "kubernetes")
"""What a look needs that no session has; described in docs/reference/policy.md."""

PLACES: Final = ("{workdir}", "{tmpdir}", "{repos}", "{handoff}")
"""Placeholders for a session's own places in paths."""

_DURATION: Final = regex.Pattern(r"(\d+)([smhd])")
_UNIT: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # seconds


MOST_PEOPLE: Final = 9
"""How many people may have to say yes; more would never come together while a call waits."""


class PolicyEntry(msgspec.Struct, kw_only=True, frozen=True):
    """A table of the file."""


class AskEntry(PolicyEntry, frozen=True, kw_only=True):
    """``[tiers.N.ask]``."""

    commands: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    approvals: int | msgspec.UnsetType = msgspec.UNSET


class TierEntry(PolicyEntry, frozen=True, kw_only=True):
    """``[tiers.N]``."""

    tools: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ("*",)
    urls: tuple[str, ...] = ("*",)
    services: tuple[str, ...] = ("*",)
    read: tuple[str, ...] = ("/",)
    write: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    not_understood: str = "deny"
    not_in_estate: str = "deny"
    ask: AskEntry = AskEntry()

    def fault(self, document: PolicyDocument) -> tuple[str, str] | None:
        """Return the key that is wrong and why, or None."""
        for tool in self.tools:
            if tool not in BUILT_IN_TOOLS:
                near = difflib.get_close_matches(tool, BUILT_IN_TOOLS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "tools of MCP servers belong under [[tools]]"
                return "tools", f"{tool!r} is not a tool that can be judged: {hint}"
        if (reason := people_fault(self.ask.approvals)) is not None:
            return "ask.approvals", reason
        for kind in (*self.actions, *self.ask.actions):
            if kind not in document.actions:
                return "actions", f"the action {kind!r} has no limit: add [actions.{kind}], or correct the name"
        for key in ("read", "write"):
            for path in getattr(self, key):
                if not path.startswith(("/", *PLACES)) or ".." in path.split("/"):
                    return key, f"{path!r} is not an absolute directory: begin with / or one of {', '.join(PLACES)}"
        return self._fault_of_reach() or self._fault_of_network()

    def _fault_of_reach(self) -> tuple[str, str] | None:
        for key in ("hosts", "urls"):
            for pattern in getattr(self, key):
                if pattern.lstrip("!").startswith("{") and pattern.lstrip("!") != ESTATE:
                    return key, f"{pattern!r} stands for nothing: write {ESTATE}, a pattern or a network"
        for key in ("not_understood", "not_in_estate"):
            if getattr(self, key) not in {"deny", "ask"}:
                return key, f"{getattr(self, key)!r} is not known: write 'deny' or 'ask'"
        return None

    def _fault_of_network(self) -> tuple[str, str] | None:
        for entry in self.network:
            try:
                parse_entry(entry)
            except EntryFault as fault:
                return "network", str(fault)
        return None


class DeclaredAction(PolicyEntry, frozen=True, kw_only=True):
    """``[actions.KIND]``."""

    limit: int | msgspec.UnsetType = msgspec.UNSET  # not in what is extended either: a fault
    window: str = ""
    verb: str = ""
    approvals: int | msgspec.UnsetType = msgspec.UNSET

    def fault(self) -> str | None:
        """Return what is wrong, or None."""
        if self.limit is msgspec.UNSET:
            return "it has no limit: add limit and window, such as limit = 2 and window = '4h'"
        if self.limit < 1:
            return f"a limit of {self.limit} would never allow it: leave the action out of the tiers instead"
        if _DURATION.fullmatch(self.window) is None:
            return f"{self.window!r} is not a duration: write a number with s, m, h or d, such as '4h'"
        return people_fault(self.approvals)

    @property
    def window_seconds(self) -> float:
        """The length of the sliding window."""
        found = _DURATION.fullmatch(self.window)
        return float(found[1]) * _UNIT[found[2]] if found else 0.0


class NeverEntry(PolicyEntry, frozen=True, kw_only=True):
    """``[never]``."""

    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def fault(self) -> str | None:
        """Return what is wrong, or None."""
        odd = next((pattern for pattern in self.hosts if pattern.startswith("{")), None)
        return odd and f"{odd!r} stands for nothing here: name the hosts that no session may reach"


class ToolEntry(PolicyEntry, frozen=True, kw_only=True):
    """``[[tools]]``: a tool of an MCP server."""

    name: str
    tier: int = 1
    action: str = ""
    service: str = ""
    changes: bool = True
    approvals: int | msgspec.UnsetType = msgspec.UNSET

    def check(self, document: PolicyDocument, *, highest: int) -> None:
        """Raise `KeyFault` for a fault."""
        if not regex.fullmatch(r"mcp__[\w*-]+__[\w*-]+", self.name) or self.name in NEVER_TOOLS:
            raise KeyFault("name", f"{self.name!r} is not a tool of a server: write mcp__SERVER__TOOL")
        if not 1 <= self.tier <= highest:
            raise KeyFault("tier", f"there is no tier {self.tier}: tiers go from 1 to {highest}")
        if self.action and self.action not in document.actions:
            raise KeyFault("action", f"the action {self.action!r} has no limit: add [actions.{self.action}]")
        if bool(self.action) != bool(self.service):
            raise KeyFault("action", "an action and the key of the input that names its service belong together")
        _check_people(self.approvals)


class PolicyDocument(PolicyEntry, frozen=True, kw_only=True):
    """A whole file."""

    extends: str | tuple[str, ...] | None = None
    tiers: dict[str, TierEntry] = {}
    actions: dict[str, DeclaredAction] = {}
    services: dict[str, tuple[str, ...]] = {}
    never: NeverEntry = NeverEntry()
    commands: tuple[CommandRule, ...] = ()
    groups: tuple[CommandGroup, ...] = ()
    wrappers: dict[str, int] = {}
    aliases: dict[str, str] = {}
    tools: tuple[ToolEntry, ...] = ()
    without: tuple[str, ...] = ()
    maintenance: str = "hold"

    def wrapper_fault(self, name: str, lowest: int) -> str | None:
        """Return why a wrapper's tier is wrong, or None."""
        known = {each for wrapper in WRAPPERS for each in wrapper.name.split("|")}
        if name not in known:
            return f"{name!r} is not a command that is known to run others: {nearest(name, sorted(known))}"
        if not 1 <= lowest <= max(map(int, self.tiers), default=0):
            return f"{name!r}: there is no tier {lowest}; to forbid it everywhere, add it to 'without'"
        return None


def _keys(kind: type[PolicyEntry]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind))


TABLES: Final[dict[tuple[str | int, ...], frozenset[str]]] = {
    (): _keys(PolicyDocument),
    ("tiers", "*"): _keys(TierEntry),
    ("tiers", "*", "ask"): _keys(AskEntry),
    ("actions", "*"): _keys(DeclaredAction),
    ("never",): _keys(NeverEntry),
    ("tools", "*"): _keys(ToolEntry),
    ("commands", "*"): frozenset(CommandRule.__struct_fields__),
    ("groups", "*"): frozenset(CommandGroup.__struct_fields__),
}
"""The keys of each table; ``*`` stands for positions, and for names that the operator chooses."""


# --- rules for commands ---------------------------------------------------------------------------------


def command_fault(rule: CommandRule, *, kinds: Collection[str], highest: int) -> None:
    """Raise `KeyFault` unless the rule can be applied; ``kinds`` are the actions that have a limit."""
    for name in rule.name.split("|"):
        _check_name(name)
    if not 1 <= rule.tier <= highest:
        raise KeyFault("tier", f"there is no tier {rule.tier}: tiers go from 1 to {highest}")
    if rule.reading not in READINGS:
        raise KeyFault("reading", f"{rule.reading!r} is not known: known are {', '.join(READINGS)}")
    if rule.reading == "words" and rule.options:
        raise KeyFault("options", "with reading = 'words' every word is an argument: leave the options out")
    if rule.look not in LOOKS:
        raise KeyFault("look", f"{rule.look!r} is not known: known are {', '.join(filter(None, LOOKS))}")
    if rule.look == "network" and not PROGRAMS.issuperset(name.split(" ")[0] for name in rule.name.split("|")):
        raise KeyFault("look", f"the daemon runs no {rule.name} by it, only {', '.join(sorted(PROGRAMS))}")
    if rule.look == "docker" and any(name.split(" ")[0] != "docker" for name in rule.name.split("|")):
        raise KeyFault("look", f"by it the daemon runs docker, and no {rule.name}")
    if rule.look == "kubectl" and not kubectl.RUN.issuperset(rule.name.split("|")):
        raise KeyFault("look", f"the daemon runs no {rule.name} by it, only {', '.join(sorted(kubectl.RUN))}")
    if rule.filter not in FILTERS:
        raise KeyFault("filter", f"{rule.filter!r} is not known: known are {', '.join(filter(None, FILTERS))}")
    _check_options("options", rule.options)
    arguments = [kind[:-1] if kind[-1] in "?*+" else kind for kind in rule.arguments.split()]
    _check_kinds("arguments", arguments)
    _check_words(rule)
    _check_people(rule.approvals)
    _check_action(rule, arguments, kinds)


def people_fault(count: int | msgspec.UnsetType) -> str | None:
    """Return why so many people cannot have to say yes, or None."""
    if count is msgspec.UNSET or 1 <= count <= MOST_PEOPLE:
        return None
    return f"{count} people cannot be asked: write 1 to {MOST_PEOPLE}, or leave 'approvals' out"


def _check_people(count: int | msgspec.UnsetType) -> None:
    if (reason := people_fault(count)) is not None:
        raise KeyFault("approvals", reason)


def group_fault(group: CommandGroup) -> None:
    """Raise `KeyFault` unless the group can be applied."""
    _check_options("options", group.options)


def _check_name(name: str) -> None:
    if not name.strip() or regex.search(r"[^\w .:\[+-]", name) or "  " in name or name != name.strip():
        raise KeyFault("name", f"{name!r} is not a name of a command: write it with its subcommands, 'docker ps'")
    # ``kill -0`` only asks; no argument makes any of the others harmless.
    if (reason := refuse_line(f"{name} x")) is not None and refuse_line(f"{name} -0 1") is not None:
        raise KeyFault("name", f"{name!r} can be allowed at no tier: {reason}")


def _check_words(rule: CommandRule) -> None:
    given = option_table(rule.options).keys()
    for key, named in (("required", rule.required.replace("|", " ")), ("first", rule.first), ("deep", rule.deep)):
        for option in named.split():
            if option not in given and option != "*":
                raise KeyFault(key, f"{option} is not among the options: add it there")
    if rule.check and rule.check not in ARGUMENT_CHECKS:
        raise KeyFault("check", f"{rule.check!r} is not known: known are {', '.join(ARGUMENT_CHECKS)}")


def _check_action(rule: CommandRule, arguments: list[str], kinds: Collection[str]) -> None:
    if not rule.action:
        return
    if rule.action not in kinds:
        raise KeyFault("action", f"the action {rule.action!r} has no limit: add [actions.{rule.action}]")
    values = [option.kind for option in option_table(rule.options).values()]
    if not rule.service and not any(kind in SERVICE_KINDS for kind in (*arguments, *values)):
        raise KeyFault(
            "action",
            "no argument names the service: use one of the kinds "
            f"{', '.join(sorted(SERVICE_KINDS))}, or say which one it is with 'service'",
        )


def _check_options(key: str, options: str) -> None:
    for token in options.split():
        if not regex.match(r"-[^=]*(?:=|$)|[!(),](?:=|$)|#$", token.partition("|")[0]) or token.startswith("|"):
            raise KeyFault(key, f"{token!r} is not an option: write -x, --long, -x|--long or --long=KIND")
        if token.startswith("-NUM"):
            raise KeyFault(key, f"{token!r}: write the option that a number stands for first: -n|-NUM=int")
    _check_kinds(key, [option.kind for option in option_table(options).values() if option.kind])


def _check_kinds(key: str, kinds: Iterable[str]) -> None:
    for kind in kinds:
        name, _, parameter = kind.partition(":")
        if name == "path":
            raise KeyFault(
                key, "the kind 'path' is now 'file' ('claudeops policy migrate FILE' writes the whole file so)"
            )
        if name not in KINDS:
            raise KeyFault(key, f"{name!r} is not a kind of value: {nearest(name, sorted(KINDS))}")
        if name == "re":
            _check_expression(key, parameter)
        if name == "int" and not regex.fullmatch(r"(?:\d+-)?\d+|", parameter):
            raise KeyFault(key, f"{kind!r}: write int, int:MOST or int:LEAST-MOST")


def _check_expression(key: str, pattern: str) -> None:
    try:
        regex.check(pattern)
    except regex.ExpressionError as error:
        hint = "; it has no look-around" if "(?" in str(error) else ""
        raise KeyFault(key, f"{pattern!r} is not a regular expression of google-re2: {error}{hint}") from None
