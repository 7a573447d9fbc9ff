"""What the tables hold that bears on whether a report is believed, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from claudeops.domain import evidence
from claudeops.domain.evidence import Names, PastCheck
from claudeops.domain.model import ServiceStatus
from claudeops.store.audit import TOO_LATE
from claudeops.store.consequences import Reservation
from claudeops.store.rows import to_handover
from claudeops.store.types import clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from claudeops.domain.evidence import Background
    from claudeops.domain.model import Session
    from claudeops.store.rows import TableRow


def to_reservation(row: TableRow) -> Reservation:
    """Return a ``cooldown_actions`` row as what waits for a result."""
    return Reservation(
        id=row.id,
        tool_use_id=row.tool_use_id,
        kind=row.action_type,
        service=row.service,
        denied=row.error == TOO_LATE,
    )


def to_background(
    session: Session,
    *,
    earlier: Sequence[TableRow],
    checks: Iterable[TableRow],
    actions: Iterable[TableRow],
    other_names: Mapping[str, str],
) -> Background:
    """Return what the ``earlier`` sessions of a chain have left, oldest first, by their rows of each table."""
    own = () if session.context is None else (session.context,)
    handed = [context for row in earlier if (context := to_handover(row.context)) is not None]
    return evidence.background(
        checks=[
            PastCheck(
                session_id=row.session_id, service=row.service, status=ServiceStatus(row.status), detail=row.detail
            )
            for row in checks
        ],
        actions=[(row.session_id, row.service) for row in actions if row.error != TOO_LATE],
        handovers=(*handed, *own),
        request=earlier[0].prompt_text if earlier else session.prompt_text,
        names=Names(other_names, clip),
    )
