"""A session's place in a distributed trace, as W3C writes it (https://www.w3.org/TR/trace-context/).

A chain is one trace, a session is one span of it. Both numbers come from ids that are in the sessions' rows anyway:
random ones, chosen before the spawn. So nothing more is stored, and what a session started can be found from its row.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from claudeops.text import regex

TRACEPARENT: Final = "TRACEPARENT"
"""The environment variable that hands a process its trace context."""

_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16
_HEX: Final = regex.Pattern(r"[0-9a-f]+")


class TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session stands in a trace."""

    trace_id: str  # 32 hexadecimal digits: the CLI session id of the chain's first session, without dashes
    span_id: str  # 16 hexadecimal digits: the last ones of the session's own

    @property
    def header(self) -> str:
        """Version, trace, parent and flags. The flag says that the parent is recorded, which it is in our log."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def trace_context(cli_session_id: str, *, root_cli_session_id: str) -> TraceContext:
    """Return a session's trace context, from its own CLI session id and that of its chain's first session."""
    return TraceContext(trace_id=_digits(root_cli_session_id), span_id=_digits(cli_session_id)[-_SPAN_DIGITS:])


def _digits(cli_session_id: str) -> str:
    """Return the 32 digits of an id; for one that is no UUID, as other kinds of CLI choose them, those of its hash."""
    digits = cli_session_id.replace("-", "").lower()
    if len(digits) == _TRACE_DIGITS and _HEX.fullmatch(digits) and set(digits[-_SPAN_DIGITS:]) != {"0"}:
        return digits
    return hashlib.sha256(cli_session_id.encode()).hexdigest()[:_TRACE_DIGITS]
