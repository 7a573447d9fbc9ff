"""Numbers of 63 bits for the rows that every session writes many of. SQLite's have them already.

On PostgreSQL each table is written anew with its indexes, and nobody reads or writes it meanwhile.
"""

from alembic import op

revision = "0039"
down_revision = "0038"

_TABLES = ("tool_calls", "model_calls", "service_checks", "budget_entries")


def upgrade() -> None:
    _set_type("bigint")


def downgrade() -> None:
    _set_type("integer")


def _set_type(name: str) -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        return
    for table in _TABLES:
        connection.exec_driver_sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE {name}")
        connection.exec_driver_sql(f"ALTER SEQUENCE {table}_id_seq AS {name}")
