"""What the settings allow each tier, and how far a chain goes: what a command that only asks for limits needs."""

from __future__ import annotations

from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.spending.budget import Budgets
from claudeops.policy.policy import TierPolicy
from claudeops.policy.tiers import narrow, tier_policy
from claudeops.settings import Settings, TierSettings


def escalation_rules(settings: Settings) -> EscalationRules:
    """Return the operator's limits on escalation."""
    return EscalationRules(
        max_tier=settings.ladder.max_tier,
        dry_run=settings.ladder.dry_run,
        tiers=tuple(
            TierChoice(
                number=tier.number,
                model=tier.model,
                harness=tier.harness,
                action_kinds=policy_of_tier(tier, settings).action_kinds,
                max_budget_usd=tier.max_budget_usd,
            )
            for tier in settings.tiers
        ),
        limits=settings.policy.limits,
        other_names=settings.policy.other_names,
        timezone=settings.schedule.timezone,
        holds_in_maintenance=settings.policy.holds_in_maintenance,
        most_of_site=settings.sessions.max_of_site or None,
        most_in_all=settings.sessions.max_in_all or None,
        follow_up_seconds=settings.schedule.follow_up_seconds or None,
        budgets=Budgets(
            chain_usd=settings.budgets.chain_usd,
            day_usd=settings.budgets.daily_usd,
            timezone=settings.schedule.timezone,
        ),
    )


def tier_policies(settings: Settings) -> dict[int, TierPolicy]:
    """Return what each tier may do, narrowed by the operator's variables."""
    return {tier.number: policy_of_tier(tier, settings) for tier in settings.tiers}


def tools_by_tier(settings: Settings) -> dict[int, tuple[str, ...]]:
    """Return the tools that exist in each tier's sessions, after all narrowing."""
    return {tier.number: policy_of_tier(tier, settings).tools for tier in settings.tiers}


def policy_of_tier(tier: TierSettings, settings: Settings) -> TierPolicy:
    """Return what a tier may do, narrowed by the operator's variables."""
    policy = tier_policy(settings.policy, tier.number, highest=settings.ladder.max_tier)
    return narrow(policy, tier.allowed_tools, tier.disallowed_tools)
