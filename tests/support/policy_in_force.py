"""The policy in force, as pages know it, and a judge that never answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio.lowlevel

from claudeops.app.limits import tier_policies
from claudeops.app.policy import LoadedPolicy, policy_text
from claudeops.app.wiring import node_scope
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate.estate import NO_ESTATE
from claudeops.engine.session.context import TierSetup
from claudeops.policy.tiers import PolicyJudgement, TierPolicy
from claudeops.settings import load_settings

LONG = 120.0  # seconds: more than any machine takes


class Endless:
    """A judge that never answers. It is source text, because the process that judges imports no module of the tests."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return eval, ("lambda call, tier, scope: all(True for _ in iter(int, 1))",)

    def __call__(self, call: ToolCall, *, tier: TierPolicy, scope: object) -> Verdict:
        return Verdict(kind=VerdictKind.DENY, reason=f"{call} {tier} {scope}")


class EndlessExplanation:
    """The same where what a verdict is based on is wanted, too."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Endless().__reduce__()

    def __call__(self, call: ToolCall, *, tier: TierPolicy, scope: object) -> PolicyJudgement:
        return PolicyJudgement(verdict=Endless()(call, tier=tier, scope=scope))


def known(setups: Mapping[int, TierSetup]) -> Callable[[], Awaitable[Mapping[int, TierSetup]]]:
    """Return the tiers' setups as those of a daemon whose looks are known."""

    async def known_setups() -> Mapping[int, TierSetup]:
        await anyio.lowlevel.checkpoint()
        return setups

    return known_setups


def policy_in(directory: Path, **given: str) -> LoadedPolicy:
    settings = load_settings({"CLAUDEOPS_STATE_DIR": str(directory / "state"), **given}, cwd=directory).settings
    scope = node_scope(settings, dry_run=False)
    setups = {
        number: TierSetup(number=number, name="x", policy=policy, scope=scope, max_turns=1, max_budget_usd=1)
        for number, policy in tier_policies(settings).items()
    }
    return LoadedPolicy(
        settings=settings,
        tiers=sorted(setups),
        setups=known(setups),
        estate=lambda: NO_ESTATE,
        text=policy_text(settings),
        seconds=LONG,
        replay_seconds=LONG,
        call_seconds=LONG,
    )
