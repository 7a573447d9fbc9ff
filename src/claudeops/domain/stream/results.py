"""What a session's result lines say, added up.

One process may print several: a later line overwrites turns, tokens and cost (which are cumulative), but an
error, once said, stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.stream.events import ResultSeen
from claudeops.domain.stream.transcript import PermissionDenial
from claudeops.domain.stream.values import as_count, as_int, as_list, as_money, as_object, as_text, as_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.domain.stream.transcript import Transcript

NO_DETAIL: Final = "API error (no detail)"
"""The error text of a failed result that says nothing; clauditor's wording."""


@dataclass(kw_only=True, slots=True)
class ResultTally:
    """Accumulates result lines; every field is what the transcript will say."""

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
    structured_outputs: list[Mapping[str, object]] = field(default_factory=list)
    denials: dict[str, PermissionDenial] = field(default_factory=dict)

    def read(self, body: Mapping[str, object], *, label: str | None) -> ResultSeen:
        """Take one result line; ``label`` is the error label of the assistant frame before it."""
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
        if isinstance(structured, dict):
            self.structured_outputs.append(structured)
        self._read_numbers(body)
        for denial in as_list(body.get("permission_denials")):
            if isinstance(denial, dict):
                self.deny(denial)
        return ResultSeen(
            index=self.count - 1,
            is_error=is_error,
            subtype=subtype or "",
        )

    def deny(self, denial: Mapping[str, object]) -> PermissionDenial:
        """Note a refused call once, wherever it is told; the first telling may lack the input."""
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
        """Return ``transcript`` with what the result lines said so far."""
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
        """Take a usage object; clauditor's rule: an absent one zeroes the tokens, one that is no object leaves them."""
        if not isinstance(usage, dict):
            return
        self.input_tokens = as_count(usage.get("input_tokens"))
        self.output_tokens = as_count(usage.get("output_tokens"))
        self.cached_input_tokens = as_int(usage.get("cache_read_input_tokens"))
        details = as_object(usage.get("output_tokens_details"))
        self.reasoning_output_tokens = as_int(details.get("thinking_tokens"))


def _stated_error(body: Mapping[str, object]) -> str | None:
    """Return what a result line calls its error: caliban's ``error``, or Claude's ``errors``, joined."""
    error = as_text(body.get("error"))
    return error or "\n".join(as_texts(body.get("errors"))) or None
