"""The verdict on one tool call, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.looks import taken_together
from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, ToolCall, Verdict, VerdictKind
from claudeops.domain.policy.commands import CommandJudge, Finding
from claudeops.domain.policy.never import refuse_text
from claudeops.domain.policy.paths import Place
from claudeops.domain.policy.reach import Reach
from claudeops.domain.policy.tools import MCP, judge_named, judge_tool
from claudeops.domain.policy.values import HANDOFF
from claudeops.domain.shell import parse
from claudeops.domain.shell.render import RunText, render
from claudeops.domain.shell.values import UnclearError, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.domain.policy.scope import Scope
    from claudeops.domain.policy.unfold import Runs
    from claudeops.domain.policy.values import TierPolicy

_BASH_INPUT: Final = frozenset({"command", "description", "timeout"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A verdict with what it was taken from."""

    verdict: Verdict
    parts: tuple[str, ...] = ()  # the commands that a Bash call was taken apart into, wrapped ones too
    writes: tuple[str, ...] = ()  # what it would change beside its actions
    runs: str = ""  # the command text that runs instead of the one that was given; "" = it does not run


def judge(call: ToolCall, *, tier: TierPolicy, scope: Scope) -> Verdict:
    """Return whether a call may run, why, and the actions that it would be; never raises."""
    return explain(call, tier=tier, scope=scope).verdict


def explain(call: ToolCall, *, tier: TierPolicy, scope: Scope) -> Judgement:
    """Return the same verdict as `judge`, with the parts of the call."""
    name = call.tool_name
    if name == STRUCTURED_OUTPUT_TOOL:
        return Judgement(verdict=Verdict(kind=VerdictKind.ALLOW, reason="delivers the report"))
    place = _place(tier, scope)
    if name.startswith(MCP) and tier.may_use_named(name):
        finding = judge_named(call, tier, place)
    elif name not in tier.tools:
        usable = " or ".join(tier.tools) or "none"
        finding = Finding(denial=f"the tool {name} is not allowed at tier {tier.number}: use {usable}")
    elif name == "Bash":
        finding = _judge_bash(call, tier, place)
    else:
        finding = judge_tool(call, place)
    if name != "Bash" and not finding.denial:
        subject = finding.lines[0] if finding.lines else name
        finding.denial = _refuse_by_patterns(tier, name, subject, finding.lines)
    parts = tuple(dict.fromkeys(line for line in finding.lines if line)) if name == "Bash" else ()
    verdict = _verdict(finding, call, tier, scope)
    runs = finding.runs.text if isinstance(finding.runs, RunText) and not finding.doubt else ""
    if runs and verdict.kind is not VerdictKind.DENY:
        verdict = replace(verdict, ran={**call.input, "command": runs})
    return Judgement(verdict=verdict, parts=parts, writes=tuple(finding.writes), runs=runs)


def _place(tier: TierPolicy, scope: Scope) -> Place:
    rules = tier.rules
    own = {"{workdir}": scope.workdir, "{tmpdir}": scope.tmpdir, "{repos}": scope.repos_dir}

    def placed(paths: Sequence[str]) -> tuple[str, ...]:
        found = []
        for path in paths:
            name, slash, rest = path.partition("/")
            found.append(f"{own.get(name, name)}{slash}{rest}")
        return tuple(found)

    return Place(
        scope=scope,
        never=tier.policy.never.paths,
        reach=Reach(
            hosts=rules.hosts,
            urls=rules.urls,
            services=rules.services,
            never_hosts=tier.policy.never.hosts,
            read=placed(rules.read),
            write=placed([path for path in rules.write if path != HANDOFF]),
            files=(scope.handoff,) if HANDOFF in rules.write and scope.handoff else (),
        ),
    )


def _verdict(finding: Finding, call: ToolCall, tier: TierPolicy, scope: Scope) -> Verdict:
    if finding.denial:
        return _deny(finding.denial)
    if finding.doubt:
        return _unclear(finding, call, tier, scope)
    verbs = tier.policy.actions
    effects = [f"{verbs[action.kind].verb} {action.service}" for action in finding.actions]
    effects += finding.writes
    if effects and scope.dry_run:
        return _deny(f"dry run: would {', '.join(effects)}")
    approvals = tier.rules.approvals
    wanted = approvals.wanted_for(finding.lines, finding.actions) or approvals.wanted_for_tool(call.tool_name)
    actions = tuple(finding.actions)
    # What acts is no look, whatever else stands in the same call.
    look = None if actions else taken_together(finding.looks)
    if wanted is not None:
        return Verdict(kind=VerdictKind.ASK, reason=f"{wanted} needs a person's yes", actions=actions, look=look)
    reason = ", ".join(effects) or "only looks"
    return Verdict(kind=VerdictKind.ALLOW, reason=reason, actions=actions, look=look)


def _unclear(finding: Finding, call: ToolCall, tier: TierPolicy, scope: Scope) -> Verdict:
    """Ask a person about what cannot be understood, where the tier may; never about what names the forbidden."""
    text = str(call.input.get("command", ""))
    for own in (scope.workdir, scope.tmpdir):
        text = text.replace(own, "")
    never = refuse_text(text, scope.forbidden_paths)
    if never is not None:
        return _deny(never)
    if scope.dry_run:
        return _deny(f"dry run: would run what cannot be understood: {finding.doubt}")
    if not tier.rules.asks_when_unclear:
        return _deny(finding.doubt)
    return Verdict(kind=VerdictKind.ASK, reason=finding.doubt, actions=tuple(dict.fromkeys(finding.actions)))


def _deny(reason: str) -> Verdict:
    return Verdict(kind=VerdictKind.DENY, reason=reason)


def _judge_bash(call: ToolCall, tier: TierPolicy, place: Place) -> Finding:
    command = call.input.get("command")
    if not isinstance(command, str) or not command.strip():
        return Finding(denial="Bash needs a command")
    extra = sorted(name for name, value in call.input.items() if name not in _BASH_INPUT and value not in (None, False))
    if extra:
        return Finding(denial=f"Bash with {extra[0]} is not allowed: run the command in the foreground, without it")
    scope = place.scope
    known = {"CLAUDEOPS_STATE_DIR": Word(text=scope.handoff.rpartition("/")[0])} if place.reach.files else {}
    parsed = parse(command, known=known)
    finding = Finding(denial=parsed.refusal or "", doubt=parsed.problem or "")
    commands = CommandJudge(tier)
    runs: dict[int, Runs] = {}
    for part in parsed.commands:
        judged = commands.judge(part, place)
        if part.argv and not judged.denial:
            judged.denial = _refuse_by_patterns(tier, "Bash", part.line, judged.lines)
        finding.add(judged)
        if judged.runs is not None:
            runs[part.number] = judged.runs
    if not finding.denial and not finding.doubt:
        try:
            finding.runs = RunText(text=render(parsed.block, runs, bash=True))
        except UnclearError as error:
            finding.doubt = str(error)
    return finding


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
