"""``incident``: one incident with its alerts, its sessions, what they did, and who says that it is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, missing, present
from claudeops.cli.text.layout import Layout, usd
from claudeops.domain.answers import document
from claudeops.store.reading import opened
from claudeops.store.reading.incidents.story import IncidentStory, awaits_look, story, timeline
from claudeops.text import join_names
from claudeops.text.escapes import visible

_ONE: Final = "incident"


def print_incident(number: int, *, shape: AnswerShape) -> int:
    """Print one incident with all that belongs to it; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = story(connection, number, now=now)
            waits = awaits_look(connection, number)
        if found is None:
            message = f"there is no incident {number}; `claudeops list-incidents --all` shows them"
            return missing("incident_not_found", str(number), message)
        return CommandAnswer(body=document(found), draw=partial(_story, found, waits))

    return present(_ONE, ask, shape, target=str(number))


def _story(found: IncidentStory, waits: bool, looks: Layout) -> Sequence[str]:  # noqa: FBT001 - bound
    lines = [f"incident {found.incident} · {found.severity} · {visible(join_names(found.services))}"]
    lines += [f"  {line}" for line in _standing(found, looks)]
    if waits:
        lines.append("  it is over once a session has looked")
    lines.append(f"  cost: {usd(found.spend_usd)}")
    return [*lines, "", *(f"{looks.time(one.at)}  {visible(one.text)}" for one in timeline(found))]


def _standing(found: IncidentStory, looks: Layout) -> Sequence[str]:
    lines = [f"{found.status}, opened {looks.time(found.opened_at)}"]
    if found.reopened:
        lines.append(f"came back {found.reopened} times")
    if found.acked_by:
        lines.append(f"{visible(found.acked_by)} is on it since {looks.time(found.acked_at)}")
    lines += [f"{each.kind} says it is over: {visible(each.name)} {looks.time(each.at)}" for each in found.witnesses]
    return lines
