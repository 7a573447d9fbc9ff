"""What is on record for a session's prompt: limits used, last verdicts, earlier cases, and what its chain has tried.

Everything is read in one transaction, before the session starts. The queries are bounded: some services, some chains of
each, the newest first.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from claudeops.domain.actions import NO_RESULT_SEEN, TOO_LATE, PastAction
from claudeops.domain.calls import VerdictKind
from claudeops.domain.cases import LOOKED_BACK, Case, History, PastChain, cases_of
from claudeops.domain.chains import cooldown
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.service_names import counted_by
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import STATUS_OF, worst
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.report.report import CheckSource, ServiceStatus
from claudeops.domain.sessions import Session
from claudeops.store import action_ledger, queries
from claudeops.store.rows import TableRow, to_handover, to_past_action, to_past_check
from claudeops.store.tables.events import events
from claudeops.store.tables.probes import probes
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions, tool_calls
from claudeops.structs import replace
from claudeops.text import casefold_key, clip, one_line
from claudeops.wording.prompt.knowledge import EarlierCall, KnownFacts, LastVerdict

_NO_CHAIN: Final = 0
"""The chain of whoever reads the cases without being a session."""

_MOST_SERVICES: Final = 8  # of which a prompt tells cases
_MOST_ROWS: Final = 400  # of one kind about all of them
_MOST_TRIED: Final = 20
_MOST_FOLLOWED: Final = 12  # actions on a service of which the next check is looked for
_LAST_SEEN_WITHIN: Final = timedelta(days=30)
_RECENTLY: Final = timedelta(days=14)

_ROOT: Final = sessions.c.root_session_id
_HEALTHY: Final = ServiceStatus.HEALTHY.value
_LAST_VERDICTS: Final = (
    select(service_checks)
    .where(service_checks.c.id.in_(queries.latest_checks()), service_checks.c.checked_at > bindparam("since"))
    .order_by(service_checks.c.checked_at, service_checks.c.id)
)
_LOOKS: Final = select(probes).where(probes.c.last_checked_at > bindparam("since")).order_by(probes.c.last_checked_at)
_ACTED_ON: Final = select(cooldown_actions.c.service).where(cooldown_actions.c.timestamp > bindparam("since"))
_ENTRIES: Final = (
    select(cooldown_actions, _ROOT)
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(cooldown_actions.c.service.in_(bindparam("names", expanding=True)), bindparam("root") != _ROOT)
    .where(cooldown_actions.c.timestamp > bindparam("since"))
    .order_by(cooldown_actions.c.id.desc())
    .limit(_MOST_ROWS)
)
_CHECKS: Final = (
    select(service_checks, _ROOT)
    .outerjoin(sessions, sessions.c.id == service_checks.c.session_id)
    .where(service_checks.c.service.in_(bindparam("names", expanding=True)))
    .where(service_checks.c.checked_at > bindparam("since"), func.coalesce(_ROOT, 0) != bindparam("root"))
)
_UNWELL: Final = (
    _CHECKS.where(service_checks.c.status != _HEALTHY).order_by(service_checks.c.id.desc()).limit(_MOST_ROWS)
)
_OF_CHAINS: Final = (
    _CHECKS.where(_ROOT.in_(bindparam("roots", expanding=True))).order_by(service_checks.c.id.desc()).limit(_MOST_ROWS)
)
_NEXT: Final = (
    _CHECKS.where(service_checks.c.checked_at > bindparam("after"))
    .order_by(service_checks.c.checked_at, service_checks.c.id)
    .limit(1)
)
_CHAINS: Final = (
    select(_ROOT, sessions.c.created_at, sessions.c.context)
    .where(_ROOT.in_(bindparam("roots", expanding=True)))
    .order_by(sessions.c.id)
)
_OWN_EVENTS: Final = (
    select(events.c.fingerprint)
    .join(sessions, or_(sessions.c.id == events.c.session_id, sessions.c.id == events.c.last_session_id))
    .where(bindparam("root") == _ROOT)
)
_SAME_EVENTS: Final = (
    select(_ROOT, events.c.service)
    .join(sessions, sessions.c.id == events.c.session_id)
    .where(events.c.fingerprint.in_(bindparam("fingerprints", expanding=True)), bindparam("root") != _ROOT)
    .order_by(events.c.id.desc())
    .limit(_MOST_ROWS)
)
_BEFORE: Final = and_(bindparam("root") == _ROOT, sessions.c.id < bindparam("session"))
_TRIED_ACTIONS: Final = (
    select(cooldown_actions)
    .join(sessions, sessions.c.id == cooldown_actions.c.session_id)
    .where(_BEFORE, cooldown_actions.c.error.is_distinct_from(TOO_LATE))
    .order_by(cooldown_actions.c.id.desc())
    .limit(_MOST_TRIED)
)
_DENIED: Final = (
    select(tool_calls)
    .join(sessions, sessions.c.id == tool_calls.c.session_id)
    .where(_BEFORE, tool_calls.c.verdict == VerdictKind.DENY.value)
    .order_by(tool_calls.c.id.desc())
    .limit(_MOST_TRIED)
)


def on_record(
    connection: Connection,
    *,
    session: Session,
    about: Sequence[str],
    kinds: Iterable[str],
    rules: EscalationRules,
    now: datetime,
) -> KnownFacts:
    """Return what a session that is about to start should know.

    ``about`` are the services of its chain; without any, cases are told of those that are unwell or were acted upon
    lately. ``kinds`` are the kinds of action that its tier grants.
    """
    services = about or _noteworthy(connection, rules, now)
    return KnownFacts(
        cooldowns=cooldown.left(action_ledger.counted(connection, rules, now), kinds, rules.limits, now),
        last_verdicts=_last_verdicts(connection, rules, now),
        cases=_cases(connection, session.root_session_id, services, rules=rules, now=now),
        tried=_tried(connection, session),
    )


def cases_about(connection: Connection, service: str, *, rules: EscalationRules, now: datetime) -> tuple[Case, ...]:
    """Return the earlier cases of a service, under whichever of its names, as a session about it is given them."""
    return _cases(connection, _NO_CHAIN, (service,), rules=rules, now=now)


def _noteworthy(connection: Connection, rules: EscalationRules, now: datetime) -> tuple[str, ...]:
    acted_on = connection.execute(_ACTED_ON, {"since": now - _RECENTLY}).scalars()
    return tuple(dict.fromkeys((*queries.unhealthy_services(connection, rules.other_names), *sorted(acted_on))))


def _last_verdicts(connection: Connection, rules: EscalationRules, now: datetime) -> tuple[LastVerdict, ...]:
    """Return how each service was last seen by any of its names, and how its probes see it where they differ.

    A look of a probe that changes nothing is in no row of its own, only in the probe's. It counts as the last sight
    where a session said the same; what a session found worse or better stays beside it.
    """
    counted, since = counted_by(rules.other_names), {"since": now - _LAST_SEEN_WITHIN}
    last: dict[str, LastVerdict] = {}
    for row in connection.execute(_LAST_VERDICTS, since):
        name = counted(row.service)
        last[casefold_key(name)] = LastVerdict(
            service=name,
            status=ServiceStatus(row.status),
            detail=row.detail,
            at=row.checked_at,
            by_probe=row.source == CheckSource.PROBE.value,
        )
    looks: defaultdict[str, list[TableRow]] = defaultdict(list)
    for row in connection.execute(_LOOKS, since):
        looks[casefold_key(counted(row.service))].append(row)
    beside = []
    for key, rows in looks.items():
        seen, before = _seen_by(rows, counted(rows[0].service)), last.get(key)
        if seen is None or (before is not None and before.at > seen.at):
            continue
        if before is None or before.by_probe or before.status is seen.status:
            last[key] = seen
        else:
            beside.append(seen)
    return tuple(sorted((*last.values(), *beside), key=lambda each: (casefold_key(each.service), each.by_probe)))


def _seen_by(rows: Sequence[TableRow], service: str) -> LastVerdict | None:
    """Return how the probes of a service see it, as of the oldest look that says so; the rows begin with that."""
    status = worst(ProbeState(row.state) for row in rows)
    row = next((row for row in rows if STATUS_OF.get(ProbeState(row.state)) is status), None)
    if status is None or row is None:
        return None
    detail = f"{row.name}: {row.detail}" if row.detail else row.name
    return LastVerdict(service=service, status=status, detail=detail, at=row.last_checked_at, by_probe=True)


# --- cases ------------------------------------------------------------------------------------------------


def _cases(
    connection: Connection, root: int, services: Sequence[str], *, rules: EscalationRules, now: datetime
) -> tuple[Case, ...]:
    """Return the cases of the services, and of those that met the same conditions under another name."""
    names = KnownServices(rules.other_names, clip)
    same = _same_condition(connection, root)
    wanted: dict[str, set[str]] = {}
    for name in (*services, *(name for name in same.values() if name)):
        wanted.setdefault(names.of(name), set()).add(name)
    found: list[Case] = []
    for name, written in list(wanted.items())[:_MOST_SERVICES]:
        spellings = _spellings(name, written, names, rules)
        history = _history(connection, spellings, root=root, same=frozenset(same), since=now - LOOKED_BACK)
        found += cases_of(history, now)
    return tuple(sorted(found, key=lambda case: (not case.same_condition, -case.began.timestamp())))


def _same_condition(connection: Connection, root: int) -> dict[int, str | None]:
    """Return the earlier chains that raised an event which the present one has raised too, with its service."""
    own = set(connection.execute(_OWN_EVENTS, {"root": root}).scalars())
    if not own:
        return {}
    rows = connection.execute(_SAME_EVENTS, {"fingerprints": sorted(own), "root": root})
    return {row.root_session_id: row.service for row in rows}


def _spellings(name: str, written: set[str], names: KnownServices, rules: EscalationRules) -> tuple[str, ...]:
    """Return the names under which a service may stand in rows, the one that it is counted by first."""
    pairs = [(other, counted) for other, counted in rules.other_names.items() if names.of(counted) == name]
    counted = [counted for _, counted in pairs] or sorted(written)
    return tuple(dict.fromkeys((*counted, *sorted(written), *(other for other, _ in pairs), name)))


def _history(
    connection: Connection, spellings: Sequence[str], *, root: int, same: frozenset[int], since: datetime
) -> History:
    asked = {"names": list(spellings), "root": root, "since": since}
    entries = connection.execute(_ENTRIES, asked).all()
    unwell = connection.execute(_UNWELL, asked).all()
    roots = sorted({row.root_session_id for row in (*entries, *unwell) if row.root_session_id is not None})
    checks = {*unwell, *connection.execute(_OF_CHAINS, {**asked, "roots": roots})}
    for entry in entries[:_MOST_FOLLOWED]:  # who looked next may have been another chain, or a probe
        checks.update(connection.execute(_NEXT, {**asked, "after": entry.timestamp}))
    return History(
        service=spellings[0],
        chains=_past_chains(connection, roots, same),
        entries=tuple(
            replace(to_past_action(row), chain=row.root_session_id)
            for row in reversed(entries)
            if row.error != TOO_LATE
        ),
        checks=tuple(
            replace(to_past_check(row), chain=row.root_session_id)
            for row in sorted(checks, key=lambda row: row.checked_at)
        ),
    )


def _past_chains(connection: Connection, roots: Sequence[int], same: frozenset[int]) -> tuple[PastChain, ...]:
    began: dict[int, datetime] = {}
    reasons: dict[int, str] = {}
    for row in connection.execute(_CHAINS, {"roots": list(roots)}):
        began.setdefault(row.root_session_id, row.created_at)
        if (handover := to_handover(row.context)) is not None:
            reasons.setdefault(row.root_session_id, handover.reason)
    return tuple(
        PastChain(chain=root, began=began[root], reason=reasons.get(root), same_condition=root in same)
        for root in roots
        if root in began
    )


# --- the chain itself -------------------------------------------------------------------------------------


def _tried(connection: Connection, session: Session) -> tuple[EarlierCall, ...]:
    """Return the actions and the denied calls of the chain's earlier sessions, oldest first, each once."""
    if session.id == session.root_session_id:
        return ()
    before = {"root": session.root_session_id, "session": session.id}
    actions = [
        EarlierCall(session_id=action.session_id, what=f"{action.kind} of {action.service}", result=_result(action))
        for action in map(to_past_action, connection.execute(_TRIED_ACTIONS, before))
    ]
    denied = [
        EarlierCall(
            session_id=row.session_id, what=_call(row.tool_name, row.input), result=f"denied: {one_line(row.reason)}"
        )
        for row in connection.execute(_DENIED, before)
    ]
    return tuple(dict.fromkeys((*reversed(actions), *reversed(denied))))


def _result(action: PastAction) -> str:
    if action.success:
        return "succeeded"
    if action.worked is None:
        return NO_RESULT_SEEN
    return f"failed{f' ({one_line(action.error)})' if action.error else ''}"


def _call(tool: str, redacted_input: str) -> str:
    """Return a call as a person writes it: the command of a Bash call, the input of any other."""
    try:
        given = json.loads(redacted_input)
    except ValueError:
        given = None
    command = given.get("command") if isinstance(given, dict) else None
    return f"{tool} {one_line(command if isinstance(command, str) else redacted_input)}"
