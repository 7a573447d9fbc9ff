"""Judges a tool call by the policy of its tier: allow, deny or ask, with the reason and the actions that it would be.

Pure: a call, a tier and a scope in, a verdict out. What no rule allows is denied. The verdict of a Bash call is the
strictest of its parts. Whether an action is within its limits is decided where the ledger is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from claudeops.domain.policy.document import PolicyFault, read_document
from claudeops.domain.policy.judge import Judgement, explain, judge
from claudeops.domain.policy.policy_file import parse_policy
from claudeops.domain.policy.schema import Document
from claudeops.domain.policy.scope import Scope
from claudeops.domain.policy.tool_patterns import parse_patterns, split_patterns
from claudeops.domain.policy.values import Policy, TierPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Document",
    "Judgement",
    "Policy",
    "PolicyFault",
    "Scope",
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
    """Return the rules of a tier. One above ``highest``, or above the policy's last, is held to what that may do."""
    if number < 1 or highest < 1:
        raise ValueError(f"tiers count from 1: {number} of {highest}")
    known = [tier for tier in policy.tiers if tier <= min(number, highest)]
    level = max(known, default=min(policy.tiers))
    rules = policy.tiers[level]
    return TierPolicy(number=number, level=level, policy=policy, rules=rules, tools=rules.tools)


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
