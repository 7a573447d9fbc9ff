"""The endpoints of acts: for programs with JSON, for people with forms that need no JavaScript.

A call with a key (`Idempotency-Key`, or the field ``once`` of a form) is made once, however often it is sent: a program
that lost its connection sends it again, and a person presses a button twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
from starlette.responses import Response

from claudeops.domain.access.tokens import ScopeKind
from claudeops.domain.answers import document
from claudeops.errors import ErrorKind
from claudeops.store.access.idempotency import KeyedCall, KeyState
from claudeops.store.acts.approvals import AnswerAct
from claudeops.store.acts.holds import PauseAct, ResumeAct
from claudeops.store.acts.incidents import IncidentAct
from claudeops.store.acts.memories import MemoryAct, MemoryVerb
from claudeops.store.acts.sessions import StopAct
from claudeops.store.acts.silences import EndedSilence, SilenceAct
from claudeops.store.acts.tokens import MadeToken, TokenAct, TokenEntry, list_tokens
from claudeops.store.reading.session_rows import ListedSession
from claudeops.text import regex
from claudeops.web import acts
from claudeops.web.acts import Acting, done_or_refused
from claudeops.web.api.answers import Items, whole
from claudeops.web.api.table import BASE
from claudeops.web.endpoints import IDEMPOTENCY_KEY, PREFER, Endpoint, WebCall
from claudeops.web.pages.rendering import see_other
from claudeops.web.pages.site import Site
from claudeops.web.passkeys import PasskeyAct, PasskeyChallenge, SignatureChallenge
from claudeops.web.problems import RefusedError, answer

_ONCE: Final = "once"  # the field of a form
_KEY: Final = regex.Pattern(r"[!-~]{1,255}")


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One act: an endpoint of the API, and a form's address on a page."""

    do: Callable[[Acting, WebCall, Any], Awaitable[Any]]
    body: type[acts.Body]
    answer: Any
    scope: ScopeKind
    method: str = "POST"  # of the API
    api: tuple[str, ...]  # its paths below /api/v1
    page: str = ""  # to which a form is posted; empty: no page does this
    then: str = ""  # the page that is shown after it, with the parameters of the path
    status: int = 200  # of the API
    secret: bool = False  # the answer has a secret, which is kept nowhere
    takes: tuple[str, ...] = ()  # headers of its own
    summary: str

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers that its endpoint of the API takes: only what may not be sent twice has a key."""
        return (IDEMPOTENCY_KEY, *self.takes) if self.method == "POST" else self.takes


_INCIDENT: Final = "/incidents/{number}"
_MEMORY: Final = "/memories/{id}"

ACTS: Final = (
    Act(
        do=acts.start,
        body=acts.Request,
        answer=ListedSession,
        scope=ScopeKind.TRIGGER,
        api=("/sessions", "/sessions/trigger"),
        page="/sessions",
        then="/sessions/{id}",
        status=201,
        takes=(PREFER,),
        summary="Queues a session on a request; `Prefer: respond-if-busy` refuses where others run or wait.",
    ),
    Act(
        do=acts.stop,
        body=acts.Stop,
        answer=StopAct,
        scope=ScopeKind.STOP,
        api=("/sessions/{id}/stop",),
        page="/sessions/{id}/stop",
        then="/sessions/{id}",
        summary="Stops a session, or what is left of its chain, and waits for no end.",
    ),
    Act(
        do=acts.answer,
        body=acts.AnswerBody,
        answer=AnswerAct,
        scope=ScopeKind.APPROVE,
        api=("/approvals/{id}/answer",),
        page="/approvals/{id}/answer",
        then="/approvals",
        summary="Approves or denies a call that waits for a person; no token may.",
    ),
    Act(
        do=acts.ask_signature,
        body=acts.SignatureBody,
        answer=SignatureChallenge,
        scope=ScopeKind.APPROVE,
        api=("/approvals/{id}/challenge",),
        summary="Says what a passkey of the person is to sign for a yes, once and within two minutes.",
    ),
    Act(
        do=acts.ask_passkey,
        body=acts.Body,
        answer=PasskeyChallenge,
        scope=ScopeKind.APPROVE,
        api=("/passkeys/challenge",),
        summary="Says what a new passkey is made from; the login is younger than ten minutes.",
    ),
    Act(
        do=acts.add_passkey,
        body=acts.PasskeyBody,
        answer=PasskeyAct,
        scope=ScopeKind.APPROVE,
        api=("/passkeys",),
        status=201,
        summary="Adds the passkey that a browser has made.",
    ),
    Act(
        do=acts.remove_passkey,
        body=acts.Body,
        answer=PasskeyAct,
        scope=ScopeKind.APPROVE,
        method="DELETE",
        api=("/passkeys/{id}",),
        page="/passkeys/{id}/remove",
        then="/passkeys",
        summary="Removes a passkey of the person who is logged in.",
    ),
    Act(
        do=acts.acknowledge,
        body=acts.Body,
        answer=IncidentAct,
        scope=ScopeKind.OPERATE,
        api=(f"{_INCIDENT}/ack",),
        page=f"{_INCIDENT}/ack",
        then=_INCIDENT,
        summary="Takes an incident: what else comes about it starts no session.",
    ),
    Act(
        do=acts.resolve,
        body=acts.Body,
        answer=IncidentAct,
        scope=ScopeKind.OPERATE,
        api=(f"{_INCIDENT}/resolve",),
        page=f"{_INCIDENT}/resolve",
        then=_INCIDENT,
        summary="Says that an incident is over.",
    ),
    Act(
        do=acts.silence,
        body=acts.SilenceBody,
        answer=SilenceAct,
        scope=ScopeKind.OPERATE,
        api=("/silences",),
        page="/silences",
        then="/silences",
        status=201,
        summary="Holds back the alerts that fit all matchers, or says which that would be.",
    ),
    Act(
        do=acts.end_silence,
        body=acts.Body,
        answer=EndedSilence,
        scope=ScopeKind.OPERATE,
        method="DELETE",
        api=("/silences/{id}",),
        page="/silences/{id}/end",
        then="/silences",
        summary="Ends a silence before its time.",
    ),
    Act(
        do=acts.add_memory,
        body=acts.MemoryBody,
        answer=MemoryAct,
        scope=ScopeKind.OPERATE,
        api=("/memories",),
        page="/memories",
        then="/memories/{memory_id}",
        status=201,
        summary="States a fact that every session is shown.",
    ),
    Act(
        do=acts.edit_memory,
        body=acts.EditBody,
        answer=MemoryAct,
        scope=ScopeKind.OPERATE,
        method="PUT",
        api=(_MEMORY,),
        page=f"{_MEMORY}/edit",
        then="/memories/{memory_id}",
        summary="States a fact in the place of a memory.",
    ),
    Act(
        do=acts.changes(MemoryVerb.FORGET),
        body=acts.Body,
        answer=MemoryAct,
        scope=ScopeKind.OPERATE,
        method="DELETE",
        api=(_MEMORY,),
        page=f"{_MEMORY}/forget",
        then="/memories/{memory_id}",
        summary="Lets no session be shown a memory any more.",
    ),
    Act(
        do=acts.changes(MemoryVerb.RESTORE),
        body=acts.Body,
        answer=MemoryAct,
        scope=ScopeKind.OPERATE,
        api=(f"{_MEMORY}/restore",),
        page=f"{_MEMORY}/restore",
        then="/memories/{memory_id}",
        summary="Brings back a memory that was forgotten, replaced or given up.",
    ),
    Act(
        do=acts.changes(MemoryVerb.CONFIRM),
        body=acts.Body,
        answer=MemoryAct,
        scope=ScopeKind.OPERATE,
        api=(f"{_MEMORY}/confirm",),
        page=f"{_MEMORY}/confirm",
        then="/memories/{memory_id}",
        summary="Lets a memory out of quarantine.",
    ),
    Act(
        do=acts.pause,
        body=acts.PauseBody,
        answer=PauseAct,
        scope=ScopeKind.OPERATE,
        method="PUT",
        api=("/pause",),
        page="/pause",
        then="/",
        summary="Starts no sessions from now on; `stop` ends those that run.",
    ),
    Act(
        do=acts.resume,
        body=acts.Body,
        answer=ResumeAct,
        scope=ScopeKind.OPERATE,
        method="DELETE",
        api=("/pause",),
        page="/resume",
        then="/",
        summary="Starts sessions again.",
    ),
    Act(
        do=acts.make_token,
        body=acts.TokenBody,
        answer=MadeToken,
        scope=ScopeKind.ADMIN,
        api=("/tokens",),
        status=201,
        secret=True,
        summary="Makes a token for a program; its secret is in this answer alone.",
    ),
    Act(
        do=acts.revoke_token,
        body=acts.Body,
        answer=TokenAct,
        scope=ScopeKind.ADMIN,
        method="DELETE",
        api=("/tokens/{id}",),
        summary="Lets a token open nothing from now on.",
    ),
)


def act_endpoints(site: Site) -> Sequence[Endpoint]:
    """Return the endpoints of every act; none where pages can only look."""
    if site.acting is None:
        return ()
    tokens = Endpoint(
        method="GET",
        path=f"{BASE}/tokens",
        scope=ScopeKind.ADMIN.value,
        answer=Items[TokenEntry],
        handler=partial(_tokens, site),
        summary="The tokens in force.",
    )
    return (*_api(site), tokens, *_pages(site))


async def _tokens(site: Site, call: WebCall) -> Response:
    return whole(await list_tokens(_acting(site).store.tokens, everything=False, now=call.at))


def _api(site: Site) -> Sequence[Endpoint]:
    return tuple(
        Endpoint(
            method=act.method,
            path=f"{BASE}{path}",
            scope=act.scope.value,
            body=act.body,
            answer=act.answer,
            status=act.status,
            headers=act.headers,
            handler=partial(_by_program, site, act),
            summary=act.summary,
        )
        for act in ACTS
        for path in act.api
    )


def _pages(site: Site) -> Sequence[Endpoint]:
    return tuple(
        Endpoint(
            method="POST",
            path=act.page,
            scope=act.scope.value,
            page=True,
            body=bytes,
            answer=str,
            status=303,
            handler=partial(_by_form, site, act),
            summary=act.summary,
        )
        for act in ACTS
        if act.page
    )


async def _by_program(site: Site, act: Act, call: WebCall) -> Response:
    body = call.sent(act.body)
    key = call.headers.get(IDEMPOTENCY_KEY.lower())
    if key is None or IDEMPOTENCY_KEY not in act.headers:
        return answer(await _done(site, act, call, body), status=act.status)
    if not _KEY.fullmatch(key):
        raise RefusedError(422, "Idempotency-Key has 1 to 255 visible characters of ASCII.")
    kept = await _begun(site, call, key)
    if kept.state is KeyState.ANSWERED:
        if act.secret:
            raise RefusedError(409, "This was done; what it has shown is shown once.", kind=ErrorKind.POLICY)
        again = answer(msgspec.Raw(kept.answer.encode()), status=kept.status)
        again.headers["Idempotent-Replayed"] = "true"
        return again
    return answer(await _kept(site, act, call, body, kept), status=act.status)


async def _by_form(site: Site, act: Act, call: WebCall) -> Response:
    fields = dict(call.form())
    once = str(fields.pop(_ONCE, ""))
    body = call.filled(fields, act.body)
    if not _KEY.fullmatch(once):
        found = await _done(site, act, call, body)
    else:
        kept = await _begun(site, call, once)
        if kept.state is KeyState.ANSWERED:
            found = msgspec.json.decode(kept.answer)
        else:
            found = await _kept(site, act, call, body, kept)
    if act.answer is SilenceAct and not found["handled"]:
        return await site.page(call, "preview.html", title="A silence, tried out", values={"found": found})
    return see_other(act.then.format_map({**found, **call.params}))


async def _done(site: Site, act: Act, call: WebCall, body: msgspec.Struct) -> Mapping[str, Any]:
    """Do it; return the answer as a document. Raises `RefusedError` where nothing was done."""
    try:
        return document(done_or_refused(await act.do(_acting(site), call, body)))
    finally:
        _acting(site).wake()
        site.look_again()


async def _kept(site: Site, act: Act, call: WebCall, body: msgspec.Struct, kept: KeyedCall) -> Mapping[str, Any]:
    """Do it, and keep the answer by its key; what was refused may be sent again."""
    try:
        found = await _done(site, act, call, body)
    except RefusedError:
        await _acting(site).store.idempotency.forget(kept)
        raise
    text = "" if act.secret else msgspec.json.encode(found).decode()
    await _acting(site).store.idempotency.answered(kept, act.status, text)
    return found


async def _begun(site: Site, call: WebCall, key: str) -> KeyedCall:
    """Return what is known of a key. Raises `RefusedError` where the call must not be made."""
    digest = sha256(b"\n".join((call.path.encode(), call.body))).hexdigest()
    caller = "" if call.caller is None else call.caller.name
    kept = await _acting(site).store.idempotency.begin(caller, key, digest, now=call.at)
    if kept.state is KeyState.TAKEN:
        raise RefusedError(422, "Another call was made with this Idempotency-Key: send a new one.")
    if kept.state is KeyState.UNKNOWN:
        sentence = "This call is being made, or nothing is known of what came of it: look before you send it anew."
        raise RefusedError(409, sentence, kind=ErrorKind.RUNTIME)
    return kept


def _acting(site: Site) -> Acting:
    assert site.acting is not None  # noqa: S101 - else there are no endpoints of acts
    return site.acting
