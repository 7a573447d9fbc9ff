"""Probes: how they stand, what their changes lead to, what heartbeats say, and their history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy import Connection, and_, bindparam, delete, insert, select, update

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import NewEvent
from claudeops.domain.notices.notice import Announcement
from claudeops.domain.owner import Owner
from claudeops.domain.probes.history import BUCKET, HOUR, decoded, merged, start_of
from claudeops.domain.probes.probe import HeartbeatLook, JobRun, Pings, PingVerb, Probe, ProbeState, Standing, kind_of
from claudeops.domain.probes.record import (
    ABANDONED,
    FAILING,
    Observed,
    StoredProbe,
    Stretch,
    Telling,
    fingerprint_of,
    has_held,
    standing_columns,
    to_standing,
    worst,
)
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind, heard
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import CheckSource
from claudeops.domain.sessions import Status
from claudeops.store import action_ledger
from claudeops.store.alerts import heartbeats
from claudeops.store.database import Database, Fence, unfenced
from claudeops.store.events import raise_event, resolve_event
from claudeops.store.rows import TableRow
from claudeops.store.tables.probes import probe_history, probes
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions
from claudeops.structs import replace
from claudeops.text import clip, json_text

_HEARTBEAT: Final = "heartbeat"

# Built once: thousands of looks are written with these.
_FAILING: Final = probes.c.state.in_(sorted(FAILING))
_STAND: Final = update(probes).where(probes.c.name == bindparam("probe"))
_ADD: Final = insert(probes)
_ADD_CHECK: Final = insert(service_checks)
_OF_SERVICE: Final = select(probes.c.state).where(probes.c.service == bindparam("of_service"))
_CLEAR: Final = update(cooldown_actions).where(
    cooldown_actions.c.service.in_(bindparam("services", expanding=True)), cooldown_actions.c.cleared_at.is_(None)
)
_ADD_STRETCH: Final = insert(probe_history)
_STRETCH: Final = and_(
    probe_history.c.probe == bindparam("of_probe"),
    probe_history.c.resolution == bindparam("of_resolution"),
    probe_history.c.bucket == bindparam("of_bucket"),
)
_SEEN_STRETCH: Final = select(probe_history).where(_STRETCH)
_CHANGE_STRETCH: Final = update(probe_history).where(_STRETCH)


class Probes:
    """How services are seen by the daemon's own probes, and what follows from that."""

    def __init__(self, database: Database, *, fence: Fence = unfenced) -> None:
        self._database = database
        self._fence = fence

    async def enrol(self, declared: Sequence[Probe], owner: Owner, *, now: datetime) -> Mapping[str, StoredProbe]:
        """Make the probes on record those that are ``declared``, and return how each stands, by name.

        A new one is unknown. One of another kind than before begins anew. One that is no longer declared goes, and its
        event is over; its history stays. Those of another site stay, unless no daemon of it runs and none has looked
        for `ABANDONED`.
        """
        from claudeops.store.probes import views  # noqa: PLC0415 - commands do without it
        from claudeops.store.tables.daemon import instances  # noqa: PLC0415 - as above

        def make(connection: Connection) -> Mapping[str, StoredProbe]:
            self._fence(connection)
            known = {row.name: row for row in connection.execute(select(probes))}
            wanted = {clip(probe.name): probe for probe in declared}
            sites = set(connection.execute(select(instances.c.site)).scalars())
            lookers = views.lookers(connection)
            left = [known[name] for name in known if name not in wanted]
            gone = [row.name for row in left if _is_gone(row, owner, sites, lookers.get(row.name, ()), now=now)]
            for name in gone:
                resolve_event(connection, fingerprint_of(name), at=now)
                heartbeats.gone(connection, name, at=now)
                connection.execute(delete(probes).where(probes.c.name == name))
                views.remove(connection, name)
            anew = _declare(connection, wanted, known, owner, now)
            here = views.enrol(connection, wanted, owner, anew=anew, sites=sites, now=now)
            kept = _kept(connection)
            return kept | {name: replace(kept[name], view=view) for name, view in here.items()}

        return await self._database.write(make)

    async def kept(self, names: Sequence[str] | None = None) -> Mapping[str, StoredProbe]:
        """Return every probe on record, by name, or those with some ``names``."""
        return await self._database.read(_kept if names is None else lambda connection: _named(connection, names))

    async def observed(
        self, batch: Sequence[Observed], *, owner: Owner, rules: EscalationRules, now: datetime
    ) -> Mapping[str, StoredProbe]:
        """Write how some probes stand, with what its changes tell, in one transaction.

        Returns, by name, those that have changed or fail without an incident, as they were on record before; and those
        that several sites look at as they are now. Of these ``batch`` has what this site sees (`views`).

        A telling raises or ends its events and writes the state of the service, by all its probes, as a service check.
        The cooldown counters of a service clear once all its probes have seen it up since the last action, twice and
        for `HELD_SECONDS` without a break. A probe that is not on record is passed over.
        """

        def write(connection: Connection) -> Mapping[str, StoredProbe]:
            self._fence(connection)
            known = _on_record(connection, [each for each in batch if _is_read(each)])
            shared = [each for each in batch if each.probe.sites]
            decided = _decided(connection, shared, owner, known, now=now) if shared else ()
            whole = [*(each for each in batch if not each.probe.sites), *decided] if shared else batch
            rows = [_row(each, owner, known.get(clip(each.probe.name))) for each in whole]
            if rows:
                connection.execute(_STAND, rows)
            tellings = [(told, each.probe) for each in whole for told in _unwritten(each, known, owner)]
            for told, probe in sorted(tellings, key=lambda pair: pair[0].at):
                _write_telling(connection, probe, told)
            clear_held(connection, whole, rules, at=now)
            return known | {name: replace(known[name], standing=each.standing) for name, each in _by_name(decided)}

        return await self._database.write(write)

    async def join(self, incidents: Mapping[str, str]) -> None:
        """Note to which incidents, which others began, the failures of some probes belong."""

        def note(connection: Connection) -> None:
            self._fence(connection)
            for name, incident in incidents.items():
                _join(connection, [clip(name)], incident)

        await self._database.write(note)

    async def ping(self, name: str, verb: PingVerb | None, *, text: str = "", at: datetime, run: str = "") -> bool:
        """Note what a heartbeat says; ``False``, with nothing written, if there is no heartbeat of this name.

        Without a verb it is a line for people, and says nothing about how it is.
        """
        named = (probes.c.name == clip(name), probes.c.kind == _HEARTBEAT)

        def note(connection: Connection) -> bool:
            row = connection.execute(select(probes).where(*named)).one_or_none()
            if row is None:
                return False
            said: dict[str, object] = {"ping_text": text} if text else {}
            if verb is not None:
                latest = heard(_to_pings(row), verb, at, run=run)
                said |= {
                    "ping_success_at": latest.success,
                    "ping_start_at": latest.start,
                    "ping_fail_at": latest.fail,
                    "ping_runs": json_text(msgspec.to_builtins(latest.runs)) if latest.runs else None,
                }
            if said:
                connection.execute(update(probes).where(*named).values(said))
            return True

        return await self._database.write(note)

    async def pings(self) -> Mapping[str, Pings]:
        """Return when each heartbeat was last heard, by name."""
        beating = select(probes).where(probes.c.kind == _HEARTBEAT)
        return await self._database.read(
            lambda connection: {row.name: _to_pings(row) for row in connection.execute(beating)}
        )

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        """Raise an event that concerns the probes as a whole, or end the open one with the same fingerprint."""

        def write(connection: Connection) -> None:
            if over:
                resolve_event(connection, event.fingerprint, at=now)
            else:
                raise_event(connection, event, session_id=None, at=now)

        await self._database.write(write)

    async def add_history(self, stretches: Sequence[Stretch]) -> None:
        """Write stretches of five minutes, and what they add to their hours; one on record already grows."""

        def write(connection: Connection) -> None:
            self._fence(connection)
            for stretch in stretches:
                _add_stretch(connection, stretch, BUCKET)
                _add_stretch(connection, replace(stretch, start=start_of(stretch.start, HOUR)), HOUR)

        await self._database.write(write)

    async def history(self, probe: str, *, width: timedelta, since: datetime) -> Sequence[Stretch]:
        """Return the stretches of one length of a probe that began at ``since`` or later, oldest first."""
        columns = probe_history.c
        query = (
            select(probe_history)
            .where(columns.probe == clip(probe), columns.resolution == width.total_seconds(), columns.bucket >= since)
            .order_by(columns.bucket)
        )
        return await self._database.read(lambda connection: tuple(map(_to_stretch, connection.execute(query))))


def claim_untold(
    connection: Connection, names: Sequence[str], incident: str, *, now: datetime
) -> Sequence[ProbeChange]:
    """Note to which incident the failures of some probes belong; return those of which no chain knows yet."""
    named = probes.c.name.in_([clip(name) for name in names])
    fresh = connection.execute(select(probes).where(named, _FAILING, probes.c.incident == "")).all()
    under_way = _under_way(connection, [row.session_id for row in fresh if row.session_id is not None])
    _join(connection, [row.name for row in fresh], incident)
    starting = [row for row in fresh if row.session_id not in under_way and not _is_told(row, now)]
    return [
        ProbeChange(
            probe=row.name,
            service=row.service,
            before=ProbeState.UNKNOWN,
            after=ProbeState(row.state),
            turn=ProbeChangeKind.WORSE,
            at=row.since or now,
            detail=row.detail,
        )
        for row in starting
    ]


def clear_held(connection: Connection, batch: Sequence[Observed], rules: EscalationRules, *, at: datetime) -> None:
    """Clear the cooldown counters of services that all their probes have seen up since the last action, for long."""
    ledger = action_ledger.counted(connection, rules, at)  # mostly empty
    names = KnownServices(rules.other_names, clip)
    last = {names.of(past.service): past.at for past in sorted(ledger, key=lambda past: past.at)}
    seen = {clip(each.probe.service) for each in batch if names.of(each.probe.service) in last}
    if not seen:
        return
    watching: defaultdict[str, list[StoredProbe]] = defaultdict(list)
    for row in connection.execute(select(probes).where(probes.c.service.in_(sorted(seen)))):
        watching[names.of(row.service)].append(to_kept(row))
    held = {service for service, found in watching.items() if all(has_held(kept, last[service]) for kept in found)}
    if held:
        services = sorted({past.service for past in ledger if names.of(past.service) in held})
        connection.execute(_CLEAR, {"services": services, "cleared_at": at})


def _write_telling(connection: Connection, probe: Probe, told: Telling) -> None:
    """Write what a change leads to: events, and the state of the service by all its probes."""
    for fingerprint in told.over:
        resolve_event(connection, fingerprint, at=told.at)
    beats_alone = isinstance(probe.look, HeartbeatLook) and not probe.starts_chain and told.is_state
    # What starts a chain becomes an incident within moments; what nobody can see any more becomes none.
    waits = clip(probe.name) if probe.starts_chain and told.is_state else ""
    about = Announcement(probe=waits, quiet=told.is_explained or beats_alone)
    for event in told.events:
        raise_event(connection, event, session_id=None, at=told.at, about=about)
    for event in told.notes:
        raise_event(connection, event, session_id=None, at=told.at)
    if beats_alone:
        heartbeats.heard(connection, probe, told)
    for note in told.notes:
        resolve_event(connection, note.fingerprint, at=told.at)
    if not told.is_state:
        return
    states = connection.execute(_OF_SERVICE, {"of_service": clip(probe.service)}).scalars()
    status = worst(ProbeState(state) for state in states)
    if status is not None:
        row = {
            "service": clip(probe.service),
            "status": status.value,
            "detail": f"{probe.name}: {told.detail}" if told.detail else probe.name,
            "source": CheckSource.PROBE.value,
            "checked_at": told.at,
        }
        connection.execute(_ADD_CHECK, row)


def _declare(
    connection: Connection, wanted: Mapping[str, Probe], known: Mapping[str, TableRow], owner: Owner, now: datetime
) -> Collection[str]:
    """Write what is declared; return the names of those that are of another kind than before, and begin anew."""
    new, ours, shared = list[dict[str, object]](), list[dict[str, object]](), list[dict[str, object]]()
    anew = list[dict[str, object]]()
    for name, probe in wanted.items():
        declared, place = _declared(probe), {"owner": owner.name, "site": owner.site or None}
        if name not in known:
            new.append({"name": name, **standing_columns(Standing(since=now)), **declared, **place})
            continue
        if probe.sites:  # its place is that of a failure
            shared.append({"probe": name, **declared})
        else:
            ours.append({"probe": name, **declared, **place})
        if known[name].kind != declared["kind"]:  # another question: the old answer says nothing
            anew.append({"probe": name, **standing_columns(Standing(since=now)), "healthy_since": None})
    for statement, rows in ((_ADD, new), (_STAND, ours), (_STAND, shared), (_STAND, anew)):
        if rows:
            connection.execute(statement, rows)
    return frozenset(str(row["probe"]) for row in anew)


def _decided(
    connection: Connection, shared: Sequence[Observed], owner: Owner, known: Mapping[str, StoredProbe], *, now: datetime
) -> Sequence[Observed]:
    """Write what this site sees of probes that several look at; return how they stand by all of them."""
    from claudeops.store.probes import views  # noqa: PLC0415 - a node of one site does without it

    return views.decide(connection, shared, owner, known, now=now)


def _on_record(connection: Connection, batch: Sequence[Observed]) -> dict[str, StoredProbe]:
    """Return some probes as their rows have them."""
    return _named(connection, [each.probe.name for each in batch]) if batch else {}


def _is_read(each: Observed) -> bool:
    """Tell whether a probe's row is read before it is written."""
    return bool(each.tellings or each.probe.sites) or _is_untold(each.standing)


def _by_name(batch: Iterable[Observed]) -> Iterable[tuple[str, Observed]]:
    return ((clip(each.probe.name), each) for each in batch)


def _is_untold(standing: Standing) -> bool:
    return standing.state in FAILING and not standing.incident


def _unwritten(each: Observed, known: Mapping[str, StoredProbe], owner: Owner) -> Iterable[Telling]:
    """Return the tellings that are not on record: a write may arrive after its caller has given it up.

    Numbers are compared with those of the same daemon alone. What another one has written, which may have looked at the
    same time and counts for itself, hides nothing.
    """
    before = known.get(clip(each.probe.name))
    if before is None:  # it is no longer declared
        return ()
    latest = before.standing.tellings if before.owner == owner.name else 0
    return [told for told in each.tellings if not told.number or told.number > latest]


def _join(connection: Connection, names: Sequence[str], incident: str) -> None:
    """Note to which incident the failures of some probes belong; one that is over by now belongs to none."""
    connection.execute(update(probes).where(probes.c.name.in_(names), _FAILING).values(incident=incident))


def _is_told(row: TableRow, now: datetime) -> bool:
    """Tell whether a chain was queued since a probe took its state, whoever has queued it.

    One of the future was queued by a clock that has been set back, and says nothing.
    """
    return row.chain_at is not None and row.since is not None and bool(row.since <= row.chain_at <= now)


def _under_way(connection: Connection, roots: Iterable[int]) -> frozenset[int]:
    """Return those of some chains that have a session which has not ended."""
    query = select(sessions.c.root_session_id).where(
        sessions.c.root_session_id.in_(sorted(set(roots))), sessions.c.status != Status.ENDED.value
    )
    return frozenset(connection.execute(query).scalars())


# --- rows -------------------------------------------------------------------------------------------------


def _is_gone(
    row: TableRow, owner: Owner, sites: Collection[str | None], lookers: Collection[str], *, now: datetime
) -> bool:
    """Return whether a probe that ``owner`` does not declare is declared by no other daemon either.

    ``sites``: where daemons run. ``lookers``: that look at it together.
    """
    if any(site != owner.site and site in sites for site in lookers):
        return False
    if row.site is None or row.site == (owner.site or None) or owner.site in lookers:
        return True
    return row.site not in sites and (row.last_checked_at is None or now - row.last_checked_at >= ABANDONED)


def _declared(probe: Probe) -> dict[str, object]:
    return {"service": clip(probe.service), "kind": kind_of(probe.look), "interval_seconds": probe.interval}


def _row(each: Observed, owner: Owner, before: StoredProbe | None) -> dict[str, object]:
    """Return a probe's row; a chain queued for its failure stays known, though its writer may not know of it."""
    standing = each.standing
    if _is_untold(standing) and before is not None and before.standing.since == standing.since:
        standing = replace(standing, incident=before.standing.incident)
    return {
        "probe": clip(each.probe.name),
        **standing_columns(standing),
        "healthy_since": each.healthy_since,
        "owner": owner.name,
    }


def _kept(connection: Connection) -> dict[str, StoredProbe]:
    return {row.name: to_kept(row) for row in connection.execute(select(probes).order_by(probes.c.name))}


def _named(connection: Connection, names: Sequence[str]) -> dict[str, StoredProbe]:
    named = select(probes).where(probes.c.name.in_(list(map(clip, names))))
    return {row.name: to_kept(row) for row in connection.execute(named)}


def to_kept(row: TableRow) -> StoredProbe:
    """Return a ``probes`` row as a value."""
    return StoredProbe(
        name=row.name,
        service=row.service,
        kind=row.kind,
        interval=row.interval_seconds,
        standing=to_standing(row),
        healthy_since=row.healthy_since,
        session_id=row.session_id,
        chain_at=row.chain_at,
        handled_at=row.handled_at,
        handled_state=None if row.handled_state is None else ProbeState(row.handled_state),
        owner=row.owner,
        pings=_to_pings(row),
        ping_text=row.ping_text or "",
    )


def _to_pings(row: TableRow) -> Pings:
    return Pings(success=row.ping_success_at, start=row.ping_start_at, fail=row.ping_fail_at, runs=_to_runs(row))


_RUNS: Final = msgspec.json.Decoder(tuple[JobRun, ...])


def _to_runs(row: TableRow) -> tuple[JobRun, ...]:
    """Return the runs that have not ended; what cannot be read counts as none."""
    try:
        return _RUNS.decode(row.ping_runs or "[]")
    except msgspec.MsgspecError:
        return ()


def _add_stretch(connection: Connection, stretch: Stretch, width: timedelta) -> None:
    """Write a stretch; what is on record of the same time already is part of it."""
    probe, resolution = clip(stretch.probe), int(width.total_seconds())
    key = {"of_probe": probe, "of_resolution": resolution, "of_bucket": stretch.start}
    seen = connection.execute(_SEEN_STRETCH, key).one_or_none()
    bucket = stretch.bucket if seen is None else merged((_to_stretch(seen).bucket, stretch.bucket))
    values = {"checks": bucket.checks, "failures": bucket.failures, "latency": bucket.encoded()}
    if seen is None:
        named = {"probe": probe, "resolution": resolution, "bucket": stretch.start}
        connection.execute(_ADD_STRETCH, {**named, **values})
    else:
        connection.execute(_CHANGE_STRETCH, {**key, **values})


def _to_stretch(row: TableRow) -> Stretch:
    return Stretch(probe=row.probe, start=row.bucket, bucket=decoded(row.checks, row.failures, row.latency))
