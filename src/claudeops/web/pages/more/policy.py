"""The policy: its rules by tier, and what the gate would say of a command, which is judged and not run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from claudeops.web.endpoints import Call
from claudeops.web.listings import Tier
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError


class OfPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    command: Annotated[str, msgspec.Meta(max_length=4000)] = ""  # empty: none is tried
    tier: Tier = 1


async def policy_page(site: Site, call: Call) -> Response:
    """Answer with the policy in force, and with the verdict on a command. Raises `RefusedError` for an unknown tier."""
    query, policy = call.asked(OfPolicy), site.policy
    values: dict[str, object] = {"asked": query, "tiers": (), "text": "", "verdict": None, "reason": ""}
    if policy is not None:
        if query.tier not in policy.tiers:
            raise RefusedError(422, f"There is no tier {query.tier}: the highest is {max(policy.tiers)}.")
        values |= {"tiers": policy.tiers, "text": policy.text}
        if query.command.strip():
            found = await policy.judged(query.command, query.tier)
            values["reason" if isinstance(found, str) else "verdict"] = found
    return await site.page(call, "policy.html", title="Policy", values=values)
