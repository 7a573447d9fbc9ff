"""The rows of the table of endpoints that are pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.formats.oidc import CALLBACK
from claudeops.web.endpoints import Endpoint, Handler, Query, WebCall
from claudeops.web.listings import (
    OfApprovals,
    OfAudit,
    OfEvents,
    OfIncidents,
    OfMemories,
    OfNotices,
    OfService,
    OfSessions,
    OfSilences,
)
from claudeops.web.pages import login
from claudeops.web.pages.chain_diff import diff_page
from claudeops.web.pages.chains import OfLines, OfOther, chain_page, session_page
from claudeops.web.pages.film import film_file, film_page
from claudeops.web.pages.incidents import approval_list, incident_list, incident_page
from claudeops.web.pages.lists import action_list, event_list, page_list, session_list
from claudeops.web.pages.more.approval import approval_page
from claudeops.web.pages.more.memories import memory_list, memory_page
from claudeops.web.pages.more.passkeys import passkey_list
from claudeops.web.pages.more.planned import audit_list, notice_list, schedule_list, silence_list, silence_page
from claudeops.web.pages.more.policy import OfPolicy, policy_page
from claudeops.web.pages.more.policy_replay import REPLAYS, replay_page
from claudeops.web.pages.more.settings import OfSettings, setting_page
from claudeops.web.pages.now import now
from claudeops.web.pages.services import service_list, service_page
from claudeops.web.pages.site import Site
from claudeops.web.pages.spend import OfSpend, spend_page
from claudeops.web.pages.why import OfWhy, why_page

_READ: Final = ScopeKind.READ.value

Answering = Callable[[Site, WebCall], Awaitable[Response]]


def page_endpoints(site: Site) -> Sequence[Endpoint]:
    """Return every page, what logs people in and out, and the files that pages load."""
    page = partial(_page, site)
    return (
        *_logins(site),
        page("/", now, "The state of everything: what is wrong, who is on it, what waits for a person."),
        page("/incidents", incident_list, "What is wrong, and the silences that hold.", query=OfIncidents),
        page("/incidents/{number}", incident_page, "One incident, and all that happened in order."),
        page("/sessions", session_list, "Sessions, newest first.", query=OfSessions),
        page("/sessions/{id}", session_page, "One session, and what it does line by line.", query=OfLines),
        page("/sessions/{id}/film", film_page, "A session that has ended, played as its lines came."),
        page("/sessions/{id}/film.html", film_file, "The same as one file, which needs nothing else."),
        page(
            "/chains/{root}",
            chain_page,
            "A chain as a tree: what its sessions saw, did and cost, and why.",
            query=OfOther,
        ),
        page("/chains/{a}/diff/{b}", diff_page, "Two chains beside each other, and the first call in which they part."),
        page("/services", service_list, "The services that probes watch, and how they were for seven days."),
        page("/services/{name}", service_page, "One service: probes, actions, cases, memories, checks, events."),
        page("/events", event_list, "What sessions and the daemon itself have raised.", query=OfEvents),
        page("/approvals", approval_list, "The calls that wait for a person.", query=OfApprovals),
        page("/approvals/{id}", approval_page, "One call that waits for a person: what it reaches, and did before."),
        page("/spend", spend_page, "What was spent, by day, tier, model, service, verdict and chain.", query=OfSpend),
        page("/why", why_page, "Why nothing was done: the recorded reasons in order.", query=OfWhy),
        page("/actions", action_list, "What was done to services, whether it held, and the limits.", query=OfService),
        page("/memories", memory_list, "What the agents believe, and how firmly.", query=OfMemories),
        page("/memories/{id}", memory_page, "One memory: its grounds, what it supersedes, who was shown it."),
        page("/silences", silence_list, "Which alerts are held back, by whom and how long.", query=OfSilences),
        page("/silences/{id}", silence_page, "One silence: what it holds back, by whom and how long."),
        page("/schedule", schedule_list, "When each schedule fires next, and what came of its last fire."),
        page(
            "/notifications", notice_list, "Which notices wait, which were sent, which failed and why.", query=OfNotices
        ),
        page("/settings", setting_page, "The settings in effect, and where each comes from.", query=OfSettings),
        page("/audit", audit_list, "The newest links of the audit chain, which the browser recomputes.", query=OfAudit),
        page("/policy", policy_page, "The rules by tier, and what the gate would say of a command.", query=OfPolicy),
        page("/passkeys", passkey_list, "The passkeys of whoever is logged in: they sign a yes where one is demanded."),
        page("/more", page_list, "Links to the pages that are needed less often."),
        _replay(site),
    )


def _page(site: Site, path: str, answering: Answering, summary: str, *, query: Query = None) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        scope=_READ,
        page=True,
        query=query,
        answer=str,
        handler=partial(answering, site),
        summary=summary,
    )


def _replay(site: Site) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/policy/replay",
        scope=ScopeKind.OPERATE.value,
        page=True,
        body=bytes,
        answer=str,
        handler=partial(replay_page, site),
        summary=REPLAYS,
    )


def _logins(site: Site) -> Sequence[Endpoint]:
    link, out = "/setup/{once}", "Ends the login of the browser."
    link_page, use_link = partial(login.link_page, site), partial(login.use_link, site)
    begin, end, back = partial(login.begin_at_provider, site), partial(login.end_at_provider, site), CALLBACK
    return (
        Endpoint(
            method="GET",
            path="/static/{name}",
            scope=None,
            asks_name=False,
            answer=bytes,
            handler=site.pages.files.serve,
            summary="A file that pages load.",
        ),
        _open(
            "GET", "/login", partial(login.login_page, site), "How to log in, and the form to do so.", query=login.After
        ),
        _open("POST", "/login", partial(login.use_password, site), "Logs a browser in by name and password."),
        _open("GET", "/login/oidc", begin, "Leads a browser to the identity provider.", query=login.After, status=303),
        _open("GET", back, end, "Logs a browser in that comes back from there.", query=login.Back, status=303),
        _open("GET", link, link_page, "A link of `claudeops login-link`: the button that uses it.", query=login.After),
        _open("POST", link, use_link, "Logs a browser in by a link, which is used up."),
        _open("POST", "/logout", partial(login.log_out, site), out),
    )


def _open(
    method: str, path: str, handler: Handler, summary: str, *, query: Query = None, status: int = 200
) -> Endpoint:
    is_form = method == "POST"
    return Endpoint(
        method=method,
        path=path,
        scope=None,
        page=True,
        query=query,
        body=bytes if is_form else None,
        answer=str,
        status=303 if is_form else status,
        handler=handler,
        summary=summary,
    )
