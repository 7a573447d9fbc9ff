"""What was spent: by day, tier, model and chain, and what is reserved."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.domain.listing import moment
from claudeops.store.reading.spending import spending_of
from claudeops.web.endpoints import Call
from claudeops.web.listings import Limit, Text
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

SINCE: Final = timedelta(days=7)
"""How far it looks back unless the address says it, as the command does."""

LONGEST: Final = timedelta(days=400)


class OfSpend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    since: Text = ""
    limit: Limit = 20  # chains


async def spend_page(site: Site, call: Call) -> Response:
    """Answer with what was spent."""
    query = call.asked(OfSpend)
    try:
        since = moment(query.since, call.at) if query.since else call.at - SINCE
    except ValueError as error:
        raise RefusedError(422, f"since: {error}") from None
    if call.at - since > LONGEST:
        raise RefusedError(422, f"since: at most {LONGEST.days} days are added up.")
    ask = partial(
        spending_of,
        since=since,
        now=call.at,
        timezone=site.timezone,
        day_budget_usd=site.day_budget_usd,
        chain_budget_usd=site.chain_budget_usd,
        limit=query.limit,
    )
    found = await site.database.read(ask)
    highest = max([found.day_budget_usd, *(day.booked_usd for day in found.days)]) or 1.0
    values = {"found": found, "asked": query, "highest": highest}
    return await site.page(call, "spend.html", title="Spend", values=values)
