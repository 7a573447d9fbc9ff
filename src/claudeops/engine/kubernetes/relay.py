"""One connection of a session to the filter: requests are read, judged, sent on to an API server, and answered masked.

Requests that are sent one behind another are judged one by one. The server gets a connection for each request, with a
request that is written anew: nothing but what was understood goes there, and the credentials of the context.
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import h11
import msgspec
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream

from claudeops.domain.gate.cluster_grants import DELETE, EXEC, RESTART, SCALE, ClusterChange
from claudeops.engine.filtering.connection import (
    ERROR,
    MOST_BODY,
    SWITCHING,
    Client,
    EngineConnection,
    PeerGoneError,
    ResponseHead,
    both_ways,
)
from claudeops.engine.filtering.process import DaemonLine, FilterRefusal
from claudeops.engine.kubernetes.upstream import CONNECT_SECONDS, Context
from claudeops.policy.kubernetes_api.bodies import Scaled, bound_body, read_body, refuse_review
from claudeops.policy.kubernetes_api.masks import WatchMask, masked
from claudeops.policy.kubernetes_api.requests import (
    Act,
    ClusterAnswerKind,
    ClusterRead,
    ClusterRefusal,
    DeletePod,
    Exec,
    ObjectName,
    Restart,
    Scale,
    read_request,
)
from claudeops.structs import replace
from claudeops.tasks import open_tasks
from claudeops.text import regex
from claudeops.text.redact import Redactor

_MOST_ANSWER: Final = 64 * 1024 * 1024  # bytes that are masked at once
_MOST_LINE: Final = 4 * 1024 * 1024  # bytes of a line of a stream
_READ_SECONDS: Final = 120.0
_CHANGE_SECONDS: Final = 120.0
_NOT_SENT: Final = 0
_NOT_KNOWN: Final = -1
_REDIRECTION: Final = 300
_NOT_MODIFIED: Final = 304
_UNKNOWN_CLIENT: Final = 401
_TOO_MANY: Final = 429
_NO_LEAVE: Final = "the gate has allowed no such change, or it has been made already: call it anew, as one command"
_BEARER: Final = "Bearer "
_JSON: Final = "application/json"
_DISCOVERED: Final = frozenset({ClusterAnswerKind.DISCOVERY, ClusterAnswerKind.OPENAPI})
"""Answers of which nothing is masked, so that their ETag is true."""

_TEXTS: Final = frozenset({ClusterAnswerKind.TEXT, ClusterAnswerKind.LOG})
_UPGRADED: Final = (
    *(b"sec-websocket-accept", b"sec-websocket-protocol", b"x-stream-protocol-version"),
    *(b"upgrade", b"connection"),
)
_SOCKET_KEY: Final = regex.Pattern(r"[A-Za-z0-9+/]{22}==")
_ETAG: Final = regex.Pattern(r'(?:W/)?"[!#-~]{0,200}"')
_VERBS: Final[Mapping[type[Act], str]] = {Restart: RESTART, Scale: SCALE, DeletePod: DELETE, Exec: EXEC}


class ClusterRefusedError(Exception):
    """A request is refused."""

    def __init__(self, refused: ClusterRefusal) -> None:
        super().__init__(refused.sentence)
        self.refused = refused


@dataclass(kw_only=True, slots=True)
class Clusters:
    """The contexts that one session reaches."""

    contexts: Mapping[str, Context]  # by the session's own tokens
    tls: ssl.SSLContext
    secrets: set[str]  # that are known: of the daemon, and of the contexts
    daemon: DaemonLine
    redactor: Redactor = field(init=False)

    def __post_init__(self) -> None:
        self.redactor = Redactor(self.secrets)

    def know(self, secret: str) -> None:
        """Take a secret out of every answer from now on."""
        if secret and secret not in self.secrets:
            self.secrets.add(secret)
            self.redactor = Redactor(self.secrets)

    async def serve(self, plain: SocketStream) -> None:
        """Answer the requests of one connection, until it ends."""
        with suppress(PeerGoneError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await TLSStream.wrap(plain, server_side=True, ssl_context=self.tls, standard_compatible=False)
            client = Client(stream=stream, worded=_worded)
            while (request := await client.request()) is not None:
                await self._answer(client, *request)
                if not client.goes_on():
                    return

    async def _answer(self, client: Client, request: h11.Request, body: bytes) -> None:
        method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
        headers = _headers(request)
        try:
            context = self._context(headers.pop("authorization", ""))
            served = _Served(clusters=self, context=context, client=client, headers=headers, body=body)
            await served.answer(read_request(method, target, headers))
        except ClusterRefusedError as error:
            refused = error.refused
        except (OSError, h11.RemoteProtocolError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            if client.has_begun:
                raise PeerGoneError from error
            reason = str(error) or type(error).__name__
            refused = ClusterRefusal(status=502, sentence=f"the API server does not answer: {reason}")
        else:
            return
        await self.daemon.refused(
            FilterRefusal(method=method, target=target, status=refused.status, sentence=refused.sentence)
        )
        await client.send(refused.status, refused.document, head=method == "HEAD")
        if refused.status == _UNKNOWN_CLIENT:
            raise PeerGoneError  # a stranger holds no place among the session's connections

    def _context(self, given: str) -> Context:
        """Return which context a session's token is for."""
        token = given.removeprefix(_BEARER).encode()
        found = [context for own, context in self.contexts.items() if hmac.compare_digest(own.encode(), token)]
        if not found:
            sentence = "use the kubeconfig of this session, as it is"
            raise ClusterRefusedError(ClusterRefusal(status=_UNKNOWN_CLIENT, sentence=sentence))
        return found[0]


class _Served(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    clusters: Clusters
    context: Context
    client: Client
    headers: Mapping[str, str]
    body: bytes

    async def answer(self, judged: ClusterRefusal | ClusterRead | Act) -> None:
        """Answer it; raises `ClusterRefusedError`, and `OSError` and its like where the server does not answer."""
        match judged:
            case ClusterRefusal():
                raise ClusterRefusedError(judged)
            case ClusterRead():
                if judged.dropped:
                    await self.clusters.daemon.dropped(judged.target, judged.dropped)
                await self._read(judged)
            case Exec():
                await self._run(judged)
            case _:
                await self._change(judged)

    # --- reads ------------------------------------------------------------------------------------------

    async def _read(self, wanted: ClusterRead) -> None:
        sent, body = [("Accept", wanted.accept)], b""
        if wanted.method == "POST":
            body, media = self.body, self.headers.get("content-type", "")
            _none(refuse_review(body, media))
            sent += [("Content-Type", media.partition(";")[0].strip())]
        elif self.body:
            raise ClusterRefusedError(ClusterRefusal(status=400, sentence="a read has no body; leave it out"))
        known = self.headers.get("if-none-match", "")
        if wanted.kind in _DISCOVERED and _ETAG.fullmatch(known):
            sent += [("If-None-Match", known)]
        async with self.context.connected() as server:
            head = await self._ask(server, wanted.method, wanted.target, sent, body)
            if head.status == _NOT_MODIFIED:
                await self.client.send(head.status, b"", kept=_kept(head, wanted.kind))
            elif head.status >= _REDIRECTION:
                await self._failed(server, head)
            elif wanted.stream or wanted.kind is ClusterAnswerKind.LOG:
                _check_type(head, wanted.kind)
                await self._stream(server, head, wanted.kind)
            else:
                _check_type(head, wanted.kind)
                await self._whole(server, head, wanted.kind)

    async def _whole(self, server: EngineConnection, head: ResponseHead, kind: ClusterAnswerKind) -> None:
        with anyio.fail_after(_READ_SECONDS):
            raw = await server.whole(_MOST_ANSWER)
        if raw is None:
            raise ClusterRefusedError(
                ClusterRefusal(status=502, sentence="the answer is too long to be masked: ask for less")
            )
        answer = self._masked(kind, raw)
        await self.client.send(head.status, answer, kept=_kept(head, kind), media=_media(head, kind).encode())

    def _masked(self, kind: ClusterAnswerKind, raw: bytes) -> bytes:
        redactor = self.clusters.redactor
        if kind in _TEXTS:
            return b"\n".join(map(redactor.line, raw.split(b"\n")))
        if kind in _DISCOVERED:
            return redactor.line(raw)
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            sentence = "the API server's answer is no JSON, and cannot be masked"
            raise ClusterRefusedError(ClusterRefusal(status=502, sentence=sentence)) from None
        return redactor.line(msgspec.json.encode(masked(kind, document)))

    async def _stream(self, server: EngineConnection, head: ResponseHead, kind: ClusterAnswerKind) -> None:
        """Pass on what has no end, until either side ends it."""
        media = _media(head, kind).encode()
        await self.client.begin(head.status, [*_kept(head, kind), (b"content-type", media)])
        async with open_tasks() as tasks:
            tasks.start_soon(self.client.until_gone, tasks.cancel_scope)
            async for line in self._lines(server, kind):
                await self.client.go_on(line)
            tasks.cancel_scope.cancel()
        await self.client.finish()

    async def _lines(self, server: EngineConnection, kind: ClusterAnswerKind) -> AsyncIterator[bytes]:
        watch, redactor, kept = WatchMask(kind), self.clusters.redactor, b""
        async for chunk in server.chunks():
            *lines, kept = (kept + chunk).split(b"\n")
            if len(kept) > _MOST_LINE:
                if kind is not ClusterAnswerKind.LOG:
                    return
                lines, kept = [*lines, kept], b""
            if safe := b"".join(redactor.line(watch.line(line)) + b"\n" for line in lines):
                yield safe
        if kept:
            yield redactor.line(watch.line(kept))

    async def _failed(self, server: EngineConnection, head: ResponseHead) -> None:
        """Pass on why the server refuses."""
        if head.status < ERROR:
            raise ClusterRefusedError(
                ClusterRefusal(status=502, sentence="the API server leads elsewhere, which is not followed")
            )
        with anyio.fail_after(_READ_SECONDS):
            raw = await server.whole(MOST_BODY) or b""
        said = _object(raw)
        refused = ClusterRefusal(status=head.status, sentence=str(said.get("message") or "the API server refuses it"))
        document = msgspec.json.decode(refused.document)
        if isinstance(reason := said.get("reason"), str):
            document["reason"] = reason
        answer = self.clusters.redactor.line(msgspec.json.encode(document))
        await self.client.send(head.status, answer, kept=[each for each in head.headers if each[0] == b"retry-after"])

    # --- changes ----------------------------------------------------------------------------------------

    async def _change(self, act: Restart | Scale | DeletePod) -> None:
        change = read_body(act, self.body, self.headers.get("content-type", ""))
        if isinstance(change, ClusterRefusal):
            raise ClusterRefusedError(change)
        wanted = await self._meant(act)
        wanted = replace(wanted, replicas=change.replicas) if isinstance(change, Scaled) else wanted
        body = bound_body(change, wanted.id)
        if isinstance(body, ClusterRefusal):
            raise ClusterRefusedError(body)
        grant = await self._granted(wanted)
        status = _NOT_SENT
        try:
            async with self.context.connected() as server:
                status = _NOT_KNOWN  # from here on, unless the server says it
                sent = [("Accept", _JSON), ("Content-Type", change.content_type)]
                with anyio.fail_after(_CHANGE_SECONDS):
                    head = await self._ask(server, change.method, act.target, sent, body)
                status = head.status
                if status >= _REDIRECTION:
                    await self._failed(server, head)
                    return
                _check_type(head, act.kind)
                await self._whole(server, head, act.kind)
        finally:
            await self._ended(grant, status)

    async def _run(self, act: Exec) -> None:
        """Run a command in a pod, whose name may stand for another one since it was granted."""
        if self.body or not self.client.may_switch:
            raise ClusterRefusedError(
                ClusterRefusal(status=400, sentence="exec is an upgrade of the connection, without a body")
            )
        sent = _upgrade(act, self.headers)
        wanted = replace(await self._meant(act), container=act.container, command=act.command)
        grant = await self._granted(wanted)
        status = _NOT_SENT
        try:
            if (await self._meant(act)).id != wanted.id:
                raise ClusterRefusedError(
                    ClusterRefusal(status=409, sentence="this pod was made anew; look at it again")
                )
            async with self.context.connected() as server:
                status = _NOT_KNOWN
                head = await self._ask(server, act.method, act.target, sent, b"", upgrade=act.upgrade)
                status = head.status
                if status != SWITCHING:
                    status = _NOT_SENT  # nothing has run: kubectl tries another protocol then
                    await self._failed(server, head)
                    return
                await self.client.switch([each for each in head.headers if each[0] in _UPGRADED])
                await both_ways(self.client, server)
        finally:
            await self._ended(grant, status)

    async def _granted(self, wanted: ClusterChange) -> int:
        if not (grant := await self.clusters.daemon.allows(wanted)):
            raise ClusterRefusedError(ClusterRefusal(status=403, sentence=f"{wanted}: {_NO_LEAVE}"))
        return grant

    async def _ended(self, grant: int, status: int) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CONNECT_SECONDS):
            await self.clusters.daemon.ended(grant, _NOT_SENT if status == _TOO_MANY else status)

    async def _meant(self, act: Act) -> ClusterChange:
        """Return which object a request means, as the API server says."""
        named = act.object
        found = await self._found(named)
        uid = _field(found, "metadata").get("uid")
        if not isinstance(uid, str) or not uid:
            sentence = f"the API server does not say what {named.resource}/{named.name} is"
            raise ClusterRefusedError(ClusterRefusal(status=502, sentence=sentence))
        return ClusterChange(
            verb=_VERBS[type(act)],
            resource=named.resource,
            name=named.name,
            context=self.context.name,
            namespace=named.namespace,
            id=uid,
            is_current=self.context.is_current,
            is_own=named.namespace == (self.context.namespace or "default"),
            default_container=_default_container(found) if isinstance(act, Exec) else "",
        )

    async def _found(self, named: ObjectName) -> dict[str, object]:
        async with self.context.connected() as server:
            head = await self._ask(server, "GET", named.target, [("Accept", _JSON)])
            with anyio.fail_after(_READ_SECONDS):
                raw = await server.whole(_MOST_ANSWER) or b""
        if head.status >= ERROR:
            shown = f"{named.resource}/{named.name} in {named.namespace}"
            sentence = str(_object(raw).get("message") or f"the API server does not show {shown}")
            raise ClusterRefusedError(
                ClusterRefusal(status=head.status, sentence=self.clusters.redactor.text(sentence))
            )
        return _object(raw)

    async def _ask(
        self,
        server: EngineConnection,
        method: str,
        target: str,
        sent: list[tuple[str, str]],
        body: bytes = b"",
        *,
        upgrade: str = "",
    ) -> ResponseHead:
        token = await self.context.current_token()
        self.clusters.know(token)
        headers = await self.context.headers(sent, token)
        with anyio.fail_after(_READ_SECONDS):
            return await server.ask(method, self.context.url.path.rstrip("/") + target, headers, body, upgrade=upgrade)


# --- heads and words ----------------------------------------------------------------------------------


def _headers(request: h11.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.headers:
        text, key = value.decode("latin-1"), name.decode("ascii")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def _upgrade(act: Exec, headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers that ask for the protocol of an exec."""
    if act.upgrade != "websocket":
        return [("X-Stream-Protocol-Version", protocol) for protocol in act.protocols]
    key = headers.get("sec-websocket-key", "")
    if not _SOCKET_KEY.fullmatch(key):
        raise ClusterRefusedError(
            ClusterRefusal(status=400, sentence="the header Sec-WebSocket-Key is not one; use kubectl exec")
        )
    protocols = ", ".join(act.protocols)
    named = [("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", "13")]
    return [*named, ("Sec-WebSocket-Protocol", protocols)]


def _check_type(head: ResponseHead, kind: ClusterAnswerKind) -> None:
    """Refuse an answer in a form that cannot be masked."""
    said = dict(head.headers)
    if said.get(b"content-encoding", b"identity").strip().lower() not in {b"identity", b""}:
        raise ClusterRefusedError(
            ClusterRefusal(status=502, sentence="the API server answers in a coding that was not asked for")
        )
    media = said.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != _JSON.encode() and not (kind in _TEXTS and media in {b"text/plain", b""}):
        shown = media.decode("ascii", "replace")[:80]
        sentence = f"the API server answers with {shown!r}, which cannot be masked"
        raise ClusterRefusedError(ClusterRefusal(status=502, sentence=sentence))


def _media(head: ResponseHead, kind: ClusterAnswerKind) -> str:
    """Return the type of an answer, which names the form of a table too."""
    said = dict(head.headers).get(b"content-type", b"").decode("latin-1")
    return said or ("text/plain" if kind in _TEXTS else _JSON)


def _kept(head: ResponseHead, kind: ClusterAnswerKind) -> list[tuple[bytes, bytes]]:
    names = {b"etag", b"last-modified", b"cache-control", b"vary"} if kind in _DISCOVERED else set[bytes]()
    return [each for each in head.headers if each[0] in names]


def _object(raw: bytes) -> dict[str, object]:
    """Return what stands in an object; nothing in what is none."""
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _field(found: object, name: str) -> dict[str, object]:
    inner = found.get(name) if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else {}


def _default_container(pod: dict[str, object]) -> str:
    """Return the container that kubectl picks in a pod."""
    listed = _field(pod, "spec").get("containers")
    names = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = _field(_field(pod, "metadata"), "annotations").get("kubectl.kubernetes.io/default-container")
    return str(named) if named in names else str(next(iter(names), ""))


def _worded(status: int, sentence: str) -> bytes:
    return ClusterRefusal(status=status, sentence=sentence).document


def _none(refused: ClusterRefusal | None) -> None:
    if refused is not None:
        raise ClusterRefusedError(refused)
