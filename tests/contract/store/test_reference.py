"""The reference of tables and columns says what the tables are."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import Column

from claudeops.store.tables.all_tables import metadata
from support.checkout import ROOT

REFERENCE: Final = ROOT / "docs" / "reference" / "database.md"

TYPES: Final = {
    "Integer": "integer",
    "Count": "count",
    "Float": "float",
    "Usd": "dollars",
    "Boolean": "boolean",
    "Name": "name",
    "CleanText": "text",
    "UtcDateTime": "time",
}


def described() -> dict[str, list[tuple[str, str, str | None]]]:
    """Return name, type and reference of every column that the page lists, by table."""
    tables: dict[str, list[tuple[str, str, str | None]]] = {}
    name = ""
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"## (\w+)", line):
            name = heading[1]
            tables[name] = []
        elif row := re.fullmatch(r"\| `(\w+)` \| ([a-z]+\??) \| (.*)\|", line):
            reference = re.search(r"→ `(\w+)`", row[3])
            tables[name].append((row[1], row[2], reference[1] if reference else None))
    return tables


def as_described(column: Column[object]) -> tuple[str, str, str | None]:
    references = [key.column.table.name for key in column.foreign_keys]
    kind = TYPES[type(column.type).__name__] + ("?" if column.nullable else "")
    return column.name, kind, references[0] if references else None


def test_every_table_and_column_is_described_as_it_is() -> None:
    tables = {name: [as_described(column) for column in table.columns] for name, table in metadata.tables.items()}

    assert described() == tables


def test_every_type_is_explained() -> None:
    explained = set(re.findall(r"^\| ([a-z]+) \| .* \|$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE))

    assert set(TYPES.values()) <= explained
