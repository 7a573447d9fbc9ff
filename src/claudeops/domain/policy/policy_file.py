"""From what a policy file says to the values that calls are judged by."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from claudeops.domain.model import ActionLimit
from claudeops.domain.policy.document import read_document
from claudeops.domain.policy.rule_book import RuleBook
from claudeops.domain.policy.tool_patterns import with_both_names
from claudeops.domain.policy.values import ActionRule, Approvals, NamedTool, Never, Policy, TierRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.domain.policy.schema import Document, TierEntry


def parse_policy(text: str, *, default: str = "", fragments: Mapping[str, str] | None = None) -> Policy:
    """Return the policy of a file; ``default`` and ``fragments`` are what it may extend. Raises `PolicyFault`."""
    document = read_document(text, default=default, fragments=fragments or {})
    return Policy(
        tiers=MappingProxyType({int(number): _tier(entry) for number, entry in sorted(document.tiers.items())}),
        actions=MappingProxyType(
            {
                kind: ActionRule(
                    verb=entry.verb or kind,
                    limit=ActionLimit(count=entry.limit, window_seconds=entry.window_seconds),
                )
                for kind, entry in document.actions.items()
            }
        ),
        never=Never(
            paths=document.never.paths,
            commands=document.never.commands,
            services=document.never.services,
            hosts=document.never.hosts,
        ),
        tools=tuple(
            NamedTool(name=tool.name, tier=tool.tier, action=tool.action, service=tool.service, changes=tool.changes)
            for tool in document.tools
        ),
        book=_book(document),
        other_names=MappingProxyType({other: name for name, others in document.services.items() for other in others}),
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
        asks_when_unclear=entry.not_understood == "ask",
        approvals=Approvals(
            commands=entry.ask.commands,
            actions=entry.ask.actions,
            services=entry.ask.services,
            tools=with_both_names(entry.ask.tools),
        ),
    )


def _book(document: Document) -> RuleBook:
    return RuleBook(
        rules=document.commands, groups=document.groups, wrappers=document.wrappers, aliases=document.aliases
    )
