"""Lists of what is on record: events, actions, sessions; and of the other pages."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from claudeops.domain.events import EventLevel
from claudeops.domain.sessions import Outcome
from claudeops.store.reading import events, services, session_rows
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import OfEvents, OfService, OfSessions, listing, older
from claudeops.web.pages.navigation import MORE
from claudeops.web.pages.site import Site


async def event_list(site: Site, call: WebCall) -> Response:
    """Answer with what sessions and the daemon itself have raised."""
    query = call.asked(OfEvents)
    wanted = listing(query, call.at)
    found = await site.database.read(partial(events.listed, wanted=wanted, only_open=query.open))
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "events.html", title="Events", values={**values, "levels": tuple(EventLevel)})


async def action_list(site: Site, call: WebCall) -> Response:
    """Answer with what was done to services, whether it held, and what is left of the limits."""
    query = call.asked(OfService)
    found = await site.database.read(partial(services.actions, wanted=listing(query, call.at)))
    limits = partial(services.limits_left, rules=site.rules, now=call.at, service=query.service or None)
    left = await site.database.read(limits)
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query, "limits": left}
    return await site.page(call, "actions.html", title="Actions", values=values)


async def session_list(site: Site, call: WebCall) -> Response:
    """Answer with sessions, newest first."""
    query = call.asked(OfSessions)
    found = await site.database.read(partial(session_rows.listed, wanted=listing(query, call.at)))
    values = {"found": found.items, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "sessions.html", title="Sessions", values={**values, "outcomes": tuple(Outcome)})


async def page_list(site: Site, call: WebCall) -> Response:
    """Answer with links to the pages that the navigation itself does not name."""
    return await site.page(call, "more.html", title="More", values={"links": MORE})
