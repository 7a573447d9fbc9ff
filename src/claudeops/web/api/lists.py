"""Lists: what each reads, by the query that its address takes."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response

from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import (
    Connection,
    alerts,
    approvals,
    calls_made,
    events,
    memories,
    nodes,
    services,
    session_rows,
    silences,
    sources,
    uptime,
)
from claudeops.store.reading.incidents import entries
from claudeops.store.reading.planned import notices
from claudeops.structs import replace
from claudeops.web.api.answers import whole
from claudeops.web.api.queries import OfCooldowns
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import (
    OfAlerts,
    OfApprovals,
    OfAudit,
    OfEvents,
    OfIncidents,
    OfMemories,
    OfNotices,
    OfSilences,
)
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError


def read_events(connection: Connection, wanted: Listing, asked: OfEvents, _: WebCall) -> Page[events.EventEntry]:
    """Return a page of events."""
    return events.listed(connection, wanted, only_open=asked.open)


def read_sessions(connection: Connection, wanted: Listing, _: Any, __: WebCall) -> Page[session_rows.ListedSession]:
    """Return a page of sessions."""
    return session_rows.listed(connection, wanted)


def read_incidents(
    connection: Connection, wanted: Listing, asked: OfIncidents, call: WebCall
) -> Page[entries.IncidentEntry]:
    """Return a page of incidents."""
    return entries.listed(connection, wanted, everything=asked.all, now=call.at)


def read_alerts(connection: Connection, wanted: Listing, asked: OfAlerts, _: WebCall) -> Page[alerts.AlertEntry]:
    """Return a page of alerts."""
    return alerts.listed(connection, wanted, everything=asked.all)


def read_approvals(
    connection: Connection, wanted: Listing, asked: OfApprovals, _: WebCall
) -> Page[approvals.ApprovalEntry]:
    """Return a page of questions to people."""
    found = approvals.listed(connection, wanted, everything=asked.all)
    return Page(items=tuple(map(approvals.to_entry, found.items)), before=found.before, newest=found.newest)


def read_memories(
    connection: Connection, wanted: Listing, asked: OfMemories, call: WebCall
) -> Page[memories.MemoryEntry]:
    """Return a page of memories."""
    return memories.listed(connection, wanted, now=call.at, everything=asked.all)


def read_silences(
    connection: Connection, wanted: Listing, asked: OfSilences, call: WebCall
) -> Page[silences.SilenceEntry]:
    """Return a page of silences."""
    return silences.newest(connection, wanted, now=call.at, everything=asked.all)


def read_audit(connection: Connection, wanted: Listing, asked: OfAudit, _: WebCall) -> Page[calls_made.AuditLink]:
    """Return a page of the links of the audit chains."""
    return calls_made.audit_links(connection, wanted, session_id=asked.session)


def read_notices(connection: Connection, wanted: Listing, asked: OfNotices, _: WebCall) -> Page[notices.NoticeEntry]:
    """Return a page of notices."""
    return notices.listed(connection, wanted, target=asked.target or None, waiting=asked.waiting)


def read_actions(connection: Connection, wanted: Listing, _: Any, __: WebCall) -> Page[services.ActionEntry]:
    """Return a page of the ledger of actions."""
    return services.actions(connection, wanted)


def read_checks(connection: Connection, wanted: Listing, _: Any, call: WebCall) -> Page[services.CheckEntry]:
    """Return a page of what was seen of the service in the path."""
    return services.checks(connection, replace(wanted, service=unquote(call.params["name"])))


def read_calls(connection: Connection, wanted: Listing, _: Any, call: WebCall) -> Page[calls_made.ToolCallEntry]:
    """Return a page of the tool calls of the session in the path."""
    return calls_made.of_tools(connection, wanted, _session(connection, call))


def read_model_calls(connection: Connection, wanted: Listing, _: Any, call: WebCall) -> Page[calls_made.ModelCallEntry]:
    """Return a page of its model calls."""
    return calls_made.of_the_model(connection, wanted, _session(connection, call))


def _session(connection: Connection, call: WebCall) -> int:
    number = call.number("id")
    if session_rows.one(connection, number) is None:
        raise RefusedError(404, f"There is no session {number}.")
    return number


# --- lists without pages ----------------------------------------------------------------------------------


async def service_list(site: Site, _: WebCall) -> Response:
    """Answer with the services that probes watch."""
    return whole(await site.database.read(uptime.services_now))


async def source_list(site: Site, _: WebCall) -> Response:
    """Answer with who sends alerts."""
    return whole(await site.database.read(partial(sources.listed, declared=site.sources())))


async def node_list(site: Site, call: WebCall) -> Response:
    """Answer with the daemons that run on the database."""
    return whole(await site.database.read(partial(nodes.listed, now=call.at)))


async def cooldown_list(site: Site, call: WebCall) -> Response:
    """Answer with the limits that actions have touched, by the policy that the daemon has read."""
    service = call.asked(OfCooldowns).service
    read = partial(services.limits_left, rules=site.rules, now=call.at, service=service or None)
    return whole(await site.database.read(read))
