"""``claudeops status``: one screen for whoever is on call, also while the database is away.

What the daemon says comes from its status file, the rest from the database; each is told apart where the other fails.
Imports little, because it must answer at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as time_of_day
from functools import partial
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from claudeops.cli.answer import AnswerShape, Body, CommandAnswer, present
from claudeops.cli.reply import ErrorKind, Exit, error_body
from claudeops.cli.text.layout import LEVEL_STYLES, Layout, Style, TableCell, count_of, pairs, usd
from claudeops.domain.answers import plain
from claudeops.engine.daemon.liveness import STATUS_FILE, Liveness, look
from claudeops.engine.owners import alive
from claudeops.errors import ClaudeopsError
from claudeops.settings.where import database_url, day_budget, state_dir
from claudeops.store.glance import Glance, OpenEvent, RunningNow, glance
from claudeops.text.escapes import visible

_NAME: Final = "status"
_SHOWN_SESSIONS: Final = 5
_LATE: Final = timedelta(minutes=15)  # that the oldest notice may wait, as in /readyz
_LEVELS: Final = ("critical", "warning", "info")

Fact = tuple[str, TableCell | str]


class StatusShown(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown."""

    daemon: Liveness
    seen: Glance | None  # None: the database does not answer
    trouble: str | None  # why not
    day_budget_usd: float | None
    timezone: str

    @property
    def running(self) -> Sequence[RunningNow]:
        """What runs: as the database has it, else as the daemon says."""
        if self.seen is not None:
            return self.seen.running
        file = self.daemon.status
        return (
            ()
            if file is None
            else tuple(
                RunningNow(
                    session_id=one.session_id,
                    chain=one.chain or one.session_id,
                    tier=one.tier,
                    trigger=one.trigger or "",
                    model=None,
                    started_at=one.started_at,
                )
                for one in file.running
            )
        )


def print_status(*, shape: AnswerShape) -> int:
    """Print the state of everything; return the exit status: 0 the daemon lives, 1 it does not."""
    return present(_NAME, _ask, shape)


def _ask(now: datetime) -> CommandAnswer:
    cwd = Path.cwd()
    file = state_dir(os.environ, cwd=cwd) / STATUS_FILE
    daemon = look(file, alive=alive, monotonic=time.monotonic())
    budget, timezone = _budget(daemon, cwd)
    seen, trouble = None, None
    try:
        midnight = _midnight(now, timezone)
        seen = glance(database_url(os.environ, cwd=cwd), now=now, midnight=midnight)
    except ClaudeopsError as error:
        trouble = str(error)
    state = StatusShown(daemon=daemon, seen=seen, trouble=trouble, day_budget_usd=budget, timezone=timezone)
    return CommandAnswer(
        body=_body(state, file),
        draw=partial(_drawn, state),
        exit_code=Exit.OK if daemon.lives else Exit.UNRESOLVED,
    )


def _budget(daemon: Liveness, cwd: Path) -> tuple[float | None, str]:
    """Return the day's budget as the daemon has it; without a daemon, as it would have it here."""
    if daemon.status is not None and daemon.status.budgets is not None:
        return daemon.status.budgets.day_usd, daemon.status.budgets.timezone
    return day_budget(os.environ, cwd=cwd)


def _midnight(now: datetime, timezone: str) -> datetime:
    zone = ZoneInfo(timezone)
    return datetime.combine(now.astimezone(zone).date(), time_of_day.min, zone).astimezone(UTC)


# --- the document -----------------------------------------------------------------------------------------


def _body(state: StatusShown, file: Path) -> Body:
    status = state.daemon.status
    body: Body = {
        "lives": state.daemon.lives,
        "ready": state.daemon.lives and status is not None and status.ready,
        "message": state.daemon.says,
        "pid": None if status is None else status.pid,
        "started_at": None if status is None else status.started_at,
        "isolation": None if status is None else status.isolation,
        "node": None if status is None else status.node or None,
        "site": None if status is None else status.site or None,
        "version": None if status is None else status.version or None,
        "roles": None if status is None or status.roles is None else list(status.roles),
        "database": {"available": state.seen is not None, "message": state.trouble},
        "next_fires": [] if status is None else [msgspec.to_builtins(one) for one in status.schedules],
        "running": plain(tuple(state.running)),
        "holds": _holds(state),
        "money": _money(state),
        **_of_database(state.seen),
    }
    if not state.daemon.lives:
        body |= error_body(
            kind=ErrorKind.RUNTIME,
            operation=_NAME,
            target=str(file),
            retryable=True,
            message=state.daemon.says,
            hint="Start it with `claudeops run`; `claudeops doctor` says what keeps it from starting.",
        )
    return body


def _holds(state: StatusShown) -> object:
    if state.seen is not None:
        return plain(state.seen.holds)
    holds = None if state.daemon.status is None else state.daemon.status.holds
    return None if holds is None else [msgspec.to_builtins(hold) for hold in holds]


def _money(state: StatusShown) -> Body:
    return {
        "today_usd": None if state.seen is None else state.seen.today_usd,
        "reserved_usd": None if state.seen is None else state.seen.reserved_usd,
        "day_budget_usd": state.day_budget_usd,
        "timezone": state.timezone,
    }


def _of_database(seen: Glance | None) -> Body:
    """Return what only the database knows; all of it is null while it is away."""
    return {
        "queued": None if seen is None else seen.queued,
        "queued_from": None if seen is None else seen.queued_from,
        "sites_without_node": None if seen is None else [visible(site) for site in seen.sites_without_node],
        "nodes_absent": None if seen is None else plain(seen.nodes_absent),
        "last_session": None if seen is None else plain(seen.last_session),
        "last_fire": None if seen is None else plain(seen.last_fire),
        "open_events": None if seen is None else {level: seen.open_events.get(level, 0) for level in _LEVELS},
        "events": None if seen is None else plain(seen.newest_events),
        "approvals_waiting": None if seen is None else seen.approvals_waiting,
        "approval_expires_at": None if seen is None else seen.approval_expires_at,
        "probes": None if seen is None else dict(seen.probes),
        "probes_down": None if seen is None else plain(seen.probes_down),
        "incidents_open": None if seen is None else seen.incidents_open,
        "incidents": None if seen is None else plain(seen.incidents),
        "under_repair": None if seen is None else plain(seen.under_repair),
        "sources_unreadable": None if seen is None else [visible(source) for source in seen.sources_unreadable],
        "notices_waiting": None if seen is None else seen.notices_waiting,
        "untold_since": None if seen is None else seen.untold_since,
        "chats_deaf": None if seen is None else list(seen.chats_deaf),
    }


# --- text -------------------------------------------------------------------------------------------------


def _drawn(state: StatusShown, looks: Layout) -> Sequence[str]:
    facts: list[Fact] = [*_of_daemon(state, looks)]
    if state.seen is None:
        facts.append(("database", TableCell(state.trouble or "away", Style.BAD)))
    facts += [*_sessions(state, looks), *_why_not(state, looks)]
    if state.seen is not None:
        facts += [*_last(state.seen, looks), *_spent(state, state.seen), *_open(state.seen, looks)]
    events = () if state.seen is None else state.seen.newest_events
    return [*pairs(facts, looks), *_events(events, looks)]


def _of_daemon(state: StatusShown, looks: Layout) -> Iterator[Fact]:
    status = state.daemon.status
    if not state.daemon.lives or status is None:
        yield "daemon", TableCell(state.daemon.says, Style.BAD)
        return
    since = "" if status.started_at is None else f", up since {looks.time(status.started_at)}"
    if status.ready:
        yield "daemon", TableCell(f"alive and ready (pid {status.pid}){since}", Style.GOOD)
    else:
        why = status.reason or "it does not say why"
        yield "daemon", TableCell(f"alive, not ready (pid {status.pid}){since}: {why}", Style.WARN)
    if missing := status.missing_roles():
        yield "roles", TableCell(f"without {', '.join(missing)}, which another daemon does, or none", Style.WARN)
    for fire in status.schedules:
        when = "switched off" if fire.next_fire is None else looks.time(fire.next_fire)
        yield "next fire", f"{when} ({fire.name})"


def _sessions(state: StatusShown, looks: Layout) -> Iterator[Fact]:
    running = state.running
    for one in running[:_SHOWN_SESSIONS]:
        about = ", ".join(part for part in (f"chain {one.chain}", one.trigger, one.model or "") if part)
        yield (
            "runs",
            TableCell(f"session {one.session_id} (tier {one.tier}; {about}), began {looks.time(one.started_at)}"),
        )
    if len(running) > _SHOWN_SESSIONS:
        yield "runs", f"and {len(running) - _SHOWN_SESSIONS} more"
    if not running:
        yield "runs", TableCell("nothing", Style.QUIET)
    if state.seen is not None and state.seen.queued:
        begins = state.seen.queued_from
        when = f", the first from {looks.time(begins)}" if begins is not None and begins > looks.now else ""
        yield "queue", f"{count_of(state.seen.queued, 'session')} waiting{when}"
        for site in state.seen.sites_without_node:
            yield "queue", f"waits for a node of site {visible(site)}, and none runs: start one, or stop the sessions"
        for node, session_id in state.seen.nodes_absent.items():
            out = f"start it, or `claudeops stop {session_id}`"
            yield "queue", f"waits for node {visible(node)}, and no daemon runs there: {out}"


def _why_not(state: StatusShown, looks: Layout) -> Iterator[Fact]:
    """Yield the holds: reasons why no session starts."""
    file = None if state.daemon.status is None else state.daemon.status.holds
    for hold in (file or ()) if state.seen is None else state.seen.holds:
        until = "" if hold.until is None else f" (until {looks.time(hold.until)})"
        yield "held", TableCell(f"{(hold.reason or hold.kind).rstrip('.')}{until}", Style.WARN)


def _last(seen: Glance, looks: Layout) -> Iterator[Fact]:
    if seen.last_fire is not None:
        fire = seen.last_fire
        what = f"skipped: {fire.skipped_reason}" if fire.skipped_reason else f"session {fire.session_id or '-'}"
        yield "last fire", f"{looks.time(fire.fired_at)} ({fire.schedule}), {what}"
    if seen.last_session is not None:
        last = seen.last_session
        words = [f"session {last.session_id} (tier {last.tier})", last.outcome, last.decision_reason or ""]
        well = last.decision_reason in {"healthy", "escalated", "maintenance"}
        text = f"{' · '.join(word for word in words if word)}, {looks.time(last.ended_at)}"
        yield "last ended", TableCell(text, Style.PLAIN if well else Style.WARN)


def _spent(state: StatusShown, seen: Glance) -> Iterator[Fact]:
    limit = state.day_budget_usd
    share = "" if not limit else f" of {usd(limit)} ({seen.today_usd / limit:.0%})"
    reserved = f", {usd(seen.reserved_usd)} reserved" if seen.reserved_usd else ""
    over = limit is not None and seen.today_usd >= limit
    yield "today", TableCell(f"{usd(seen.today_usd)}{share}{reserved}", Style.BAD if over else Style.PLAIN)


def _open(seen: Glance, looks: Layout) -> Iterator[Fact]:
    if seen.approvals_waiting:
        waiting = f"{count_of(seen.approvals_waiting, 'call')} for a person (claudeops list-approvals)"
        yield "waiting", TableCell(f"{waiting}, the first expires {looks.time(seen.approval_expires_at)}", Style.WARN)
    for message in seen.chats_deaf:
        yield "chats", TableCell(visible(" ".join(message.split())), Style.BAD)
    if seen.probes:
        down = seen.probes.get("down", 0)
        counts = ", ".join(f"{count} {state}" for state, count in sorted(seen.probes.items()))
        names = f": {', '.join(seen.probes_down)}" if down else ""
        yield "probes", TableCell(f"{counts}{names}", Style.BAD if down else Style.PLAIN)
    for repair in seen.under_repair:
        since = "" if repair.since is None else f" since {looks.time(repair.since)}"
        until = f"ends by itself {looks.time(repair.ends_at)} if that gives no more sign"
        yield "repair", f"{visible(repair.service)}, by chain {repair.chain} alone{since}; {until}"
    for one in seen.incidents:
        by = f", {visible(one.acked_by)} is on it" if one.acked_by else ""
        about = f"{one.incident} ({one.severity}): {visible(one.service)}, since {looks.time(one.opened_at)}{by}"
        yield "incident", TableCell(about, LEVEL_STYLES.get(one.severity, Style.PLAIN))
    if seen.incidents_open > len(seen.incidents):
        left = seen.incidents_open - len(seen.incidents)
        yield "incidents", TableCell(f"and {left} more (claudeops list-incidents)", Style.WARN)
    if seen.sources_unreadable:
        names = visible(", ".join(seen.sources_unreadable))
        yield "unreadable", TableCell(f"what {names} sent last (claudeops list-sources says why)", Style.WARN)
    if seen.untold_since is not None:
        waiting = f"{count_of(seen.notices_waiting, 'notice')} to be told, the oldest {looks.time(seen.untold_since)}"
        is_late = looks.now - seen.untold_since >= _LATE
        yield "untold", TableCell(waiting, Style.BAD if is_late else Style.PLAIN)
    counts = ", ".join(f"{seen.open_events[level]} {level}" for level in _LEVELS if seen.open_events.get(level))
    worst = next((level for level in _LEVELS if seen.open_events.get(level)), "")
    yield "open events", TableCell(counts or "none", LEVEL_STYLES.get(worst, Style.PLAIN))


def _events(events: Sequence[OpenEvent], looks: Layout) -> list[str]:
    facts = [
        (looks.time(event.last_seen), TableCell(_sentence(event), LEVEL_STYLES.get(event.level, Style.PLAIN)))
        for event in events
    ]
    return ["", *pairs(facts, looks, indent=2)] if facts else []


def _sentence(event: OpenEvent) -> str:
    about = f"{event.service}: " if event.service else ""
    return f"{event.level} · {about}{' '.join(event.message.split())} (event {event.event_id})"
