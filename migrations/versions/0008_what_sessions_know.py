"""What sessions know: whose word a memory is and where it comes from, and what each session was given to read."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

NAME = sa.String(255)
TIME = sa.DateTime(timezone=True)  # UTC
NUMBERED = {"sqlite_autoincrement": True}


def upgrade() -> None:
    # The default is for daemons of the release before, which go on writing beside the new one.
    with op.batch_alter_table("memories", table_kwargs=NUMBERED) as memories:
        memories.add_column(sa.Column("trust", NAME, nullable=False, server_default="confirmed"))
        memories.add_column(sa.Column("supersedes", sa.Integer()))
        memories.add_column(sa.Column("evidence", sa.Text()))
        memories.add_column(sa.Column("forgotten_at", TIME))
        memories.add_column(sa.Column("changed_by", NAME))
        memories.create_check_constraint(op.f("ck_memories_trust"), _one_of("trust", "operator confirmed quarantined"))
        memories.create_foreign_key(op.f("fk_memories_supersedes_memories"), "memories", ["supersedes"], ["id"])
        memories.create_index(op.f("ix_memories_supersedes"), ["supersedes"])
    op.create_table(
        "session_memories",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("memory_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_session_memories_session_id_sessions")),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"], name=op.f("fk_session_memories_memory_id_memories")),
        sa.PrimaryKeyConstraint("session_id", "memory_id", name=op.f("pk_session_memories")),
    )
    op.create_index(op.f("ix_session_memories_memory_id"), "session_memories", ["memory_id"])
    op.create_table(
        "session_texts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("origin", NAME, nullable=False),
        sa.Column("digest", NAME, nullable=False),
        sa.CheckConstraint(_one_of("kind", "check playbook skill prompt manifest"), name=op.f("ck_session_texts_kind")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_session_texts_session_id_sessions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session_texts")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_session_texts_session_id"), "session_texts", ["session_id"])


def downgrade() -> None:
    op.drop_table("session_texts")
    op.drop_table("session_memories")
    with op.batch_alter_table("memories", table_kwargs=NUMBERED) as memories:
        memories.drop_index(op.f("ix_memories_supersedes"))
        memories.drop_constraint(op.f("fk_memories_supersedes_memories"), type_="foreignkey")
        memories.drop_constraint(op.f("ck_memories_trust"), type_="check")
        for name in ("changed_by", "forgotten_at", "evidence", "supersedes", "trust"):
            memories.drop_column(name)


def _one_of(column: str, values: str) -> str:
    listed = ", ".join(f"'{value}'" for value in values.split())
    return f"{column} IN ({listed})"
