"""Verification of the audit trail: which rows were changed, removed or inserted after they were written.

Anybody who can write to the whole database can forge all of it. That is why each session's head and seal stand in the
daemon's log as well: given that log, `verify` compares the two. What a passkey has signed cannot be forged with the
database alone: its signature is checked again, and given the approval key also that it is the one that was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, func, select, text

from claudeops.domain.sessions import Status
from claudeops.policy.audit import row_hash, seal, tombstone_hash
from claudeops.store.access.signatures import has_signatures, last_answer, signature_faults
from claudeops.store.database import Database
from claudeops.store.rows import TableRow
from claudeops.store.tables.columns import UtcDateTime
from claudeops.store.tables.sessions import audit_tombstones, budget_entries, sessions, settled_sums, tool_calls


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


class Logged(msgspec.Struct, frozen=True, kw_only=True):
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
        progress: Callable[[int, int], None] | None = None,
    ) -> Verified:
        """Check one session's trail or all of them, and compare it with ``logged``, the marks in the daemon's log.

        ``key`` is the approval key; None: the proofs of answers are not checked. ``progress`` is called now and then
        with how many sessions and calls were checked.

        Each page is read on a snapshot of its own, so that no reader keeps SQLite's log from being cut for long. What
        is written or removed meanwhile is no fault: a session is checked together with its calls and its tombstone,
        and tombstones last.
        """
        verification = _Verification(session_id=session_id, logged=logged or {}, key=key)
        while not await self._database.read(verification.step):
            if progress is not None:
                progress(verification.sessions, verification.calls)
        return verification.result()


def verify(
    connection: Connection,
    *,
    session_id: int | None = None,
    logged: Mapping[int, Logged] | None = None,
    key: bytes | None = None,
) -> Verified:
    """Check one session's trail or all of them within one snapshot."""
    verification = _Verification(session_id=session_id, logged=logged or {}, key=key)
    while not verification.step(connection):
        pass
    return verification.result()


_PAGE: Final = 200  # numbers of sessions, of answers, sums of money, and five times as many tombstones
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_USD: Final = 1e-6  # SQLite adds floating point


class _Verification(msgspec.Struct, kw_only=True):
    """A verification under way: how far it is, and what it has found."""

    session_id: int | None
    logged: Mapping[int, Logged]
    key: bytes | None
    sessions: int = 0
    calls: int = 0
    tombstones: int = 0
    unproven: bool = False
    _steps: Generator[None, Connection, None] | None = None
    _of_stones: list[Deviation] = msgspec.field(default_factory=list)
    _of_sessions: list[Deviation] = msgspec.field(default_factory=list)
    _strays: list[Deviation] = msgspec.field(default_factory=list)
    _gone: list[Deviation] = msgspec.field(default_factory=list)
    _of_signatures: list[Deviation] = msgspec.field(default_factory=list)
    _of_log: list[Deviation] = msgspec.field(default_factory=list)
    _of_sums: list[Deviation] = msgspec.field(default_factory=list)

    def step(self, connection: Connection) -> bool:
        """Check the next page; ``True``: that was all. Each step may have another connection."""
        if self._steps is None:
            self._steps = self._all()
            next(self._steps)
        try:
            self._steps.send(connection)
        except StopIteration:
            return True
        return False

    def result(self) -> Verified:
        """Return what was found, once all steps are done."""
        of_trail = (*self._of_stones, *self._of_sessions, *self._strays, *self._gone)
        faults = (*of_trail, *self._of_signatures, *self._of_log, *self._of_sums)
        return Verified(
            verified=not faults,
            sessions=self.sessions,
            calls=self.calls,
            tombstones=self.tombstones,
            unproven=self.unproven,
            faults=faults,
        )

    def _all(self) -> Generator[None, Connection, None]:
        """Check page after page; each is sent the connection that it is to use."""
        connection = yield
        if self.session_id is not None:
            self._check_range(connection, self.session_id - 1, self.session_id)
            connection = yield
        else:
            highest = _highest(connection, self.logged)
            for first in range(0, highest, _PAGE):
                self._check_range(connection, first, min(first + _PAGE, highest))
                connection = yield
            self._check_range(connection, highest, None)  # what has come since
            connection = yield
        self.unproven = self.key is None and has_signatures(connection)
        for first in range(0, last_answer(connection), _PAGE):
            self._check_signatures(connection, first, first + _PAGE)
            connection = yield
        stones = self._check_tombstones(connection, "", 0)
        while stones is not None:
            connection = yield
            stones = self._check_tombstones(connection, stones.hash, stones.id)
        after: datetime | None = _LONG_AGO if self.session_id is None else None
        while after is not None:
            connection = yield
            after = self._check_sums(connection, after)

    def _check_range(self, connection: Connection, above: int, up_to: int | None) -> None:
        """Check the sessions with numbers ``above`` one and ``up_to`` another; ``None``: all further ones."""
        columns = (sessions.c.id, sessions.c.status, sessions.c.audit_head, sessions.c.audit_results)
        rows = connection.execute(select(*columns).where(_within(sessions.c.id, above, up_to))).all()
        found = {row.id: row for row in rows}
        stones = select(audit_tombstones).where(_within(audit_tombstones.c.session_id, above, up_to))
        stones = stones.order_by(audit_tombstones.c.session_id, audit_tombstones.c.id)
        buried = {stone.session_id: stone for stone in connection.execute(stones)}
        calls = _calls(connection, above, up_to)
        self.sessions += len(found)
        self.calls += sum(map(len, calls.values()))
        for number in sorted(found):
            self._of_sessions += _session(found[number], calls.get(number, ()), buried.get(number))
        self._strays += _strays(calls, set(found))
        if self.session_id is None:
            self._gone += _gone(connection, found.keys() | buried.keys(), above, up_to)
        for number, said in sorted(self.logged.items()):
            if number > above and (up_to is None or number <= up_to):
                self._of_log += _against_log(number, said, found.get(number), buried.get(number))

    def _check_signatures(self, connection: Connection, above: int, up_to: int) -> None:
        for found in signature_faults(connection, self.session_id, self.key, above=above, up_to=up_to):
            kind = FaultKind.MISSING if found.is_missing else FaultKind.CHANGED
            self._of_signatures.append(_of_session(kind, found.session_id, found.says))

    def _check_tombstones(self, connection: Connection, end: str, last: int) -> TableRow | None:
        """Check the next tombstones, after one with a hash and an id; return the last of them, if there are any."""
        page = select(audit_tombstones).where(audit_tombstones.c.id > last).order_by(audit_tombstones.c.id)
        stones = connection.execute(page.limit(_PAGE * 5)).all()
        self._of_stones += _tombstones(stones, end)
        self.tombstones += len(stones)
        return stones[-1] if stones else None

    def _check_sums(self, connection: Connection, after: datetime) -> datetime | None:
        """Compare the next sums, behind one, with the entries up to the sum that follows; return the last of them."""
        buckets = settled_sums.c.bucket
        page = select(settled_sums).where(buckets > after).order_by(buckets).limit(_PAGE)
        found = connection.execute(page).all()
        if not found and after != _LONG_AGO:
            return None
        noted = {after: 0.0} if after == _LONG_AGO else {}  # before the first sum nothing was settled
        noted |= {row.bucket: float(row.amount_usd) for row in found}
        ends = [*list(noted)[1:], _following(connection, found[-1].bucket) if found else None]
        for (begin, noted_usd), end in zip(noted.items(), ends, strict=True):
            booked_usd = _settled(connection, begin, end)
            if abs(noted_usd - booked_usd) > _LEAST_USD:
                self._of_sums.append(_of_sum(begin, noted_usd, booked_usd))
        return found[-1].bucket if found else None


def _following(connection: Connection, bucket: datetime) -> datetime | None:
    """Return the next quarter of an hour in which anything was settled; ``None``: there is none."""
    later = select(func.min(settled_sums.c.bucket, type_=UtcDateTime())).where(settled_sums.c.bucket > bucket)
    found: datetime | None = connection.execute(later).scalar_one()
    return found


def _settled(connection: Connection, begin: datetime, end: datetime | None) -> float:
    """Return the sum of what was settled from one moment up to another; ``None``: ever since."""
    entries = budget_entries.c
    query = select(func.coalesce(func.sum(entries.amount_usd), 0.0))
    query = query.where(entries.kind == "settled", entries.created_at >= begin)
    return float(connection.execute(query if end is None else query.where(entries.created_at < end)).scalar_one())


def _of_sum(bucket: datetime, noted_usd: float, booked_usd: float) -> Deviation:
    message = (
        f"budgets count {noted_usd:.6f} USD as settled in the quarter of an hour from {bucket:%Y-%m-%d %H:%M} UTC on, "
        f"and the entries up to the next sum are {booked_usd:.6f} USD: correct settled_sums, or put a backup in place."
    )
    return Deviation(kind=FaultKind.CHANGED, session_id=None, call_id=None, message=message)


def _within(column: Column[int], above: int, up_to: int | None) -> ColumnElement[bool]:
    return column > above if up_to is None else (column > above) & (column <= up_to)


def _highest(connection: Connection, logged: Mapping[int, Logged]) -> int:
    """Return the highest number of a session that anything on record names."""
    named = (sessions.c.id, audit_tombstones.c.session_id, tool_calls.c.session_id)
    known = [connection.execute(select(func.max(column))).scalar() or 0 for column in named]
    return max(*known, *logged, _last_used(connection), 0)


def _last_used(connection: Connection) -> int:
    """Return the last number that a session got; 0 where the database does not keep it."""
    if connection.dialect.name != "sqlite":
        return 0
    query = text("SELECT seq FROM sqlite_sequence WHERE name = 'sessions'")
    return connection.execute(query).scalar_one_or_none() or 0


def _calls(connection: Connection, above: int, up_to: int | None) -> dict[int, list[TableRow]]:
    within = _within(tool_calls.c.session_id, above, up_to)
    query = select(tool_calls).where(within).order_by(tool_calls.c.session_id, tool_calls.c.id)
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


def _gone(connection: Connection, accounted: AbstractSet[int], above: int, up_to: int | None) -> Iterator[Deviation]:
    """Name the sessions of a range that existed once and left neither row nor tombstone.

    SQLite only: there every number was used by a committed row, while a PostgreSQL sequence has gaps by nature.
    """
    last = _last_used(connection)
    for session_id in range(above + 1, (last if up_to is None else min(last, up_to)) + 1):
        if session_id not in accounted:
            yield _of_session(FaultKind.MISSING, session_id, "it is gone, and no tombstone says why")


def _tombstones(stones: Iterable[TableRow], end: str) -> Iterator[Deviation]:
    """Check some tombstones, the first of which follows one with the hash ``end``."""
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
