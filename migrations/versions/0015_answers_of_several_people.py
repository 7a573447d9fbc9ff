"""Questions that need the yes of several people, their answers, and what is known to have reached nobody."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("approvals", sa.Column("needed", sa.Integer(), server_default="1", nullable=False))
    op.add_column("approvals", sa.Column("unheard", sa.Text()))
    op.create_table(
        "approval_answers",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("approval_id", sa.Integer(), nullable=False),
        sa.Column("person", sa.String(255), nullable=False),
        sa.Column("status", sa.String(255), nullable=False),
        sa.Column("decided_by", sa.String(255), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mac", sa.String(255), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"],
            ["approvals.id"],
            name=op.f("fk_approval_answers_approval_id_approvals"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approval_answers")),
        sa.UniqueConstraint(
            "approval_id", "person", "status", name=op.f("uq_approval_answers_approval_id_person_status")
        ),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("approval_answers")
    op.drop_column("approvals", "unheard")
    op.drop_column("approvals", "needed")
