"""Copies a whole database from SQLite to PostgreSQL: in pages, resumable, and compared row by row at the end.

Only in this direction: SQLite knows each number that a session ever had, and its audit trail misses those that a
sequence of PostgreSQL leaves out.

The source is locked for writing as long as this runs, so that it is the copy of one moment. The first step reads all of
it: what PostgreSQL would not take is found before the night is over, and its digest is the mark that stands in the
target, in the place of its revision, until every row was compared. A run that finds its own mark goes on: a table's
pages are written in the order of its keys, so that the number of its rows says where. A run that finds the mark of
another content writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import Table
from sqlalchemy.engine import URL

from claudeops.errors import ConfigurationError
from claudeops.store.connection.engines import border, parse_url, shown, sqlite_file, writing_engine
from claudeops.store.copying.source import TABLES, CopySource, Row, key_places, name_of
from claudeops.store.copying.target import CopyTarget
from claudeops.store.locks import hold_database
from claudeops.store.migrate import COPY_MARK, require_head
from claudeops.store.tables import HEAD
from claudeops.store.verify import Verified, verify

Progress = Callable[[str, str, int, int | None], None]
"""Called after each page: what is done, with which table, and how many of how many of its rows; None: not known yet."""

PAGE: Final = 500  # rows
_MOST_NAMED: Final = 20  # differences


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was copied."""

    name: str
    rows: int
    before: int  # of these, the rows that an earlier run had copied


class RowDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is not the same on both sides."""

    table: str
    row: str  # its key, in words
    message: str  # one sentence


class DatabaseCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    source: str
    target: str
    tables: Sequence[CopiedTable]
    differences: Sequence[RowDifference]  # the first of them; empty: the target is ready
    differ: int  # how many there are
    audit: Verified  # the target's trail; its faults are those of the source, unless there are differences


def copy_database(
    source_url: str,
    target_url: str,
    *,
    migrations_dir: Path,
    progress: Progress,
    restart: bool = False,
    key: bytes | None = None,
    page: int = PAGE,
) -> DatabaseCopy:
    """Copy a database, or go on with it, and compare all of it; with ``restart`` begin anew. Blocks for long.

    ``key`` is the approval key, for the audit trail. Raises `ConfigurationError` (an address, a revision, a row that
    cannot be copied, a target that holds something else), `AlreadyRunningError` (a daemon runs on either side),
    `DatabaseUnavailableError` or `StoreError`.
    """
    source, target = _both(source_url, target_url)
    require_head(source)
    with ExitStack() as held:
        held.enter_context(hold_database(source_url))
        still_held = held.enter_context(hold_database(target_url))
        copying = _Copying(
            source=held.enter_context(_locked(source, page=page)),
            target=CopyTarget(target),
            progress=progress,
            still_held=still_held,
        )
        held.callback(copying.target.close)
        copying.begin(migrations_dir, restart=restart)
        before = copying.target.counts()
        tables = [copying.copy(table, before[table.name]) for table in TABLES]
        copying.target.set_last_ids(copying.source.last_ids())
        copying.compare()
        audit = copying.finish(key)
        return DatabaseCopy(
            source=shown(source),
            target=shown(target),
            tables=tables,
            audit=audit,
            differences=copying.differences,
            differ=copying.differ,
        )


def _both(source_url: str, target_url: str) -> tuple[URL, URL]:
    source, target = parse_url(source_url), parse_url(target_url)
    files = sqlite_file(source), sqlite_file(target)
    if source == target or (files[0] is not None and files[0] == files[1]):
        wrong = "name the same database: set the second to the address of a PostgreSQL database that is empty"
    elif files[0] is None or files[1] is not None:
        wrong = (
            "do not name a SQLite database and a PostgreSQL database, in this order, which is the only way: "
            "between two of a kind copy with `claudeops backup` or pg_dump"
        )
    else:
        return source, target
    raise ConfigurationError(
        f"CLAUDEOPS_DATABASE_URL and CLAUDEOPS_TARGET_DATABASE_URL {wrong}.",
        operation="db.copy",
        target="CLAUDEOPS_TARGET_DATABASE_URL",
    )


@contextmanager
def _locked(url: URL, *, page: int) -> Iterator[CopySource]:
    """Yield the source in a transaction that keeps others from writing, and changes nothing."""
    engine = writing_engine(url)
    try:
        with border(url), engine.connect() as connection:
            connection.begin()
            yield CopySource(connection, page=page)
    finally:
        engine.dispose()


class _Copying(msgspec.Struct, kw_only=True):
    """A copy under way."""

    source: CopySource
    target: CopyTarget
    progress: Progress
    still_held: Callable[[], None]  # raises when a daemon has taken the target
    differences: list[RowDifference] = msgspec.field(default_factory=list)
    differ: int = 0

    def begin(self, migrations_dir: Path, *, restart: bool) -> None:
        """Find out where the target stands, and mark it."""
        found = self.target.mark()
        if found is not None and restart:
            self.target.empty(found)
            found = None
        if found is None:
            self.target.require_empty()
        mark = f"{COPY_MARK}{HEAD}-{self.source.digest(lambda table, rows: self.progress('read', table, rows, None))}"
        if found is None:
            self.target.begin(mark, migrations_dir=migrations_dir)
        elif found != mark:
            raise ConfigurationError(
                f"the database {shown(self.target.url)} is an unfinished copy of something else: the source has changed"
                " since it was begun (a daemon or a command has written, or a newer version has migrated it), or it is"
                " another database; call this with --restart, which removes what was copied and begins anew.",
                operation="db.copy",
                target=shown(self.target.url),
            )

    def copy(self, table: Table, before: int) -> CopiedTable:
        """Copy the rows of a table but the first ones, which the target has."""
        rows, of = before, self.source.count(table)
        for page in self.source.pages(table, skipped=before):
            self.still_held()
            self.target.add(table, page)
            rows += len(page)
            self.progress("copied", table.name, rows, of)
        return CopiedTable(name=table.name, rows=of, before=min(before, of))

    def compare(self) -> None:
        """Read every row of every table from both sides."""
        for table in TABLES:
            self._compare(table)
        counts = self.target.counts()
        for table in TABLES:
            if counts[table.name] > self.source.count(table):
                self._name_surplus(table)
        given, wanted = self.target.last_ids(), self.source.last_ids()
        for name in sorted(name for name in given.keys() | wanted if given.get(name) != wanted.get(name)):
            self._differs(name, f"the last id of {name}", f"is {given.get(name, 0)}, and not {wanted.get(name, 0)}")

    def finish(self, key: bytes | None) -> Verified:
        """Check the audit trail of the target, and take its mark away unless something differs."""
        with self.target.read() as connection:
            audit = verify(connection, key=key)
        own = {fault.message for fault in verify(self.source.connection, key=key).faults} if audit.faults else set()
        for fault in audit.faults:
            if fault.message not in own:
                self._differs("tool_calls", f"session {fault.session_id}", fault.message.rstrip("."))
        if not self.differ:
            self.target.finish()
        return audit

    def _compare(self, table: Table) -> None:
        places, of, rows = key_places(table), self.source.count(table), 0
        for page in self.source.pages(table):
            self.still_held()
            found = self.target.rows_like(table, page)
            for row in page:
                key = tuple(row[place] for place in places)
                if (other := found.get(key)) != row:
                    self._differs(table.name, name_of(table, key), _difference(table, row, other))
            rows += len(page)
            self.progress("compared", table.name, rows, of)

    def _name_surplus(self, table: Table) -> None:
        for key in self.target.keys(table, page=self.source.page):
            if not self.source.has(table, key):
                self._differs(table.name, name_of(table, key), "is in the target alone")

    def _differs(self, table: str, row: str, what: str) -> None:
        self.differ += 1
        if len(self.differences) < _MOST_NAMED:
            self.differences.append(RowDifference(table=table, row=row, message=f"{row}: {what}."))


def _difference(table: Table, row: Row, other: Row | None) -> str:
    if other is None:
        return "is missing in the target"
    columns = zip(table.columns, row, other, strict=True)
    names = [column.name for column, one, two in columns if one != two]
    return f"has another value in {', '.join(names)}"
