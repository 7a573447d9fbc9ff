"""What is the case besides the alerts, as rows tell it: chains, actions, holds, silences and money."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, select

from claudeops.domain.actions import PastAction
from claudeops.domain.alerts.alert import Silence
from claudeops.domain.alerts.situation import AlertContext, AlertFiles, OpenChain
from claudeops.domain.chains.cooldown import left, used_up
from claudeops.domain.chains.escalation import EscalationRules, handover_services
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.sessions import Trigger
from claudeops.store import action_ledger, queries
from claudeops.store.alerts.rows import services_of, to_silence
from claudeops.store.holds import standing
from claudeops.store.rows import to_handover, to_past_action
from claudeops.store.tables.alerting import incidents, silences
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import cooldown_actions, is_under_way, sessions

_SILENCES: Final = select(silences).where(silences.c.ends_at > bindparam("now")).order_by(silences.c.id)
_CHAINS: Final = (
    select(sessions.c.root_session_id, sessions.c.incident_id, sessions.c.context, incidents.c.services)
    .outerjoin(incidents, incidents.c.number == sessions.c.incident_id)
    .where(is_under_way, sessions.c.trigger != Trigger.FOLLOW_UP.value)
    .order_by(sessions.c.id)
)
_STARTS: Final = select(sessions.c.created_at).where(
    sessions.c.trigger == Trigger.ALERT.value,
    sessions.c.parent_session_id.is_(None),
    sessions.c.created_at > bindparam("since"),
)
_ACTIONS: Final = select(cooldown_actions).where(cooldown_actions.c.timestamp > bindparam("since"))
_DOWN: Final = select(probes.c.service).where(probes.c.state == ProbeState.DOWN.value).distinct()


def situation(connection: Connection, about: AlertFiles, now: datetime) -> AlertContext:
    """Return what is the case now."""
    holds = {hold.kind: hold for hold in standing(connection, now)}
    rules = about.alerts
    return AlertContext(
        rules=rules,
        silences=active_silences(connection, now),
        chains=tuple(_chains(connection)),
        ledger=_actions(connection, now - rules.self_inflicted),
        paused=_paused(holds.get(HoldKind.PAUSED)),
        spent=holds[HoldKind.BUDGET].reason if HoldKind.BUDGET in holds else "",
        cooling=_cooling(connection, about.escalation, now),
        dependencies=about.dependencies,
        broken=tuple(sorted(connection.execute(_DOWN).scalars())),
        up=up_since(connection, about.dependencies.key) if about.dependencies.edges else {},
        starts=tuple(sorted(connection.execute(_STARTS, {"since": now - rules.storm.window}).scalars())),
    )


def up_since(connection: Connection, key: Callable[[str], str]) -> Mapping[str, datetime]:
    """Return the services that all of their probes see up, with when the earliest of these looks began."""
    up: dict[str, datetime | None] = {}
    for sight in queries.sights(connection):
        name = key(sight.service)
        seen = sight.began_at if sight.state is ProbeState.UP and not sight.failed else None
        before = up.get(name, seen)
        up[name] = None if seen is None or before is None else min(before, seen)
    return {name: at for name, at in up.items() if at is not None}


def active_silences(connection: Connection, now: datetime) -> tuple[Silence, ...]:
    """Return the silences that are not over."""
    return tuple(map(to_silence, connection.execute(_SILENCES, {"now": now})))


def _actions(connection: Connection, since: datetime) -> tuple[PastAction, ...]:
    return tuple(map(to_past_action, connection.execute(_ACTIONS, {"since": since})))


def _paused(hold: Hold | None) -> str:
    if hold is None:
        return ""
    return f"{hold.by or 'an operator'} has paused the daemon: {hold.reason}"


def _chains(connection: Connection) -> Iterable[OpenChain]:
    """Return the chains that are about something: of an incident, or handed over with findings."""
    found: dict[int, OpenChain] = {}
    about: defaultdict[int, dict[str, None]] = defaultdict(dict)
    for row in connection.execute(_CHAINS):
        root = row.root_session_id
        if root is None:
            continue
        context = to_handover(row.context)
        services = () if context is None else handover_services(context)
        about[root].update(dict.fromkeys(services))
        if row.incident_id is not None:
            number = row.incident_id
            about[root].update(dict.fromkeys(services_of(row.services)))
        else:
            number = found[root].incident if root in found else None
        found[root] = OpenChain(services=tuple(about[root]), incident=number, root_session_id=root)
    return [chain for chain in found.values() if chain.services]


def _cooling(connection: Connection, rules: EscalationRules, now: datetime) -> Mapping[str, datetime | None]:
    """Return the services for which no action is left, and when the next one is possible."""
    kinds = tuple(sorted({kind for tier in rules.tiers for kind in tier.action_kinds}))
    ledger = action_ledger.counted(connection, rules, now)
    found: dict[str, datetime | None] = {}
    for service in dict.fromkeys(past.service for past in ledger):
        if used_up((service,), kinds, limits=rules.limits, ledger=ledger, now=now):
            own = [past for past in ledger if past.service == service]
            times = [each.free_at for each in left(own, kinds, rules.limits, now) if each.free_at is not None]
            found[service] = min(times, default=None)
    return found
