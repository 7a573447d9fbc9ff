"""The first page: what is wrong, since when, who is on it, what was done, what waits for a person."""

from __future__ import annotations

from starlette.responses import Response

from claudeops.errors import StoreError
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import AWAY, Site, is_late, state_of


async def now(site: Site, call: WebCall) -> Response:
    """Answer with the state of everything; also while the database is away."""
    try:
        seen, trouble = await site.seen(), ""
    except StoreError as error:
        seen, trouble = None, str(error)
    state = AWAY if seen is None else state_of(seen, call.at)
    return site.page_of(
        call,
        "now.html",
        title="Now",
        state=state,
        values={
            "seen": seen,
            "trouble": trouble,
            "is_late": seen is not None and is_late(seen, call.at),
            "next_fires": site.next_fires(),
            "day_budget_usd": site.day_budget_usd,
        },
    )
