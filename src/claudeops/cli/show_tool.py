"""``claudeops show-tool``: the rules for one tool or command, by tier."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from claudeops.app_kit import tier_policies
from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.cli.policy import with_policy
from claudeops.domain.policy.wrappers import REASONS
from claudeops.errors import ClaudeopsError
from claudeops.resources import default_policy_path

if TYPE_CHECKING:
    from pathlib import Path

    from claudeops.domain.policy import Policy, TierPolicy
    from claudeops.domain.policy.rules import CommandRule
    from claudeops.settings import Settings


def tell_tool(name: str, file: Path | None, *, as_json: bool) -> int:
    """Print what the policy says of a tool or a command, and return the exit status."""
    try:
        settings = with_policy(file)
    except ClaudeopsError as error:
        return print_failure("show-tool", error, as_json=as_json, target="policy")
    found = _found(" ".join(name.split()), settings)
    status = Exit.OK if found else Exit.UNRESOLVED
    if as_json:
        body: dict[str, object] = {"name": name, "found": bool(found), "rules": found}
        body["source_hint"] = str(settings.policy_path or default_policy_path())
        return print_document("show-tool", body if found else body | _missing(name), status)
    if not found:
        click.echo(f"{name}: {_why(name)}")
    for rule in found:
        click.echo("  ".join(f"{key}: {value}" for key, value in rule.items()))
    return status


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
        _shown(known, rule)
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


def _shown(name: str, rule: CommandRule) -> dict[str, object]:
    shown: dict[str, object] = {"tier": rule.tier, "command": name}
    for key in ("options", "arguments", "tokens", "required", "action", "hint"):
        if value := getattr(rule, key):
            shown[key] = value
    if rule.line is not None:
        shown["line"] = rule.line
    return shown


def _why(name: str) -> str:
    return REASONS.get(name, "no rule names it, so it is denied at every tier")


def _missing(name: str) -> dict[str, object]:
    return {"error": {"kind": "tool_not_found", "message": f"{name}: {_why(name)}", "retryable": False}}
