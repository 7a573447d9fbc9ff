"""The policy: its rules by tier, and what the gate would say of a command, which is judged and not run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from claudeops.policy.judge import TierVerdict
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import Tier
from claudeops.web.pages.site import Site
from claudeops.web.ports import PolicyInForce
from claudeops.web.problems import RefusedError


class OfPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    command: Annotated[str, msgspec.Meta(max_length=4000)] = ""  # empty: none is tried
    tier: Tier = 1


class PolicyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force, and the verdict on a command."""

    tiers: tuple[int, ...]  # that there are
    text: str  # all of it as a file that means the same
    verdict: TierVerdict | None  # None: no command was to be judged, or it could not be
    not_judged: str | None  # why there is no verdict on the command


async def policy_answer(site: Site, call: WebCall) -> Response:
    """Answer programs with the policy, and the verdict on a command. Raises `RefusedError` as the page does."""
    query, policy = call.asked(OfPolicy), site.policy
    if policy is None:
        raise RefusedError(404, "These pages know no policy.")
    found = await _judged(policy, query)
    return single(
        call,
        PolicyAnswer(
            tiers=tuple(policy.tiers),
            text=policy.text,
            verdict=found if isinstance(found, TierVerdict) else None,
            not_judged=found if isinstance(found, str) else None,
        ),
    )


async def _judged(policy: PolicyInForce, query: OfPolicy) -> TierVerdict | str | None:
    """Return the verdict on the command, or why there is none; None: there is no command."""
    if query.tier not in policy.tiers:
        raise RefusedError(404, f"There is no tier {query.tier}: the highest is {max(policy.tiers)}.")
    return await policy.judged(query.command, query.tier) if query.command.strip() else None


async def policy_page(site: Site, call: WebCall) -> Response:
    """Answer with the policy in force, and with the verdict on a command. Raises `RefusedError` for an unknown tier."""
    query, policy = call.asked(OfPolicy), site.policy
    values: dict[str, object] = {"asked": query, "tiers": (), "text": "", "verdict": None, "reason": ""}
    if policy is not None:
        found = await _judged(policy, query)
        values |= {"tiers": policy.tiers, "text": policy.text}
        values["reason" if isinstance(found, str) else "verdict"] = found
    return await site.page(call, "policy.html", title="Policy", values=values)
