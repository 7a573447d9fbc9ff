"""The verdict on one tool call, and how it came about.

Judges Bash calls by their commands, and all other tools here: files, searches, web pages, and those of MCP servers.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate import forbidden
from claudeops.domain.estate.service_names import ServiceNames
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.looks import combined
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.policy import paths, reach
from claudeops.policy.commands import CommandFinding, CommandJudge, refuse_action
from claudeops.policy.identity import plain_name
from claudeops.policy.look import look_of_named, look_of_tool
from claudeops.policy.never import refuse_service, refuse_text
from claudeops.policy.paths import PathContext
from claudeops.policy.policy import HANDOFF, NamedTool, TierPolicy
from claudeops.policy.reach import JudgeScope, TierReach
from claudeops.policy.shell import parse
from claudeops.policy.shell.language import SimpleCommand, UnclearError
from claudeops.policy.shell.render import render
from claudeops.structs import replace
from claudeops.text import glob, regex, unique

_MOST_STRANGERS: Final = 5  # in a question
_BASH_INPUT: Final = frozenset({"command", "description", "timeout"})


class PolicyJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and what it is based on."""

    verdict: Verdict
    parts: tuple[str, ...] = ()  # the commands in a Bash call, wrapped ones too
    writes: tuple[str, ...] = ()  # what it would change in addition to its actions
    runs: str = ""  # the command text that runs instead of the given one; "" = it does not run


class TierVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate would say of a call at a tier."""

    tier: int
    verdict: VerdictKind
    reason: str
    parts: tuple[str, ...]  # the commands in a Bash call, wrapped ones too
    actions: tuple[Action, ...]
    writes: tuple[str, ...]  # what it would change in addition to its actions
    runs: str  # the command text that runs instead of the given one; empty: it does not run
    needed: int  # how many people must say yes; 0: it asks for none
    names: tuple[str, ...] = ()  # of the services, containers and the like at which it looks
    hosts: tuple[str, ...] = ()  # on which it looks, or which it asks over the network


def judge(call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> Verdict:
    """Return whether a call may run, why, and which actions it would be; never raises."""
    return explain(call, tier=tier, scope=scope).verdict


def explain(call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> PolicyJudgement:
    """Return the same verdict as `judge`, with the parts of the call."""
    name = call.tool_name
    if name == STRUCTURED_OUTPUT_TOOL:
        return PolicyJudgement(verdict=Verdict(kind=VerdictKind.ALLOW, reason="delivers the report"))
    place = _place(tier, scope, call)
    if name.startswith(MCP) and tier.may_use_named(name):
        finding = judge_named(call, tier, place)
    elif name not in tier.tools:
        usable = " or ".join(tier.tools) or "none"
        finding = CommandFinding(denial=f"the tool {name} is not allowed at tier {tier.number}: use {usable}")
    elif name == "Bash":
        finding = _judge_bash(call, tier, place)
    else:
        finding = judge_tool(call, place)
    if name != "Bash" and not finding.denial:
        subject = finding.lines[0] if finding.lines else name
        finding.denial = _refuse_by_patterns(tier, name, subject, finding.lines)
    if not tier.rules.asks_about_strangers:
        finding.denial = finding.refusal
    parts = tuple(dict.fromkeys(line for line in finding.lines if line)) if name == "Bash" else ()
    verdict = _verdict(finding, call, tier, scope)
    runs = "" if finding.doubt else finding.text
    if runs and verdict.kind is not VerdictKind.DENY:
        ran = {**call.input, "command": runs}
        verdict = replace(verdict, ran=ran, looks_run=tuple(finding.runs_apart), grants=tuple(finding.grants))
    return PolicyJudgement(verdict=verdict, parts=parts, writes=tuple(finding.writes), runs=runs)


def tier_verdict(tier: int, found: PolicyJudgement) -> TierVerdict:
    """Return a judgement as it is shown."""
    verdict, look = found.verdict, found.verdict.look
    return TierVerdict(
        tier=tier,
        verdict=verdict.kind,
        reason=verdict.reason,
        parts=found.parts,
        actions=verdict.actions,
        writes=found.writes,
        runs=found.runs,
        needed=verdict.needed if verdict.kind is VerdictKind.ASK else 0,
        names=() if look is None else tuple(sorted(look.names)),
        hosts=() if look is None else tuple(sorted({*look.hosts, *(address.host for address in look.addresses)})),
    )


def _place(tier: TierPolicy, scope: JudgeScope, call: ToolCall) -> PathContext:
    rules = tier.rules
    own = {"{workdir}": scope.workdir, "{tmpdir}": scope.tmpdir, "{repos}": scope.repos_dir}

    def placed(paths: Sequence[str]) -> tuple[str, ...]:
        found = []
        for path in paths:
            name, slash, rest = path.partition("/")
            found.append(f"{own.get(name, name)}{slash}{rest}")
        return tuple(found)

    return PathContext(
        scope=scope,
        cwd=call.cwd or scope.workdir,
        call=call.tool_use_id,
        never=tier.policy.never.paths,
        services=ServiceNames(scope.estate, tier.policy.other_names),
        reach=TierReach(
            hosts=rules.hosts,
            urls=rules.urls,
            services=rules.services,
            never_hosts=tier.policy.never.hosts,
            read=placed(rules.read),
            write=placed([path for path in rules.write if path != HANDOFF]),
            files=(scope.handoff,) if HANDOFF in rules.write and scope.handoff else (),
            estate=scope.estate,
            tier=tier.level,
        ),
    )


def _verdict(finding: CommandFinding, call: ToolCall, tier: TierPolicy, scope: JudgeScope) -> Verdict:
    if finding.denial:
        return _deny(finding.denial)
    if finding.doubt:
        return _unclear(finding, call, tier, scope)
    verbs = tier.policy.actions
    effects = [f"{verbs[action.kind].verb} {action.service}" for action in finding.actions]
    effects += finding.writes
    if effects and scope.dry_run:
        return _deny(f"dry run: would {', '.join(effects)}")
    people = _people(finding, call, tier)
    questions = [str(reason) for reason in dict.fromkeys(finding.strangers)][:_MOST_STRANGERS]
    if questions and scope.dry_run:
        return _deny(f"dry run: would ask a person: {'; '.join(questions)}")
    questions += [f"{what} needs {_people_s(count)} yes" for what, count in people.items()]
    actions = tuple(finding.actions)
    # A call that acts is not a look, whatever else is in it.
    look = None if actions else combined(finding.looks)
    if questions:
        needed = max((tier.rules.approvals.people, *people.values()))
        return Verdict(
            kind=VerdictKind.ASK,
            reason="; ".join(questions),
            actions=actions,
            look=look,
            needed=needed,
            services=_services(finding, tier),
        )
    reason = ", ".join(effects) or "only looks"
    return Verdict(kind=VerdictKind.ALLOW, reason=reason, actions=actions, look=look)


def _unclear(finding: CommandFinding, call: ToolCall, tier: TierPolicy, scope: JudgeScope) -> Verdict:
    """Ask a person about a call that cannot be understood, where the tier may; never if it names forbidden things."""
    text = str(call.input.get("command", ""))
    for own in (scope.workdir, scope.tmpdir):
        text = text.replace(own, "")
    never = refuse_text(text, scope.forbidden_paths)
    services = ServiceNames(scope.estate, tier.policy.other_names)
    never = never or forbidden.refuse_text(text, scope.estate, services.counted)
    if never is not None:
        return _deny(never)
    if scope.dry_run:
        return _deny(f"dry run: would run what cannot be understood: {finding.doubt}")
    if not tier.rules.asks_when_unclear:
        return _deny(finding.doubt)
    # It may be whatever needs the most people: nobody can tell.
    needed = max(tier.rules.approvals.people, tier.policy.most_people)
    reasons = list(dict.fromkeys((finding.doubt, *finding.strangers[:_MOST_STRANGERS])))
    reasons += [f"it needs {_people_s(needed)} yes"] if needed > 1 else []
    actions = tuple(dict.fromkeys(finding.actions))
    return Verdict(kind=VerdictKind.ASK, reason="; ".join(reasons), actions=actions, needed=needed)


def _services(finding: CommandFinding, tier: TierPolicy) -> tuple[str, ...] | None:
    """Return the services that a call in question changes; None unless all that is asked about is a change of one.

    Somebody who may answer for some services would otherwise say yes to what is neither of them.
    """
    others = [line for line in finding.lines if line not in finding.acting]
    asked = any(tier.rules.approvals.command_of(line) is not None for line in others)
    if finding.doubt or finding.strangers or finding.asks_for_more or asked:
        return None
    return unique(action.service for action in finding.actions)


def _people(finding: CommandFinding, call: ToolCall, tier: TierPolicy) -> dict[str, int]:
    """Return what needs the yes of how many people: by the rules, by the kinds of actions, and by the tier."""
    approvals = tier.rules.approvals
    found = dict(finding.people)
    for action in finding.actions:
        if count := tier.policy.actions[action.kind].people:
            found[f"{action.kind} of {action.service}"] = count
    wanted = approvals.wanted_for(finding.lines, finding.actions, finding.names)
    wanted = wanted or approvals.wanted_for_tool(call.tool_name)
    if wanted is not None:
        found.setdefault(wanted, 1)
    return {what: max(count, approvals.people) for what, count in found.items()}


def _people_s(count: int) -> str:
    return "a person's" if count == 1 else f"{count} people's"


def _deny(reason: str) -> Verdict:
    return Verdict(kind=VerdictKind.DENY, reason=reason)


def _judge_bash(call: ToolCall, tier: TierPolicy, place: PathContext) -> CommandFinding:
    command = call.input.get("command")
    if not isinstance(command, str) or not command.strip():
        return CommandFinding(denial="Bash needs a command")
    extra = sorted(name for name, value in call.input.items() if name not in _BASH_INPUT and value not in (None, False))
    if extra:
        return CommandFinding(
            denial=f"Bash with {extra[0]} is not allowed: run the command in the foreground, without it"
        )
    parsed = parse(command, known=place.variables)
    finding = CommandFinding(denial=parsed.refusal or "", doubt=parsed.problem or "")
    commands = CommandJudge(tier)
    runs: dict[int, SimpleCommand] = {}
    for part in parsed.commands:
        judged = commands.judge(part, place)
        if part.argv and not judged.denial:
            judged.denial = _refuse_by_patterns(tier, "Bash", part.line, judged.lines)
        finding.add(judged)
        if judged.runs is not None:
            runs[part.number] = judged.runs
    if parsed.problem and finding.denial and not parsed.refusal:
        noise = " is in no rule" in finding.denial  # often of a word that the language itself does not take
        finding.denial = parsed.problem if noise else f"{parsed.problem}; and {finding.denial}"
    if not finding.denial and not finding.doubt:
        try:
            finding.text = render(parsed.block, runs, bash=True)
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


# --- tools beside Bash ----------------------------------------------------------------------------------


MCP: Final = "mcp__"

_FILE_KEYS: Final = {"NotebookEdit": "notebook_path", "Grep": "path", "Glob": "path", "LS": "path"}
_WRITERS: Final = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_GLOB: Final = regex.Pattern(r"[*?\[{]")
_TYPES: Final = regex.Pattern(r"[a-z0-9]+")


def judge_tool(call: ToolCall, place: PathContext) -> CommandFinding:
    """Judge a call of a built-in tool; ``lines`` are what the operator's patterns are compared with."""
    finding = _JUDGES.get(call.tool_name, _file)(call, place)
    look = look_of_tool(call, place)
    finding.looks += [] if look is None else [look]
    return finding


def judge_named(call: ToolCall, tier: TierPolicy, place: PathContext) -> CommandFinding:
    """Judge a call of an MCP server's tool: it is allowed only where the policy names it."""
    name = call.tool_name
    named = next((tool for tool in tier.policy.tools if glob.matches(name, tool.name)), None)
    if named is None:
        return CommandFinding(denial=f"{name}: no rule of the policy names this tool")
    if named.tier > tier.level:
        return CommandFinding(denial=f"{name} needs tier {named.tier}: at tier {tier.number} say in the report why")
    if not named.action:
        look = look_of_named(named, call.input)
        finding = CommandFinding(writes=[f"call {name}"] if named.changes else [], looks=[] if look is None else [look])
    else:
        finding = _action(named, call.input, tier, place)
    finding.people |= {name: named.people} if named.people else {}
    return finding


def _action(named: NamedTool, given: Mapping[str, object], tier: TierPolicy, place: PathContext) -> CommandFinding:
    service = given.get(named.service)
    if not isinstance(service, str) or not regex.fullmatch(r"[A-Za-z0-9][\w.@:/-]*", service):
        return CommandFinding(denial=f"{named.name}: name the service in {named.service!r}")
    if named.action not in tier.action_kinds:
        return CommandFinding(denial=f"{named.name}: tier {tier.number} has no right to a {named.action}")
    action = Action(kind=named.action, service=service)
    reason = refuse_service(plain_name(service), unit=False) or refuse_action(action, place, tier.policy)
    finding = CommandFinding(denial=reason or "")
    finding.act(action, place.services)
    return finding


def _file(call: ToolCall, place: PathContext) -> CommandFinding:
    path = call.input.get(_FILE_KEYS.get(call.tool_name, "file_path"))
    given, reason = _path(path, call.tool_name)
    if given is None:
        return CommandFinding(denial=reason)
    if call.tool_name not in _WRITERS:
        return CommandFinding(denial=paths.readable(given, place) or "", lines=[given])
    writes = [] if given in place.reach.files else [f"write {given}"]
    return CommandFinding(denial=paths.writable(given, place) or "", writes=writes, lines=[given])


def _listing(call: ToolCall, place: PathContext) -> CommandFinding:
    given, reason = _path(call.input.get("path"), call.tool_name)
    return CommandFinding(
        denial=reason if given is None else paths.listable(given, place) or "", lines=[given] if given else []
    )


def _glob(call: ToolCall, place: PathContext) -> CommandFinding:
    """Judge where files are searched for; only their names are printed."""
    pattern = call.input.get("pattern")
    if not isinstance(pattern, str) or not pattern or "\0" in pattern:
        return CommandFinding(denial="Glob needs a pattern")
    if ".." in regex.split(r"[/{},]", pattern):
        return CommandFinding(denial=f"{pattern}: write the pattern without '..'")
    root = call.input.get("path")
    if pattern.startswith("/"):
        root = posixpath.dirname(_GLOB.split(pattern, maxsplit=1)[0]) or "/"
    given, reason = _path(root, "Glob")
    return CommandFinding(
        denial=reason if given is None else paths.listable(given, place) or "", lines=[given] if given else []
    )


def _grep(call: ToolCall, place: PathContext) -> CommandFinding:
    """Judge what is searched: a file as if it were read, a directory as if everything below it were."""
    given, reason = _path(call.input.get("path"), "Grep")
    if given is None:
        return CommandFinding(denial=reason)
    glob = call.input.get("glob")
    if glob is not None and (not isinstance(glob, str) or glob.startswith("!") or regex.search(r"[{}\s/,]", glob)):
        return CommandFinding(denial=f"Grep: write a plain glob such as '*.yml', not {glob!r}")
    kind = call.input.get("type")
    if kind is not None and not (isinstance(kind, str) and _TYPES.fullmatch(kind)):
        return CommandFinding(denial=f"Grep: {kind!r} is not a type of file")
    alone = paths.readable(given, place)
    if not alone and glob is None and paths.named_like_a_file(given, place):
        return CommandFinding(lines=[given])
    includes = (glob,) if isinstance(glob, str) else ()
    return CommandFinding(
        denial=alone or paths.searchable(given, place, paths.Searched(only=includes)) or "", lines=[given]
    )


def _web(call: ToolCall, place: PathContext) -> CommandFinding:
    url = call.input.get("url")
    if not isinstance(url, str) or not url:
        return CommandFinding(denial="WebFetch needs a url")
    reason = reach.refuse_url(url) or place.reach.refuse_url(url)
    if isinstance(reason, Stranger):
        return CommandFinding(strangers=[reason], lines=[url])
    return CommandFinding(denial=reason or "", lines=[url])


def _subagent(call: ToolCall, _place: PathContext) -> CommandFinding:
    if call.input.get("run_in_background"):
        return CommandFinding(denial="a subagent runs in the foreground: leave run_in_background out")
    return CommandFinding()


def _harmless(_call: ToolCall, _place: PathContext) -> CommandFinding:
    return CommandFinding()


def _path(path: object, tool: str) -> tuple[str | None, str]:
    """Return a path, or why it is not usable."""
    if not isinstance(path, str) or not path:
        return None, f"{tool} needs a path: name it, by its absolute path"
    if not path.startswith("/"):
        return None, f"{path}: write the absolute path"
    if ".." in path.split("/"):  # the tool gets it as it is, and behind a link it leads elsewhere than it seems to
        return None, f"{path}: write the path without '..'"
    return path, ""


_JUDGES: Final[dict[str, Callable[[ToolCall, PathContext], CommandFinding]]] = {
    "Glob": _glob,
    "Grep": _grep,
    "LS": _listing,
    "WebFetch": _web,
    "Task": _subagent,
    "Agent": _subagent,
    "TodoWrite": _harmless,
    "WebSearch": _harmless,
}
"""Judges of the built-in tools that are about something other than one file."""
