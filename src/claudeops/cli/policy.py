"""``claudeops policy`` and ``show-tool``: the verdict on a call, and the rules behind it. Nothing is run."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import click
import msgspec

from claudeops.app.limits import tier_policies
from claudeops.app.wiring import estate_now, node_scope, probed_hosts
from claudeops.cli.reply import CommandResult, Exit, print_document, print_failure, print_result
from claudeops.domain.answers import plain
from claudeops.domain.calls import ToolCall
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT
from claudeops.engine.cell.cell import docker_engine
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.kubernetes.kubeconfig import kubeconfig_files, read_clusters
from claudeops.engine.session.context import session_scope
from claudeops.errors import ClaudeopsError
from claudeops.policy.judge import TierVerdict, tier_verdict
from claudeops.policy.migrate import migrate
from claudeops.policy.policy_file import in_force
from claudeops.policy.programs.network import PROGRAMS
from claudeops.policy.remote import script
from claudeops.policy.rule_book import REASONS
from claudeops.policy.rules import CommandRule
from claudeops.policy.tiers import NodeScope, Policy, TierPolicy, explain
from claudeops.settings import Settings, fragment_texts, load_settings, policy_document
from claudeops.settings.files import default_policy_path
from claudeops.structs import replace

_EXAMPLE: Final = "example"
"""Stands for the session id in the paths of a session's own directories."""


class PolicyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What ``policy test`` asks: one call, at which tiers, under which policy."""

    command: str | None
    tool: str
    given: str | None  # the tool's input, JSON; None: it is ``command``
    tier: int | None  # None: all
    expect: str | None  # a verdict
    dry_run: bool
    file: Path | None  # None: the policy in force


def print_verdicts(question: PolicyQuestion, *, as_json: bool) -> int:
    """Print the verdict of each tier, and return the exit status."""
    try:
        call = _call(question)
        settings = with_policy(question.file)
        answers = _judgements(call, question, settings)
    except ClaudeopsError as error:
        return print_failure("policy test", error, as_json=as_json, target="policy")
    met = question.expect is None or all(found.verdict == question.expect for found in answers)
    status = Exit.OK if met else Exit.UNRESOLVED
    body: dict[str, object] = {"tool": call.tool_name, "input": dict(call.input), "verdicts": plain(answers)}
    done = CommandResult(text="\n".join(map(_lines, answers)), body=body, exit_code=status, on_stdout=True)
    return print_result("policy test", done, as_json=as_json)


def print_policy(file: Path | None, *, as_json: bool) -> int:
    """Print the whole policy, and return the exit status."""
    try:
        path, document = policy_document(os.environ, cwd=Path.cwd(), file=file)
    except ClaudeopsError as error:
        return print_failure("policy show", error, as_json=as_json, target="policy")
    if as_json:
        body: dict[str, object] = {"path": str(path), "policy": msgspec.to_builtins(document)}
        return print_document("policy show", body, Exit.OK)
    click.echo(in_force(document, str(path)), nl=False)
    return Exit.OK


def print_migrated(file: Path, *, write: bool) -> int:
    """Print a policy file in the new form, or replace it, and return the exit status."""
    try:
        text = file.read_text(encoding="utf-8")
        migrated = migrate(text)
    except OSError as error:
        click.echo(f"{file} cannot be read ({error.strerror}): name a policy file.", err=True)
        return Exit.NO_INPUT
    except ValueError as error:  # not UTF-8, or not TOML
        click.echo(f"{file} cannot be rewritten: {error}.", err=True)
        return Exit.CONFIGURATION
    if not write:
        click.echo(migrated, nl=False)
        return Exit.OK
    old = file.with_name(f"{file.name}.old")
    old.write_text(text, encoding="utf-8")
    file.write_text(migrated, encoding="utf-8")
    click.echo(f"{file} is written in the new form; the old one is {old}.")
    return Exit.OK


def print_remote_commands(tier: int | None, file: Path | None) -> int:
    """Print the script that holds a tier to its forms on another host, and return the exit status."""
    try:
        tiers = tier_policies(with_policy(file))
    except ClaudeopsError as error:
        return print_failure("remote-commands", error, as_json=False, target="policy")
    number = min(tiers) if tier is None else tier
    if number not in tiers:
        raise click.UsageError(f"There is no tier {number}: give one from 1 to {max(tiers)}.")
    click.echo(script(tiers[number]), nl=False)
    return Exit.OK


def print_fragments(*, as_json: bool) -> int:
    """Print the fragments that a policy may extend, each with what it opens, and return the exit status."""
    opened = {name: _opens(text) for name, text in fragment_texts().items()}
    body: dict[str, object] = {"fragments": [{"name": name, "opens": opens} for name, opens in opened.items()]}
    text = "\n".join(f"{name}: {opens}" for name, opens in opened.items())
    return print_result("policy fragments", CommandResult(text=text, body=body), as_json=as_json)


def print_tool(name: str, file: Path | None, *, as_json: bool) -> int:
    """Print the rules for a tool or a command, by tier, and return the exit status."""
    try:
        settings = with_policy(file)
    except ClaudeopsError as error:
        return print_failure("show-tool", error, as_json=as_json, target="policy")
    found = _found(" ".join(name.split()), settings)
    status = Exit.OK if found else Exit.UNRESOLVED
    body: dict[str, object] = {"name": name, "found": bool(found), "rules": found}
    body["source_hint"] = str(settings.policy_path or default_policy_path())
    lines = ["  ".join(f"{key}: {value}" for key, value in rule.items()) for rule in found]
    done = CommandResult(
        text="\n".join(lines or [f"{name}: {_why_none(name)}"]),
        body=body if found else body | _not_found(name),
        exit_code=status,
        on_stdout=True,
    )
    return print_result("show-tool", done, as_json=as_json)


def with_policy(file: Path | None) -> Settings:
    """Return the settings of the environment, with the policy in ``file`` if given."""
    environ = dict(os.environ)
    if file is not None:
        environ["CLAUDEOPS_POLICY_PATH"] = str(file)
    return load_settings(environ, cwd=Path.cwd()).settings


def estate_or_none(settings: Settings) -> Estate:
    """Return the estate; without manifests where there are no repositories, which the doctor says."""
    try:
        return estate_now(settings)
    except OSError:
        return NO_ESTATE.with_probes(probed_hosts(settings))


# --- verdicts -----------------------------------------------------------------------------------------


def _call(question: PolicyQuestion) -> ToolCall:
    given: object = {"command": question.command}
    if question.given is not None:
        try:
            given = json.loads(question.given)
        except ValueError as error:
            raise click.UsageError(f'--input is not JSON ({error}): write an object, {{"file_path": …}}.') from None
        if not isinstance(given, dict):
            raise click.UsageError('--input is not an object: write one such as {"file_path": "/etc/hosts"}.')
    elif question.command is None or question.tool != "Bash":
        raise click.UsageError("There is nothing to test: give a COMMAND, or --tool NAME with --input JSON.")
    return ToolCall(tool_use_id="test", tool_name=question.tool, input=given if isinstance(given, dict) else {})


def _judgements(call: ToolCall, question: PolicyQuestion, settings: Settings) -> tuple[TierVerdict, ...]:
    tiers = tier_policies(settings)
    if question.tier is not None and question.tier not in tiers:
        raise click.UsageError(
            f"There is no tier {question.tier}: CLAUDEOPS_MAX_TIER is {settings.ladder.max_tier}; give one from 1 to "
            "that."
        )
    node = node_scope(settings, dry_run=settings.ladder.dry_run or question.dry_run)
    if settings.cell.isolation in {"auto", "bubblewrap"} and shutil.which(
        "bwrap"
    ):  # as in a session, which the daemon would try
        looks = {"git", *(name for name in PROGRAMS if shutil.which(name, path=settings.environment.path))}
        node = replace(node, look_client=LOOK_CLIENT, looks=dict.fromkeys(looks, ""))
    nodes = {
        tier.number: _with_filters(node, {**settings.environment.inherited, **tier.env}, tier.home)
        for tier in settings.tiers
    }
    workspace, estate = Workspace(settings.places.state_dir / "sessions" / _EXAMPLE), estate_or_none(settings)
    wanted = {question.tier: tiers[question.tier]} if question.tier is not None else tiers
    return tuple(
        tier_verdict(number, explain(call, tier=tier, scope=session_scope(nodes[number], workspace, estate)))
        for number, tier in wanted.items()
    )


def _with_filters(node: NodeScope, environment: Mapping[str, str], home: Path | None) -> NodeScope:
    """Return the scope of a tier that reaches docker's engine and clusters through filters, where there are any."""
    if not node.looks:
        return node
    if read_clusters(kubeconfig_files(environment, home)).contexts:
        node = replace(node, looks={**node.looks, "kubectl": ""}, filters=node.filters | {"kubernetes"})
    if docker_engine(environment) is None:
        return node
    return replace(node, looks={**node.looks, "docker": ""}, filters=node.filters | {"docker"})


def _lines(found: TierVerdict) -> str:
    lines = [f"tier {found.tier}: {found.verdict.value}: {found.reason}"]
    lines += [f"  part    {part}" for part in found.parts]
    lines += [f"  action  {action.kind} of {action.service}" for action in found.actions]
    lines += [f"  looks   {name}" for name in found.names]
    lines += [f"  host    {host}" for host in found.hosts]
    lines += [f"  writes  {what}" for what in found.writes]
    lines += [f"  runs    {found.runs}"] if found.runs else []
    return "\n".join(line.replace("\n", "\\n") for line in lines)


# --- fragments ----------------------------------------------------------------------------------------


def _opens(text: str) -> str:
    """Return the first paragraph of a fragment's comment: what it opens."""
    lines = itertools.takewhile(lambda line: line.startswith("# "), text.splitlines())
    return " ".join(line[2:] for line in lines).removeprefix("Opens: ")


# --- the rules for a tool or command ------------------------------------------------------------------


def _found(name: str, settings: Settings) -> list[dict[str, object]]:
    tiers = tier_policies(settings)
    found = [rule for number, tier in tiers.items() for rule in _of_tool(name, number, tier)]
    return found or _of_command(name, settings.policy)


def _of_tool(name: str, number: int, tier: TierPolicy) -> list[dict[str, object]]:
    if name in tier.tools:
        conditions = [str(pattern.body) for group in tier.allowed for pattern in group if pattern.tool == name]
        forbidden = [str(pattern.body) for pattern in tier.disallowed if pattern.tool == name]
        rule: dict[str, object] = {"tier": number, "tool": name}
        rule |= {"read": ", ".join(tier.rules.read), "write": ", ".join(tier.rules.write) or "nothing"}
        if conditions:
            rule["only"] = ", ".join(conditions)
        if forbidden:
            rule["not"] = ", ".join(forbidden)
        return [rule]
    if tier.may_use_named(name):
        named = [tool for tool in tier.policy.tools if fnmatchcase(name, tool.name) and tool.tier <= tier.level]
        return [{"tier": number, "tool": tool.name, "action": tool.action or "none"} for tool in named[:1]]
    return []


def _of_command(name: str, policy: Policy) -> list[dict[str, object]]:
    book = policy.book
    rules = [
        _rule_fields(known, rule)
        for known, alternatives in book.rules.items()
        if known == name or known.startswith(f"{name} ")
        for rule in alternatives
    ]
    wrappers: list[dict[str, object]] = [
        {"tier": tier, "command": known, "runs": "another command, which is judged too"}
        for known, tier in book.wrappers.items()
        if known == name or known.startswith(f"{name} ")
    ]
    return [*rules, *wrappers]


def _rule_fields(name: str, rule: CommandRule) -> dict[str, object]:
    fields: dict[str, object] = {"tier": rule.tier, "command": name}
    for key in ("reading", "options", "arguments", "required", "action", "approvals", "hint"):
        if (value := getattr(rule, key)) and value != "getopt":
            fields[key] = value
    return fields


def _why_none(name: str) -> str:
    return REASONS.get(name, "no rule names it, so it is denied at every tier")


def _not_found(name: str) -> dict[str, object]:
    return {"error": {"kind": "tool_not_found", "message": f"{name}: {_why_none(name)}", "retryable": False}}
