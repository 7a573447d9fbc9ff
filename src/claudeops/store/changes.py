"""What sessions have changed, and whether it held: the ledger's rows as follow-ups need them.

Each function takes an open connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, or_, select, update

from claudeops.domain.actions import NO_RESULT_SEEN, PastAction, Recheck
from claudeops.domain.chains import follow_up
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.chains.follow_up import ProbeStanding
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import FAILING
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.sessions import NewSession, Session, Trigger
from claudeops.store.rows import TableRow, to_past_action
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import cooldown_actions, sessions
from claudeops.text import clip

_ACTIONS: Final = cooldown_actions.c
_CHANGED: Final[ColumnElement[bool]] = or_(_ACTIONS.success, _ACTIONS.error == NO_RESULT_SEEN)
"""An action that succeeded, or of which nobody saw the result."""

_FAILING: Final = sorted(FAILING)
_BY_AGE: Final = (_ACTIONS.timestamp, _ACTIONS.id)
_OF_CHAIN: Final = (
    select(cooldown_actions)
    .join(sessions, sessions.c.id == _ACTIONS.session_id)
    .where(sessions.c.root_session_id == bindparam("chain"), _ACTIONS.follow_up_at.is_(None), _CHANGED)
    .order_by(*_BY_AGE)
)
_OF_OTHERS: Final = (
    select(cooldown_actions)
    .join(sessions, sessions.c.id == _ACTIONS.session_id)
    .where(sessions.c.root_session_id != bindparam("chain"), _ACTIONS.timestamp > bindparam("since"), _CHANGED)
    .order_by(*_BY_AGE)
)
_LATELY: Final = select(cooldown_actions).where(_ACTIONS.timestamp > bindparam("since"), _CHANGED).order_by(*_BY_AGE)
_FOLLOWED: Final = (
    select(cooldown_actions)
    .where(_ACTIONS.follow_up_id == bindparam("chain"), _ACTIONS.held.is_(None))
    .order_by(*_BY_AGE)
)
_HOLD: Final = update(cooldown_actions).where(_ACTIONS.id == bindparam("action"))
_SITES: Final = select(sessions.c.site).distinct().where(sessions.c.id.in_(bindparam("ids", expanding=True)))
_UNFINISHED: Final = (
    select(sessions.c.id)
    .where(sessions.c.root_session_id == bindparam("chain"), sessions.c.ended_at.is_(None))
    .limit(1)
)


def due(now: datetime) -> Select[tuple[object, ...]]:
    """Return the query for the actions that wait for the answer of probes, and have waited long enough."""
    waiting = (_ACTIONS.held.is_(None), _ACTIONS.follow_up_at <= now, _ACTIONS.follow_up_id.is_(None))
    return select(cooldown_actions).where(*waiting).order_by(*_BY_AGE)


def open_to_answers(now: datetime) -> Select[tuple[int]]:
    """Return the query for an action that was done lately, or that waits for the answer of probes."""
    lately = _ACTIONS.timestamp > now - follow_up.RELAPSE_WITHIN
    waits = and_(_ACTIONS.held.is_(None), _ACTIONS.follow_up_at.is_not(None), _ACTIONS.follow_up_id.is_(None))
    return select(_ACTIONS.id).where(or_(lately, waits)).limit(1)


def of_others(connection: Connection, session: Session, *, now: datetime) -> tuple[PastAction, ...]:
    """Return what other chains have changed so lately that a failure of it would be a relapse."""
    recent = {"chain": session.root_session_id, "since": now - follow_up.RELAPSE_WITHIN}
    return tuple(map(to_past_action, connection.execute(_OF_OTHERS, recent)))


def lately(connection: Connection, *, now: datetime) -> tuple[PastAction, ...]:
    """Return what was changed within the last day."""
    since = {"since": now - follow_up.RELAPSE_WITHIN}
    return tuple(map(to_past_action, connection.execute(_LATELY, since)))


def followed(connection: Connection, chain: int) -> tuple[PastAction, ...]:
    """Return the actions after which a chain is the follow-up, and that have no answer yet."""
    return tuple(map(to_past_action, connection.execute(_FOLLOWED, {"chain": chain})))


def write_held(connection: Connection, held: Mapping[int, Recheck], *, at: datetime) -> None:
    """Write what a follow-up has found, by the ids of the actions."""
    for action, answer in held.items():
        connection.execute(_HOLD, {"action": action, "held": answer.value, "held_checked_at": at})


def plan_follow_up(
    connection: Connection, ended: Session, *, rules: EscalationRules, at: datetime
) -> tuple[tuple[PastAction, ...], NewSession | None]:
    """Write when somebody looks again at what a chain has changed; return the actions for which that is a session.

    Nothing is planned while the chain has a session that has not ended. An action after which this chain was the
    follow-up and that it did not answer is unknown for good.
    """
    chain = ended.root_session_id
    if connection.execute(_UNFINISHED, {"chain": chain}).first() is not None:
        return (), None
    write_held(connection, {action.id: Recheck.UNKNOWN for action in followed(connection, chain)}, at=at)
    if rules.follow_up_seconds is None or rules.dry_run:
        return (), None
    changed = tuple(map(to_past_action, connection.execute(_OF_CHAIN, {"chain": chain})))
    due_at = follow_up.due_at(at, rules.follow_up_seconds)
    set_follow_up(connection, changed, due_at=due_at)
    names = names_by(rules)
    known = {names.of(probed.service) for probed in probed_services(connection)} if changed else set()
    if all(names.of(action.service) in known for action in changed):
        return (), None
    return changed, follow_up.follow_up_of(changed, new_look(rules, site=ended.site), at=due_at)


def set_follow_up(
    connection: Connection, actions: Sequence[PastAction], *, due_at: datetime, session_id: int | None = None
) -> None:
    """Note when the look at what was done is due, and the session that makes it; ``None``: probes answer."""
    for action in actions:
        connection.execute(_HOLD, {"action": action.id, "follow_up_at": due_at, "follow_up_id": session_id})


def probed_services(connection: Connection) -> tuple[ProbeStanding, ...]:
    """Return how every probe stands."""
    columns = probes.c
    rows = connection.execute(
        select(
            *(columns.service, columns.state, columns.last_checked_at, columns.since),
            *(columns.incident, columns.explained_by, columns.counters),
        )
    )
    return tuple(
        ProbeStanding(
            service=row.service,
            state=ProbeState(row.state),
            last_checked_at=row.last_checked_at,
            since=row.since,
            is_told=bool(row.incident or row.explained_by) or _is_quiet(row),
        )
        for row in rows
    )


def _is_quiet(row: TableRow) -> bool:
    """Tell whether a failing probe starts no chain."""
    if row.state not in _FAILING:
        return False
    with suppress(msgspec.MsgspecError):
        return bool(msgspec.json.decode(row.counters, type=dict[str, object]).get("is_quiet"))
    return False


def name_chain(
    connection: Connection, relapsed: Sequence[PastAction], chain: Session, *, rules: EscalationRules, at: datetime
) -> None:
    """Note with the probes of what has relapsed which chain looks at it, so that they start no other."""
    names = names_by(rules)
    services = {names.of(action.service) for action in relapsed}
    rows = connection.execute(select(probes.c.name, probes.c.service))
    for row in [row for row in rows if names.of(row.service) in services]:
        known = update(probes).where(probes.c.name == row.name, probes.c.state.in_(_FAILING))
        connection.execute(known.values(session_id=chain.id, chain_at=at))


def new_look(rules: EscalationRules, *, site: str | None) -> NewSession:
    """Return a follow-up session of the lowest tier that does not say yet what it looks at."""
    lowest = rules.lowest
    return NewSession(
        tier=lowest.number, trigger=Trigger.FOLLOW_UP, model=lowest.model, harness=lowest.harness, site=site
    )


def site_of(connection: Connection, actions: Sequence[PastAction]) -> str | None:
    """Return the site of the sessions that acted; ``None``: they were of none, or of several."""
    found = connection.execute(_SITES, {"ids": sorted({action.session_id for action in actions})}).scalars().all()
    return found[0] if len(found) == 1 else None


def names_by(rules: EscalationRules) -> KnownServices:
    """Return the names of services by the rules."""
    return KnownServices(rules.other_names, clip)
