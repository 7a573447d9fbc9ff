"""Two chains beside each other: which calls both made, what came of them, and where they part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, func, select

from claudeops.domain.calls import VerdictKind
from claudeops.domain.sessions import DecisionReason, Outcome
from claudeops.policy.shell import parse
from claudeops.policy.shell.language import UnclearError
from claudeops.policy.shell.render import render
from claudeops.store.reading.chains import ChainTree, Raised, chain_of, tree
from claudeops.store.rows import TableRow
from claudeops.store.tables.daemon import schedule_fires
from claudeops.store.tables.sessions import sessions, tool_calls
from claudeops.text.alignment import align

MOST: Final = 300
"""Rows of calls of a chain, the first ones; a call that a person answered has two."""

_SHELL: Final = "Bash"
_MOST_TEXT: Final = 2000  # characters of a call
_LOOKED_BACK: Final = 10_000  # sessions
_SLOWER: Final = 2.0  # times as long
_SLOWER_BY: Final = timedelta(seconds=1)

Spelling = Callable[[str, str], str]
"""From a tool and its input as JSON to a text that is the same for calls that are the same."""


class CallResult(StrEnum):
    """What came of a call."""

    NOT_RUN = "not_run"
    WORKED = "worked"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it may run still, or its result was not seen


class Difference(StrEnum):
    """In what a call of two chains differs."""

    VERDICT = "verdict"
    RESULT = "result"
    DURATION = "duration"  # one took twice as long as the other, and a second more


class DiffCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as one of two chains made it."""

    session_id: int
    tier: int
    tool_name: str
    text: str  # the command, or the input as JSON; redacted, at most 2,000 characters
    verdict: VerdictKind
    reason: str
    result: CallResult
    duration_ms: int | None  # from the verdict to the result


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of both chains, or of one."""

    first: DiffCall | None  # None: only the second chain made it
    second: DiffCall | None
    differs: tuple[Difference, ...]  # of a call that both made


class DiffChain(msgspec.Struct, frozen=True, kw_only=True):
    """One of two chains."""

    chain: int
    trigger: str | None
    created_at: datetime | None
    tiers: tuple[int, ...]  # of its sessions, in order
    outcome: Outcome | None  # of its last session
    decision_reason: DecisionReason | None
    cost_usd: float | None
    duration_ms: int | None  # of its sessions together
    calls: int  # that are compared
    calls_left_out: int  # rows of calls behind those
    events: tuple[Raised, ...]


class ChainDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two chains beside each other."""

    first: DiffChain
    second: DiffChain
    divergence: int | None  # the place of the first row in which they part; None: in none
    same: int  # calls of both, with the same verdict and result
    different: int
    only_first: int
    only_second: int
    as_written: bool  # commands are compared as written: reading them would have taken too long
    rows: tuple[DiffRow, ...]


class ChainCallsMade(msgspec.Struct, frozen=True, kw_only=True):
    """A chain, and the calls that it made in order."""

    chain: DiffChain
    calls: tuple[DiffCall, ...]
    inputs: tuple[tuple[str, str], ...]  # tool and input of each, whole


def made_by(connection: Connection, number: int) -> ChainCallsMade | None:
    """Return what a chain did; None: there is no such chain."""
    if chain_of(connection, number) != number:
        return None
    columns = tool_calls.c
    of_chain = sessions.c.root_session_id == number
    joined = tool_calls.join(sessions, sessions.c.id == columns.session_id)
    query = select(tool_calls, sessions.c.tier).select_from(joined).where(of_chain).order_by(columns.id)
    rows = connection.execute(query.limit(MOST)).all()
    count = connection.execute(select(func.count()).select_from(joined).where(of_chain)).scalar_one()
    # The answer of a person stands in the place of the question.
    found = tuple({(row.session_id, row.tool_use_id): row for row in rows}.values())
    return ChainCallsMade(
        chain=_chain(tree(connection, number), calls=len(found), left_out=count - len(rows)),
        calls=tuple(_call(row) for row in found),
        inputs=tuple((row.tool_name, row.input) for row in found),
    )


def chain_before(connection: Connection, number: int) -> int | None:
    """Return the chain before one, of the same schedule, or else of the same trigger; None: there is none."""
    fires, columns = schedule_fires.c, sessions.c
    schedule = connection.execute(select(fires.schedule).where(fires.session_id == number)).scalar()
    if schedule is not None:
        query = select(func.max(fires.session_id)).where(fires.schedule == schedule, fires.session_id < number)
    else:
        trigger = select(columns.trigger).where(columns.id == number).scalar_subquery()
        near = columns.id.between(number - _LOOKED_BACK, number - 1)
        like = (near, columns.root_session_id == columns.id, columns.trigger == trigger)
        query = select(func.max(columns.id)).where(*like)
    return connection.execute(query).scalar()


def compare(
    first: ChainCallsMade, second: ChainCallsMade, *, spelling: Spelling, is_as_written: bool = False
) -> ChainDiff:
    """Return two chains beside each other; calls of the same spelling are the same call."""
    pairs = align([spelling(*one) for one in first.inputs], [spelling(*one) for one in second.inputs])
    rows = tuple(
        _row(None if left is None else first.calls[left], None if right is None else second.calls[right])
        for left, right in pairs
    )
    both = [row for row in rows if row.first and row.second]
    parted = [place for place, row in enumerate(rows) if _parts(row)]
    return ChainDiff(
        first=first.chain,
        second=second.chain,
        divergence=parted[0] if parted else None,
        same=sum(not _parts(row) for row in both),
        different=sum(_parts(row) for row in both),
        only_first=sum(row.second is None for row in rows),
        only_second=sum(row.first is None for row in rows),
        as_written=is_as_written,
        rows=rows,
    )


def canonical(tool: str, given: str) -> str:
    """Return a call in the one spelling that all of its spellings have; takes as long as reading a hostile command.

    A command that cannot be read is itself, without spaces around it.
    """
    command = _command(tool, given)
    if command is None:
        return as_written(tool, given)
    found = parse(command)
    if found.problem or found.refusal:
        return as_written(tool, given)
    try:
        return f"{tool} {render(found.block, {one.number: one for one in found.commands}, bash=True)}"
    except UnclearError:
        return as_written(tool, given)


def as_written(tool: str, given: str) -> str:
    """Return a call as it was written, by its command, or by its input with sorted names."""
    command = _command(tool, given)
    return f"{tool} {command.strip()}" if command is not None else f"{tool} {_sorted(given)}"


def _command(tool: str, given: str) -> str | None:
    """Return the command of a call of the shell; None: it has none."""
    value = _value(given) if tool == _SHELL else None
    command = value.get("command") if isinstance(value, dict) else None
    return command if isinstance(command, str) else None


def _value(given: str) -> Any:
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given


def _sorted(given: str) -> str:
    try:
        return json.dumps(_value(given), sort_keys=True)
    except (ValueError, RecursionError):
        return given


def _parts(row: DiffRow) -> bool:
    """Return whether two chains part here; how long a call took does not part them."""
    return row.first is None or row.second is None or bool({*row.differs} - {Difference.DURATION})


def _row(first: DiffCall | None, second: DiffCall | None) -> DiffRow:
    differs: list[Difference] = []
    if first is not None and second is not None:
        differs += [Difference.VERDICT] if first.verdict is not second.verdict else []
        differs += [Difference.RESULT] if first.result is not second.result else []
        differs += [Difference.DURATION] if _is_slower(first.duration_ms, second.duration_ms) else []
    return DiffRow(first=first, second=second, differs=tuple(differs))


def _is_slower(first: int | None, second: int | None) -> bool:
    if first is None or second is None:
        return False
    shorter, longer = sorted((first, second))
    return longer >= shorter * _SLOWER and timedelta(milliseconds=longer - shorter) >= _SLOWER_BY


def _call(row: TableRow) -> DiffCall:
    duration = None if row.ended_at is None else row.ended_at - row.decided_at
    command = _command(row.tool_name, row.input)
    return DiffCall(
        session_id=row.session_id,
        tier=row.tier,
        tool_name=row.tool_name,
        text=(row.input if command is None else command)[:_MOST_TEXT],
        verdict=VerdictKind(row.verdict),
        reason=row.reason,
        result=_result(row),
        duration_ms=None if duration is None else max(0, round(duration / timedelta(milliseconds=1))),
    )


def _result(row: TableRow) -> CallResult:
    if row.verdict != VerdictKind.ALLOW.value:
        return CallResult.NOT_RUN
    if row.ended_at is None or row.is_error is None:
        return CallResult.UNKNOWN
    return CallResult.FAILED if row.is_error else CallResult.WORKED


def _chain(shown: ChainTree, *, calls: int, left_out: int) -> DiffChain:
    durations: Sequence[int] = [one.duration_ms for one in shown.sessions if one.duration_ms is not None]
    return DiffChain(
        chain=shown.chain,
        trigger=shown.sessions[0].trigger if shown.sessions else None,
        created_at=shown.sessions[0].created_at if shown.sessions else None,
        tiers=tuple(one.tier for one in shown.sessions),
        outcome=shown.sessions[-1].outcome if shown.sessions else None,
        decision_reason=shown.decision_reason,
        cost_usd=shown.cost_usd,
        duration_ms=sum(durations) if durations else None,
        calls=calls,
        calls_left_out=left_out,
        events=tuple(event for one in shown.sessions for event in one.events),
    )
