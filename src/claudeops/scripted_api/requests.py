"""Records requests and how they were served: in memory, and line by line in a file for other processes.

Nothing here raises on a strange request body.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.scripted_api.script import Usage

REDACTED: Final = "[redacted]"
NO_BODY: Final = msgspec.Raw(b"null")
"""Stands for a body that is not JSON."""

ANONYMOUS: Final = "anonymous"
"""The session key of requests without a session id; those of a tier share it."""

_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_SESSION_HEADER: Final = "x-claude-code-session-id"
_AGENT_HEADER: Final = "x-claude-code-agent-id"
_TIER_LINE: Final = re.compile(r"^- Tier: (\d+) \(", re.MULTILINE)
_REMINDER_BEGIN: Final = "<system-reminder>"
_REMINDER_END: Final = "</system-reminder>"


# --- one request -------------------------------------------------------------------------------------


class RequestKind(StrEnum):
    """What a request is for."""

    MAIN = "main"  # carries tools: a turn of the agent, answered by a step
    SIDE = "side"  # no tools: the CLI asks for its own purposes
    COUNT = "count"  # count_tokens
    OTHER = "other"  # anything else


class ReceivedToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call as the model gets it."""

    tool_use_id: str
    text: str  # without the reminders that the CLI appends
    is_error: bool


class Recorded(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="request"):
    """One request. Credentials in the headers are redacted; the body is kept."""

    number: int  # from 1, in order of arrival
    kind: RequestKind
    method: str
    path: str
    headers: dict[str, str]  # lower-case names
    session: str = ANONYMOUS  # the CLI's session id; a subagent adds "/" and its own
    tier: str | None = None  # None: no tier matches
    raw: msgspec.Raw = msgspec.field(default=NO_BODY, name="body")  # JSON on one line

    def __repr__(self) -> str:
        # Without headers and body: failed assertions print this, and a body has 50 KB.
        return f"Recorded({self.number}, {self.kind}, {self.tier}, {self.session}, {self.method} {self.path})"

    @property
    def body(self) -> dict[str, object]:
        """The body, decoded anew on every access; empty when it is not a JSON object."""
        body = msgspec.json.decode(self.raw)
        return body if isinstance(body, dict) else {}

    @property
    def model(self) -> str:
        """The requested model."""
        return _text_of(self.body.get("model"))

    @property
    def system_text(self) -> str:
        """The system prompt, its blocks joined by newlines."""
        return _joined(self.body.get("system"))

    @property
    def user_texts(self) -> tuple[str, ...]:
        """Every text block of every user message, oldest first."""
        return tuple(text for blocks in _user_messages(self.body) for text in _texts(blocks))

    @property
    def tool_results(self) -> tuple[ReceivedToolResult, ...]:
        """Every tool result of the conversation, oldest first."""
        return tuple(result for blocks in _user_messages(self.body) for result in _results(blocks))

    @property
    def last_result(self) -> str:
        """The results of the last message that has any, joined by newlines; empty when no tool has run."""
        answered = [results for blocks in _user_messages(self.body) if (results := tuple(_results(blocks)))]
        return "\n".join(result.text for result in answered[-1]) if answered else ""

    def mentions(self, text: str) -> bool:
        """Return whether a text occurs anywhere: in a string or key of the body, a header or the path."""
        return any(text in known for known in (self.path, *self.headers.values(), *_strings(self.body)))


def one_line(body: bytes) -> msgspec.Raw:
    """Return a JSON document on one line; `NO_BODY` for anything that cannot be decoded."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return NO_BODY
    return msgspec.Raw(msgspec.json.format(body, indent=-1))


def session_key(headers: Mapping[str, str], body: Mapping[str, object]) -> str:
    """Return a key that distinguishes the sessions of several CLIs, and a session from its subagents.

    CLI 2.1.329 sends the session id as a header and in ``metadata.user_id``, which is JSON text; subagents add a header
    with an id of their own.
    """
    session = headers.get(_SESSION_HEADER) or _session_in(body.get("metadata")) or ANONYMOUS
    agent = headers.get(_AGENT_HEADER)
    return f"{session}/{agent}" if agent else session


def tier_number(body: Mapping[str, object]) -> str | None:
    """Return the tier of one of our sessions, from the environment section of its system prompt."""
    found = _TIER_LINE.search(_joined(body.get("system")))
    return found[1] if found else None


def without_credentials(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with every credential redacted."""
    return {name: REDACTED if name in _SECRET_HEADERS else value for name, value in headers.items()}


def _session_in(metadata: object) -> str:
    user_id = _text_of(metadata.get("user_id")) if isinstance(metadata, dict) else ""
    try:
        parsed = msgspec.json.decode(user_id)
    except msgspec.DecodeError:
        return ""
    return _text_of(parsed.get("session_id")) if isinstance(parsed, dict) else ""


def _user_messages(body: Mapping[str, object]) -> Iterator[object]:
    """Yield the content of each user message."""
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            yield message.get("content")


def _blocks(content: object) -> Iterator[dict[str, object]]:
    """Yield content as blocks; a plain string is one text block."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block


def _texts(content: object) -> Iterator[str]:
    return (_text_of(block.get("text")) for block in _blocks(content) if block.get("type") == "text")


def _joined(content: object) -> str:
    return "\n".join(_texts(content))


def _results(content: object) -> Iterator[ReceivedToolResult]:
    for block in _blocks(content):
        if block.get("type") == "tool_result":
            yield ReceivedToolResult(
                tool_use_id=_text_of(block.get("tool_use_id")),
                text=_without_reminders(_joined(block.get("content"))),
                is_error=block.get("is_error") is True,
            )


def _without_reminders(text: str) -> str:
    """Return a result as the tool printed it: CLI 2.1.329 appends a reminder of the tokens left."""
    while (ending := text.rstrip()).endswith(_REMINDER_END) and (start := ending.rfind(_REMINDER_BEGIN)) >= 0:
        text = ending[:start].rstrip()
    return text


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, keys included."""
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


# --- all traffic -------------------------------------------------------------------------------------


class ResponseEnding(StrEnum):
    """How a response ended."""

    COMPLETE = "complete"
    CUT = "cut"  # broken off, as scripted
    GONE = "gone"  # the client left first
    CLOSED = "closed"  # the server stopped first


class Served(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="served"):
    """How one request ended. Tokens count what was sent of the response, as an API would bill it."""

    number: int  # of the request
    kind: RequestKind
    tier: str | None
    session: str
    model: str
    place: str | None  # the step, as tiers.haiku.steps[2]; None: no step answered
    status: int | None  # None: not one byte was sent
    ending: ResponseEnding
    started: datetime  # when the request arrived, UTC
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class ScriptProblem(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="problem"):
    """Something that the script did not foresee; a rehearsal with a problem has failed."""

    number: int  # of the request
    text: str  # one sentence that begins with the place


class Traffic:
    """Requests in order of arrival, served requests in order of their end, and problems. Grows without bound."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.served: list[Served] = []
        self.problems: list[str] = []

    def add(self, entry: Recorded | Served | ScriptProblem) -> None:
        """Keep one entry."""
        match entry:
            case Recorded():
                self.requests.append(entry)
            case Served():
                self.served.append(entry)
            case ScriptProblem() if entry.text not in self.problems:  # the CLI repeats refused requests
                self.problems.append(entry.text)

    def main(self, tier: str | None = None, session: str | None = None) -> list[Recorded]:
        """Return the agent's turns, of one tier or session if given."""
        return [seen for seen in self.requests if seen.kind is RequestKind.MAIN and _is_of(seen, tier, session)]

    def sessions(self, tier: str) -> list[str]:
        """Return the keys of a tier's sessions, in the order in which they first asked."""
        return list(dict.fromkeys(seen.session for seen in self.main(tier)))

    def mentioning(self, text: str) -> list[Recorded]:
        """Return the requests that contain a text anywhere; for tests that look for secrets."""
        return [seen for seen in self.requests if seen.mentions(text)]

    def tokens(self, tier: str | None = None, session: str | None = None) -> Usage:
        """Return the sum of all tokens served, including side requests."""
        chosen = [served for served in self.served if _is_of(served, tier, session)]
        fields = Usage.__struct_fields__
        return Usage(**{name: sum(getattr(served, name) for served in chosen) for name in fields})


class Journal:
    """Appends every entry as one JSON line to a file that only its owner can read.

    It writes in the event loop, on purpose: the lines are then in the order of events, and none is written later than
    the client sees its event.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"journal {path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def append(self, entry: Recorded | Served | ScriptProblem) -> None:
        """Write one entry; a reader in another process sees it at once."""
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def _is_of(entry: Recorded | Served, tier: str | None, session: str | None) -> bool:
    return tier in (None, entry.tier) and session in (None, entry.session)
