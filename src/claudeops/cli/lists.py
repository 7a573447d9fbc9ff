"""``list-events``, ``list-checks`` and ``list-actions``: what happened, how services were seen, what was done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, missing, more, present
from claudeops.cli.text.layout import (
    LEVEL_STYLES,
    Column,
    Layout,
    Style,
    TableCell,
    count_of,
    length_of,
    status_cell,
    table,
)
from claudeops.domain.actions import Recheck
from claudeops.domain.answers import plain
from claudeops.domain.chains.cooldown import Left
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.listing import Listing, Page
from claudeops.store.reading import Connection, events, opened, services
from claudeops.store.reading.events import EventEntry
from claudeops.store.reading.services import ActionEntry, CheckEntry, ProbeEntry

_EVENTS: Final = "list-events"
_CHECKS: Final = "list-checks"
_ACTIONS: Final = "list-actions"


def print_events(wanted: Listing, *, only_open: bool, shape: AnswerShape) -> int:
    """Print events; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = events.listed(connection, wanted, only_open=only_open)
        return CommandAnswer(
            body={"events_count": len(found.items), "events": plain(found.items), "before": found.before},
            draw=partial(_events, found),
        )

    return present(_EVENTS, ask, shape)


def print_checks(wanted: Listing, *, shape: AnswerShape) -> int:
    """Print how a service was seen, or all services; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = services.checks(connection, wanted)
            probes = services.probes_of(connection, wanted.service)
        if wanted.service is not None and not found.items and not probes and wanted.before is None:
            message = f"nobody has looked at {wanted.service} in that time; `claudeops list-checks` shows all services"
            return missing("service_not_found", wanted.service, message)
        return CommandAnswer(
            body={
                "service": plain(wanted.service),
                "checks_count": len(found.items),
                "checks": plain(found.items),
                "probes": plain(tuple(probes)),
                "before": found.before,
            },
            draw=partial(_checks, found, probes if wanted.service is not None else (), wanted),
        )

    return present(_CHECKS, ask, shape, target=wanted.service)


def print_actions(wanted: Listing, *, shape: AnswerShape) -> int:
    """Print the ledger of actions, and what is left of the limits; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = services.actions(connection, wanted)
            left = _limits_left(connection, wanted.service, now)
        return CommandAnswer(
            body={
                "actions_count": len(found.items),
                "actions": plain(found.items),
                "limits": plain(tuple(left)),
                "before": found.before,
            },
            draw=partial(_actions, found, left),
        )

    return present(_ACTIONS, ask, shape)


def _limits_left(connection: Connection, service: str | None, now: datetime) -> Sequence[Left]:
    """Return the limits that anything has touched, by the policy in force; only those of a service, if one is named."""
    from claudeops.settings import policy_in_force  # noqa: PLC0415 - the other lists need no policy

    policy = policy_in_force(os.environ, cwd=Path.cwd())
    # What is used and left of a limit follows from these two; the other rules are about what comes next.
    rules = EscalationRules(max_tier=1, dry_run=False, tiers=(), limits=policy.limits, other_names=policy.other_names)
    return services.limits_left(connection, rules, now, service=service)


def session_label(session_id: int | None) -> str:
    """Return a session for a table."""
    return "-" if session_id is None else str(session_id)


# --- text -------------------------------------------------------------------------------------------------


def _events(found: Page[EventEntry], looks: Layout) -> Sequence[str]:
    columns = [
        Column("ID", right=True),
        Column("LEVEL"),
        Column("SEEN"),
        Column("TIMES", right=True, extra=True),
        Column("STATE", extra=True),
        Column("SESSION", right=True, extra=True),
        Column("SERVICE", shrinks=True),
        Column("MESSAGE", shrinks=True),
    ]
    rows = [
        (
            str(event.event_id),
            TableCell(event.level.value, LEVEL_STYLES[event.level] if event.resolved_at is None else Style.QUIET),
            looks.time(event.last_seen),
            str(event.count),
            TableCell("open") if event.resolved_at is None else TableCell("resolved", Style.QUIET),
            session_label(event.last_session_id or event.session_id),
            TableCell(event.service or "-", Style.NAME),
            event.message,
        )
        for event in found.items
    ]
    return [*(table(columns, rows, looks) or ["no events"]), *more(_EVENTS, found.before, looks)]


def _checks(found: Page[CheckEntry], probes: Sequence[ProbeEntry], wanted: Listing, looks: Layout) -> Sequence[str]:
    columns = [
        Column("CHECKED"),
        Column("SERVICE", shrinks=True),
        Column("STATUS"),
        Column("BY"),
        Column("DETAIL", shrinks=True),
    ]
    rows = [
        (
            looks.time(check.checked_at),
            TableCell("" if wanted.service is not None else check.service, Style.NAME),  # an empty column is left out
            status_cell(check.status.value),
            "probe" if check.session_id is None else f"session {check.session_id} (tier {check.tier})",
            check.detail or "-",
        )
        for check in found.items
    ]
    lines = [*(table(columns, rows, looks) or ["no checks"])]
    command = f"{_CHECKS} {wanted.service}" if wanted.service else _CHECKS
    return [*_probes(probes, looks), *lines, *more(command, found.before, looks)]


def _probes(probes: Sequence[ProbeEntry], looks: Layout) -> list[str]:
    columns = [
        Column("PROBE"),
        Column("STATE"),
        Column("SINCE"),
        Column("LOOKED", extra=True),
        Column("TOOK", right=True, extra=True),
        Column("DETAIL", shrinks=True),
    ]
    rows = [
        (
            TableCell(f"{probe.name} ({probe.kind})", Style.NAME),
            status_cell(probe.state.value),
            looks.time(probe.since),
            looks.time(probe.last_checked_at, none="never"),
            "-" if probe.latency_ms is None else f"{probe.latency_ms:.0f} ms",
            probe.detail or "-",
        )
        for probe in probes
    ]
    return [*table(columns, rows, looks), ""] if rows else []


def _actions(found: Page[ActionEntry], left: Sequence[Left], looks: Layout) -> Sequence[str]:
    columns = [
        Column("ID", right=True),
        Column("DONE"),
        Column("ACTION"),
        Column("SERVICE", shrinks=True),
        Column("RESULT", shrinks=True),
        Column("HELD"),
        Column("SESSION", right=True, extra=True),
        Column("CHAIN", right=True, extra=True),
    ]
    rows = [
        (
            str(action.action_id),
            looks.time(action.timestamp),
            action.action_type,
            TableCell(action.service, Style.NAME),
            result_cell(action),
            held_cell(action, looks),
            f"{action.session_id} (tier {action.tier})",
            str(action.chain),
        )
        for action in found.items
    ]
    lines = [*(table(columns, rows, looks) or ["no actions"]), *more(_ACTIONS, found.before, looks)]
    return [*lines, *_limits(left, looks)]


def result_cell(action: ActionEntry) -> TableCell:
    """Return how an action ended."""
    if action.success is None:
        return TableCell(action.error or "not known yet", Style.QUIET)
    return TableCell("done", Style.GOOD) if action.success else TableCell(action.error or "failed", Style.BAD)


def held_cell(action: ActionEntry, looks: Layout) -> TableCell:
    """Return whether what an action was for still holds, as somebody saw later."""
    match action.held:
        case Recheck.HELD:
            return TableCell("held", Style.GOOD)
        case Recheck.RELAPSED:
            return TableCell("relapsed", Style.BAD)
        case Recheck.UNKNOWN:
            return TableCell("unknown", Style.WARN)
        case None if action.follow_up_at is not None:
            return TableCell(f"looks {looks.time(action.follow_up_at)}", Style.QUIET)
        case _:
            return TableCell("-", Style.QUIET)


def _limits(left: Sequence[Left], looks: Layout) -> list[str]:
    columns = [Column("LIMIT"), Column("SERVICE", shrinks=True), Column("USED", right=True), Column("NEXT")]
    rows = [
        (
            one.kind,
            TableCell(one.service, Style.NAME),
            TableCell(f"{one.used} of {one.count}", Style.WARN if one.free_at is not None else Style.PLAIN),
            "now" if one.free_at is None else f"{looks.time(one.free_at)} ({length_of(one.free_at - looks.now)})",
        )
        for one in left
    ]
    return ["", *table(columns, rows, looks)] if rows else ["", f"{count_of(0, 'limit')} touched: every action may run"]
