"""What is planned and what is held back: schedules, notices to people, silences."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from claudeops.store.reading import silences
from claudeops.store.reading.planned import notices
from claudeops.web.endpoints import Call
from claudeops.web.listings import OfNotices, OfSilences, listing, older
from claudeops.web.pages.site import Site


async def schedule_list(site: Site, call: Call) -> Response:
    """Answer with the schedules: when each fires next, and what came of its last fire."""
    return await site.page(call, "schedule.html", title="Schedule", values={"found": await site.schedules()})


async def notice_list(site: Site, call: Call) -> Response:
    """Answer with notices: which wait, which were sent, which failed and why."""
    query = call.asked(OfNotices)
    read = partial(notices.listed, wanted=listing(query, call.at), target=query.target or None, waiting=query.waiting)
    found = await site.database.read(read)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "notifications.html", title="Notifications", values=values)


async def silence_list(site: Site, call: Call) -> Response:
    """Answer with the silences that are not over, or all of them."""
    query = call.asked(OfSilences)
    read = partial(silences.newest, wanted=listing(query, call.at), now=call.at, everything=query.all)
    found = await site.database.read(read)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "silences.html", title="Silences", values=values)
