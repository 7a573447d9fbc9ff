"""The rows of the table of endpoints that are the API's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.domain.chains.cooldown import Left
from claudeops.domain.setting import Setting
from claudeops.policy.replay import PolicyReplay
from claudeops.store.acts.holds import Holding
from claudeops.store.glance import Glance
from claudeops.store.reading.alerts import AlertEntry
from claudeops.store.reading.approvals import ApprovalEntry, ApprovalStory
from claudeops.store.reading.calls_made import AuditLink, ModelCallEntry, ToolCallEntry
from claudeops.store.reading.chain_diff import ChainDiff
from claudeops.store.reading.chains import ChainTree
from claudeops.store.reading.events import EventEntry
from claudeops.store.reading.figures import CountedFigures
from claudeops.store.reading.homepage import Homepage
from claudeops.store.reading.incidents.entries import IncidentEntry
from claudeops.store.reading.memories import MemoryEntry, MemoryStory
from claudeops.store.reading.nodes import NodeEntry
from claudeops.store.reading.planned.notices import NoticeEntry
from claudeops.store.reading.planned.schedules import ScheduleEntry
from claudeops.store.reading.services import ActionEntry, CheckEntry
from claudeops.store.reading.session_rows import ListedSession
from claudeops.store.reading.silences import SilenceEntry, SilenceStory
from claudeops.store.reading.sources import SourceEntry
from claudeops.store.reading.spending import SpendingAnswer
from claudeops.store.reading.uptime import ServiceNow
from claudeops.store.verify import Verified
from claudeops.web.api import lists, things
from claudeops.web.api.answers import Items, Reading, list_of
from claudeops.web.api.queries import OfCooldowns, OfFigures, OfSums
from claudeops.web.api.things import TimedIncident
from claudeops.web.endpoints import IF_NONE_MATCH, Endpoint, Query, WebCall
from claudeops.web.listings import (
    OfAlerts,
    OfApprovals,
    OfAudit,
    OfEvents,
    OfIncidents,
    OfMemories,
    OfNotices,
    OfService,
    OfSessions,
    OfSilences,
    Paged,
    Timed,
)
from claudeops.web.pages.chain_diff import diff_answer
from claudeops.web.pages.film import Film, film_answer
from claudeops.web.pages.more.approval import approval_answer
from claudeops.web.pages.more.passkeys import PasskeyEntry, passkey_answer
from claudeops.web.pages.more.policy import OfPolicy, PolicyAnswer, policy_answer
from claudeops.web.pages.more.policy_replay import REPLAYS, ReplayBody, replay_answer
from claudeops.web.pages.more.settings import OfSettings, setting_list
from claudeops.web.pages.services import ServiceStory, service_answer
from claudeops.web.pages.site import Site
from claudeops.web.pages.why import OfWhy, why_answer
from claudeops.wording.why import WhyAnswer

Q = TypeVar("Q", bound=Paged)

BASE: Final = "/api/v1"

Answering = Callable[[Site, WebCall], Awaitable[Response]]


def api_endpoints(site: Site) -> Sequence[Endpoint]:
    """Return every endpoint that changes nothing."""
    replay = Endpoint(
        method="POST",
        path=f"{BASE}/policy/replay",
        scope=ScopeKind.OPERATE.value,
        body=ReplayBody,
        answer=PolicyReplay,
        handler=partial(replay_answer, site),
        summary=REPLAYS,
    )
    return (*_lists(site), *_things(site), *_sums(site), replay)


def _lists(site: Site) -> Sequence[Endpoint]:
    paged = partial(_paged, site)
    return (
        paged("/sessions", OfSessions, lists.read_sessions, ListedSession, "Sessions."),
        paged("/sessions/{id}/calls", Paged, lists.read_calls, ToolCallEntry, "A session's calls of tools, judged."),
        paged(
            "/sessions/{id}/model-calls",
            Paged,
            lists.read_model_calls,
            ModelCallEntry,
            "A session's calls of the model: tokens and cost.",
        ),
        paged("/events", OfEvents, lists.read_events, EventEntry, "What sessions and the daemon itself have raised."),
        paged("/incidents", OfIncidents, lists.read_incidents, IncidentEntry, "What is wrong."),
        paged("/alerts", OfAlerts, lists.read_alerts, AlertEntry, "What is known of alerts."),
        paged("/services/{name}/checks", Timed, lists.read_checks, CheckEntry, "How a service was seen."),
        paged(
            "/actions", OfService, lists.read_actions, ActionEntry, "What was done to services, and whether it held."
        ),
        paged("/approvals", OfApprovals, lists.read_approvals, ApprovalEntry, "The calls that wait for a person."),
        paged("/memories", OfMemories, lists.read_memories, MemoryEntry, "What the agents believe."),
        paged("/silences", OfSilences, lists.read_silences, SilenceEntry, "The silences that are not over."),
        paged("/audit", OfAudit, lists.read_audit, AuditLink, "The links of the audit chains, with what they hash."),
        paged(
            "/notifications", OfNotices, lists.read_notices, NoticeEntry, "Notices to people, and what came of them."
        ),
    )


def _things(site: Site) -> Sequence[Endpoint]:
    one = partial(_one, site)
    return (
        one("/sessions/{id}", things.session, ListedSession, "One session."),
        one("/chains/{root}", things.chain, ChainTree, "A chain: what its sessions saw, did and cost, and why."),
        one("/chains/{a}/diff/{b}", diff_answer, ChainDiff, "Two chains beside each other, and where they part."),
        one("/incidents/{number}", things.incident, TimedIncident, "One incident, and all that happened in order."),
        one("/approvals/{id}", approval_answer, ApprovalStory, "One call for a person to answer, and what it reaches."),
        one("/silences/{id}", things.silence, SilenceStory, "One silence, and what it holds back now."),
        one("/memories/{id}", things.memory, MemoryStory, "One memory, and what it has to do with others."),
        one("/sessions/{id}/film", film_answer, Film, "The lines of a session that has ended, with their times."),
        one("/services/{name}", service_answer, ServiceStory, "One service, and the latest on record about it."),
        one(
            "/sessions/{id}/audit",
            things.verified,
            Verified,
            "Whether a session's calls of tools are on record as they were written.",
        ),
    )


def _sums(site: Site) -> Sequence[Endpoint]:
    one = partial(_one, site)
    limits = "The limits that actions have touched."
    settings = "The settings in effect; of secrets only whether they are set."
    policy = "The policy in force, and the verdict on a command, which is not run."
    stats = "Figures for Homepage, by the names that Claude Ops gave them."
    return (
        one("/why", why_answer, WhyAnswer, "Why nothing was done: the recorded reasons in order.", query=OfWhy),
        one("/policy", policy_answer, PolicyAnswer, policy, query=OfPolicy, refusals=(404,)),
        one("/passkeys", passkey_answer, Items[PasskeyEntry], "The passkeys of whoever is logged in."),
        one("/sources", lists.source_list, Items[SourceEntry], "Who sends alerts, and what of it could not be read."),
        one("/nodes", lists.node_list, Items[NodeEntry], "The daemons that run, and what they do not have the same."),
        one("/services", lists.service_list, Items[ServiceNow], "The services that probes watch."),
        one("/cooldowns", lists.cooldown_list, Items[Left], limits, query=OfCooldowns),
        one(
            "/spend",
            things.spend,
            SpendingAnswer,
            "What was spent, by day, tier, model, service, verdict and chain.",
            query=OfSums,
        ),
        one("/figures", things.sums, CountedFigures, "What the command `stats` counts over a time.", query=OfFigures),
        one(
            "/schedule",
            things.schedule,
            Items[ScheduleEntry],
            "When each schedule fires next, and what came of its last fire.",
        ),
        one("/pause", things.pause, Holding, "Whether sessions start, and what holds them."),
        one("/settings", setting_list, Items[Setting], settings, query=OfSettings),
        one("/status", things.status, Glance, "What the command `status` has of the database."),
        one("/stats", things.stats, Homepage, stats),
    )


def _paged(  # noqa: PLR0917 - one row of a table
    site: Site, path: str, query: type[Q], read: Reading[Q, Any], entry: type, summary: str
) -> Endpoint:
    return _row(path, partial(list_of, site, query, read), Items[entry], summary, query)  # type: ignore[valid-type]


def _one(
    site: Site,
    path: str,
    answering: Answering,
    answer: Any,
    summary: str,
    *,
    query: Query = None,
    refusals: tuple[int, ...] = (),
) -> Endpoint:
    return _row(path, partial(answering, site), answer, summary, query, refusals=refusals)


def _row(
    path: str,
    handler: Callable[[WebCall], Awaitable[Response]],
    answer: Any,
    summary: str,
    query: Query,
    *,
    refusals: tuple[int, ...] = (),
) -> Endpoint:
    is_list = getattr(answer, "__origin__", None) is Items
    return Endpoint(
        method="GET",
        path=f"{BASE}{path}",
        scope=ScopeKind.READ.value,
        query=query,
        answer=answer,
        headers=() if is_list else (IF_NONE_MATCH,),
        refusals=refusals,
        handler=handler,
        summary=summary,
    )
