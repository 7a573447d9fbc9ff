"""Sources of alerts: what each has brought, and whether its latest body can be read."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

KNOWN = """
INSERT INTO alert_sources (source, since, heard_at, bodies, alerts, unreadable, readable)
SELECT source, min(received_at), max(received_at), sum(1 + repeats), sum(alerts * (1 + repeats)),
       sum(CASE WHEN status = 'unparsed' THEN 1 + repeats ELSE 0 END), 1 = 1
FROM alert_deliveries WHERE raw IS NOT NULL GROUP BY source
"""
"""From the bodies that are still kept; those without a text are what the daemon's own probes have said."""

LATEST = """
UPDATE alert_sources SET delivery_id = (
    SELECT max(id) FROM alert_deliveries
    WHERE alert_deliveries.source = alert_sources.source AND alert_deliveries.status = 'unparsed'
) WHERE unreadable > 0
"""
REASONS = """
UPDATE alert_sources SET
    unreadable_at = (SELECT received_at FROM alert_deliveries WHERE alert_deliveries.id = alert_sources.delivery_id),
    reason = (SELECT remark FROM alert_deliveries WHERE alert_deliveries.id = alert_sources.delivery_id)
WHERE delivery_id IS NOT NULL
"""


def upgrade() -> None:
    op.create_table(
        "alert_sources",
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heard_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bodies", sa.BigInteger(), nullable=False),
        sa.Column("alerts", sa.BigInteger(), nullable=False),
        sa.Column("unreadable", sa.BigInteger(), nullable=False),
        sa.Column("readable", sa.Boolean(), nullable=False),
        sa.Column("unreadable_at", sa.DateTime(timezone=True)),
        sa.Column("reason", sa.Text()),
        sa.Column("delivery_id", sa.Integer()),
        sa.PrimaryKeyConstraint("source", name=op.f("pk_alert_sources")),
    )
    for statement in (KNOWN, LATEST, REASONS):
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("alert_sources")
