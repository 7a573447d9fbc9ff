"""What all tables are made with: names of constraints, ids, closed sets, and indexes of some rows; and their values."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKey,
    Integer,
    MetaData,
    Select,
    Table,
    func,
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from claudeops.closed_set import ClosedSet

_CONDITION: Final = "condition"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def one_of(column: str, members: type[ClosedSet]) -> CheckConstraint:
    """Return the constraint that a column holds a member of a closed set, or null."""
    values = ", ".join(f"'{member.value}'" for member in members)
    return CheckConstraint(f"{column} IN ({values})", name=column, info={"column": column, "members": members})


def table(name: str, *items: SchemaItem, comment: str, many: bool = False) -> Table:
    """Return a table with an ``id`` that is never used twice; ``many``: more rows than 31 bits have numbers for."""
    kind = BigInteger().with_variant(Integer, "sqlite") if many else Integer()
    identity = Column("id", kind, primary_key=True, autoincrement=True, comment="the row's number, never used again")
    return Table(name, metadata, identity, *items, sqlite_autoincrement=True, comment=comment)


def session_column(comment: str, *, nullable: bool = False) -> Column[int]:
    """Return the column that names a session."""
    return Column("session_id", Integer, ForeignKey("sessions.id"), nullable=nullable, comment=comment)


def where(condition: str) -> dict[str, Any]:
    """Return what restricts an index to some rows; `name_conditions` names it to SQLAlchemy."""
    return {"info": {_CONDITION: text(condition)}}


def name_conditions() -> None:
    """Name the conditions of indexes to SQLAlchemy, for whoever makes or compares tables.

    It loads what SQLAlchemy knows of both databases, which takes two MiB and a twentieth of a daemon's start.
    """
    for index in (index for table in metadata.tables.values() for index in table.indexes if _CONDITION in index.info):
        for dialect in ("sqlite", "postgresql"):
            index.dialect_options[dialect]["where"] = index.info[_CONDITION]


def each_value(column: Column[str], *conditions: ColumnElement[bool]) -> Select[str]:
    """Return the query for every value of a column that leads an index: a step in it for each value, not each row.

    The column also leads where all columns before it are compared with one value in ``conditions``.
    """
    first = select(func.min(column).label("name")).where(*conditions).cte("names", recursive=True)
    following = select(func.min(column)).where(*conditions, column > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    return select(names.c.name).where(names.c.name.is_not(None))
