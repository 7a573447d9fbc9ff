"""``ack``, ``resolve`` and ``silence``: what a person says of alerts and incidents.

All of them work with and without a running daemon, which sees the changes in the database.
"""

from __future__ import annotations

from datetime import timedelta

from claudeops.cli.alerts.silences import silence_text
from claudeops.cli.on_database import not_done, now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult
from claudeops.domain.alerts.matchers import Matcher
from claudeops.domain.answers import document
from claudeops.store.acts import Refusal, incidents, silences
from claudeops.store.acts.incidents import IncidentAct
from claudeops.store.acts.silences import SilenceAct
from claudeops.store.alerts.incidents import Incidents
from claudeops.store.alerts.silences import Silences
from claudeops.store.database import Database
from claudeops.text import join_names
from claudeops.text.escapes import visible


def acknowledge(number: int, *, as_json: bool) -> int:
    """Note that whoever asks is on an incident; return the exit status."""

    async def note(database: Database) -> CommandResult:
        done = await incidents.acknowledge(Incidents(database), number, by=operators_name(), now=now())
        if isinstance(done, Refusal):
            return not_done("ack", done)
        return _changed(done, f"{done.acked_by} is on it; what else comes about it starts nothing")

    return run_on_database("ack", note, as_json=as_json, target=str(number))


def resolve(number: int, *, as_json: bool) -> int:
    """Note that whoever asks says that an incident is over; return the exit status."""

    async def note(database: Database) -> CommandResult:
        done = await incidents.resolve(Incidents(database), number, by=operators_name(), now=now())
        return not_done("resolve", done) if isinstance(done, Refusal) else _changed(done, "it is over")

    return run_on_database("resolve", note, as_json=as_json, target=str(number))


def silence(matchers: tuple[Matcher, ...], *, lasts: timedelta, comment: str, only_preview: bool, as_json: bool) -> int:
    """Silence what fits the matchers for a while, or only say what that would be; return the exit status."""

    async def add(database: Database) -> CommandResult:
        done = await silences.silence(
            Silences(database),
            matchers,
            lasts=lasts,
            comment=comment,
            only_preview=only_preview,
            by=operators_name(),
            now=now(),
        )
        return CommandResult(text=_silence_text(done), body=document(done))

    return run_on_database("silence", add, as_json=as_json)


def end_silence(number: int, *, as_json: bool) -> int:
    """End a silence before its time; return the exit status."""

    async def end(database: Database) -> CommandResult:
        done = await silences.end_silence(Silences(database), number, by=operators_name(), now=now())
        if isinstance(done, Refusal):
            return not_done("end-silence", done)
        text = f"silence {number} is over; what it has held back and still fires is decided about now"
        return CommandResult(text=text, body=document(done))

    return run_on_database("end-silence", end, as_json=as_json, target=str(number))


def _silence_text(done: SilenceAct) -> str:
    more = f" and {done.now_count - len(done.now)} more" if done.now_count > len(done.now) else ""
    head = silence_text(done.silence) if done.handled else "nothing was silenced; this silence"
    return (
        f"{head}\n  holds back now: {join_names(list(map(visible, done.now))) or 'nothing'}{more}\n"
        f"  would have held back within 7 days: {done.before_count} more alerts"
    )


def _changed(done: IncidentAct, what: str) -> CommandResult:
    return CommandResult(text=f"incident {done.incident}: {what}", body=document(done))
