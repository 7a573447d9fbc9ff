"""Failures of probes in the queue of alerts: put there by the watch, decided about by whichever decider comes next.

A failure is put into the queue in the transaction that marks its probe with the incident, so it is put there once,
whatever dies afterwards, and the decision needs no memory of the watch. It overtakes the bodies of senders: a storm of
theirs keeps no failure from its chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, select, update

from claudeops.domain.alerts.alert import HANDLED, PROBES, AlertDecision, SenderBody
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.probes.news import note_of
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import FAILING, fingerprint_of
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind
from claudeops.formats.senders import of_probe
from claudeops.store.alerts import deliveries
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.probes import claim_untold
from claudeops.store.rows import TableRow
from claudeops.store.tables.probes import probes
from claudeops.structs import replace
from claudeops.text import clip

_STATE: Final = "state"  # the label that has the state of a probe

_NAMED: Final = select(probes).where(probes.c.name.in_(bindparam("names", expanding=True)))
_HANDLED: Final = update(probes).where(probes.c.name == bindparam("probe"))


def queue(connection: Connection, names: Sequence[str], incident: str, *, now: datetime) -> bool:
    """Put the failures of some probes into the queue, as one group of alerts; return whether there were new ones."""
    found = map(of_probe, claim_untold(connection, names, incident, now=now))
    bodies = [each for each in found if each is not None]
    if not bodies:
        return False
    together = tuple(alert for each in bodies for alert in each.alerts)
    whole = SenderBody(source=PROBES, key=bodies[0].key, alerts=together, group_key=incident)
    delivery_id, _ = deliveries.deliver(connection, ReceivedBody(content=whole, received_at=now), now=now)
    deliveries.wait(connection, delivery_id, whole, at=now)
    return True


def still_failing(connection: Connection, waiting: deliveries.Waiting, *, now: datetime) -> SenderBody:
    """Return a body of failures without those that are over by now.

    That of a probe that is up again is noted as an event; one that is worse is in a body of its own.
    """
    body = waiting.said
    names = [clip(alert.fingerprint) for alert in body.alerts]
    rows = {row.name: row for row in connection.execute(_NAMED, {"names": names})}
    failing = []
    for name, alert in zip(names, body.alerts, strict=True):
        row = rows.get(name)
        if row is not None and row.state in FAILING and row.incident == clip(body.group_key):
            failing.append(alert)
            continue
        deliveries.undecided(
            connection, waiting.delivery_id, AlertDecision.RESOLVED_FIRST, f"the probe {name} no longer saw it", at=now
        )
        if row is not None and row.state == ProbeState.UP.value:
            _note_recovery(connection, row, ProbeState(alert.labels[_STATE]), alert.reported_at, now=now)
    return replace(body, alerts=tuple(failing))


def note_handled(
    connection: Connection, body: SenderBody, decisions: Collection[AlertDecision], *, at: datetime
) -> None:
    """Note at the probes that their failures were left to a chain or a person, so that the next ones wait a while."""
    if HANDLED.intersection(decisions):
        connection.execute(_HANDLED, list(_handled(body, at)))


def _handled(body: SenderBody, at: datetime) -> Iterable[dict[str, object]]:
    for alert in body.alerts:
        yield {"probe": clip(alert.fingerprint), "handled_at": at, "handled_state": alert.labels[_STATE]}


def _note_recovery(
    connection: Connection, row: TableRow, before: ProbeState, began: datetime | None, *, now: datetime
) -> None:
    """Write the note of a failure that was over before a chain was started."""
    lasted = (row.since - began).total_seconds() if row.since is not None and began is not None else None
    change = ProbeChange(
        probe=row.name,
        service=row.service,
        before=before,
        after=ProbeState.UP,
        turn=ProbeChangeKind.BETTER,
        at=now,
        detail=row.detail,
        lasted_seconds=lasted if lasted is not None and lasted >= 0 else None,
    )
    message = note_of(change)
    if message is not None:
        name = f"{fingerprint_of(row.name)}:note"
        note = NewEvent(level=EventLevel.INFO, message=message, service=row.service, fingerprint=name)
        raise_event(connection, note, session_id=None, at=now)
        resolve_event(connection, name, at=now)
