"""What is planned, held back and on record: schedules, notices to people, silences, and the audit chain."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from claudeops.store.reading import calls_made, silences
from claudeops.store.reading.planned import notices
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import OfAudit, OfNotices, OfSilences, listing, older
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError


async def schedule_list(site: Site, call: WebCall) -> Response:
    """Answer with the schedules: when each fires next, and what came of its last fire."""
    return await site.page(call, "schedule.html", title="Schedule", values={"found": await site.schedules()})


async def notice_list(site: Site, call: WebCall) -> Response:
    """Answer with notices: which wait, which were sent, which failed and why."""
    query = call.asked(OfNotices)
    read = partial(notices.listed, wanted=listing(query, call.at), target=query.target or None, waiting=query.waiting)
    found = await site.database.read(read)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "notifications.html", title="Notifications", values=values)


async def silence_list(site: Site, call: WebCall) -> Response:
    """Answer with the silences that are not over, or all of them."""
    query = call.asked(OfSilences)
    read = partial(silences.newest, wanted=listing(query, call.at), now=call.at, everything=query.all)
    found = await site.database.read(read)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "silences.html", title="Silences", values=values)


async def silence_page(site: Site, call: WebCall) -> Response:
    """Answer with one silence, and what it holds back."""
    number = call.number("id")
    found = await site.database.read(partial(silences.story, silence_id=number, now=call.at))
    if found is None:
        raise RefusedError(404, f"There is no silence {number}.")
    return await site.page(call, "silence.html", title=f"Silence {number}", values={"silence": found})


async def audit_list(site: Site, call: WebCall) -> Response:
    """Answer with links of the audit chains, which the browser recomputes."""
    query = call.asked(OfAudit)
    read = partial(calls_made.audit_links, wanted=listing(query, call.at), session_id=query.session)
    found = await site.database.read(read)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "audit.html", title="Audit", values=values)
