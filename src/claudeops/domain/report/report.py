"""A report as values: what a session concluded, and how that was obtained."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from claudeops.domain.events import NewEvent

STRUCTURED_OUTPUT_TOOL: Final = "StructuredOutput"
"""The tool through which the CLI delivers the report (``--json-schema``)."""


class ExtractionMethod(StrEnum):
    """How the report was obtained."""

    STRUCTURED = "structured"  # validated ``structured_output`` of a result line
    SALVAGED = "salvaged"  # validated, but found in a StructuredOutput call or in the text
    MARKERS = "markers"  # legacy text markers; or none of them, where a structured output was refused
    NONE = "none"


class ServiceStatus(StrEnum):
    """State of a service as a report or a probe saw it."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"
    UNREACHABLE = "unreachable"


class CheckSource(StrEnum):
    """Who looked: the daemon's own probe, or the model in its report."""

    PROBE = "probe"
    REPORT = "report"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedMemory:
    """One ``memories[]`` entry; ``service`` and ``category`` are the split key."""

    category: str
    observation: str
    service: str | None = None
    supersedes: int | None = None  # id of the memory that it replaces, according to the report


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceCheck:
    """One ``services_checked[]`` entry."""

    service: str
    status: ServiceStatus
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PastCheck:
    """A check on record; a healthy one of a session was proven."""

    service: str
    status: ServiceStatus
    at: datetime  # when it was recorded
    detail: str | None = None
    session_id: int | None = None  # None: of a probe, or not read
    chain: int | None = None  # the root of that session; None: of a probe, or not read


@dataclass(frozen=True, kw_only=True, slots=True)
class Escalation:
    """The report's wish to hand over to the next tier; what becomes of it is the daemon's decision."""

    needed: bool
    reason: str | None = None
    context: str | None = None  # what was found so far, in the model's words
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a session concluded, after validation."""

    summary: str
    escalation: Escalation
    events: tuple[NewEvent, ...] = ()
    memories: tuple[ReportedMemory, ...] = ()
    services_checked: tuple[ServiceCheck, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Extraction:
    """A report, how it was obtained, and what went wrong on the way.

    ``report`` is ``None`` with ``none``, and with ``markers`` where a refused structured output's texts held none.
    """

    method: ExtractionMethod
    report: Report | None
    warnings: tuple[str, ...] = ()
