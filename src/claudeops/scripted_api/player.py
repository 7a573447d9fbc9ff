"""Plays a script: a request goes in, and the whole reply comes out as a value. Pure: no network, no clock.

Every session has a cursor in the script; scripted sessions are assigned in the order in which sessions first ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.scripted_api import responses
from claudeops.scripted_api.requests import (
    Recorded,
    RequestKind,
    one_line,
    session_key,
    tier_number,
    without_credentials,
)
from claudeops.scripted_api.responses import ModelMessage, compose, plain
from claudeops.scripted_api.script import Script, ScriptedError, ScriptStep, Usage

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream; charset=utf-8"


# --- requests and replies ----------------------------------------------------------------------------


class Finish(StrEnum):
    """What follows the last piece of a reply."""

    END = "end"  # the regular end
    CUT = "cut"  # the connection closes
    SILENCE = "silence"  # nothing, for ever


class ScriptedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, ready to be sent."""

    status: int | None  # None: not even headers are sent
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()  # of the body; of a stream, one event each
    finish: Finish = Finish.END
    delay_seconds: float = 0  # before the first byte
    usage: Usage | None = None  # of the whole message; None: nothing to account for
    place: str | None = None  # the step that this reply is
    problem: str | None = None  # set when the script did not foresee the request


class Player:
    """Answers requests from a script, in the order in which they arrive."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._cursors = Cursors(script)
        self._seen = 0

    def see(self, *, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Recorded:
        """Return the request as a record; names of ``headers`` are lower-case, and ``path`` includes the query."""
        self._seen += 1
        raw = one_line(body)
        decoded = msgspec.json.decode(raw)
        known = decoded if isinstance(decoded, dict) else {}
        return Recorded(
            number=self._seen,
            kind=_kind(method, path, known),
            method=method,
            path=path,
            headers=without_credentials(headers),
            session=session_key(headers, known),
            tier=self._tier(known),
            raw=raw,
        )

    def _tier(self, body: Mapping[str, object]) -> str | None:
        if self._script.by_number:
            number = tier_number(body)
            return number if number in self._script.tiers else None
        model = body.get("model")
        return self._script.tier_of(model) if isinstance(model, str) else None

    def reply(self, seen: Recorded, *, authorised: bool = True) -> ScriptedReply:
        """Return the reply to a request, and advance its session if a step answers."""
        if seen.kind is RequestKind.OTHER:
            return _other(seen)
        if not authorised:
            return _refused(seen, ScriptedError(status=401, message="invalid x-api-key"))
        if not seen.model or not isinstance(seen.body.get("messages"), list):
            return _refused(seen, ScriptedError(status=400, message="the body must be JSON with a model and messages"))
        match seen.kind:
            case RequestKind.COUNT:
                return _count(seen)
            case RequestKind.SIDE:
                return _message(seen, plain(self._script.side_text, model=seen.model, seed=_seed(seen)))
            case RequestKind.MAIN:
                return self._turn(seen)

    def _turn(self, seen: Recorded) -> ScriptedReply:
        if seen.tier is None:
            known = ", ".join(self._script.tiers)
            wanted = f"tier {tier_number(seen.body)}" if self._script.by_number else f"the model {seen.model!r}"
            return _unforeseen(seen, f"tiers: there is none for {wanted}, only {known}")
        chosen = self._cursors.take(tier=seen.tier, session=seen.session, last_result=seen.last_result)
        if isinstance(chosen, Exhausted):
            return _unforeseen(seen, f"{chosen.problem} (session {seen.session})")
        return _play(seen, chosen)


def too_large(seen: Recorded) -> ScriptedReply:
    """Return the reply to a request whose body exceeds the API's limit."""
    return _refused(seen, ScriptedError(status=413, message="request exceeds the maximum size"))


def _kind(method: str, path: str, body: Mapping[str, object]) -> RequestKind:
    match method, path.partition("?")[0]:
        case "POST", "/v1/messages":
            return RequestKind.MAIN if body.get("tools") else RequestKind.SIDE
        case "POST", "/v1/messages/count_tokens":
            return RequestKind.COUNT
        case _:
            return RequestKind.OTHER


def _other(seen: Recorded) -> ScriptedReply:
    if seen.path == "/" and seen.method in ("GET", "HEAD"):  # the CLI checks that the server is up
        return ScriptedReply(status=200, headers=_headers(seen, _JSON), pieces=(b"{}",))
    return _refused(seen, ScriptedError(status=404, message=f"no such endpoint: {seen.method} {seen.path}"))


def _count(seen: Recorded) -> ScriptedReply:
    count = len(bytes(seen.raw)) // 4  # roughly four bytes a token
    return ScriptedReply(
        status=200, headers=_headers(seen, _JSON), pieces=(msgspec.json.encode({"input_tokens": count}),)
    )


def _play(seen: Recorded, chosen: ChosenStep) -> ScriptedReply:
    step = chosen.step
    if step.error is not None:
        return _refused(seen, step.error, place=chosen.place, delay_seconds=step.delay_seconds)
    if not step.is_message:
        return ScriptedReply(status=None, finish=Finish.SILENCE, place=chosen.place, delay_seconds=step.delay_seconds)
    message = compose(step, model=seen.model, seed=_seed(seen), last_result=seen.last_result, captured=chosen.captured)
    finish = Finish.CUT if step.cut else Finish.SILENCE if step.hang else Finish.END
    return _message(seen, message, place=chosen.place, delay_seconds=step.delay_seconds, finish=finish)


def _message(
    seen: Recorded,
    message: ModelMessage,
    *,
    finish: Finish = Finish.END,
    place: str | None = None,
    delay_seconds: float = 0,
) -> ScriptedReply:
    streamed = seen.body.get("stream") is True
    pieces = responses.events(message) if streamed else (responses.as_json(message),)
    return ScriptedReply(
        status=200,
        headers=_headers(seen, _EVENTS if streamed else _JSON),
        pieces=pieces if finish is Finish.END else responses.halves(pieces),
        finish=finish,
        delay_seconds=delay_seconds,
        usage=message.usage,
        place=place,
    )


def _refused(
    seen: Recorded,
    error: ScriptedError,
    *,
    place: str | None = None,
    delay_seconds: float = 0,
    problem: str | None = None,
) -> ScriptedReply:
    body = responses.error_body(error_type=error.error_type, message=error.message, request_id=_request_id(seen))
    return ScriptedReply(
        status=error.status,
        headers={**_headers(seen, _JSON), **{name.lower(): value for name, value in error.headers.items()}},
        pieces=(body,),
        delay_seconds=delay_seconds,
        place=place,
        problem=problem,
    )


def _unforeseen(seen: Recorded, problem: str) -> ScriptedReply:
    return _refused(seen, ScriptedError(status=400, message=f"rehearsal: {problem}"), problem=problem)


def _headers(seen: Recorded, content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "request-id": _request_id(seen)}


def _request_id(seen: Recorded) -> str:
    return f"req_{seen.number:06d}"


def _seed(seen: Recorded) -> str:
    # The number of messages keeps the ids of a resumed session different from those of an earlier server.
    messages = seen.body.get("messages")
    return f"{seen.session}/{seen.number}/{len(messages) if isinstance(messages, list) else 0}"


# --- which step answers ------------------------------------------------------------------------------


class ChosenStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step that answers a request."""

    place: str  # in the script: tiers.haiku.sessions[0].steps[2]
    step: ScriptStep
    captured: Mapping[str, str] = msgspec.field(default_factory=dict)  # from results of earlier steps of the session


class Exhausted(msgspec.Struct, frozen=True, kw_only=True):
    """No step answers; ``problem`` is one sentence that names tier, session and step."""

    problem: str


class Cursors:
    """The cursors of all sessions seen so far."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._cursors: dict[tuple[str, str], Cursor] = {}  # by tier and session key

    def take(self, *, tier: str, session: str, last_result: str) -> ChosenStep | Exhausted:
        """Return the step that answers the next request of a session.

        A new session gets the tier's next scripted session. One CLI session that talks to two tiers has a cursor in
        each.
        """
        known = self._cursors.get((tier, session))
        cursor = known or self._assign(tier)
        if isinstance(cursor, Exhausted):
            return cursor
        self._cursors[tier, session] = cursor
        return cursor.take(last_result)

    def _assign(self, tier: str) -> Cursor | Exhausted:
        """Assign the next scripted session. A refused session stays unknown, and is refused again."""
        rules = self._script.tiers[tier]
        ordinal = sum(1 for taken, _ in self._cursors if taken == tier)
        scripted = len(rules.scripted)
        if ordinal >= scripted and not rules.repeat_last:
            problem = f"tiers.{tier}: session number {ordinal + 1} began, but the script ends at number {scripted}"
            return Exhausted(problem=f"{problem}; script it or say repeat_last")
        index = min(ordinal, scripted - 1)
        return Cursor(rules.scripted[index].steps, f"tiers.{tier}.{rules.place(index)}")


class Cursor:
    """The position of one session in its steps. It only moves forward."""

    def __init__(self, steps: tuple[ScriptStep, ...], place: str) -> None:
        self._steps = steps
        self._place = place
        self._index = 0
        self._answered = 0  # requests that the current step has answered
        self._seen: list[str] = []  # results of the session, oldest first
        self._captured: dict[str, str] = {}

    def take(self, last_result: str) -> ChosenStep | Exhausted:
        """Return the next step whose condition holds, and count its use."""
        self._note(last_result)
        seen = "\n".join(self._seen)
        while self._index < len(self._steps):
            step = self._steps[self._index]
            if self._answered < step.times and (step.when is None or step.when.holds(last_result, seen)):
                self._answered += 1
                return ChosenStep(place=f"{self._place}[{self._index}]", step=step, captured=dict(self._captured))
            self._index += 1
            self._answered = 0
        return Exhausted(problem=f"{self._place}[{self._index}]: the script ends here, but another request came")

    def _note(self, last_result: str) -> None:
        """Keep the results, and capture from them what the step that made the calls asks for."""
        if not self._seen or self._seen[-1] != last_result:
            self._seen.append(last_result)
        if self._answered:
            for name, pattern in self._steps[self._index].capture.items():
                if (found := re.search(pattern, last_result, re.MULTILINE)) is not None:
                    self._captured[name] = found[1] or ""
