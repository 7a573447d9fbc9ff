"""What each site sees of the probes that several look at, and what they make of it together.

Whoever writes a view decides in the same transaction, by the views of all sites as they are on record. So the last one
that a quorum needs decides, whichever it is, and nothing of it is kept in memory. A view counts while the daemon that
wrote it has a row in `instances`: which daemons are dead is judged in one place (`store.recovery`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from claudeops.domain.owner import Owner
from claudeops.domain.probes.probe import Probe, Standing
from claudeops.domain.probes.record import ABANDONED, FAILING, Observed, StoredProbe, standing_columns, to_standing
from claudeops.store.rows import TableRow
from claudeops.store.tables.probes import probe_views, probes
from claudeops.structs import replace
from claudeops.text import clip

_VIEWS: Final = probe_views.c
_STAND: Final = update(probe_views).where(_VIEWS.probe == bindparam("of_probe"), _VIEWS.site == bindparam("of_site"))
_ADD: Final = insert(probe_views)
_REMOVE: Final = delete(probe_views).where(_VIEWS.probe == bindparam("of_probe"), _VIEWS.site == bindparam("of_site"))
_OF_PROBES: Final = select(probe_views).where(_VIEWS.probe.in_(bindparam("names", expanding=True)))
_PLACE: Final = update(probes).where(probes.c.name == bindparam("probe"))


def enrol(
    connection: Connection,
    wanted: Mapping[str, Probe],
    owner: Owner,
    *,
    anew: Collection[str],
    sites: Collection[str | None],
    now: datetime,
) -> Mapping[str, Observed]:
    """Make the views of a site those of the probes that are to be looked at there; return them, by name.

    ``wanted``: what is declared there. ``anew``: those of another kind than before, of which nobody has seen anything.
    ``sites``: where daemons run. Views of other sites stay, unless none of a daemon has come for `ABANDONED`.
    """
    known = connection.execute(select(probe_views)).all()
    ours = {name: probe for name, probe in wanted.items() if owner.site in probe.sites}
    gone, kept = list[TableRow](), dict[str, TableRow]()
    for row in known:
        if row.probe in anew or (row.site == owner.site and row.probe not in ours) or _is_abandoned(row, sites, now):
            gone.append(row)
        elif row.site == owner.site:
            kept[row.probe] = row
    if gone:
        connection.execute(_REMOVE, [{"of_probe": row.probe, "of_site": row.site} for row in gone])
    if kept:
        connection.execute(update(probe_views).where(_VIEWS.site == owner.site).values(owner=owner.name))
    if new := [name for name in ours if name not in kept]:
        begun = {"site": owner.site, "owner": owner.name, **_columns(Standing())}
        connection.execute(_ADD, [{"probe": name, **begun} for name in new])
    return {name: _view(row, ours[name]) for name, row in kept.items()}


def lookers(connection: Connection) -> Mapping[str, Collection[str]]:
    """Return the sites that look at each probe, if that names its sites."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in connection.execute(select(_VIEWS.probe, _VIEWS.site)):
        found[row.probe].add(row.site)
    return found


def remove(connection: Connection, name: str) -> None:
    """Remove what all sites see of a probe that is no longer declared."""
    connection.execute(delete(probe_views).where(_VIEWS.probe == name))


def decide(
    connection: Connection, batch: Sequence[Observed], owner: Owner, known: Mapping[str, StoredProbe], *, now: datetime
) -> Sequence[Observed]:
    """Write what a site sees of some probes, and return how they stand by the views of all their sites.

    One that is not on record is left out.
    """
    from claudeops.domain.probes.quorum import together  # noqa: PLC0415 - commands do without it
    from claudeops.store.tables.daemon import instances  # noqa: PLC0415 - as above

    batch = [each for each in batch if clip(each.probe.name) in known]
    if not batch:
        return ()
    connection.execute(_STAND, [_row(each, owner) for each in batch])
    living = {owner.name, *connection.execute(select(instances.c.owner)).scalars()}
    views: defaultdict[str, list[TableRow]] = defaultdict(list)
    for row in connection.execute(_OF_PROBES, {"names": [clip(each.probe.name) for each in batch]}):
        if row.owner in living:
            views[row.probe].append(row)
    decided = []
    for each in batch:
        name = clip(each.probe.name)
        found = together(known[name], [_view(row, each.probe) for row in views[name]], each.probe, now=now)
        # It may have had one site a moment ago, and something unwritten since then.
        decided.append(replace(found, tellings=(*each.tellings, *found.tellings)))
    _place(connection, decided)
    return decided


def _place(connection: Connection, decided: Iterable[Observed]) -> None:
    """Note where the chain of a failure is to run, as long as there is none."""
    untold = [each for each in decided if each.site and each.standing.state in FAILING and not each.standing.incident]
    if untold:
        connection.execute(_PLACE, [{"probe": clip(each.probe.name), "site": each.site} for each in untold])


def _is_abandoned(row: TableRow, sites: Collection[str | None], now: datetime) -> bool:
    return row.site not in sites and (row.last_checked_at is None or now - row.last_checked_at >= ABANDONED)


def _row(each: Observed, owner: Owner) -> dict[str, object]:
    return {
        "of_probe": clip(each.probe.name),
        "of_site": owner.site,
        **_columns(each.standing),
        "healthy_since": each.healthy_since,
        "owner": owner.name,
    }


def _columns(standing: Standing) -> dict[str, object]:
    """Return a view's columns; an incident is the probe's."""
    return {name: value for name, value in standing_columns(standing).items() if name != "incident"}


def _view(row: TableRow, probe: Probe) -> Observed:
    return Observed(probe=probe, site=row.site, standing=to_standing(row), healthy_since=row.healthy_since)
