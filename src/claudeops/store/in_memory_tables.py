"""The tables as lists of plain objects, with transactions: what `InMemoryStore` writes to."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.types import TypeDecorator

from claudeops.errors import StoreError
from claudeops.store.tables import metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from claudeops.domain.live import EventRaised

_DIALECT: Final = DefaultDialect()
_UNIQUE_SESSION: Final = ("parent_session_id", "tier", "trigger", "ordinal")


class PlainTables:
    """Rows with every column of ``store.tables``; values are mended as the databases' columns mend them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[SimpleNamespace]] = {name: [] for name in metadata.tables}
        self._last_ids: defaultdict[str, int] = defaultdict(int)
        self.noticed: list[EventRaised] = []  # events of the transaction under way

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep everything that the block writes, or nothing if it raises."""
        self.noticed = []
        before = {name: [SimpleNamespace(**vars(row)) for row in rows] for name, rows in self._rows.items()}
        whole = False
        try:
            yield
            whole = True
        finally:
            if not whole:
                self._rows = before

    def skip_ids(self, table: str, highest: int) -> None:
        """Give no new row an id up to ``highest``."""
        self._last_ids[table] = max(self._last_ids[table], highest)

    def rows(self, table: str, where: Callable[[SimpleNamespace], bool] = lambda _: True) -> list[SimpleNamespace]:
        """Return a table's rows in the order of their insertion."""
        return [row for row in self._rows[table] if where(row)]

    def row(self, table: str, row_id: int) -> SimpleNamespace | None:
        """Return the row of an id."""
        return next(iter(self.rows(table, lambda row: row.id == row_id)), None)

    def insert(self, table: str, values: Mapping[str, object]) -> SimpleNamespace:
        """Add a row; columns that are not named are null, ids are never used twice."""
        row = SimpleNamespace(**dict.fromkeys(metadata.tables[table].columns.keys()))
        if hasattr(row, "id"):
            self._last_ids[table] += 1
            row.id = self._last_ids[table]
        self.update(table, row, values)
        self._refuse_gaps(table, row)
        if table == "sessions" and row.parent_session_id is not None:
            self._refuse_twin(row)
        self._rows[table].append(row)
        return row

    def update(self, table: str, row: SimpleNamespace, values: Mapping[str, object]) -> None:
        """Change some columns of a row."""
        columns = metadata.tables[table].columns
        for name, value in values.items():
            kind = columns[name].type
            mended = kind.process_bind_param(value, _DIALECT) if isinstance(kind, TypeDecorator) else value
            setattr(row, name, mended)

    def change(self, table: str, row_id: int, values: Mapping[str, object]) -> None:
        """Change some columns of the row of an id."""
        for row in self.rows(table, lambda row: row.id == row_id):
            self.update(table, row, values)

    def delete(self, table: str, where: Callable[[SimpleNamespace], bool]) -> None:
        """Take rows out."""
        self._rows[table] = [row for row in self._rows[table] if not where(row)]

    @staticmethod
    def _refuse_gaps(table: str, new: SimpleNamespace) -> None:
        for column in metadata.tables[table].columns:
            if not column.nullable and getattr(new, column.name) is None:
                raise StoreError(f"a row of {table} needs its {column.name}.")

    def _refuse_twin(self, new: SimpleNamespace) -> None:
        def key(row: SimpleNamespace) -> tuple[object, ...]:
            return tuple(getattr(row, name) for name in _UNIQUE_SESSION)

        if self.rows("sessions", lambda row: key(row) == key(new)):
            raise StoreError(f"session {new.parent_session_id} already has such a follower.")
