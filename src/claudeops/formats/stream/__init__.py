"""A CLI's stdout, from bytes to a transcript: the public names of this part of the domain.

::

    bytes ─ LineSplitter ─ lines ─ decode ─ frames ─ TranscriptBuilder ─ events, one by one, and a Transcript

Pure and total: no input raises, and what is too long or not understood is counted.
"""

from __future__ import annotations

from claudeops.domain.stream.events import (
    ApiRetried,
    AssistantText,
    CliWarned,
    Control,
    ControlKind,
    LineMalformed,
    McpServer,
    Other,
    RateLimited,
    ResultRead,
    SessionStarted,
    StreamEvent,
    TextStreamed,
    ToolDenied,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from claudeops.domain.stream.transcript import ObservedCall, PermissionDenial, Transcript
from claudeops.formats.stream.blocks import tool_results
from claudeops.formats.stream.builder import TranscriptBuilder
from claudeops.formats.stream.framing import LINE_BYTES, LineSplitter, Malformed, StreamFrame, decode, dropped_line
from claudeops.formats.stream.long_lines import LONG_BYTES, decode_abridged
from claudeops.formats.stream.tallies import RETAINED_BYTES, LineTally

__all__ = [
    "LINE_BYTES",
    "LONG_BYTES",
    "RETAINED_BYTES",
    "ApiRetried",
    "AssistantText",
    "CliWarned",
    "Control",
    "ControlKind",
    "LineMalformed",
    "LineSplitter",
    "LineTally",
    "Malformed",
    "McpServer",
    "ObservedCall",
    "Other",
    "PermissionDenial",
    "RateLimited",
    "ResultRead",
    "SessionStarted",
    "StreamEvent",
    "StreamFrame",
    "TextStreamed",
    "ToolDenied",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "Transcript",
    "TranscriptBuilder",
    "TurnStarted",
    "decode",
    "decode_abridged",
    "dropped_line",
    "tool_results",
]
