"""``list-incidents``, ``incident`` and ``list-silences``: what is or was wrong, and what nobody wants to hear of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.text.layout import Cell, Column, Looks, Style, table, usd
from claudeops.cli.views import Answer, Body, Shape, database_url, missing, more, plain, present
from claudeops.cli.views.lists import LEVEL_STYLES
from claudeops.domain.alerts.incidents import lasted, wants_look
from claudeops.domain.alerts.model import Incident, IncidentStatus, Silence
from claudeops.domain.gate.approval import visible
from claudeops.domain.listing import Listing, Page
from claudeops.domain.text import join_names
from claudeops.store.reading import opened
from claudeops.store.reading.incidents import IncidentEntry, NoticeEntry, Story, active_silences, listed, story

_LIST: Final = "list-incidents"
_ONE: Final = "incident"
_SILENCES: Final = "list-silences"
_STYLES: Final = {IncidentStatus.OPEN: Style.BAD, IncidentStatus.ACKNOWLEDGED: Style.WARN}


def print_incidents(wanted: Listing, *, everything: bool, shape: Shape) -> int:
    """Print the incidents that are open, or all of them; return the exit status."""

    def ask(now: datetime) -> Answer:
        with opened(database_url()) as connection:
            found = listed(connection, wanted, everything=everything)
        shown = [_document(entry, now) for entry in found.items]
        return Answer(
            body={"incidents_count": len(shown), "incidents": shown, "before": found.before},
            draw=partial(_drawn, found),
        )

    return present(_LIST, ask, shape)


def print_incident(number: int, *, shape: Shape) -> int:
    """Print one incident with all that belongs to it; return the exit status."""

    def ask(now: datetime) -> Answer:
        with opened(database_url()) as connection:
            found = story(connection, number)
        if found is None:
            message = f"there is no incident {number}; `claudeops list-incidents --all` shows them"
            return missing("incident_not_found", str(number), message)
        body: Body = {
            **_document(found.entry, now),
            "alerts": plain(found.alerts),
            "decisions": plain(found.decisions),
            "sessions": plain(found.sessions),
            "actions": plain(found.actions),
            "events": plain(found.events),
            "notices": plain(found.notices),
        }
        return Answer(body=body, draw=partial(_told, found))

    return present(_ONE, ask, shape, target=str(number))


def print_silences(*, everything: bool, shape: Shape) -> int:
    """Print the silences that hold, or all of them; return the exit status."""

    def ask(now: datetime) -> Answer:
        with opened(database_url()) as connection:
            found = active_silences(connection, now, everything=everything)
        return Answer(
            body={"silences_count": len(found), "silences": [silence_document(one) for one in found]},
            draw=lambda looks: [line for one in found for line in _silence_lines(one, looks)] or ["no silence holds"],
        )

    return present(_SILENCES, ask, shape)


# --- incidents --------------------------------------------------------------------------------------------


def _document(entry: IncidentEntry, now: datetime) -> Body:
    incident = entry.incident
    return {
        "incident": incident.number,
        "status": incident.status.value,
        "severity": incident.severity.value,
        "services": [visible(service) for service in incident.services],
        "opened_at": incident.opened_at,
        "resolved_at": incident.resolved_at,
        "lasted_s": round(lasted(incident, now).total_seconds()),
        "reopened": incident.reopened,
        "acked_by": visible(incident.acked_by) or None,
        "acked_at": incident.acked_at,
        "chain": incident.root_session_id,
        "spend_usd": entry.spend_usd,
        "last_action_at": incident.last_action_at,
        "witnesses": [
            {"kind": each.kind.value, "name": visible(each.name), "at": each.at} for each in incident.witnesses
        ],
    }


def _drawn(found: Page[IncidentEntry], looks: Looks) -> Sequence[str]:
    columns = [Column("NO"), Column("STATE"), Column("SINCE"), Column("COST"), Column("SERVICES", shrinks=True)]
    rows = [_row(entry, looks) for entry in found.items]
    return [*(table(columns, rows, looks) or ["no incident is open"]), *more(_LIST, found.before, looks)]


def _row(entry: IncidentEntry, looks: Looks) -> Sequence[Cell | str]:
    incident = entry.incident
    who = f" by {visible(incident.acked_by)}" if incident.acked_by else ""
    return (
        Cell(f"{incident.number} {incident.severity}", LEVEL_STYLES[incident.severity]),
        Cell(f"{incident.status}{who}", _STYLES.get(incident.status, Style.GOOD)),
        looks.time(incident.opened_at),
        usd(entry.spend_usd),
        visible(join_names(incident.services)),
    )


def _told(found: Story, looks: Looks) -> Sequence[str]:
    incident = found.entry.incident
    lines = [f"incident {incident.number} · {incident.severity} · {visible(join_names(incident.services))}"]
    lines += [f"  {line}" for line in _standing(incident, looks)]
    lines.append(f"  cost: {usd(found.entry.spend_usd)}")
    lines += ["", *(f"{looks.time(at)}  {visible(what)}" for at, what in timeline(found))]
    return lines


def timeline(found: Story) -> Sequence[tuple[datetime, str]]:
    """Return what happened, in order: alerts, events, sessions, what they did, people, and who was told what.

    What comes of one moment is told in that order as well.
    """
    told = [
        *((one.at, f"{one.alert or 'a body'}: {one.decision} ({one.because})") for one in found.decisions),
        *((one.at, one.message) for one in found.events),
        *(
            (one.started_at, f"session {one.id} (tier {one.tier}) starts")
            for one in found.sessions
            if one.started_at is not None
        ),
        *(
            (one.ended_at, f"session {one.id} (tier {one.tier}): {one.decision_reason or one.outcome}")
            for one in found.sessions
            if one.ended_at is not None
        ),
        *((one.at, f"session {one.session}: {one.action_type} of {one.service}") for one in found.actions),
        *((one.at, f"{_outcome(one)}: {one.text}") for one in found.notices),
    ]
    return sorted(told, key=lambda each: each[0])


def _outcome(notice: NoticeEntry) -> str:
    if not notice.target:
        return "nobody was told" if notice.result else "to be told"
    match notice.result:
        case None:
            return f"on its way to {notice.target}"
        case "delivered":
            return f"{notice.target} was told"
        case "suppressed":
            return f"{notice.target} was told with others, or not any more"
        case _:
            return f"{notice.target} could not be told"


def _standing(incident: Incident, looks: Looks) -> Sequence[str]:
    lines = [f"{incident.status}, opened {looks.time(incident.opened_at)}"]
    if incident.reopened:
        lines.append(f"came back {incident.reopened} times")
    if incident.acked_by:
        lines.append(f"{visible(incident.acked_by)} is on it since {looks.time(incident.acked_at)}")
    lines += [f"{each.kind} says it is over: {visible(each.name)} {looks.time(each.at)}" for each in incident.witnesses]
    if wants_look(incident):
        lines.append("it is over once a session has looked")
    return lines


# --- silences ---------------------------------------------------------------------------------------------


def silence_document(silence: Silence) -> Body:
    """Return a silence for programs."""
    return {
        "id": silence.id,
        "matchers": [visible(str(matcher)) for matcher in silence.matchers],
        "starts_at": silence.starts_at,
        "ends_at": silence.ends_at,
        "created_by": visible(silence.created_by),
        "comment": visible(silence.comment),
        "suppressed_count": silence.suppressed_count,
        "ended_by": visible(silence.ended_by) or None,
    }


def silence_text(silence: Silence) -> str:
    """Return a silence on one line."""
    matchers = visible(", ".join(map(str, silence.matchers)))
    return f"silence {silence.id} · {matchers} · until {silence.ends_at:%Y-%m-%d %H:%M:%S} UTC"


def _silence_lines(silence: Silence, looks: Looks) -> Sequence[str]:
    note = f": {visible(silence.comment)}" if silence.comment else ""
    matchers = visible(", ".join(map(str, silence.matchers)))
    ends = f"ended by {visible(silence.ended_by)}" if silence.ended_by else "ends"
    return [
        f"{silence.id} · {matchers} · {ends} {looks.time(silence.ends_at)}",
        f"    by {visible(silence.created_by)}{note}; it has held back {silence.suppressed_count} alerts",
    ]
