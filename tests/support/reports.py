"""Reports and transcripts, as far as a report is concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claudeops.domain.report.report import Extraction
from claudeops.formats.report.extraction import ReportSchema, extract

SCHEMA_TEXT = (Path(__file__).parents[2] / "schemas" / "agent-response.json").read_text(encoding="utf-8")
SCHEMA = ReportSchema.load(SCHEMA_TEXT)
WEAK = ReportSchema.load('{"type": "object"}')

HEALTHY: dict[str, object] = {
    "summary": "All services answer.",
    "events": [],
    "escalation": {"needed": False},
    "services_checked": [{"name": "web", "status": "healthy"}],
}
ALARM: dict[str, object] = {
    "summary": "The database is down.",
    "events": [{"level": "critical", "service": "db", "message": "db refuses connections"}],
    "memories": [{"key": "db:timing", "value": "takes 90 s to start"}],
    "escalation": {"needed": True, "reason": "db is down", "context": "disk full", "failed_checks": ["db tcp"]},
    "services_checked": [{"name": "db", "status": "down", "detail": "connection refused"}],
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """A transcript, as far as a report is concerned."""

    structured_outputs: Sequence[object] = ()
    structured_calls: Sequence[object] = ()
    main_texts: Sequence[str] = ()
    last_assistant_text: str | None = None
    result_text: str | None = None


def found(schema: ReportSchema = SCHEMA, /, **said: Any) -> Extraction:
    return extract(Said(**said), schema, legacy_markers=True)


def changed(report: Mapping[str, object], **changes: object) -> dict[str, object]:
    return {key: value for key, value in {**report, **changes}.items() if value != "absent"}


def with_summary(text: str) -> dict[str, object]:
    return changed(HEALTHY, summary=text)


def summary_of(extraction: Extraction) -> str:
    assert extraction.report is not None
    return extraction.report.summary
