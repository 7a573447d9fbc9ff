"""Tables of approvals: questions to people, the messages by which they were asked, answers, signatures."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, UniqueConstraint

from claudeops.store.tables.base import session_column, table
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

approvals: Final = table(
    "approvals",
    session_column(),
    Column("tool_use_id", Name, nullable=False),
    Column("call_hash", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("requested_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("decided_at", UtcDateTime),
    Column("decided_by", Name),
    Column("agent_id", Name),
    Column("tool_name", Name),
    Column("tier", Integer),
    Column("workdir", CleanText),
    Column("input", CleanText),
    Column("scripts", CleanText),
    Column("reason", CleanText),
    Column("mac", Name),
    Column("services", CleanText),
    Column("needed", Integer, nullable=False, server_default="1"),
    Column("unheard", CleanText),
    Column("hidden", Boolean),
    Column("passkey", Boolean),
    Index(None, "status", "expires_at"),
    Index(None, "session_id", "tool_use_id"),
)

approval_messages: Final = table(
    "approval_messages",
    session_column(),
    Column("approval_id", Integer, nullable=False),  # no reference: both go with the session
    Column("call_hash", Name, nullable=False),
    Column("target", Name, nullable=False),
    Column("chat", Name, nullable=False),
    Column("yes_digest", Name),
    Column("no_digest", Name),
    Column("external_id", Name),
    Column("sent_at", UtcDateTime, nullable=False),
    Column("used_at", UtcDateTime),
    Column("shown", Name),
    Column("edited_at", UtcDateTime),
    Index(None, "session_id"),
    Index(None, "approval_id"),
    Index(None, "shown", "sent_at"),
    Index("uq_approval_messages_yes_digest", "yes_digest", unique=True),
    Index("uq_approval_messages_no_digest", "no_digest", unique=True),
)

approval_answers: Final = table(
    "approval_answers",
    # Questions are removed with their session, and answers with their question.
    Column("approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False),
    Column("person", Name, nullable=False),
    Column("status", Name, nullable=False),
    Column("decided_by", Name, nullable=False),
    Column("decided_at", UtcDateTime, nullable=False),
    Column("mac", Name, nullable=False),
    Column("assertion", Name),
    UniqueConstraint("approval_id", "person", "status"),
)

passkey_assertions: Final = table(
    "passkey_assertions",
    # As answers, they are removed with their question.
    Column("approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False),
    Column("user_id", Integer, nullable=False),  # no reference: users stay on record
    Column("digest", Name, nullable=False),
    Column("call_hash", Name, nullable=False),
    Column("answer", Name, nullable=False),
    Column("nonce", Name, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("rp_id", Name, nullable=False),
    Column("credential_id", CleanText, nullable=False),
    Column("public_key", CleanText, nullable=False),
    Column("authenticator_data", CleanText, nullable=False),
    Column("client_data", CleanText, nullable=False),
    Column("signature", CleanText, nullable=False),
    Column("sign_count", Count, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Index(None, "approval_id"),
    Index("uq_passkey_assertions_digest", "digest", unique=True),
)
