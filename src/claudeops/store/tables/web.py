"""Tables of those who call the daemon: tokens of programs, users and their logins."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Index, Integer

from claudeops.domain.access.logins import Role
from claudeops.store.tables.base import one_of, table, where
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

api_tokens: Final = table(
    "api_tokens",
    Column("name", Name, nullable=False, comment="who has it, for people"),
    Column(
        "scopes",
        CleanText,
        nullable=False,
        comment="what it is for, separated by blanks: `read`, `metrics`, `trigger`, `stop`, `operate`, "
        "`alerts:<source>`, `heartbeats:<name>`",
    ),
    Column(
        "digest",
        Name,
        nullable=False,
        comment="SHA-256 of its secret, in hexadecimal; the secret itself is kept nowhere",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was made"),
    Column("created_by", Name, nullable=False, comment="the user who made it"),
    Column("expires_at", UtcDateTime, comment="when it ends; null: never"),
    Column("revoked_at", UtcDateTime, comment="when it was revoked; null: it was not"),
    Column("revoked_by", Name, comment="the user who revoked it; null: it was not revoked"),
    Column("last_used_at", UtcDateTime, comment="when it was last used, a minute late at most; null: never"),
    comment="Who may call the daemon, and for what. Rows stay when a token has ended; the `id` is the number "
    "in the token.",
)

users: Final = table(
    "users",
    Column("name", Name, nullable=False, comment="as it is shown"),
    Column("name_key", Name, nullable=False, comment="the same in lower case: unique among those who were not removed"),
    Column("role", Name, nullable=False, comment="what the user may do"),
    Column(
        "password_hash",
        CleanText,
        comment="Argon2id, with its parameters; null: logs in by links, a proxy or an identity provider",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was added"),
    Column("created_by", Name, nullable=False, comment="the user of the machine who ran `claudeops user add`"),
    Column("disabled_at", UtcDateTime, comment="when it was removed; null: it was not"),
    Column("disabled_by", Name, comment="the user of the machine who removed it; null: it was not removed"),
    one_of("role", Role),
    Index("uq_users_name_key", "name_key", unique=True, **where("disabled_at IS NULL")),
    comment="People who may log in, as `claudeops user` keeps them. Those who were removed stay on record; "
    "their names are free again.",
)

passkeys: Final = table(
    "passkeys",
    # no reference: users stay on record
    Column("user_id", Integer, nullable=False, comment="whose it is, of `users`"),
    Column("name", Name, nullable=False, comment="that the user gave it"),
    Column("rp_id", Name, nullable=False, comment="the host for which it works"),
    Column("credential_id", CleanText, nullable=False, comment="in base64 for URLs: unique"),
    Column("public_key", CleanText, nullable=False, comment="in COSE, in base64 for URLs"),
    Column("sign_count", Count, nullable=False, comment="that it named last; 0: it does not count"),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was added"),
    Column("last_used_at", UtcDateTime, comment="when it last signed; null: never"),
    Index("ix_passkeys_user_id", "user_id"),
    Index("uq_passkeys_credential_id", "credential_id", unique=True),
    comment="Passkeys of users, as the page `/passkeys` keeps them. One that was removed leaves its signatures.",
)

login_links: Final = table(
    "login_links",
    Column("name", Name, nullable=False, comment="the person who logs in by it"),
    Column("role", Name, nullable=False, comment="what the person may do"),
    Column("digest", Name, nullable=False, comment="SHA-256 of the secret in its address, in hexadecimal"),
    Column("created_at", UtcDateTime, nullable=False, comment="when it was made"),
    Column("expires_at", UtcDateTime, nullable=False, comment="when it ends"),
    # no reference, as above
    Column("user_id", Integer, comment="the user that it is for, whose role counts; null: an operator of the machine"),
    one_of("role", Role),
    Index("uq_login_links_digest", "digest", unique=True),
    comment="Links that `claudeops login-link` has made and that were not used yet. A link is used once, "
    "within a minute.",
)

web_sessions: Final = table(
    "web_sessions",
    Column("name", Name, nullable=False, comment="the person"),
    Column("role", Name, nullable=False, comment="what the person may do"),
    Column(
        "digest",
        Name,
        nullable=False,
        comment="SHA-256 of the secret in its cookie, in hexadecimal; the secret itself is kept nowhere",
    ),
    Column("created_at", UtcDateTime, nullable=False, comment="when the person logged in"),
    Column("expires_at", UtcDateTime, nullable=False, comment="when it ends: after 7 days"),
    Column(
        "last_used_at",
        UtcDateTime,
        nullable=False,
        comment="to the minute; after 12 hours without use it is over as well",
    ),
    Column(
        "ended_at",
        UtcDateTime,
        comment="when the person logged out, or the user was removed or got a new password; null: not yet",
    ),
    # likewise
    Column("user_id", Integer, comment="the user, whose role counts at every moment; null: an operator of the machine"),
    Column(
        "look_only",
        Boolean,
        comment="true: it began over plain HTTP from another machine, and opens no more than looking, ever; null: "
        "from an older version",
    ),
    one_of("role", Role),
    Index("uq_web_sessions_digest", "digest", unique=True),
    comment="Logins of people, one row a browser. Rows go when they are over and somebody logs in anew.",
)

idempotency_keys: Final = table(
    "idempotency_keys",
    Column("caller", Name, nullable=False, comment="the token or the login"),
    Column("key", Name, nullable=False, comment="as the header has it"),
    Column("digest", Name, nullable=False, comment="SHA-256 of address and body, in hexadecimal"),
    Column("created_at", UtcDateTime, nullable=False, comment="when the call came"),
    Column("status", Integer, comment="of the answer; null: it is being done, or the daemon ended meanwhile"),
    Column("answer", CleanText, comment="JSON; null as long as `status` is"),
    Index("uq_idempotency_keys_caller_key", "caller", "key", unique=True),
    Index("ix_idempotency_keys_created_at", "created_at"),
    comment="Calls of the API with the header `Idempotency-Key`, and forms that were sent: the same one is "
    "done once, and answered again.",
)
