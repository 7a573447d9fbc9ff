"""What all tables are made with: names of constraints, ids, closed sets, and indexes of some rows."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, ForeignKey, Integer, MetaData, Table, text
from sqlalchemy.schema import SchemaItem

from claudeops.closed_set import ClosedSet

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


def table(name: str, *items: SchemaItem, comment: str) -> Table:
    """Return a table with an ``id`` that is never used twice."""
    identity = Column("id", Integer, primary_key=True, autoincrement=True, comment="the row's number, never used again")
    return Table(name, metadata, identity, *items, sqlite_autoincrement=True, comment=comment)


def session_column(comment: str, *, nullable: bool = False) -> Column[int]:
    """Return the column that names a session."""
    return Column("session_id", Integer, ForeignKey("sessions.id"), nullable=nullable, comment=comment)


def where(condition: str) -> dict[str, Any]:
    """Return what restricts an index to some rows.

    Naming it loads what SQLAlchemy knows of both databases: a command that needs no such table does without.
    """
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
