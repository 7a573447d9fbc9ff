"""The policy: judges a tool call by the rules of its tier, with the reason and the actions that the call would be.

Pure: a call, a tier and a scope in, a verdict out: allow, deny or ask. What no rule allows is denied. The verdict of a
Bash call is the strictest of its parts. Whether an action is within its limits is decided where the ledger is. This
module also turns a policy file into the values that calls are judged by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from claudeops.domain.actions import ActionLimit
from claudeops.domain.network.destination import merged
from claudeops.policy.judge import PolicyJudgement, explain, judge
from claudeops.policy.policy import (
    ActionRule,
    ApprovalRules,
    NamedTool,
    Never,
    Policy,
    TierPolicy,
    TierRules,
    parse_patterns,
    split_patterns,
    with_both_names,
)
from claudeops.policy.policy_file import PolicyFault, read_document
from claudeops.policy.policy_tables import PolicyDocument, TierEntry
from claudeops.policy.reach import JudgeScope, NodeScope, parse_entry
from claudeops.policy.rule_book import RuleBook
from claudeops.structs import replace

__all__ = [
    "JudgeScope",
    "NodeScope",
    "Policy",
    "PolicyDocument",
    "PolicyFault",
    "PolicyJudgement",
    "TierPolicy",
    "explain",
    "judge",
    "narrow",
    "parse_policy",
    "read_document",
    "split_patterns",
    "tier_policy",
]


def tier_policy(policy: Policy, number: int, *, highest: int = 99) -> TierPolicy:
    """Return the rules of a tier. One above ``highest``, or above the policy's last, gets the rules of that one."""
    if number < 1 or highest < 1:
        raise ValueError(f"tiers count from 1: {number} of {highest}")
    known = [tier for tier in policy.tiers if tier <= min(number, highest)]
    level = max(known, default=min(policy.tiers))
    rules = policy.tiers[level]
    return TierPolicy(number=number, level=level, policy=policy, rules=rules, tools=rules.tools)


def narrow(tier: TierPolicy, allowed: Sequence[str] = (), disallowed: Sequence[str] = ()) -> TierPolicy:
    """Return the tier narrowed by the operator's patterns; nothing that was denied becomes allowed.

    ``allowed``: tools that no pattern names are removed; patterns with a body are conditions, and each call must meet
    one of them. ``disallowed``: tools that a pattern names as a whole are removed; a call that meets a pattern with a
    body is denied. Without any pattern nothing changes. Several calls add up.
    """
    wanted, unwanted = parse_patterns(allowed), parse_patterns(disallowed)
    tools = tier.tools
    if wanted:
        tools = tuple(tool for tool in tools if any(pattern.tool == tool for pattern in wanted))
    gone = frozenset(pattern.tool for pattern in unwanted if pattern.body is None)
    whole = {pattern.tool for pattern in wanted if pattern.body is None}
    conditions = tuple(pattern for pattern in wanted if pattern.tool not in whole)
    named = tier.named_only
    if wanted:
        names = frozenset(pattern.tool for pattern in wanted)
        named = names if named is None else named & names
    return replace(
        tier,
        tools=tuple(tool for tool in tools if tool not in gone),
        named_only=named,
        named_out=tier.named_out | gone,
        allowed=(*tier.allowed, conditions) if conditions else tier.allowed,
        disallowed=(*tier.disallowed, *(pattern for pattern in unwanted if pattern.body is not None)),
    )


def parse_policy(text: str, *, default: str = "", fragments: Mapping[str, str] | None = None) -> Policy:
    """Return the policy of a file; ``default`` and ``fragments`` are what it may extend. Raises `PolicyFault`."""
    document = read_document(text, default=default, fragments=fragments or {})
    people = [entry.approvals for entry in document.actions.values()] + [rule.approvals for rule in document.commands]
    return Policy(
        tiers=MappingProxyType({int(number): _tier(entry) for number, entry in sorted(document.tiers.items())}),
        actions=MappingProxyType(
            {
                kind: ActionRule(
                    verb=entry.verb or kind,
                    limit=ActionLimit(count=entry.limit or 0, window_seconds=entry.window_seconds),
                    people=entry.approvals or 0,
                )
                for kind, entry in document.actions.items()
            }
        ),
        holds_in_maintenance=document.maintenance == "hold",
        never=Never(
            paths=document.never.paths,
            commands=document.never.commands,
            services=document.never.services,
            hosts=document.never.hosts,
        ),
        tools=tuple(
            NamedTool(
                name=tool.name,
                tier=tool.tier,
                action=tool.action,
                service=tool.service,
                changes=tool.changes,
                people=tool.approvals or 0,
            )
            for tool in document.tools
        ),
        book=_book(document),
        other_names=MappingProxyType({other: name for name, others in document.services.items() for other in others}),
        most_people=max((count or 1 for count in people), default=1),
    )


def _tier(entry: TierEntry) -> TierRules:
    return TierRules(
        tools=with_both_names(entry.tools),
        action_kinds=entry.actions,
        hosts=entry.hosts,
        urls=entry.urls,
        services=entry.services,
        read=entry.read,
        write=entry.write,
        network=merged(map(parse_entry, entry.network)),
        asks_when_unclear=entry.not_understood == "ask",
        asks_about_strangers=entry.not_in_estate == "ask",
        approvals=ApprovalRules(
            commands=entry.ask.commands,
            actions=entry.ask.actions,
            services=entry.ask.services,
            tools=with_both_names(entry.ask.tools),
            people=entry.ask.approvals or 1,
        ),
    )


def _book(document: PolicyDocument) -> RuleBook:
    return RuleBook(
        rules=document.commands, groups=document.groups, wrappers=document.wrappers, aliases=document.aliases
    )
