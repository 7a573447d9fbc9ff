"""The one table of endpoints, and what each does.

What is here is in docs/reference/listener.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.domain.alerts.alert import PROBES
from claudeops.domain.alerts.receipt import WEBHOOK, Receipt
from claudeops.domain.alerts.rules import SenderKind
from claudeops.domain.probes.probe import PingVerb
from claudeops.domain.probes.record import ping_line
from claudeops.errors import ErrorKind
from claudeops.store.probes import Probes
from claudeops.text import regex
from claudeops.web.authentication import SLACK
from claudeops.web.endpoints import ANY, Endpoint, Network, WebCall
from claudeops.web.ports import Intake, Interactions, Metrics, Readiness, Sources
from claudeops.web.problems import RefusedError, answer
from claudeops.wording.notices.slack import payload_of

_READY: Final = 200
_NOT_READY: Final = 503
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"  # the format of its texts
_STRANGE: Final = regex.Pattern(r"[^A-Za-z0-9_.-]")  # to the id of a run, which people are told
_MOST_RUN: Final = 64  # characters of a run's id; healthchecks' are UUIDs
_SENT: Final = 10_000  # bytes of a ping's body that are looked at
_VERBS: Final[dict[str, PingVerb | None]] = {
    "": PingVerb.SUCCESS,
    "/start": PingVerb.START,
    "/fail": PingVerb.FAIL,
    "/log": None,
}


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The event loop turns."""

    status: str = "ok"


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the daemon does its work, check by check."""

    status: str  # "ready", "not_ready"
    checks: dict[str, bool]
    details: dict[str, str] = msgspec.field(default_factory=dict)  # for those who may read


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A ping that was noted."""

    name: str
    ping: str  # "success", "start", "fail", "log"
    handled: bool = True


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """What was pressed in Slack is being looked at."""

    status: str = "received"


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoints lead to."""

    readiness: Readiness
    pings: Probes
    sources: Sources
    redact: Callable[[str], str] = str  # takes secrets out of a text
    intake: Intake | None = None  # None: no alerts are taken
    metrics: Metrics | None = None  # None: nothing is counted
    scrapers: tuple[Network, ...] = ()  # who may read the metrics without a token
    interactions: Interactions | None = None  # None: nobody presses anything by way of us
    pages: Sequence[Endpoint] = ()  # with streams and API; empty: they are switched off
    described: Callable[[Sequence[Endpoint]], Sequence[Endpoint]] | None = None  # what describes them all


def table_of(rooms: Rooms) -> tuple[Endpoint, ...]:
    """Return every endpoint."""
    alerts = () if rooms.intake is None else _alerts(rooms, rooms.intake)
    open_to_tools = (*_health(rooms), *_metrics(rooms), *_heartbeats(rooms))
    rows = (*open_to_tools, *alerts, *_slack(rooms.interactions), *rooms.pages)
    return rows if rooms.described is None else (*rows, *rooms.described(rows))


# --- health -----------------------------------------------------------------------------------------------


def _health(rooms: Rooms) -> Sequence[Endpoint]:
    return (
        *(
            Endpoint(
                method="GET",
                path=path,
                scope=None,
                asks_name=False,
                answer=Alive,
                handler=_alive,
                summary=f"Tells that the daemon lives; {more}.",
            )
            for path, more in (
                ("/healthz", "asks neither the database nor the model API"),
                ("/health", "the same by another name"),
                ("/api/v1/health", "the same, at the address that Claude Ops had"),
            )
        ),
        Endpoint(
            method="GET",
            path="/readyz",
            scope=None,
            answer=Ready,
            handler=partial(_ready, rooms.readiness),
            summary="Tells whether it does its work: 200 or 503, check by check; with the scope `read`, why not.",
        ),
    )


async def _alive(_: WebCall) -> Alive:
    return Alive()


async def _ready(readiness: Readiness, call: WebCall) -> Response:
    checks = readiness()
    is_ready = all(check.ok for check in checks)
    may_read = call.caller is not None and ScopeKind.READ.value in call.caller.scopes
    said = Ready(
        status="ready" if is_ready else "not_ready",
        checks={check.name: check.ok for check in checks},
        details={check.name: check.detail for check in checks if check.detail} if may_read else {},
    )
    return answer(said, status=_READY if is_ready else _NOT_READY)


# --- metrics ----------------------------------------------------------------------------------------------


def _metrics(rooms: Rooms) -> Sequence[Endpoint]:
    if rooms.metrics is None:
        return ()
    return (
        Endpoint(
            method="GET",
            path="/metrics",
            scope=ScopeKind.METRICS.value,
            networks=rooms.scrapers,
            answer=str,
            media="text/plain",
            handler=partial(_scrape, rooms.metrics),
            summary="What the daemon counts of itself, as Prometheus reads it.",
        ),
    )


async def _scrape(metrics: Metrics, _: WebCall) -> Response:
    return Response(await metrics(), headers={"content-type": _PROMETHEUS, "cache-control": "no-store"})


# --- alerts -----------------------------------------------------------------------------------------------


def _alerts(rooms: Rooms, intake: Intake) -> Sequence[Endpoint]:
    post = Endpoint(
        method="POST",
        path="/api/v1/alerts/{source}",
        scope="alerts:{source}",
        signer="{source}",
        query=ANY,
        body=bytes,
        answer=Receipt,
        status=202,
        handler=partial(_take, intake, None),
        summary="Takes what a source sends; 202 means that it is stored, also where it cannot be read.",
    )
    return (
        post,
        Endpoint(
            method="GET",
            path=post.path,
            scope=post.scope,
            query=ANY,
            answer=Receipt,
            status=202,
            refusals=(HTTPStatus.METHOD_NOT_ALLOWED,),
            handler=partial(_take_address, rooms.sources, intake),
            summary="The same for sources of the kind `healthchecks`, which may say all in the address.",
        ),
        Endpoint(
            method="POST",
            path="/api/v1/webhook",
            scope=f"alerts:{WEBHOOK}",
            signer=WEBHOOK,
            query=ANY,
            body=bytes,
            answer=Receipt,
            status=202,
            handler=partial(_take, intake, WEBHOOK),
            summary="The source `webhook`, at the address that Claude Ops had; the chat key opens it too.",
        ),
    )


async def _take(intake: Intake, source: str | None, call: WebCall) -> Receipt:
    name = source or call.params["source"]
    if name == PROBES:  # no token has this scope; this holds even if one had
        raise RefusedError(404, "There is nothing at this address.")
    return await intake.take(name, call.body, call.headers, call.at, query=call.query)


async def _take_address(sources: Sources, intake: Intake, call: WebCall) -> Receipt:
    if sources.source(call.params["source"]).kind is not SenderKind.HEALTHCHECKS:
        raise RefusedError(405, "This source sends by POST.", allow="POST")
    return await _take(intake, None, call)


# --- Slack ------------------------------------------------------------------------------------------------


def _slack(interactions: Interactions | None) -> Sequence[Endpoint]:
    if interactions is None:
        return ()
    return (
        Endpoint(
            method="POST",
            path="/api/v1/slack/interactions",
            scope="slack",
            signer=SLACK,
            takes_tokens=False,
            body=bytes,
            answer=Pressed,
            handler=partial(_press, interactions),
            summary="Takes what somebody has pressed in Slack; who that is, and what follows, is looked at after it.",
        ),
    )


async def _press(interactions: Interactions, call: WebCall) -> Pressed:
    proven = call.caller.scopes if call.caller is not None else frozenset[str]()
    if not interactions.take(payload_of(call.body), proven):
        raise RefusedError(503, "Too much waits to be looked at.", kind=ErrorKind.RUNTIME, retry_after=1)
    return Pressed()


# --- heartbeats -------------------------------------------------------------------------------------------


def _heartbeats(rooms: Rooms) -> Sequence[Endpoint]:
    return tuple(
        Endpoint(
            method=method,
            path=f"/api/v1/heartbeats/{{name}}{ending}",
            scope="heartbeats:{name}",
            query=ANY,
            body=bytes if method == "POST" else None,
            answer=Heard,
            handler=partial(_ping, rooms, verb),
            summary=f"Hears the heartbeat of a probe: {_said(verb)}; a body is kept as a line, `?rid=` names the run.",
        )
        for ending, verb in _VERBS.items()
        for method in ("GET", "POST")
    )


async def _ping(rooms: Rooms, verb: PingVerb | None, call: WebCall) -> Heard:
    name = call.params["name"]
    text = call.body[:_SENT].decode(errors="replace")
    line = ping_line(text, rooms.redact, is_cut=len(call.body) > _SENT)
    if not await rooms.pings.ping(name, verb, text=line, at=call.at, run=_run(call, rooms.redact)):
        raise RefusedError(404, f"No probe of the kind heartbeat is called {name}.")
    return Heard(name=name, ping=_said(verb))


def _run(call: WebCall, redact: Callable[[str], str]) -> str:
    """Return the name of the run that a ping is about; the same for the same one, and never a secret."""
    given = call.query.get("rid", "")
    if redact(given) != given:
        given = sha256(given.encode(errors="replace")).hexdigest()
    return _STRANGE.sub("", given)[:_MOST_RUN]


def _said(verb: PingVerb | None) -> str:
    return "log" if verb is None else verb.value
