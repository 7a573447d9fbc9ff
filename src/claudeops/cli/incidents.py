"""``list-incidents``: what is or was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, more, present
from claudeops.cli.text.layout import LEVEL_STYLES, Column, Layout, Style, TableCell, table, usd
from claudeops.domain.alerts.alert import IncidentStatus
from claudeops.domain.answers import plain
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import opened
from claudeops.store.reading.incidents.entries import IncidentEntry, listed
from claudeops.text import join_names
from claudeops.text.escapes import visible

_LIST: Final = "list-incidents"
_STYLES: Final = {IncidentStatus.OPEN: Style.BAD, IncidentStatus.ACKNOWLEDGED: Style.WARN}


def print_incidents(wanted: Listing, *, everything: bool, shape: AnswerShape) -> int:
    """Print the incidents that are open, or all of them; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = listed(connection, wanted, everything=everything, now=now)
        return CommandAnswer(
            body={"incidents_count": len(found.items), "incidents": plain(found.items), "before": found.before},
            draw=partial(_drawn, found),
        )

    return present(_LIST, ask, shape)


def _drawn(found: Page[IncidentEntry], looks: Layout) -> Sequence[str]:
    columns = [Column("NO"), Column("STATE"), Column("SINCE"), Column("COST"), Column("SERVICES", shrinks=True)]
    rows = [_row(entry, looks) for entry in found.items]
    return [*(table(columns, rows, looks) or ["no incident is open"]), *more(_LIST, found.before, looks)]


def _row(entry: IncidentEntry, looks: Layout) -> Sequence[TableCell | str]:
    who = f" by {visible(entry.acked_by)}" if entry.acked_by else ""
    return (
        TableCell(f"{entry.incident} {entry.severity}", LEVEL_STYLES[entry.severity]),
        TableCell(f"{entry.status}{who}", _STYLES.get(entry.status, Style.GOOD)),
        looks.time(entry.opened_at),
        usd(entry.spend_usd),
        visible(join_names(entry.services)),
    )
