"""What was settled in each quarter of an hour, added up by the database whoever writes an entry."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"

_SQLITE_BUCKET = "substr({at}, 1, 14) || printf('%02d', CAST(substr({at}, 15, 2) AS INTEGER) / 15 * 15) || ':00.000000'"
_POSTGRESQL_BUCKET = "to_timestamp(floor(extract(epoch FROM {at}) / 900) * 900)"

_FILL = (
    "INSERT INTO settled_sums (bucket, amount_usd) SELECT {bucket}, {amount} FROM budget_entries"
    " WHERE kind = 'settled' GROUP BY 1"
)
# SQLite adds floating point: rounded to the decimals of PostgreSQL each time, a sum is that of its entries.
_SQLITE_TRIGGER = f"""
CREATE TRIGGER budget_entries_settled AFTER INSERT ON budget_entries WHEN NEW.kind = 'settled'
BEGIN
    INSERT INTO settled_sums (bucket, amount_usd)
    VALUES ({_SQLITE_BUCKET.format(at="NEW.created_at")}, NEW.amount_usd)
    ON CONFLICT (bucket) DO UPDATE SET amount_usd = round(settled_sums.amount_usd + excluded.amount_usd, 10);
END
"""  # noqa: S608 - our own names
_POSTGRESQL_FUNCTION = f"""
CREATE FUNCTION add_settled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO settled_sums (bucket, amount_usd)
    VALUES ({_POSTGRESQL_BUCKET.format(at="NEW.created_at")}, NEW.amount_usd)
    ON CONFLICT (bucket) DO UPDATE SET amount_usd = settled_sums.amount_usd + excluded.amount_usd;
    RETURN NULL;
END
$$
"""  # noqa: S608 - our own names
_POSTGRESQL_TRIGGER = (
    "CREATE TRIGGER budget_entries_settled AFTER INSERT ON budget_entries"
    " FOR EACH ROW WHEN (NEW.kind = 'settled') EXECUTE FUNCTION add_settled()"
)


def upgrade() -> None:
    op.create_table(
        "settled_sums",
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),  # UTC
        sa.Column("amount_usd", sa.Numeric(30, 10), nullable=False),
        sa.PrimaryKeyConstraint("bucket", name=op.f("pk_settled_sums")),
    )
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        bucket = _SQLITE_BUCKET.format(at="created_at")
        connection.exec_driver_sql(_FILL.format(bucket=bucket, amount="round(sum(amount_usd), 10)"))
        connection.exec_driver_sql(_SQLITE_TRIGGER)
    else:
        bucket = _POSTGRESQL_BUCKET.format(at="created_at")
        connection.exec_driver_sql(_FILL.format(bucket=bucket, amount="sum(amount_usd)"))
        connection.exec_driver_sql(_POSTGRESQL_FUNCTION)
        connection.exec_driver_sql(_POSTGRESQL_TRIGGER)


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("DROP TRIGGER budget_entries_settled")
    else:
        connection.exec_driver_sql("DROP TRIGGER budget_entries_settled ON budget_entries")
        connection.exec_driver_sql("DROP FUNCTION add_settled()")
    op.drop_table("settled_sums")
