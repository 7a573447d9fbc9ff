"""What was spent: by day, tier, model, service, verdict and chain, and what is reserved."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from claudeops.store.reading.spending import SpendingAnswer, spending_of
from claudeops.web.api.queries import since_of
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import Limit, Text
from claudeops.web.pages.site import Site


class OfSpend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    since: Text = ""
    limit: Limit = 20  # chains


async def spent(site: Site, call: WebCall, *, since: str, limit: int) -> SpendingAnswer:
    """Return what was spent since then, with at most ``limit`` chains. Raises `RefusedError` for no time."""
    read = partial(
        spending_of,
        since=since_of(since, call.at),
        now=call.at,
        timezone=site.timezone,
        day_budget_usd=site.day_budget_usd,
        chain_budget_usd=site.chain_budget_usd,
        limit=limit,
    )
    return await site.database.read(read)


async def spend_page(site: Site, call: WebCall) -> Response:
    """Answer with what was spent."""
    query = call.asked(OfSpend)
    found = await spent(site, call, since=query.since, limit=query.limit)
    highest = max([found.day_budget_usd, *(day.booked_usd for day in found.days)]) or 1.0
    values = {"found": found, "asked": query, "highest": highest}
    return await site.page(call, "spend.html", title="Spend", values=values)
