"""The ledger of actions on services, as the transactions of several subjects read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, bindparam, select

from claudeops.domain.actions import NO_RESULT_SEEN, PastAction
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.service_names import counted_by
from claudeops.store.rows import to_past_action
from claudeops.store.tables.sessions import cooldown_actions
from claudeops.structs import replace

# Claims, ends and verdicts run these, so they are built once, as in `claudeops.store.queries`.
_LEDGER: Final = select(cooldown_actions).where(
    cooldown_actions.c.cleared_at.is_(None), cooldown_actions.c.timestamp > bindparam("since")
)
_ACTIONS: Final = select(cooldown_actions).where(cooldown_actions.c.session_id == bindparam("session"))


def counted(connection: Connection, rules: EscalationRules, now: datetime) -> tuple[PastAction, ...]:
    """Return the actions that any limit may still count, by the names that their services are counted by now."""
    longest = max((limit.window_seconds for limit in rules.limits.values()), default=0.0)
    name_of = counted_by(rules.other_names)
    past = map(to_past_action, connection.execute(_LEDGER, {"since": now - timedelta(seconds=longest)}))
    return tuple(replace(action, service=name_of(action.service)) for action in past)


def reservations(connection: Connection, session_id: int) -> tuple[PastAction, ...]:
    """Return the actions that a session has reserved."""
    return tuple(map(to_past_action, connection.execute(_ACTIONS, {"session": session_id})))


def unseen_ends(connection: Connection, session_id: int) -> tuple[PastAction, ...]:
    """Return the actions of a session that were settled without a result."""
    query = select(cooldown_actions).where(
        cooldown_actions.c.session_id == session_id, cooldown_actions.c.error == NO_RESULT_SEEN
    )
    return tuple(map(to_past_action, connection.execute(query)))
