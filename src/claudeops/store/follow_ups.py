"""Follow-ups that are due: the probes answer them, and what follows from their answers is written with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select

from claudeops.domain.actions import PastAction, Recheck
from claudeops.domain.chains import escalation, follow_up
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.follow_up import FollowedUp, ProbeStanding
from claudeops.domain.sessions import NewSession, Session, Status, Trigger
from claudeops.store import changes
from claudeops.store.database import Database, Fence, unfenced
from claudeops.store.events import raise_event
from claudeops.store.queue import add_session, queue_chain
from claudeops.store.rows import to_past_action
from claudeops.store.tables.sessions import is_under_way, sessions

_ALARMED: Final = select(sessions.c.id).where(sessions.c.trigger == Trigger.ALERT.value, is_under_way).limit(1)

_RUNNING: Final = select(sessions.c.id).where(sessions.c.status == Status.RUNNING.value).limit(1)


class FollowUps:
    """Looks at what actions have left."""

    def __init__(self, database: Database, *, fence: Fence = unfenced) -> None:
        self._database = database
        self._fence = fence

    async def answer_due(self, *, rules: EscalationRules, now: datetime) -> FollowedUp:
        """Have the daemon's probes answer the follow-ups that are due, and queue what follows, in one transaction.

        What the probes cannot tell a session of the lowest tier is asked; a relapse escalates at once. With none due
        nothing is written.
        """
        is_due = changes.due(now).limit(1)

        def look(connection: Connection) -> bool:
            return connection.execute(is_due).first() is not None or bool(_fell_back(connection, rules, now))

        if not await self._database.read(look):
            return FollowedUp()

        def answer(connection: Connection) -> FollowedUp:
            self._fence(connection)
            return _answer(connection, rules=rules, now=now)

        return await self._database.write(answer)

    async def may_come(self, *, now: datetime) -> bool:
        """Return whether time alone may bring something to answer: something was changed lately, or is to be seen."""
        query = changes.open_to_answers(now)
        return await self._database.read(lambda connection: connection.execute(query).first() is not None)


def _fell_back(connection: Connection, rules: EscalationRules, now: datetime) -> tuple[PastAction, ...]:
    """Return what has relapsed before anybody was to look at it."""
    actions = () if rules.follow_up_seconds is None else changes.lately(connection, now=now)
    if not actions:
        return ()
    probes = changes.probed_services(connection)
    relapsed = follow_up.fell_back(actions, probes, now=now, names=changes.names_by(rules))
    if not relapsed or any(connection.execute(busy).first() is not None for busy in (_ALARMED, _RUNNING)):
        return ()  # somebody is at work, and may find it; else it is asked again
    return tuple(action for action in relapsed if rules.maintenance_of(action.service, now) is None)


def _answer(connection: Connection, *, rules: EscalationRules, now: datetime) -> FollowedUp:
    actions = tuple(map(to_past_action, connection.execute(changes.due(now))))
    probes, names = changes.probed_services(connection), changes.names_by(rules)
    found: dict[PastAction, Recheck | None] = dict.fromkeys(_fell_back(connection, rules, now), Recheck.RELAPSED)
    for action in actions:
        answer = follow_up.by_probes(action, probes, due_at=action.follow_up_at or now, names=names)
        found.setdefault(action, answer)
    relapsed = tuple(action for action, held in found.items() if held is Recheck.RELAPSED)
    if relapsed and connection.execute(_ALARMED).first() is not None:
        # A chain that a probe's change has started looks at it already, and says what became of it. Asked again later.
        found = {action: held for action, held in found.items() if held is not Recheck.RELAPSED}
        relapsed = ()
    answers = {action: held for action, held in found.items() if held is not None}
    changes.write_held(connection, {action.id: held for action, held in answers.items()}, at=now)
    queued = [_escalate(connection, relapsed, probes, rules=rules, now=now)] if relapsed else []
    unclear = tuple(action for action, held in found.items() if held is None)
    queued += [_look(connection, unclear, rules=rules, now=now)] if unclear else []
    return FollowedUp(answers=answers, queued=tuple(session for session in queued if session is not None))


def _escalate(
    connection: Connection,
    relapsed: Sequence[PastAction],
    probes: Sequence[ProbeStanding],
    *,
    rules: EscalationRules,
    now: datetime,
) -> Session | None:
    """Queue a chain for what has not held, and say so."""
    for event in follow_up.relapse_events(relapsed):
        raise_event(connection, event, session_id=None, at=now)
    if all(rules.maintenance_of(action.service, now) is not None for action in relapsed):
        return None
    tier = escalation.tier_after(rules.lowest.number, relapsed, rules) or rules.lowest
    new = NewSession(
        tier=tier.number,
        trigger=Trigger.FOLLOW_UP,
        model=tier.model,
        harness=tier.harness,
        context=follow_up.relapse_handover(relapsed, probes, names=changes.names_by(rules)),
        site=changes.site_of(connection, relapsed),
    )
    queued = queue_chain(connection, new, rules=rules, now=now)
    if not isinstance(queued, Session):
        return None
    changes.name_chain(connection, relapsed, queued, rules=rules, at=now)
    return queued


def _look(connection: Connection, unclear: Sequence[PastAction], *, rules: EscalationRules, now: datetime) -> Session:
    """Queue a session for what the probes cannot tell."""
    look = changes.new_look(rules, site=changes.site_of(connection, unclear))
    queued = add_session(connection, follow_up.follow_up_of(unclear, look, at=now), now=now)
    changes.set_follow_up(connection, unclear, due_at=now, session_id=queued.id)
    return queued
