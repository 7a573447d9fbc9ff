"""Judges a tool call by the rules of its tier: allow or deny, with the reason and the actions that it would be.

Pure: a call, a tier and a scope in, a verdict out. What no rule allows is denied. The verdict of a Bash call is the
strictest of its parts. Whether an action is within its limits is decided where the ledger is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, ActionLimit, ToolCall, Verdict, VerdictKind
from claudeops.domain.policy import paths
from claudeops.domain.policy.commands import CommandJudge, Finding
from claudeops.domain.policy.rule_book import RuleBook, default_book
from claudeops.domain.policy.scope import Scope
from claudeops.domain.policy.tool_patterns import ToolPattern, parse_patterns, split_patterns
from claudeops.domain.shell import parse
from claudeops.domain.shell.values import Word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DEFAULT_LIMITS", "Scope", "TierPolicy", "judge", "narrow", "split_patterns", "tier_policy"]

RESTART: Final = "restart"
REDEPLOYMENT: Final = "redeployment"
DEFAULT_LIMITS: Final[Mapping[str, ActionLimit]] = MappingProxyType(
    {
        RESTART: ActionLimit(count=2, window_seconds=4 * 3600.0),
        REDEPLOYMENT: ActionLimit(count=1, window_seconds=24 * 3600.0),
    }
)
"""By kind of action, for each service, in a sliding window."""

_LOOKING: Final = ("Bash", "Read")
_WRITING: Final = ("Bash", "Read", "Write", "Edit")
_TOOLS: Final = {1: _LOOKING, 2: _WRITING, 3: _WRITING}
_ACTIONS: Final[Mapping[int, tuple[str, ...]]] = {1: (), 2: (RESTART,), 3: (RESTART, REDEPLOYMENT)}
_HIGHEST_RULES: Final = 3  # the rules know three levels: observe, investigate, remediate

_VERBS: Final = {RESTART: "restart", REDEPLOYMENT: "redeploy"}
_BASH_INPUT: Final = frozenset({"command", "description", "timeout"})
_PATH_INPUT: Final = {"Read": "file_path", "Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
_WRITERS: Final = frozenset({"Write", "Edit", "NotebookEdit"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TierPolicy:
    """What one tier may do."""

    number: int
    level: int  # which rules it goes by: 1 observe, 2 investigate, 3 remediate
    tools: tuple[str, ...]  # the tools that exist at all, beside the one that delivers the report
    action_kinds: tuple[str, ...]  # kinds of actions that some rule of this tier grants
    rules: RuleBook = field(repr=False)
    allowed: tuple[tuple[ToolPattern, ...], ...] = ()  # the operator's conditions: of each group one must match
    disallowed: tuple[ToolPattern, ...] = ()  # none of these may match

    @property
    def may_write(self) -> bool:
        """Whether the session may keep files in its own directories."""
        return self.level > 1


def tier_policy(number: int, *, highest: int = _HIGHEST_RULES) -> TierPolicy:
    """Return the rules of a tier. One above ``highest`` is held to what ``highest`` may do."""
    if number < 1 or highest < 1:
        raise ValueError(f"tiers count from 1: {number} of {highest}")
    level = min(number, highest, _HIGHEST_RULES)
    return TierPolicy(
        number=number, level=level, tools=_TOOLS[level], action_kinds=_ACTIONS[level], rules=default_book()
    )


def narrow(tier: TierPolicy, allowed: Sequence[str] = (), disallowed: Sequence[str] = ()) -> TierPolicy:
    """Return the tier with the operator's patterns laid over it; nothing that was denied becomes allowed.

    ``allowed``: tools that no pattern names go; patterns with a body are conditions, one of which each call must
    meet. ``disallowed``: tools that a pattern names as a whole go; a call that meets a pattern with a body is denied.
    No pattern at all changes nothing. Several calls add up.
    """
    wanted, unwanted = parse_patterns(allowed), parse_patterns(disallowed)
    tools = tier.tools
    if wanted:
        tools = tuple(tool for tool in tools if any(pattern.tool == tool for pattern in wanted))
    gone = {pattern.tool for pattern in unwanted if pattern.body is None}
    whole = {pattern.tool for pattern in wanted if pattern.body is None}
    conditions = tuple(pattern for pattern in wanted if pattern.tool not in whole)
    return replace(
        tier,
        tools=tuple(tool for tool in tools if tool not in gone),
        allowed=(*tier.allowed, conditions) if conditions else tier.allowed,
        disallowed=(*tier.disallowed, *(pattern for pattern in unwanted if pattern.body is not None)),
    )


def judge(call: ToolCall, *, tier: TierPolicy, scope: Scope) -> Verdict:
    """Return whether a call may run, why, and the actions that it would be. Never ``ask``; never raises."""
    name = call.tool_name
    if name == STRUCTURED_OUTPUT_TOOL:
        return Verdict(kind=VerdictKind.ALLOW, reason="delivers the report")
    if name.startswith("mcp__"):
        return _deny(f"{name}: tools of MCP servers are not allowed")
    if name not in tier.tools:
        return _deny(f"the tool {name} is not allowed at tier {tier.number}: use {' or '.join(tier.tools) or 'none'}")
    finding = _judge_bash(call, tier, scope) if name == "Bash" else _judge_path(call, tier, scope)
    if finding.denial:
        return _deny(finding.denial)
    return _verdict(finding, scope)


def _deny(reason: str) -> Verdict:
    return Verdict(kind=VerdictKind.DENY, reason=reason)


def _verdict(finding: Finding, scope: Scope) -> Verdict:
    effects = [f"{_VERBS.get(action.kind, action.kind)} {action.service}" for action in finding.actions]
    effects += finding.writes
    if effects and scope.dry_run:
        return _deny(f"dry run: would {', '.join(effects)}")
    reason = ", ".join(effects) if effects else "only looks"
    return Verdict(kind=VerdictKind.ALLOW, reason=reason, actions=tuple(finding.actions))


def _judge_bash(call: ToolCall, tier: TierPolicy, scope: Scope) -> Finding:
    command = call.input.get("command")
    if not isinstance(command, str) or not command.strip():
        return Finding(denial="Bash needs a command")
    extra = sorted(name for name, value in call.input.items() if name not in _BASH_INPUT and value not in (None, False))
    if extra:
        return Finding(denial=f"Bash with {extra[0]} is not allowed: run the command in the foreground, without it")
    parsed = parse(command)
    if parsed.problem:
        return Finding(denial=parsed.problem)
    finding = Finding()
    place = paths.Place(scope=scope)
    rules = CommandJudge(book=tier.rules, tier=tier.level, may_write=tier.may_write)
    for part in parsed.commands:
        judged = rules.judge(part, place)
        if part.argv and not judged.denial:
            judged.denial = _refuse_by_patterns(tier, "Bash", part.line, judged.lines)
        finding.add(judged)
    return finding


def _judge_path(call: ToolCall, tier: TierPolicy, scope: Scope) -> Finding:
    path = call.input.get(_PATH_INPUT.get(call.tool_name, ""))
    if not isinstance(path, str):
        return Finding(denial=f"{call.tool_name} needs a path")
    if not path.startswith("/"):
        return Finding(denial=f"{path}: write the absolute path")
    word, place = Word(text=path), paths.Place(scope=scope)
    if call.tool_name in _WRITERS:
        refused, writes = paths.own(word, place), [f"write {path}"]
    else:
        refused, writes = paths.readable(word, place), []
    return Finding(denial=refused or _refuse_by_patterns(tier, call.tool_name, path, [path]), writes=writes)


def _refuse_by_patterns(tier: TierPolicy, tool: str, subject: str, lines: Sequence[str]) -> str:
    """Return why the operator's patterns refuse a call, or ""."""
    for group in tier.allowed:
        conditions = [pattern for pattern in group if pattern.tool == tool]
        if conditions and not any(pattern.matches(subject) for pattern in conditions):
            return f"{subject[:80]}: the operator allows only {', '.join(str(p.body) for p in conditions)}"
    for pattern in tier.disallowed:
        if pattern.tool == tool and any(pattern.matches(line) for line in lines):
            return f"{subject[:80]}: the operator does not allow {pattern.body}"
    return ""
