"""Rows read back as values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from sqlalchemy import Row

from claudeops.domain.actions import PastAction, Recheck
from claudeops.domain.report.report import ExtractionMethod, PastCheck, ServiceStatus
from claudeops.domain.sessions import (
    DecisionReason,
    ErrorCategory,
    Handover,
    Outcome,
    Session,
    Status,
    Trigger,
)
from claudeops.text import unique

Member = TypeVar("Member", bound=StrEnum)
TableRow: TypeAlias = Row[*tuple[Any, ...]] | SimpleNamespace  # a row as read, or one that is about to be written

_UNREADABLE: Final = "the stored handover could not be read; its text is given as the findings"


def to_session(row: TableRow) -> Session:
    """Return a ``sessions`` row as a value."""
    return Session(
        id=row.id,
        root_session_id=row.root_session_id,
        parent_session_id=row.parent_session_id,
        tier=row.tier,
        ordinal=row.ordinal,
        harness=row.harness,
        model=row.model,
        trigger=Trigger(row.trigger),
        prompt_text=row.prompt_text,
        context=to_handover(row.context),
        status=Status(row.status),
        attempt=row.attempt,
        created_at=row.created_at,
        cli_session_id=row.cli_session_id,
        log_path=row.log_path,
        log_node=row.log_node,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=_member(Outcome, row.outcome),
        decision_reason=_member(DecisionReason, row.decision_reason),
        extraction_method=_member(ExtractionMethod, row.extraction_method),
        error=row.error,
        error_category=_member(ErrorCategory, row.error_category),
        exit_code=row.exit_code,
        summary=row.summary,
        cost_usd=row.cost_usd,
        num_turns=row.num_turns,
        budget_usd=row.budget_usd,
        services=to_names(row.services),
        started_by=row.started_by,
        site=row.site,
        for_node=row.for_node,
    )


def to_names(text: str | None) -> tuple[str, ...]:
    """Return a stored list of names; text that is no such list names nothing."""
    if text is None:
        return ()
    try:
        return unique(msgspec.json.decode(text, type=tuple[str, ...]))
    except msgspec.MsgspecError:
        return ()


def to_past_action(row: TableRow) -> PastAction:
    """Return a ``cooldown_actions`` row as a ledger entry."""
    return PastAction(
        kind=row.action_type,
        service=row.service,
        at=row.timestamp,
        id=row.id,
        session_id=row.session_id,
        tier=row.tier,
        tool_use_id=row.tool_use_id,
        success=row.success,
        error=row.error,
        held=None if row.held is None else Recheck(row.held),
        held_at=row.held_checked_at,
        follow_up_at=row.follow_up_at,
    )


def to_past_check(row: TableRow) -> PastCheck:
    """Return a ``service_checks`` row as a check on record."""
    return PastCheck(
        service=row.service,
        status=ServiceStatus(row.status),
        at=row.checked_at,
        detail=row.detail,
        session_id=row.session_id,
    )


_HANDOVER: Final = msgspec.json.Decoder(Handover)


def to_handover(text: str | None) -> Handover | None:
    """Return a stored handover; text that cannot be decoded becomes its findings, so that nothing is lost."""
    if text is None:
        return None
    try:
        return _HANDOVER.decode(text)
    except msgspec.DecodeError:
        return Handover(reason=_UNREADABLE, findings=text)


def to_warnings(text: str | None) -> tuple[str, ...]:
    """Return the sentences of a stored ``warnings`` column; text that is not a list counts as one sentence."""
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return (text,)


def to_digests(row: TableRow) -> Mapping[str, str]:
    """Return the digests of an ``instances`` row; none where they cannot be read, as those of another version."""
    try:
        return msgspec.json.decode(row.digests or "{}", type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _member(members: type[Member], value: str | None) -> Member | None:
    return None if value is None else members(value)
