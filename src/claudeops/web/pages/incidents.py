"""Incidents: what is wrong, since when, who is on it, and all that happened in order."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from starlette.responses import Response

from claudeops.domain.alerts.matchers import SERVICE, Matcher, Operator
from claudeops.domain.events import EventLevel
from claudeops.store.reading import Connection, approvals, silences
from claudeops.store.reading.incidents import entries
from claudeops.store.reading.incidents import story as stories
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import OfApprovals, OfIncidents, listing, older
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError


async def incident_list(site: Site, call: WebCall) -> Response:
    """Answer with the incidents that are open, or all of them, and the silences that hold."""
    query = call.asked(OfIncidents)
    wanted = listing(query, call.at)
    found = await site.database.read(partial(entries.listed, wanted=wanted, everything=query.all, now=call.at))
    held = await site.database.read(partial(silences.listed, now=call.at, everything=False))
    values: dict[str, object] = {"found": found.items, "asked": query, "levels": tuple(EventLevel), "silences": held}
    values["older"] = older(call.path, call.query, found.before)
    return await site.page(call, "incidents.html", title="Incidents", values=values)


async def incident_page(site: Site, call: WebCall) -> Response:
    """Answer with one incident and its timeline."""
    number = call.number("number")
    found = await site.database.read(partial(_story, number=number, now=call.at))
    if found is None:
        raise RefusedError(404, f"There is no incident {number}.")
    story, awaits_look = found
    services = story.services[:1]
    values = {
        "story": story,
        "awaits_look": awaits_look,
        "timeline": stories.timeline(story),
        "matchers": "".join(str(Matcher(name=SERVICE, operator=Operator.EQUAL, value=name)) for name in services),
    }
    return await site.page(call, "incident.html", title=f"Incident {number}", values=values)


def _story(connection: Connection, number: int, now: datetime) -> tuple[stories.IncidentStory, bool] | None:
    found = stories.story(connection, number, now=now)
    return None if found is None else (found, stories.awaits_look(connection, number))


async def approval_list(site: Site, call: WebCall) -> Response:
    """Answer with the calls that wait for a person, or all that did."""
    query = call.asked(OfApprovals)
    wanted = listing(query, call.at)
    found = await site.database.read(partial(approvals.listed, wanted=wanted, everything=query.all))
    shown = tuple(map(approvals.to_entry, found.items))
    values = {"found": shown, "older": older(call.path, call.query, found.before), "asked": query}
    return await site.page(call, "approvals.html", title="Approvals", values=values)
