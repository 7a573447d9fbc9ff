"""Readers of the frames that speak of the session, not of the conversation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from claudeops.domain.stream.events import (
    ApiRetried,
    Control,
    ControlKind,
    McpServer,
    RateLimited,
    SessionStarted,
    ToolProgress,
)
from claudeops.domain.stream.values import as_int, as_list, as_object, as_text, as_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTROL: Final = {
    "control_request": ControlKind.REQUEST,
    "control_response": ControlKind.RESPONSE,
    "control_cancel_request": ControlKind.CANCEL,
}
_MILLISECONDS: Final = 100_000_000_000  # an epoch time from here on is no time in seconds (year 5138)


def session_started(body: Mapping[str, object], session_id: str | None) -> SessionStarted:
    """Read an init line: Claude's, or caliban's, which spells the permission mode its own way."""
    return SessionStarted(
        session_id=session_id,
        api_key_source=as_text(body.get("apiKeySource")),
        model=as_text(body.get("model")),
        permission_mode=as_text(body.get("permissionMode")) or as_text(body.get("permission_mode")),
        cli_version=as_text(body.get("claude_code_version")),
        tools=as_texts(body.get("tools")),
        mcp_servers=tuple(map(_mcp_server, as_list(body.get("mcp_servers")))),
        cwd=as_text(body.get("cwd")),
    )


def _mcp_server(listed: object) -> McpServer:
    entry = as_object(listed)
    return McpServer(
        name=as_text(entry.get("name")) or as_text(listed) or "unknown",
        status=as_text(entry.get("status")) or "",
    )


def api_retried(body: Mapping[str, object]) -> ApiRetried:
    """Read an api_retry line; caliban's label stands under ``error_category``."""
    return ApiRetried(
        attempt=as_int(body.get("attempt")),
        status=as_int(body.get("error_status")),
        error=as_text(body.get("error")) or as_text(body.get("error_category")),
    )


def rate_limited(body: Mapping[str, object]) -> RateLimited:
    """Read a rate_limit_event line (fields as in the Agent SDK's ``RateLimitInfo``)."""
    info = as_object(body.get("rate_limit_info"))
    status = as_text(info.get("status")) or ""
    return RateLimited(
        rejected=status == "rejected",
        status=status,
        window=as_text(info.get("rateLimitType")),
        resets_at=_epoch(info.get("resetsAt")),
    )


def _epoch(value: object) -> datetime | None:
    seconds = as_int(value)
    if seconds is None or seconds <= 0:
        return None
    if seconds >= _MILLISECONDS:
        seconds //= 1000
    if seconds >= _MILLISECONDS:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC)


def tool_progress(body: Mapping[str, object]) -> ToolProgress:
    """Read a tool_progress line."""
    return ToolProgress(
        tool_use_id=as_text(body.get("tool_use_id")) or "",
        name=as_text(body.get("tool_name")) or "unknown",
    )


def control(kind: str, body: Mapping[str, object]) -> Control:
    """Read a frame of the control protocol; a response carries its request's id inside."""
    inner = as_object(body.get("request")) or as_object(body.get("response"))
    return Control(
        kind=_CONTROL[kind],
        request_id=as_text(body.get("request_id")) or as_text(inner.get("request_id")),
        subtype=as_text(inner.get("subtype")),
    )
