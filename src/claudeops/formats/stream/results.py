"""The frames that speak of the session rather than the conversation: result lines, and readers for the others.

One process may print several result lines. A later one overwrites turns, tokens and cost (which are cumulative), but an
error stays once it has been reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from claudeops.domain.stream.events import (
    ApiRetried,
    Control,
    ControlKind,
    McpServer,
    RateLimited,
    ResultRead,
    SessionStarted,
    ToolProgress,
)
from claudeops.domain.stream.transcript import PermissionDenial, Transcript
from claudeops.formats.stream.framing import as_count, as_int, as_list, as_money, as_object, as_text, as_texts
from claudeops.structs import replace

NO_DETAIL: Final = "API error (no detail)"
"""The error text of a failed result without one; clauditor's wording."""

_MOST_OUTPUTS: Final = 50  # structured outputs: the first and the latest, which are those that `extract` reads


class ResultTally(msgspec.Struct, kw_only=True):
    """Accumulates result lines; the fields are those of the transcript."""

    count: int = 0
    subtype: str | None = None
    is_error: bool = False
    error_subtype: str | None = None
    error_text: str | None = None
    error_label: str | None = None
    stated_error: str | None = None
    api_error_status: int | None = None
    result_text: str | None = None
    last_assistant_text: str | None = None
    terminal_reason: str | None = None
    num_turns: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: int | None = None
    tool_calls_reported: int = 0
    structured_outputs: list[Mapping[str, object] | str] = msgspec.field(default_factory=list)
    denials: dict[str, PermissionDenial] = msgspec.field(default_factory=dict)

    def read(self, body: Mapping[str, object], *, label: str | None) -> ResultRead:
        """Take one result line; ``label`` is the error label of the preceding assistant frame."""
        subtype = as_text(body.get("subtype"))
        is_error = body.get("is_error") is True
        result = body.get("result")
        structured = body.get("structured_output")
        self.count += 1
        self.subtype = subtype
        self.result_text = result if isinstance(result, str) else None
        self.stated_error = _stated_error(body)
        self.last_assistant_text = as_text(body.get("last_assistant_text")) or self.last_assistant_text
        self.terminal_reason = as_text(body.get("terminal_reason"))
        if is_error:
            self._read_error(body, label)
        if isinstance(structured, dict | str) and structured != "":
            self.structured_outputs.append(structured)
            if len(self.structured_outputs) > 2 * _MOST_OUTPUTS:
                del self.structured_outputs[_MOST_OUTPUTS]
        self._read_numbers(body)
        for denial in as_list(body.get("permission_denials")):
            if isinstance(denial, dict):
                self.deny(denial)
        return ResultRead(
            index=self.count - 1,
            is_error=is_error,
            subtype=subtype or "",
        )

    def deny(self, denial: Mapping[str, object]) -> PermissionDenial:
        """Note a refused call once, wherever it is reported; the first report may lack the input."""
        tool_use_id = as_text(denial.get("tool_use_id")) or ""
        known = self.denials.get(tool_use_id)
        if known is None or not known.input:
            known = PermissionDenial(
                tool_use_id=tool_use_id,
                tool_name=as_text(denial.get("tool_name")) or "unknown",
                input=as_object(denial.get("tool_input")),
            )
            self.denials[tool_use_id] = known
        return known

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the result lines so far."""
        return replace(
            transcript,
            results=self.count,
            subtype=self.subtype,
            is_error=self.is_error,
            error_subtype=self.error_subtype,
            error_text=self.error_text,
            error_label=self.error_label if self.is_error else transcript.error_label,
            stated_error=self.stated_error,
            api_error_status=self.api_error_status,
            result_text=self.result_text,
            last_assistant_text=self.last_assistant_text or transcript.last_assistant_text,
            terminal_reason=self.terminal_reason,
            num_turns=self.num_turns,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_input_tokens=self.cached_input_tokens,
            reasoning_output_tokens=self.reasoning_output_tokens,
            cost_usd=self.cost_usd,
            duration_ms=self.duration_ms,
            structured_outputs=tuple(self.structured_outputs),
            tool_calls_reported=self.tool_calls_reported,
            permission_denials=tuple(self.denials.values()),
        )

    def _read_error(self, body: Mapping[str, object], label: str | None) -> None:
        result = body.get("result")
        self.is_error = True
        self.error_subtype = as_text(body.get("subtype"))
        self.error_label = label
        self.api_error_status = as_int(body.get("api_error_status"))
        if isinstance(result, str) and (result.strip() or not self.stated_error):
            self.error_text = result
        else:
            self.error_text = self.stated_error or NO_DETAIL

    def _read_numbers(self, body: Mapping[str, object]) -> None:
        turns = as_int(body.get("num_turns"))
        if turns is None:
            turns = as_int(body.get("turns"))  # caliban's older frames
        cost = as_money(body.get("total_cost_usd"))
        duration = as_int(body.get("duration_ms"))
        self.num_turns = self.num_turns if turns is None else turns
        self.cost_usd = self.cost_usd if cost is None else cost
        self.duration_ms = self.duration_ms if duration is None else duration
        self.tool_calls_reported = max(self.tool_calls_reported, as_int(body.get("tool_calls_seen")) or 0)
        if "usage" not in body and "total_input_tokens" in body:  # same
            self.input_tokens = as_count(body["total_input_tokens"])
            self.output_tokens = as_count(body.get("total_output_tokens"))
            return
        self._read_usage(body.get("usage") or {})

    def _read_usage(self, usage: object) -> None:
        """Take a usage object. Clauditor's rule: an absent one means 0 tokens, one that is not an object is ignored."""
        if not isinstance(usage, dict):
            return
        self.input_tokens = as_count(usage.get("input_tokens"))
        self.output_tokens = as_count(usage.get("output_tokens"))
        self.cached_input_tokens = as_int(usage.get("cache_read_input_tokens"))
        details = as_object(usage.get("output_tokens_details"))
        self.reasoning_output_tokens = as_int(details.get("thinking_tokens"))


def _stated_error(body: Mapping[str, object]) -> str | None:
    """Return the error text of a result line: caliban's ``error``, or Claude's ``errors``, joined."""
    error = as_text(body.get("error"))
    return error or "\n".join(as_texts(body.get("errors"))) or None


# --- other frames of the session ----------------------------------------------------------------------


_CONTROL: Final = {
    "control_request": ControlKind.REQUEST,
    "control_response": ControlKind.RESPONSE,
    "control_cancel_request": ControlKind.CANCEL,
}
_MILLISECONDS: Final = 100_000_000_000  # an epoch time from here on cannot be in seconds (year 5138)


def session_started(body: Mapping[str, object], session_id: str | None) -> SessionStarted:
    """Read an init line: Claude's, or caliban's, which spells the permission mode differently."""
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


def api_retried(body: Mapping[str, object]) -> ApiRetried:
    """Read an api_retry line; caliban's label is under ``error_category``."""
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


def _mcp_server(listed: object) -> McpServer:
    entry = as_object(listed)
    return McpServer(
        name=as_text(entry.get("name")) or as_text(listed) or "unknown",
        status=as_text(entry.get("status")) or "",
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
