"""``list-incidents``, ``incident`` and ``list-silences``: what is or was wrong, and what nobody wants to hear of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, missing, more, present
from claudeops.cli.lists import LEVEL_STYLES
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, table, usd
from claudeops.domain.alerts.alert import IncidentStatus
from claudeops.domain.answers import document, plain
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import incidents, opened, silences
from claudeops.store.reading.incidents import IncidentEntry, IncidentStory
from claudeops.store.reading.silences import SilenceEntry
from claudeops.text import join_names
from claudeops.text.escapes import visible

_LIST: Final = "list-incidents"
_ONE: Final = "incident"
_SILENCES: Final = "list-silences"
_STYLES: Final = {IncidentStatus.OPEN: Style.BAD, IncidentStatus.ACKNOWLEDGED: Style.WARN}


def print_incidents(wanted: Listing, *, everything: bool, shape: AnswerShape) -> int:
    """Print the incidents that are open, or all of them; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = incidents.listed(connection, wanted, everything=everything, now=now)
        return CommandAnswer(
            body={"incidents_count": len(found.items), "incidents": plain(found.items), "before": found.before},
            draw=partial(_drawn, found),
        )

    return present(_LIST, ask, shape)


def print_incident(number: int, *, shape: AnswerShape) -> int:
    """Print one incident with all that belongs to it; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = incidents.story(connection, number, now=now)
            awaits_look = incidents.awaits_look(connection, number)
        if found is None:
            message = f"there is no incident {number}; `claudeops list-incidents --all` shows them"
            return missing("incident_not_found", str(number), message)
        return CommandAnswer(body=document(found), draw=partial(_story, found, awaits_look))

    return present(_ONE, ask, shape, target=str(number))


def print_silences(*, everything: bool, shape: AnswerShape) -> int:
    """Print the silences that hold, or all of them; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = silences.listed(connection, now, everything=everything)
        return CommandAnswer(
            body={"silences_count": len(found), "silences": plain(found)},
            draw=lambda looks: [line for one in found for line in _silence_lines(one, looks)] or ["no silence holds"],
        )

    return present(_SILENCES, ask, shape)


# --- incidents --------------------------------------------------------------------------------------------


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


def _story(found: IncidentStory, awaits_look: bool, looks: Layout) -> Sequence[str]:  # noqa: FBT001 - bound
    lines = [f"incident {found.incident} · {found.severity} · {visible(join_names(found.services))}"]
    lines += [f"  {line}" for line in _standing(found, looks)]
    if awaits_look:
        lines.append("  it is over once a session has looked")
    lines.append(f"  cost: {usd(found.spend_usd)}")
    return [*lines, "", *(f"{looks.time(one.at)}  {visible(one.text)}" for one in incidents.timeline(found))]


def _standing(found: IncidentEntry, looks: Layout) -> Sequence[str]:
    lines = [f"{found.status}, opened {looks.time(found.opened_at)}"]
    if found.reopened:
        lines.append(f"came back {found.reopened} times")
    if found.acked_by:
        lines.append(f"{visible(found.acked_by)} is on it since {looks.time(found.acked_at)}")
    lines += [f"{each.kind} says it is over: {visible(each.name)} {looks.time(each.at)}" for each in found.witnesses]
    return lines


# --- silences ---------------------------------------------------------------------------------------------


def silence_text(silence: SilenceEntry) -> str:
    """Return a silence on one line."""
    matchers = visible(", ".join(silence.matchers))
    return f"silence {silence.id} · {matchers} · until {silence.ends_at:%Y-%m-%d %H:%M:%S} UTC"


def _silence_lines(silence: SilenceEntry, looks: Layout) -> Sequence[str]:
    note = f": {visible(silence.comment)}" if silence.comment else ""
    matchers = visible(", ".join(silence.matchers))
    ends = f"ended by {visible(silence.ended_by)}" if silence.ended_by else "ends"
    return [
        f"{silence.id} · {matchers} · {ends} {looks.time(silence.ends_at)}",
        f"    by {visible(silence.created_by)}{note}; it has held back {silence.suppressed_count} alerts",
    ]
