"""The API behind a real listener on loopback, and schemathesis, which sends what its description allows, and what not.

Every request goes over HTTP to the application that the daemon serves, over a real database in which something of
everything has happened.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st
from requests import PreparedRequest
from requests.auth import AuthBase
from schemathesis import AuthContext, Case, HookContext
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.openapi.checks import UseAfterFree
from sqlalchemy import Connection
from starlette.types import Message, Receive, Scope, Send

from claudeops.domain.access.logins import COOKIE, NewLogin, Role
from claudeops.domain.access.tokens import digest_of
from claudeops.http_server import listen
from claudeops.web.endpoints import IDEMPOTENCY_KEY
from claudeops.web.listings import cursor
from support.listening import SIGNING, bearer, secret_of, token_for
from support.lived_in import log_of, something_of_everything, with_log
from support.paged import SiteDoor, secret_for, site_door
from support.policy_in_force import policy_in
from support.store_values import NOW, OWNER
from support.waiting import PATIENCE_SECONDS

KNOWN: Final[Mapping[str, Mapping[str, str | int]]] = {
    "/api/v1/alerts/{source}": {"source": "checks"},
    "/api/v1/services/{name}": {"name": "web"},
    "/api/v1/services/{name}/checks": {"name": "web"},
    "/api/v1/approvals/{id}/answer": {"id": 2},
    "/api/v1/approvals/{id}/challenge": {"id": 2},
    "/api/v1/chains/{a}/diff/{b}": {"b": 2},
    "/api/v1/memories/{id}/restore": {"id": 3},
    "/api/v1/memories/{id}/confirm": {"id": 2},
    "/api/v1/sessions/{id}/stop": {"id": 5},
}
"""What is there where the number 1 names nothing, or nothing that can be done; of heartbeats it is ``backup``."""

_PROGRAM: Final = 4
_SCOPES: Final = ("read", "trigger", "stop", "operate", "metrics", "heartbeats:backup")
_SOURCES: Final = ("alerts:prometheus", "alerts:checks", "alerts:webhook")

_AGES: Final = st.builds("{}{}".format, st.integers(1, 299), st.sampled_from("smhd"))
_TIMES: Final = st.integers(0, 299 * 86_400).map(lambda seconds: (NOW - timedelta(seconds=seconds)).isoformat())
_POLICIES: Final = ('extends = "default"\n', 'extends = "default"\nwithout = ["df"]\n')
_MATCHERS: Final = ('service="web"', 'severity=~"crit.*"')
_FORMATS: Final[dict[str, st.SearchStrategy[str]]] = {
    "cursor": st.integers(1, 10**12).map(lambda key: cursor(key) or ""),
    "moment": _AGES | _TIMES,
    "length-of-time": _AGES,
    "lifetime": _AGES | st.just("never"),
    "matcher": st.sampled_from(_MATCHERS),
    "scope": st.sampled_from(["read", "trigger", "metrics", "alerts:grafana", "heartbeats:backup"]),
    "policy": st.sampled_from(_POLICIES),
    "credential": st.just('{"id":"x","response":{"clientDataJSON":"e30"}}'),
    "idempotency-key": st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
    "etags": st.sampled_from(['"x"', "*", 'W/"x", "y"']),
    "preference": st.sampled_from(["respond-if-busy", "respond-async"]),
    "event-id": st.integers(0, 9).map(str),
}
"""Values of formats that JSON Schema does not know."""

for _name, _strategy in _FORMATS.items():
    schemathesis.openapi.format(_name, _strategy)


@dataclass
class ServedApi:
    """The API at an address."""

    url: str
    document: dict[str, Any]

    @property
    def operations(self) -> list[str]:
        """The names of all operations, in the order of the document."""
        return [f"{method.upper()} {path}" for path, ways in self.document["paths"].items() for method in ways]


@dataclass
class Findings:
    """What came of it."""

    requests: int = 0
    faults: dict[str, str] = field(default_factory=dict)  # the first of each kind, by operation and check
    statuses: dict[str, Counter[int]] = field(default_factory=dict)  # of answers, by operation


@contextmanager
def served_api(directory: Path) -> Iterator[ServedApi]:
    """Serve the API for the length of the block."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(site_door(directory)) as site:
        document = portal.call(_prepare, site, directory)
        taking = portal.start_task_soon(_take_commands, site)
        try:
            serving = listen(_application(site), host="127.0.0.1", port=0, closing=anyio.Event())
            with portal.wrap_async_context_manager(serving) as url:
                yield ServedApi(url=url.replace("127.0.0.1", "localhost"), document=document)  # passkeys need a name
        finally:
            taking.cancel()


async def _prepare(site: SiteDoor, directory: Path) -> dict[str, Any]:
    """Fill the database; return the description."""
    site.door.clock.at = NOW
    site.door.tokens.kept[_PROGRAM] = token_for(_PROGRAM, *_SCOPES, *_SOURCES)
    site.site.policy = await anyio.to_thread.run_sync(policy_in, directory)
    session = await something_of_everything(site.store)
    await with_log(site.store, session, directory / "session-000001.ndjson", log_of(session))
    await site.store.database.write(_quarantine)
    admin = await site.user("ada", Role.ADMIN, password="correct horse battery")
    await site.store.logins.log_in(admin, NewLogin(digest=digest_of(secret_for("ada")), at=NOW))
    site.streams.heartbeat_seconds = 0.02
    return (await site.door.ask("GET", "/api/v1/openapi.json", headers=bearer(2))).json


def _quarantine(connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE memories SET trust = 'quarantined' WHERE id = 2")


async def _take_commands(site: SiteDoor) -> None:
    """Take what the daemon is asked for, as one that runs would: at once, without a word about what came of it."""
    while True:
        for one in await site.store.commands.take(OWNER.name, now=NOW):
            await site.store.commands.finish(one.id, taken_at=NOW, result="done", error=None, now=NOW)
        await anyio.sleep(0.05)


def _application(site: SiteDoor) -> Callable[[Scope, Receive, Send], Any]:
    """Return the listener; a second goes by with each request, for what bounds callers, and streams come to an end."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        site.door.clock.seconds += 1
        if scope["path"].endswith("/stream"):
            closing = anyio.Event()
            site.streams.listens(closing)
            send = _closing_after(2, send, closing)
        await site.door.listener(scope, receive, send)

    return answer


def _closing_after(parts: int, send: Send, closing: anyio.Event) -> Send:
    sent = 0

    async def counted(message: Message) -> None:
        nonlocal sent
        await send(message)
        sent += message["type"] == "http.response.body"
        if sent >= parts:
            closing.set()

    return counted


# --- what is sent -----------------------------------------------------------------------------------------


def look(served: ServedApi, operations: Sequence[str] | None, *, examples: int, seed: int | None = None) -> Findings:
    """Send requests to operations, ``None``: to all of them, and hold every answer against the description.

    ``examples`` of each, besides those that the description itself leads to; by a ``seed``, or always the same ones.
    """
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed or 0,
            "base-url": served.url,
            "headers": {"Sec-Fetch-Site": "same-origin"},  # as a browser says that one of our pages sends it
            "continue-on-failure": True,
            "request-timeout": PATIENCE_SECONDS,
            "cache": {"enabled": False},
            "generation": {"max-examples": examples, "deterministic": seed is None, "database": "none"},
        }
    )
    schema = schemathesis.openapi.from_dict(_with_examples(served.document), config=config)
    schema.auth(refresh_interval=None)(_Proof)  # kept for none: another operation takes another
    wanted = schema if operations is None else schema.include(name=list(operations))
    return _found(from_schema(wanted).execute())


def _with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Return the description with examples in its paths: what is there."""
    found = json.loads(json.dumps(document))
    for path, ways in found["paths"].items():
        for way in ways.values():
            for parameter in way["parameters"]:
                if parameter["in"] == "path":
                    other = "backup" if parameter["schema"]["type"] == "string" else 1
                    parameter["example"] = KNOWN.get(path, {}).get(parameter["name"], other)
    assert isinstance(found, dict)
    return found


class _Proof:
    """Proves who calls, in one of the ways that an operation names: a token, an admin's login, Slack's signature."""

    def get(self, case: Case[Any], _: AuthContext) -> frozenset[str]:
        return frozenset(name for proof in case.operation.definition.raw["security"] for name in proof)

    def set(self, case: Case[Any], names: frozenset[str], _: AuthContext) -> None:
        if "token" in names:
            case.headers["Authorization"] = f"Bearer {secret_of(_PROGRAM)}"
        elif "login" in names:
            case.cookies[COOKIE] = secret_for("ada")
        elif "slack" in names:
            case._auth = _Signature()


class _Signature(AuthBase):
    """Signs a body as Slack does."""

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        body = request.body or b""
        content = body if isinstance(body, bytes) else str(body).encode()
        stamp = str(int(NOW.timestamp()))
        proof = hmac.new(SIGNING["team"].encode(), f"v0:{stamp}:".encode() + content, hashlib.sha256).hexdigest()
        request.headers.update({"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={proof}"})
        return request


@schemathesis.hook("before_call")
def _of_its_own(_: HookContext, case: Case[Any], __: dict[str, Any]) -> None:
    """Give each call a key of its own, and the same call the same one: a key is no key of another call."""
    key = case.headers.get(IDEMPOTENCY_KEY)
    if isinstance(key, str) and key:
        of_call = hashlib.sha256(f"{case.method} {case.formatted_path} {case.body!r}".encode(errors="replace"))
        case.headers[IDEMPOTENCY_KEY] = f"{key[:200]}{of_call.hexdigest()[:32]}"


@schemathesis.hook("filter_failure")
def _is_known(_: HookContext, failure: Failure, case: Case[Any], __: Response) -> bool:
    """Leave out what is no fault.

    A text of a format of ours may be a right one although it was drawn as a wrong one: what makes a moment, or a
    matcher, no JSON Schema says; the tests of each say what is refused. A silence that was ended stays on record.
    """
    if isinstance(failure, UseAfterFree):
        return str(case.operation.path) != "/api/v1/silences/{id}"
    meta = case.meta
    mutations = [] if meta is None else getattr(meta.phase.data, "mutations", ())
    is_of_format = bool(mutations) and all("format" in mutation.keywords for mutation in mutations)
    return not (isinstance(failure, AcceptedNegativeData) and is_of_format)


# --- what is found ----------------------------------------------------------------------------------------


def _found(stream: Iterator[events.EngineEvent]) -> Findings:
    found = Findings()
    for event in stream:
        match event:
            case events.ScenarioFinished():
                _note(event.recorder, found)
            case events.NonFatalError():
                found.faults.setdefault(f"{event.label}: {event.phase}", str(event.value))
            case events.FatalError():
                raise event.exception
    return found


def _note(recorder: ScenarioRecorder, found: Findings) -> None:
    found.requests += len(recorder.interactions)
    for number, interaction in recorder.interactions.items():
        if interaction.response is not None:
            label = recorder.cases[number].value.operation.label
            found.statuses.setdefault(label, Counter())[interaction.response.status_code] += 1
    for number, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                label = recorder.cases[number].value.operation.label
                failure = check.failure_info.failure
                response = recorder.interactions[number].response
                body = b"" if response is None else response.content[:400]
                text = f"{failure.title}: {failure.message}\n{check.failure_info.code_sample}\n{body!r}"
                found.faults.setdefault(f"{label}: {check.name}: {failure.title}", text)
