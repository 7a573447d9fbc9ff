"""Why nothing was done about a service at a time: the recorded reasons, in order."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.domain.listing import duration, moment
from claudeops.domain.why import window
from claudeops.store.reading.why import reasons
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import Length, Limit, Moment, Text
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError
from claudeops.wording.why import WhyAnswer, answer_of

LONGEST: Final = timedelta(days=366)


class OfWhy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the address says."""

    service: Text = ""
    at: Moment = ""  # empty: until now
    within: Length = "6h"  # how far it looks back
    limit: Limit = 200


async def why_page(site: Site, call: WebCall) -> Response:
    """Answer with the reasons."""
    query = call.asked(OfWhy)
    found = await _reasons(site, query, call.at)
    return await site.page(call, "why.html", title="Why", values={"found": found, "asked": query})


async def why_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return single(call, await _reasons(site, call.asked(OfWhy), call.at))


async def _reasons(site: Site, query: OfWhy, now: datetime) -> WhyAnswer:
    try:
        at, within = moment(query.at, now) if query.at else None, duration(query.within)
    except (ValueError, OverflowError) as error:
        raise RefusedError(422, str(error)) from None
    if not timedelta(0) < within <= LONGEST:
        raise RefusedError(422, "within: write 30m, 6h or 7d, up to a year.")
    since, until = window(at, within, now)
    ask = partial(reasons, service=query.service or None, since=since, until=until, limit=query.limit)
    return answer_of(await site.database.read(ask))
