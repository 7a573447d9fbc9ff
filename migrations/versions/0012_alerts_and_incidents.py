"""Alerts as they were received, kept and decided about; incidents, silences, and what belongs to an incident."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

LEVELS = ("info", "warning", "critical")
STATUSES = ("firing", "resolved", "stale")
STANDS = ("open", "acknowledged", "resolved")
DECISIONS = (
    *("started", "joined", "grouped", "duplicate", "silenced", "inhibited", "flapping", "below_severity"),
    *("cooldown", "budget", "paused", "resolved_first", "self_inflicted", "watchdog", "unparsed", "stale"),
)
INDEXES = (
    ("alert_deliveries", "source", "key"),
    ("alert_deliveries", "received_at"),
    ("alerts", "status", "last_seen"),
    ("alerts", "incident_id"),
    ("alerts", "contested_at"),
    ("alert_decisions", "alert_id", "id"),
    ("alert_decisions", "delivery_id"),
    ("alert_decisions", "incident_id", "id"),
    ("alert_decisions", "session_id", "id"),
    ("alert_decisions", "at"),
    ("incidents", "status", "resolved_at"),
    ("incidents", "service", "number"),
    ("silences", "ends_at"),
    ("sessions", "incident_id"),
    ("events", "incident_id"),
)


def upgrade() -> None:
    _incidents()
    _deliveries()
    _alerts()
    _decisions()
    _silences()
    op.add_column("sessions", sa.Column("incident_id", sa.Integer()))
    op.add_column("events", sa.Column("incident_id", sa.Integer()))
    for table, *columns in INDEXES:
        op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, columns)


def downgrade() -> None:
    for table in ("sessions", "events"):
        op.drop_index(op.f(f"ix_{table}_incident_id"), table)
        op.drop_column(table, "incident_id")
    for table in ("alert_decisions", "alerts", "alert_deliveries", "incidents", "silences"):
        op.drop_table(table)


def _incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        _name("service"),
        _text("services"),
        _text("group_key"),
        _name("severity"),
        _name("status"),
        _time("opened_at", nullable=False),
        _time("fired_at", nullable=False),
        _time("started_at"),
        _time("last_action_at"),
        _name("acked_by", nullable=True),
        _time("acked_at"),
        _time("resolved_at"),
        _count("reopened"),
        _text("witnesses"),
        sa.Column("root_session_id", sa.Integer()),
        sa.Column("spend_usd", sa.Numeric(20, 10)),
        _one_of("incidents", "severity", LEVELS),
        _one_of("incidents", "status", STANDS),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_incidents")),
    )


def _deliveries() -> None:
    op.create_table(
        "alert_deliveries",
        _id(),
        _name("source"),
        _name("key"),
        _time("received_at", nullable=False),
        _text("raw", nullable=True),
        _name("status"),
        _text("remark", nullable=True),
        _count("alerts"),
        _count("left_out"),
        _count("repeats"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_deliveries")),
        sqlite_autoincrement=True,
    )


def _alerts() -> None:
    op.create_table(
        "alerts",
        _id(),
        *(_name(column) for column in ("source", "fingerprint", "name", "service", "severity", "status")),
        *(_text(column) for column in ("labels", "annotations", "url")),
        *(_time(column) for column in ("starts_at", "ends_at", "said_at")),
        *(_time(column, nullable=False) for column in ("began", "last_seen")),
        _count("count"),
        _count("flips"),
        _text("changes"),
        sa.Column("flapping", sa.Boolean(), nullable=False),
        _time("why_asked_at"),
        _time("contested_at"),
        _name("decision", nullable=True),
        _text("group_key"),
        _time("due_at"),
        sa.Column("incident_id", sa.Integer()),
        _one_of("alerts", "severity", LEVELS),
        _one_of("alerts", "status", STATUSES),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.number"], name=op.f("fk_alerts_incident_id_incidents")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
        sa.UniqueConstraint("source", "fingerprint", name=op.f("uq_alerts_source_fingerprint")),
        sqlite_autoincrement=True,
    )


def _decisions() -> None:
    op.create_table(
        "alert_decisions",
        _id(),
        sa.Column("alert_id", sa.Integer()),
        sa.Column("delivery_id", sa.Integer()),
        _time("at", nullable=False),
        _name("decision"),
        _text("because"),
        sa.Column("incident_id", sa.Integer()),
        sa.Column("session_id", sa.Integer()),
        _one_of("alert_decisions", "decision", DECISIONS),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.id"], name=op.f("fk_alert_decisions_alert_id_alerts")),
        sa.ForeignKeyConstraint(
            ["delivery_id"], ["alert_deliveries.id"], name=op.f("fk_alert_decisions_delivery_id_alert_deliveries")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_decisions")),
        sqlite_autoincrement=True,
    )


def _silences() -> None:
    op.create_table(
        "silences",
        _id(),
        _text("matchers"),
        _time("starts_at", nullable=False),
        _time("ends_at", nullable=False),
        _name("created_by"),
        _time("created_at", nullable=False),
        _text("comment"),
        _count("suppressed_count"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
        sqlite_autoincrement=True,
    )


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer(), autoincrement=True, nullable=False)


def _name(column: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(column, sa.String(255), nullable=nullable)


def _text(column: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(column, sa.Text(), nullable=nullable)


def _time(column: str, *, nullable: bool = True) -> sa.Column[datetime]:
    return sa.Column(column, sa.DateTime(timezone=True), nullable=nullable)


def _count(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger(), nullable=False)


def _one_of(table: str, column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(f"ck_{table}_{column}"))
