"""Verification of the audit trail: which rows were changed, removed or inserted after they were written.

Anybody who can write to the whole database can forge all of it. That is why each session's head and seal stand in the
daemon's log as well: given that log, `verify` compares the two. What a passkey has signed cannot be forged with the
database alone: its signature is checked again, and given the approval key also that it is the one that was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import msgspec
from sqlalchemy import Connection, select, text

from claudeops.domain.sessions import Status
from claudeops.policy.audit import row_hash, seal, tombstone_hash
from claudeops.store.access.signatures import has_signatures, signature_faults
from claudeops.store.database import Database
from claudeops.store.rows import TableRow
from claudeops.store.tables.sessions import audit_tombstones, sessions, tool_calls


class FaultKind(StrEnum):
    """What happened to the trail."""

    CHANGED = "changed"  # a row no longer says what it said
    MISSING = "missing"  # a row was removed
    ADDED = "added"  # a row was inserted


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation from what was written."""

    kind: FaultKind
    session_id: int | None
    call_id: int | None  # ``tool_calls.id``; None: the fault concerns no single row
    message: str  # one sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """The marks of a session that the daemon's log holds since its end."""

    audit_head: str
    audit_results: str | None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """How much was checked, and the faults that were found."""

    verified: bool  # there are none
    sessions: int
    calls: int
    tombstones: int
    unproven: bool  # there are signatures of passkeys, and no key to tell whether they were the ones given
    faults: tuple[Deviation, ...]


class AuditTrail:
    """The audit trail of an open database. Only operators verify it, so the engine has no port for it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def verify(
        self,
        *,
        session_id: int | None = None,
        logged: Mapping[int, Logged] | None = None,
        key: bytes | None = None,
    ) -> Verified:
        """Check one session's trail or all of them, and compare it with ``logged``, the marks in the daemon's log.

        ``key`` is the approval key; None: the proofs of answers are not checked.
        """
        return await self._database.read(partial(verify, session_id=session_id, logged=logged, key=key))


def verify(
    connection: Connection,
    *,
    session_id: int | None = None,
    logged: Mapping[int, Logged] | None = None,
    key: bytes | None = None,
) -> Verified:
    """Check one session's trail or all of them within one snapshot."""
    only = sessions.c.id == session_id if session_id is not None else sessions.c.id.is_not(None)
    found = connection.execute(
        select(sessions.c.id, sessions.c.status, sessions.c.audit_head, sessions.c.audit_results)
        .where(only)
        .order_by(sessions.c.id)
    ).all()
    stones = connection.execute(select(audit_tombstones).order_by(audit_tombstones.c.id)).all()
    buried = {stone.session_id: stone for stone in stones}
    calls = _calls(connection, session_id)
    faults = list(_tombstones(stones))
    for row in found:
        faults += _session(row, calls.get(row.id, ()), buried.get(row.id))
    faults += _strays(calls, {row.id for row in found})
    if session_id is None:
        faults += _gone(connection, {row.id for row in found} | buried.keys())
    faults += _signatures(connection, session_id, key)
    marks = {row.id: row for row in found}
    for number, said in sorted((logged or {}).items()):
        if session_id in {None, number}:
            faults += _against_log(number, said, marks.get(number), buried.get(number))
    return Verified(
        verified=not faults,
        sessions=len(found),
        calls=sum(map(len, calls.values())),
        tombstones=len(stones),
        unproven=key is None and has_signatures(connection),
        faults=tuple(faults),
    )


def _calls(connection: Connection, session_id: int | None) -> dict[int, list[TableRow]]:
    query = select(tool_calls).order_by(tool_calls.c.id)
    if session_id is not None:
        query = query.where(tool_calls.c.session_id == session_id)
    calls: defaultdict[int, list[TableRow]] = defaultdict(list)
    for row in connection.execute(query):
        calls[row.session_id].append(row)
    return calls


def _session(row: TableRow, calls: Sequence[TableRow], stone: TableRow | None) -> Iterator[Deviation]:
    if stone is not None:
        for call in calls:
            yield _fault(FaultKind.ADDED, call, "stands in a session whose calls were removed before")
        if stone.audit_head != row.audit_head or stone.audit_results != row.audit_results:
            yield _of_session(FaultKind.CHANGED, row.id, "its head is not the one that its tombstone names")
        return
    faults = [*_contents(calls), *_order(row, calls)]
    yield from faults
    if faults or row.status != Status.ENDED or row.audit_results is None:
        return  # not sealed yet; or ended by a release that sealed nothing
    if seal(calls) != row.audit_results:
        yield _of_session(FaultKind.CHANGED, row.id, "the result of one of its calls was changed")


def _contents(calls: Iterable[TableRow]) -> Iterator[Deviation]:
    for call in calls:
        if row_hash(call) != call.hash:
            yield _fault(FaultKind.CHANGED, call, "no longer says what it said")


def _order(row: TableRow, calls: Sequence[TableRow]) -> Iterator[Deviation]:
    """Walk back from the head along the hashes, then name the calls that the walk did not reach."""
    by_hash = {call.hash: call for call in reversed(calls)}
    walked: set[int] = set()
    wanted, after = row.audit_head, None
    while wanted:
        call = by_hash.get(wanted)
        if call is None or call.id in walked:
            place = "after its last call" if after is None else f"before the call with the id {after.id}"
            yield _of_session(FaultKind.MISSING, row.id, f"a call is missing {place}, or was written anew")
            break
        walked.add(call.id)
        wanted, after = call.previous_hash, call
    # Behind a missing call the walk reaches nothing; the calls before it still form a chain from the beginning.
    walked |= _from_the_beginning(calls) if wanted else set()
    for call in calls:
        if call.id not in walked:
            yield _fault(FaultKind.ADDED, call, "was inserted afterwards")


def _from_the_beginning(calls: Iterable[TableRow]) -> set[int]:
    walked: set[int] = set()
    end = ""
    for call in calls:
        if call.previous_hash == end:
            walked.add(call.id)
            end = call.hash
    return walked


def _strays(calls: Mapping[int, Sequence[TableRow]], known: set[int]) -> Iterator[Deviation]:
    for session_id in sorted(calls.keys() - known):
        for call in calls[session_id]:
            yield _fault(FaultKind.ADDED, call, "belongs to a session that does not exist")


def _gone(connection: Connection, accounted: set[int]) -> Iterator[Deviation]:
    """Name the sessions that existed once and left neither row nor tombstone.

    SQLite only: there every number was used by a committed row, while a PostgreSQL sequence has gaps by nature.
    """
    if connection.dialect.name != "sqlite":
        return
    last = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'")).scalar_one_or_none()
    for session_id in range(1, (last or 0) + 1):
        if session_id not in accounted:
            yield _of_session(FaultKind.MISSING, session_id, "it is gone, and no tombstone says why")


def _signatures(connection: Connection, session_id: int | None, key: bytes | None) -> Iterator[Deviation]:
    for found in signature_faults(connection, session_id, key):
        yield _of_session(FaultKind.MISSING if found.is_missing else FaultKind.CHANGED, found.session_id, found.says)


def _tombstones(stones: Iterable[TableRow]) -> Iterator[Deviation]:
    end = ""
    for stone in stones:
        if tombstone_hash(stone) != stone.hash:
            yield _of_session(FaultKind.CHANGED, stone.session_id, "its tombstone no longer says what it said")
        elif stone.previous_hash != end:
            yield _of_session(FaultKind.MISSING, stone.session_id, "a tombstone is missing before its own")
        end = stone.hash


def _against_log(session_id: int, said: Logged, row: TableRow | None, stone: TableRow | None) -> Iterator[Deviation]:
    marks = row or stone
    if marks is None:
        yield _of_session(FaultKind.MISSING, session_id, "the log knows it, and neither row nor tombstone does")
    elif marks.audit_head != said.audit_head:
        yield _of_session(FaultKind.CHANGED, session_id, "its calls do not end in the head that the log has")
    elif said.audit_results is not None and marks.audit_results != said.audit_results:
        yield _of_session(FaultKind.CHANGED, session_id, "the results of its calls are not those that the log has")


def _fault(kind: FaultKind, call: TableRow, what: str) -> Deviation:
    message = (
        f"session {call.session_id}: the call with the id {call.id} ({call.tool_name}, {call.tool_use_id}) {what}."
    )
    return Deviation(kind=kind, session_id=call.session_id, call_id=call.id, message=message)


def _of_session(kind: FaultKind, session_id: int, what: str) -> Deviation:
    return Deviation(kind=kind, session_id=session_id, call_id=None, message=f"session {session_id}: {what}.")
