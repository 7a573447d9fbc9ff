"""Sessions into the queue, and to their ends; who takes them out of it is in `claudeops.store.claims`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection, bindparam, func, insert, select, update

from claudeops.domain.chains import escalation
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.commands import StopTarget
from claudeops.domain.notices.notice import PLAIN, Announcement
from claudeops.domain.sessions import Decision, Ending, Finished, NewSession, Session, Status, Suppressed
from claudeops.errors import StaleAttemptError, StoreError
from claudeops.store import action_ledger, changes, queries, spend
from claudeops.store.acts.services import release_services
from claudeops.store.alerts import announcements, incidents
from claudeops.store.database import Database, QueuedSession, note_queued
from claudeops.store.events import raise_event
from claudeops.store.finish import running, what_is_there, write_end
from claudeops.store.rows import to_session
from claudeops.store.session_columns import (
    CHANGE_SESSION,
    CHANGE_SESSION_AS_SEEN,
    blocked_values,
    cancelled_values,
    queued_values,
)
from claudeops.store.tables.sessions import other_sessions, sessions
from claudeops.structs import replace

_ADD_SESSION: Final = insert(sessions).returning(*sessions.c)

_INHERIT: Final = (  # a chain belongs to one incident as a whole
    update(sessions)
    .where(sessions.c.id == bindparam("inherits"))
    .values(
        incident_id=select(other_sessions.c.incident_id)
        .where(other_sessions.c.id == bindparam("of_parent"))
        .scalar_subquery()
    )
)


class Queue:
    """Sessions from the queue to their ends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue(self, new: NewSession, *, rules: EscalationRules, now: datetime) -> Session | Suppressed:
        """Queue a chain's first session, unless maximum tier, dry run or cooldown forbid it.

        A suppressed session leaves an event and no row. A root's ``root_session_id`` is its own id.
        """
        return await self._database.write(partial(queue_chain, new=new, rules=rules, now=now))

    async def identify(self, session: Session, cli_session_id: str) -> None:
        """Write the session id that a CLI chose itself, as soon as the CLI reports it; only for a running session.

        After a crash a log counts as a row's only if both name the same session.
        """

        def name(connection: Connection) -> None:
            named = {"cli_session_id": cli_session_id}
            if session.status is not Status.RUNNING or not change(connection, session, named):
                raise StaleAttemptError(f"session {session.id} is no longer running as attempt {session.attempt}.")

        await self._database.write(name)

    async def finish(self, ending: Ending, *, rules: EscalationRules) -> Finished:
        """End a session and write everything that follows from it, in one transaction.

        Session row, events, memories merged, service checks, tool ends, calls that the CLI refused, ledger settled,
        spend booked, open questions to people expired, decision, and the next tier's queued session, or the retry's;
        and what the end means for holds.

        Raises `StaleAttemptError`, with nothing written, when it is not running as ``ending.attempt``.
        """

        def end(connection: Connection) -> Finished:
            session = running(connection, ending)
            there = what_is_there(connection, session, at=ending.ended_at)
            outcome, head, results = write_end(connection, session, ending, there, rules=rules)
            next_session_id = _queue_next(connection, session, outcome.decision, at=ending.ended_at)
            if next_session_id is None and (there.chain_actions or there.followed_actions):
                end_chain(connection, session, rules=rules, at=ending.ended_at)
            return Finished(
                decision=outcome.decision,
                next_session_id=next_session_id,
                audit_head=head,
                audit_results=results,
                actions=tuple((settled.kind, bool(settled.success)) for settled in outcome.settlements),
            )

        return await self._database.write(end)

    async def end_queued(
        self, target: StopTarget, *, why: str, rules: EscalationRules, now: datetime
    ) -> tuple[Sequence[int], Mapping[int, str]]:
        """End what is queued of a session or chain, as ``cancelled`` with ``why`` as its error, in one transaction.

        Returns the ids of the sessions that it has ended, and those that run, each with its owner's name.
        """
        column, key = sessions.c.id, target.session_id
        if key is None:
            column, key = sessions.c.root_session_id, target.chain
        unended = select(sessions).where(column == key, sessions.c.status != Status.ENDED.value).order_by(sessions.c.id)

        def end(connection: Connection) -> tuple[Sequence[int], Mapping[int, str]]:
            rows = connection.execute(unended).all()
            queued = [to_session(row) for row in rows if row.status == Status.QUEUED.value]
            ended = [session for session in queued if change(connection, session, cancelled_values(why, now=now))]
            for session in ended:
                end_chain(connection, session, rules=rules, at=now)
            running = {row.id: row.owner for row in rows if row.status == Status.RUNNING.value}
            return [session.id for session in ended], running

        return await self._database.write(end)


# --- what several transactions do -------------------------------------------------------------------------


def queue_chain(
    connection: Connection, new: NewSession, *, rules: EscalationRules, now: datetime, about: Announcement = PLAIN
) -> Session | Suppressed:
    """Queue a session, or write the event that says why not; ``about``: how people are told of it."""
    suppressed, services = admit_session(connection, new.tier, rules=rules, now=now)
    if suppressed is None:
        return add_session(connection, _after_others(connection, new), now=now)
    event = escalation.suppression_event(suppressed, tier=new.tier, services=services)
    raise_event(connection, event, session_id=None, at=now, about=about)
    return suppressed


def _after_others(connection: Connection, new: NewSession) -> NewSession:
    """Return a session with the next free ordinal of its kind: an earlier one may be gone on with several times."""
    if new.parent_session_id is None:
        return new
    same = (
        sessions.c.parent_session_id == new.parent_session_id,
        sessions.c.tier == new.tier,
        sessions.c.trigger == new.trigger.value,
    )
    highest = connection.scalar(select(func.max(sessions.c.ordinal)).where(*same))
    return new if highest is None else replace(new, ordinal=highest + 1)


def _queue_next(connection: Connection, ended: Session, decision: Decision, *, at: datetime) -> int | None:
    """Queue what follows from a session's end; return its id."""
    if decision.next is None:
        return None
    return add_session(connection, incidents.with_news(connection, decision.next, ended, at=at), now=at).id


def admit_session(
    connection: Connection, tier: int, *, rules: EscalationRules, now: datetime, found: Session | None = None
) -> tuple[Suppressed | None, tuple[str, ...]]:
    """Ask the rules, with the services in question: a handover's, else those known to be unwell."""
    if not escalation.is_limited(tier, rules):
        return None, ()
    if found is not None and found.context is not None:
        services = escalation.handover_services(found.context)
    else:
        services = queries.unhealthy_services(connection, rules.other_names)
    ledger = action_ledger.counted(connection, rules, now)
    return escalation.admit(tier=tier, rules=rules, ledger=ledger, unhealthy_services=services, now=now), services


def block_session(
    connection: Connection,
    found: Session,
    suppressed: Suppressed,
    services: Sequence[str],
    *,
    rules: EscalationRules,
    now: datetime,
) -> None:
    """End a queued session that the rules forbid by now, with its reason and event."""
    if change(connection, found, blocked_values(suppressed, now=now)):
        event = escalation.suppression_event(suppressed, tier=found.tier, services=services)
        end = Announcement(tier=found.tier, cost_usd=spend.chain_spent(connection, found.root_session_id))
        own = announcements.of_session(connection, found.id)
        announcements.left(connection, found, event, suppressed.reason, end, at=now, own=own)
        end_chain(connection, found, rules=rules, at=now)


def end_chain(connection: Connection, ended: Session, *, rules: EscalationRules, at: datetime) -> None:
    """Give back what a chain has under repair, and plan the look at what it has changed; for its last session's end."""
    release_services(connection, ended)
    changed, new = changes.plan_follow_up(connection, ended, rules=rules, at=at)
    if new is not None and new.not_before is not None:
        session_id = add_session(connection, new, now=at).id
        changes.set_follow_up(connection, changed, due_at=new.not_before, session_id=session_id)


def add_session(connection: Connection, new: NewSession, *, now: datetime) -> Session:
    """Insert a queued session; a chain's first one becomes its own root."""
    parent, root, site = None, None, None
    if new.parent_session_id is not None:
        parent = existing(connection, new.parent_session_id)
        root, site = parent.root_session_id, parent.site
    values = queued_values(new, root_session_id=root, now=now, site=site)
    session = to_session(connection.execute(_ADD_SESSION, values).one())
    note_queued(connection, QueuedSession(site=session.site, trigger=new.trigger, not_before=new.not_before))
    if parent is not None:
        connection.execute(_INHERIT, {"inherits": session.id, "of_parent": parent.id})
        return session
    connection.execute(CHANGE_SESSION, {"session": session.id, "root_session_id": session.id})
    return replace(session, root_session_id=session.id)


def existing(connection: Connection, session_id: int) -> Session:
    """Return a row that is there; raises `StoreError`."""
    session = queries.session(connection, session_id)
    if session is None:
        raise StoreError(f"session {session_id} does not exist.")
    return session


def change(connection: Connection, seen: Session, values: Mapping[str, object]) -> bool:
    """Change a row if it still is what was seen; ``False``: somebody was faster."""
    same = {"session": seen.id, "seen_status": seen.status.value, "seen_attempt": seen.attempt}
    return connection.execute(CHANGE_SESSION_AS_SEEN, {**same, **values}).rowcount == 1
