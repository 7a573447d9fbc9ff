"""A report as values: what a session concluded, and how that was obtained."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.events import NewEvent

STRUCTURED_OUTPUT_TOOL: Final = "StructuredOutput"
"""The tool through which the CLI delivers the report (``--json-schema``)."""

MARKER_BEGINNINGS: Final = ("[EVENT:", "[MEMORY:", "[COOLDOWN:")
"""How each of the legacy markers begins."""

REPORT_CHARACTERS: Final = 2_000_000
"""Characters of texts, all together and the latest, in which a report is looked for."""


class ExtractionMethod(ClosedSet):
    """How the report was obtained."""

    STRUCTURED = "structured", "the validated `structured_output` of a result line"
    SALVAGED = "salvaged", "validated too, but found in a call of StructuredOutput or in the text"
    MARKERS = (
        "markers",
        "read from markers in the text; where a structured output was refused there may be none, and no report",
    )
    NONE = "none", "there is no report"


class ServiceStatus(ClosedSet):
    """State of a service as a report or a probe saw it."""

    HEALTHY = "healthy", "answers as it should"
    DEGRADED = "degraded", "answers, but not as it should"
    DOWN = "down", "does not work"
    UNREACHABLE = "unreachable", "could not be reached, so nothing is known"


class CheckSource(ClosedSet):
    """Who looked: the daemon's own probe, or the model in its report."""

    PROBE = "probe", "the daemon itself"
    REPORT = "report", "the model, as its report says"


class ReportedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One ``memories[]`` entry; ``service`` and ``category`` are the split key."""

    category: str
    observation: str
    service: str | None = None
    supersedes: int | None = None  # id of the memory that it replaces, according to the report


class ServiceCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One ``services_checked[]`` entry."""

    service: str
    status: ServiceStatus
    detail: str | None = None


class PastCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check on record; a healthy one of a session was proven."""

    service: str
    status: ServiceStatus
    at: datetime  # when it was recorded
    detail: str | None = None
    session_id: int | None = None  # None: of a probe, or not read
    chain: int | None = None  # the root of that session; None: of a probe, or not read


class Escalation(msgspec.Struct, frozen=True, kw_only=True):
    """The report's wish to hand over to the next tier; what becomes of it is the daemon's decision."""

    needed: bool
    reason: str | None = None
    context: str | None = None  # what was found so far, in the model's words
    failed_checks: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a session concluded, after validation."""

    summary: str
    escalation: Escalation
    events: tuple[NewEvent, ...] = ()
    memories: tuple[ReportedMemory, ...] = ()
    services_checked: tuple[ServiceCheck, ...] = ()


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """A report, how it was obtained, and what went wrong on the way.

    ``report`` is ``None`` with ``none``, and with ``markers`` where a refused structured output's texts held none.
    """

    method: ExtractionMethod
    report: Report | None
    warnings: tuple[str, ...] = ()
