"""What is on record beside sessions: schedules, alerts, silences, probes, checks, holds, actions, events.

Every question is answered from an index over time, or over the names or sessions in question, and stops at a limit.
What a table has no such index for is looked for among the rows of the time asked for, never in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Select, and_, case, func, or_, select

from claudeops.domain.actions import Recheck
from claudeops.domain.alerts.alert import AlertDecision, Silence
from claudeops.domain.alerts.matchers import PLAIN, SERVICE
from claudeops.domain.events import NODE_MARK, EventLevel
from claudeops.domain.holds import HoldKind, event_name
from claudeops.domain.probes.history import BUCKET
from claudeops.domain.report.report import CheckSource, ServiceStatus
from claudeops.domain.why import Reason, WhyKind
from claudeops.store.alerts.rows import to_silence
from claudeops.store.holds import standing
from claudeops.store.reading import named
from claudeops.store.rows import TableRow
from claudeops.store.tables.alerting import alert_decisions, alerts, silences
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.events import events
from claudeops.store.tables.probes import probe_history, probes
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions
from claudeops.text import same
from claudeops.wording import why

MOST: Final = 1000
"""Rows that are looked through for those that are about a service, where no index knows them."""

LINGERS: Final = timedelta(days=14)
"""How long after the time asked for a session or an event of that time may have ended: a plan's limit parks for 8."""

_HOLDS: Final = {event_name(kind): kind for kind in HoldKind}
_DISK_OF_NODE: Final = f"{event_name(HoldKind.DISK)}{NODE_MARK}"
_CHAIN: Final = sessions.c.root_session_id.label("chain")


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and where it is answered."""

    connection: Connection
    service: str | None  # any spelling; None: all services
    since: datetime
    until: datetime
    limit: int

    def rows(self, query: Select[Any], *, most: int | None = None) -> Sequence[TableRow]:
        """Return a query's rows up to the limit and one more, which shows that there are more; or up to ``most``."""
        return self.connection.execute(query.limit(self.limit + 1 if most is None else most)).all()

    def within(self, moment: Column[datetime]) -> ColumnElement[bool]:
        """Return the condition that a moment is in the time asked for."""
        return and_(moment >= self.since, moment < self.until)

    def has(self, moment: datetime | None) -> bool:
        """Tell whether a moment is in the time asked for."""
        return moment is not None and self.since <= moment < self.until

    def is_about(self, names: Iterable[str | None]) -> bool:
        """Tell whether the service is among some names; without a service all of them are meant."""
        return self.service is None or any(name is not None and same(name, self.service) for name in names)

    def spellings(self, query: Select[Any]) -> list[str]:
        """Return those of a query's names that spell the service."""
        found = self.connection.execute(query.distinct().limit(MOST)).scalars()
        return [name for name in found if self.is_about([name])]


# --- what concerns every service ------------------------------------------------------------------------------


def fires(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield the due times of schedules, with what came of them."""
    fired = schedule_fires.c
    query = select(schedule_fires).where(asked.within(fired.fired_at)).order_by(fired.fired_at.desc())
    for row in asked.rows(query):
        text, level = why.fire(row.schedule, row.skipped_reason, row.session_id)
        kind = WhyKind.FIRE
        yield Reason(
            at=row.fired_at, kind=kind, text=text, level=level, session_id=row.session_id, chain=row.session_id
        )


def holds(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield what kept sessions in the queue at any moment of the time."""
    named = or_(events.c.fingerprint.in_(list(_HOLDS)), events.c.fingerprint.startswith(_DISK_OF_NODE))
    is_hold = and_(named, events.c.first_seen < asked.until)
    still = select(events).where(is_hold, events.c.resolved_at.is_(None)).order_by(events.c.id)
    # No session and no service has a part in them: the index of services knows them among a few others.
    over = select(events).where(is_hold, events.c.service.is_(None), events.c.resolved_at >= asked.since)
    now = {event_name(hold.kind, hold.node): hold for hold in standing(asked.connection, asked.until)}
    for row in (*asked.rows(still), *asked.rows(over.order_by(events.c.resolved_at))):
        kind = _HOLDS[row.fingerprint.partition(NODE_MARK)[0]]
        known = now.get(row.fingerprint) if row.resolved_at is None else None
        text, level = why.hold(
            kind,
            row.message if known is None else known.reason,
            over_at=row.resolved_at,
            until=None if known is None else known.until,
            by=None if known is None else known.by,
        )
        yield Reason(at=row.first_seen, kind=WhyKind.HOLD, text=text, level=level, event_id=row.id)


def faults(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield what the daemon found wrong with itself, where a service is named; else `raised` has that too."""
    if asked.service is None:
        return
    own = and_(events.c.service.is_(None), events.c.session_id.is_(None), events.c.level != EventLevel.INFO.value)
    yield from _events(asked, own)


def probes_standing(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield how the probes of the service stand that did not change."""
    if asked.service is None:
        return
    for row in asked.rows(select(probes).order_by(probes.c.name), most=MOST):
        if asked.is_about([row.service]) and row.since is not None and row.since < asked.since:
            text, level = why.probe_stands(row.name, row.state, row.since)
            yield Reason(at=row.since, kind=WhyKind.PROBE, text=text, level=level)


# --- what concerns the service --------------------------------------------------------------------------------


def alerted(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield the decisions about alerts; repetitions of one alert, of which there may be thousands, together."""
    decided = alert_decisions.c
    repeats = decided.decision == AlertDecision.DUPLICATE.value
    which = asked.within(decided.at)
    if asked.service is not None:
        named_so = select(alerts.c.service).select_from(alert_decisions).join(alerts, alerts.c.id == decided.alert_id)
        which = and_(which, alerts.c.service.in_(asked.spellings(named_so.where(which))))
    query = select(alert_decisions, alerts.c.name, alerts.c.service).outerjoin(alerts, alerts.c.id == decided.alert_id)
    for row in asked.rows(query.where(which, ~repeats).order_by(decided.at.desc(), decided.id.desc())):
        said = why.alert(row.name, row.service, AlertDecision(row.decision), row.because)
        yield _alert(row, said, chain=row.session_id)
    latest = func.max(decided.at).label("at")
    query = (
        select(alerts.c.name, alerts.c.service, latest, func.count().label("times"), alerts.c.incident_id)
        .select_from(alert_decisions)
        .join(alerts, alerts.c.id == decided.alert_id)
        .group_by(alerts.c.id, alerts.c.name, alerts.c.service, alerts.c.incident_id)
    )
    for row in asked.rows(query.where(which, repeats).order_by(latest.desc())):
        yield _alert(row, why.repeated(row.name, row.service, row.times))


def silenced(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield the silences that held, and may have silenced an alert of the service."""
    query = select(silences).where(silences.c.ends_at > asked.since, silences.c.starts_at < asked.until)
    for one in map(to_silence, asked.rows(query.order_by(silences.c.ends_at.desc(), silences.c.id), most=MOST)):
        if _fits(one, asked.service):
            text, level = why.silence(one)
            yield Reason(at=one.starts_at, kind=WhyKind.SILENCE, text=text, level=level, silence=one.id)


def checked(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield how probes and sessions found the service; without one, which services they found unwell."""
    checks = service_checks.c
    query = select(service_checks, _CHAIN).outerjoin(sessions, sessions.c.id == checks.session_id)
    if asked.service is None:
        is_probe = checks.source == CheckSource.PROBE.value  # which sees changes alone
        query = query.where(or_(is_probe, checks.status != ServiceStatus.HEALTHY.value))
    else:
        query = query.where(checks.service.in_(named(asked.connection, checks.service, asked.service)))
    order = (checks.checked_at.desc(), checks.id.desc())
    for row in asked.rows(query.where(asked.within(checks.checked_at)).order_by(*order)):
        text, level = why.seen(row.service, ServiceStatus(row.status), row.detail, row.session_id)
        kind = WhyKind.PROBE if row.source == CheckSource.PROBE.value else WhyKind.CHECK
        yield Reason(at=row.checked_at, kind=kind, text=text, level=level, session_id=row.session_id, chain=row.chain)


def probes_failed(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield how often the probes failed, which is no change as long as it is too rare."""
    known = asked.rows(select(probes.c.name, probes.c.service).order_by(probes.c.name), most=MOST)
    names = [row.name for row in known if asked.is_about([row.service])]
    seen = probe_history.c
    failing = case((seen.failures > 0, seen.bucket))
    failures = func.sum(seen.failures)
    query = (
        select(
            seen.probe,
            func.sum(seen.checks).label("checks"),
            failures.label("failures"),
            func.min(failing).label("first"),
            func.max(failing).label("last"),
        )
        .where(seen.probe.in_(names), seen.resolution == int(BUCKET.total_seconds()), asked.within(seen.bucket))
        .group_by(seen.probe)
        .having(failures > 0)
    )
    for row in asked.rows(query) if names else ():
        counts = {"failures": int(row.failures), "checks": int(row.checks)}
        text, level = why.probe_failed(row.probe, **counts, first=row.first, last=row.last)
        yield Reason(at=row.first, kind=WhyKind.PROBE, text=text, level=level)


def acted(asked: OpenQuestion) -> Iterator[Reason]:
    """Yield what was done, and whether it held."""
    done = cooldown_actions.c
    joined = select(cooldown_actions, _CHAIN).join(sessions, sessions.c.id == done.session_id)
    then = joined.where(asked.within(done.timestamp)).order_by(done.timestamp.desc())
    # Once cleared an action is found by that moment, which is later than its own.
    for query in (then.where(done.cleared_at.is_(None)), then.where(done.cleared_at >= asked.since)):
        for row in asked.rows(query, most=MOST):
            if asked.is_about([row.service]):
                result = {"success": row.success, "error": row.error}
                yield _action(row, row.timestamp, why.action(row.action_type, row.service, row.session_id, **result))
    later = joined.where(asked.within(done.held_checked_at)).order_by(done.held_checked_at.desc())
    for row in asked.rows(later, most=MOST):
        if asked.is_about([row.service]) and row.held is not None:
            said = why.action_held(row.action_type, row.service, row.session_id, Recheck(row.held))
            yield _action(row, row.held_checked_at, said)


def raised(asked: OpenQuestion, incidents: Iterable[int] = ()) -> Iterator[Reason]:
    """Yield the events that name the service, or belong to one of its incidents; without one, all that were seen."""
    if asked.service is None:
        yield from _events(asked, events.c.last_seen >= asked.since)
        return
    spelled = named(asked.connection, events.c.service, asked.service)
    if spelled:
        yield from _events(asked, events.c.service.in_(spelled))
    numbers = sorted(set(incidents))
    if numbers:
        of_them = and_(events.c.incident_id.in_(numbers), events.c.service.is_(None), asked.within(events.c.first_seen))
        found = asked.rows(select(events, events.c.count.label("times")).where(of_them).order_by(events.c.id.desc()))
        yield from (_event(row, asked) for row in found)


def _events(asked: OpenQuestion, which: ColumnElement[bool]) -> Iterator[Reason]:
    # A row has a method `count`, hence the other name.
    query = select(events, events.c.count.label("times")).where(
        which, events.c.first_seen < asked.until, events.c.fingerprint.not_in(list(_HOLDS))
    )
    over = and_(events.c.resolved_at >= asked.since, events.c.resolved_at < asked.until + LINGERS)
    for row in (
        *asked.rows(query.where(events.c.resolved_at.is_(None)).order_by(events.c.last_seen.desc())),
        *asked.rows(query.where(over).order_by(events.c.resolved_at.desc())),
    ):
        yield _event(row, asked)


def _event(row: TableRow, asked: OpenQuestion) -> Reason:
    text, level = why.event(EventLevel(row.level), row.service, row.message, times=row.times, over_at=row.resolved_at)
    again = row.first_seen < asked.since and asked.has(row.last_seen)
    return Reason(
        at=row.last_seen if again else row.first_seen,
        kind=WhyKind.EVENT,
        text=text,
        level=level,
        session_id=row.session_id,
        incident=row.incident_id,
        event_id=row.id,
    )


def _alert(row: TableRow, said: why.Sentence, *, chain: int | None = None) -> Reason:
    text, level = said
    where = {"session_id": chain, "chain": chain, "incident": row.incident_id}
    return Reason(at=row.at, kind=WhyKind.ALERT, text=text, level=level, **where)


def _action(row: TableRow, at: datetime, said: why.Sentence) -> Reason:
    text, level = said
    return Reason(at=at, kind=WhyKind.ACTION, text=text, level=level, session_id=row.session_id, chain=row.chain)


def _fits(one: Silence, service: str | None) -> bool:
    """Tell whether a silence can be about a service: its conditions on other labels depend on the alert."""
    if service is None:
        return True
    plain = service.partition("/")[2]
    spelled = ({SERVICE: name, **({PLAIN: plain} if plain else {})} for name in (service, service.casefold()))
    of_service = [matcher for matcher in one.matchers if matcher.name == SERVICE]
    return any(all(matcher.holds(labels) for matcher in of_service) for labels in spelled)
