"""Events of a stream: one type for each kind of new fact that consumers learn while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

INPUT_LEFT_OUT: Final = "…"
"""The key of an input that is too long to be held, beside what is seen of it; no tool has a parameter of that name."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server as the init line lists it."""

    name: str
    status: str  # ``connected``, ``failed``, ``pending`` …; "" when not stated


class SessionStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The first init line."""

    session_id: str | None
    api_key_source: str | None  # a label: ``ANTHROPIC_API_KEY``, ``claude.ai``, ``none``
    model: str | None
    permission_mode: str | None
    cli_version: str | None
    tools: tuple[str, ...]
    mcp_servers: tuple[McpServer, ...]
    cwd: str | None = None  # the CLI's working directory


class AssistantText(msgspec.Struct, frozen=True, kw_only=True):
    """A text block of the assistant, as it was sent."""

    text: str
    from_subagent: bool = False


class TextStreamed(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text ahead of its block, for live views; it counts only if no block ever comes."""

    text: str


class ToolStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, at its first appearance."""

    tool_use_id: str  # "" when the stream names none
    name: str  # ``unknown`` when not stated
    input: Mapping[str, object] | None  # None: the model's JSON did not parse
    from_subagent: bool = False


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call's result, at its first appearance."""

    tool_use_id: str
    is_error: bool
    text: str | None  # None: a result without content
    from_subagent: bool = False


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life from the CLI while a tool or a hook is open; it says nothing about the tool."""

    tool_use_id: str
    name: str


class ToolDenied(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI's own rules refused a call."""

    tool_use_id: str
    name: str
    message: str


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI begins a turn: an earlier result line was not the last one."""


class ResultRead(msgspec.Struct, frozen=True, kw_only=True):
    """A result line; one process may print several."""

    index: int  # from 0, in order of arrival
    is_error: bool  # of this line alone
    subtype: str


class ApiRetried(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI is about to repeat a model call that failed."""

    attempt: int | None  # from 1
    status: int | None  # HTTP status; None: no response
    error: str | None  # ``rate_limit``, ``overloaded``, ``authentication_failed`` …


class RateLimited(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a plan's usage limit changed."""

    rejected: bool  # the limit is reached; otherwise it is only a notice
    status: str  # ``allowed``, ``allowed_warning``, ``rejected``
    window: str | None  # ``five_hour``, ``seven_day`` …
    resets_at: datetime | None  # UTC


class CliWarned(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI printed a warning frame."""

    subtype: str  # ``model_mismatch`` …
    message: str


class ControlKind(StrEnum):
    """The kind of a control frame."""

    REQUEST = "request"
    RESPONSE = "response"
    CANCEL = "cancel"


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of the control protocol; only the log keeps it."""

    kind: ControlKind
    request_id: str | None
    subtype: str | None


class LineMalformed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not JSON."""

    reason: str
    line: int  # from 1, blank lines included


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """A frame without a meaning for us."""

    type: str
    subtype: str


StreamEvent = (
    SessionStarted
    | AssistantText
    | TextStreamed
    | ToolStarted
    | ToolEnded
    | ToolProgress
    | ToolDenied
    | TurnStarted
    | ResultRead
    | ApiRetried
    | RateLimited
    | CliWarned
    | Control
    | LineMalformed
    | Other
)
