"""What a log says, written late; the caller's transaction holds it together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from claudeops.domain.amendment import Amended, Part, Refused
from claudeops.domain.model import VerdictKind
from claudeops.store import queries
from claudeops.store.amendment import OnRecord, amendable, amendment
from claudeops.store.calls import seal_results
from claudeops.store.consequences import reported_memories
from claudeops.store.events import raise_late_event, resolve_events
from claudeops.store.finish import book, record_checks, remember, settle
from claudeops.store.rows import to_warnings
from claudeops.store.tables import budget_entries, sessions, tool_calls

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from claudeops.domain.model import Ending, Session
    from claudeops.store.amendment import Amendment


def amend(connection: Connection, ending: Ending) -> Amended | Refused:
    """Write what is missing; refuse what is not this row's, with nothing written."""
    session = amendable(queries.session(connection, ending.session_id), ending)
    if isinstance(session, Refused):
        return session
    late = amendment(ending, _on_record(connection, session, ending))
    ended = _end_calls(connection, ending)
    if ended:
        seal_results(connection, session.id)
    _write(connection, session, late)
    return Amended(
        session=queries.session(connection, session.id) or session,
        parts=late.parts | {Part.TOOL_ENDS} if ended else late.parts,
    )


def _on_record(connection: Connection, session: Session, ending: Ending) -> OnRecord:
    warnings = select(sessions.c.warnings).where(sessions.c.id == session.id)
    settled = select(budget_entries.c.id).where(
        budget_entries.c.session_id == session.id, budget_entries.c.kind == "settled"
    )
    categories = {item.category for item in reported_memories(ending.extraction.report)}
    return OnRecord(
        session=session,
        warnings=to_warnings(connection.execute(warnings).scalar_one()),
        memories=queries.known_memories(connection, categories),
        spend_settled=connection.execute(settled.limit(1)).first() is not None,
        unseen_ends=queries.unseen_ends(connection, session.id),
        reservations=queries.reservations(connection, session.id),
        before=queries.background(connection, session, {}),
    )


def _end_calls(connection: Connection, ending: Ending) -> int:
    """Write the results that calls do not show yet; return how many those are."""
    calls = tool_calls.c
    return sum(
        connection.execute(
            update(tool_calls)
            .where(
                calls.session_id == ending.session_id,
                calls.tool_use_id == end.tool_use_id,
                calls.verdict != VerdictKind.ASK.value,
                calls.ended_at.is_(None),
            )
            .values(ended_at=end.ended_at, is_error=end.is_error)
        ).rowcount
        for end in ending.tool_ends
    )


def _write(connection: Connection, session: Session, late: Amendment) -> None:
    if late.values:
        connection.execute(update(sessions).where(sessions.c.id == session.id).values(late.values))
    settle(connection, late.settlements)
    book(connection, session.id, late.spend, at=late.at)
    record_checks(connection, session.id, late.checks, at=late.at)
    for dated in late.memories:
        remember(connection, session, [dated.change], at=dated.at)
    for event in late.events:
        raise_late_event(connection, event, session_id=session.id, at=late.at)
    resolve_events(connection, session, well=late.well, all_well=False, at=late.at)
