"""Tables of those who call the daemon: tokens of programs, users and their logins."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Index, Integer

from claudeops.domain.access.logins import Role
from claudeops.store.tables.base import one_of, table, where
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

api_tokens: Final = table(
    "api_tokens",
    Column("name", Name, nullable=False),
    Column("scopes", CleanText, nullable=False),
    Column("digest", Name, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
    Column("revoked_by", Name),
    Column("last_used_at", UtcDateTime),
)

users: Final = table(
    "users",
    Column("name", Name, nullable=False),
    Column("name_key", Name, nullable=False),
    Column("role", Name, nullable=False),
    Column("password_hash", CleanText),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("disabled_at", UtcDateTime),
    Column("disabled_by", Name),
    one_of("role", Role),
    Index(
        "uq_users_name_key",
        "name_key",
        unique=True,
        **where("disabled_at IS NULL"),
    ),
)

passkeys: Final = table(
    "passkeys",
    Column("user_id", Integer, nullable=False),  # no reference: users stay on record
    Column("name", Name, nullable=False),
    Column("rp_id", Name, nullable=False),
    Column("credential_id", CleanText, nullable=False),
    Column("public_key", CleanText, nullable=False),
    Column("sign_count", Count, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_used_at", UtcDateTime),
    Index("ix_passkeys_user_id", "user_id"),
    Index("uq_passkeys_credential_id", "credential_id", unique=True),
)

login_links: Final = table(
    "login_links",
    Column("name", Name, nullable=False),
    Column("role", Name, nullable=False),
    Column("digest", Name, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("user_id", Integer),  # no reference: users stay on record
    one_of("role", Role),
    Index("uq_login_links_digest", "digest", unique=True),
)

web_sessions: Final = table(
    "web_sessions",
    Column("name", Name, nullable=False),
    Column("role", Name, nullable=False),
    Column("digest", Name, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("last_used_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("user_id", Integer),  # likewise
    Column("look_only", Boolean),
    one_of("role", Role),
    Index("uq_web_sessions_digest", "digest", unique=True),
)

idempotency_keys: Final = table(
    "idempotency_keys",
    Column("caller", Name, nullable=False),
    Column("key", Name, nullable=False),
    Column("digest", Name, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("status", Integer),
    Column("answer", CleanText),
    Index("uq_idempotency_keys_caller_key", "caller", "key", unique=True),
    Index("ix_idempotency_keys_created_at", "created_at"),
)
