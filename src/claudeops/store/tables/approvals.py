"""Tables of approvals: questions to people, their messages in chats, answers, and the signatures under them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, UniqueConstraint

from claudeops.store.tables.base import session_column, table
from claudeops.store.tables.columns import CleanText, Count, Name, UtcDateTime

approvals: Final = table(
    "approvals",
    session_column("the session that waits for the answer"),
    Column("tool_use_id", Name, nullable=False, comment="the call, by the CLI's id"),
    Column(
        "call_hash",
        Name,
        nullable=False,
        comment="what exactly was approved: session, attempt, tier, directory, agent, call, whole input, scripts",
    ),
    Column("status", Name, nullable=False, comment="where the question stands; it only moves forward"),
    Column("requested_at", UtcDateTime, nullable=False, comment="when the question was asked"),
    Column("expires_at", UtcDateTime, nullable=False, comment="without an answer by then, the call is denied"),
    Column("decided_at", UtcDateTime, comment="when it was decided; null: not yet"),
    Column(
        "decided_by",
        Name,
        comment="who answered no, or everybody who answered yes (`ada and telegram:bob`), or `restart of the "
        "daemon`; null: it is not decided, or ran out",
    ),
    Column("agent_id", Name, comment="the subagent that wants the call; null: the session itself"),
    Column("tool_name", Name, comment="the tool; null: from an older version"),
    Column("tier", Integer, comment="of the session; null: from an older version"),
    Column("workdir", CleanText, comment="where the call would run; null: not known"),
    Column("input", CleanText, comment="redacted JSON; null: from an older version"),
    Column(
        "scripts",
        CleanText,
        comment="JSON list of `path`, `sha256`, `text` (redacted) of the scripts that the input names; `hidden`: "
        "parts of the text only look like secrets and are masked; `cut`: the file goes on; null: it names none",
    ),
    Column("reason", CleanText, comment="why the policy wants a person to decide; null: from an older version"),
    Column("mac", Name, comment="of the answer that decided; null: none has"),
    Column(
        "services",
        CleanText,
        comment="JSON list of the services that the call would change; null: the gate does not know all that is "
        "asked about",
    ),
    Column("needed", Integer, nullable=False, server_default="1", comment="how many different people must answer yes"),
    Column(
        "unheard",
        CleanText,
        comment="set once it is known to have reached no person: which targets failed, and what each one reported; "
        "null until then",
    ),
    Column(
        "hidden",
        Boolean,
        comment="parts of the input only look like secrets and are masked, so that people do not see the whole "
        "call; null: from before revision 0018",
    ),
    Column(
        "passkey", Boolean, comment="a yes counts with a passkey's signature alone; null: from before revision 0028"
    ),
    Index(None, "status", "expires_at"),
    Index(None, "session_id", "tool_use_id"),
    comment="Calls that need a person's yes, and what became of them.",
)

approval_messages: Final = table(
    "approval_messages",
    session_column("the session whose question it is"),
    # no reference: both go with the session
    Column("approval_id", Integer, nullable=False, comment="the question, of `approvals`"),
    Column("call_hash", Name, nullable=False, comment="as in `approvals`"),
    Column("target", Name, nullable=False, comment="its name in `notify.toml`"),
    Column("chat", Name, nullable=False, comment="the chat's id"),
    Column("yes_digest", Name, comment="SHA-256 of the yes button's token and the chat; null: it has no such button"),
    Column("no_digest", Name, comment="SHA-256 of the no button's token and the chat; null: it has no such button"),
    Column("external_id", Name, comment="the message's id in the chat; null: it is not known to have arrived"),
    Column("sent_at", UtcDateTime, nullable=False, comment="when it was sent"),
    Column(
        "used_at",
        UtcDateTime,
        comment="when the answer that decided the question came by one of its tokens; null: none did",
    ),
    Column("shown", Name, comment="the status that it shows; null: it asks"),
    Column("edited_at", UtcDateTime, comment="when it was edited to show that; null: not yet"),
    Index(None, "session_id"),
    Index(None, "approval_id"),
    Index(None, "shown", "sent_at"),
    Index(None, "external_id"),
    Index("uq_approval_messages_yes_digest", "yes_digest", unique=True),
    Index("uq_approval_messages_no_digest", "no_digest", unique=True),
    comment="Messages that ask in a chat whether a call may run. A row is written before its message is sent.",
)

approval_answers: Final = table(
    "approval_answers",
    # Questions are removed with their session, and answers with their question.
    Column(
        "approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False, comment="the question"
    ),
    Column("person", Name, nullable=False, comment="the name without the way by which the answer came, in lower case"),
    Column("status", Name, nullable=False, comment="the answer: `approved` or `denied`"),
    Column(
        "decided_by",
        Name,
        nullable=False,
        comment="the operator's name at the shell, or `telegram:` or `slack:` and the approver's",
    ),
    Column("decided_at", UtcDateTime, nullable=False, comment="when the answer came"),
    Column(
        "mac",
        Name,
        nullable=False,
        comment="proves that the answer is this person's to this question; only rows with a valid one let a call run",
    ),
    Column(
        "assertion",
        Name,
        comment="the `digest` in `passkey_assertions`, which the proof covers; null: no passkey has signed",
    ),
    UniqueConstraint("approval_id", "person", "status"),
    comment="What people answered, each answer with its own proof. A person's yes counts once.",
)

passkey_assertions: Final = table(
    "passkey_assertions",
    # As answers, they are removed with their question.
    Column(
        "approval_id", Integer, ForeignKey("approvals.id", ondelete="CASCADE"), nullable=False, comment="the question"
    ),
    # no reference: users stay on record
    Column("user_id", Integer, nullable=False, comment="who signed, of `users`"),
    Column("digest", Name, nullable=False, comment="SHA-256 of what follows, as `approval_answers` names it"),
    Column("call_hash", Name, nullable=False, comment="as in `approvals`"),
    Column("answer", Name, nullable=False, comment="`approve`"),
    Column("nonce", Name, nullable=False, comment="32 random bytes, in hex"),
    Column("expires_at", UtcDateTime, nullable=False, comment="until when it could be signed"),
    Column("rp_id", Name, nullable=False, comment="the host by which the page was called"),
    Column("credential_id", CleanText, nullable=False, comment="of the passkey"),
    Column("public_key", CleanText, nullable=False, comment="SubjectPublicKeyInfo in DER, as OpenSSL reads it"),
    Column(
        "authenticator_data",
        CleanText,
        nullable=False,
        comment="what the authenticator adds: the host's hash, flags and its count",
    ),
    Column("client_data", CleanText, nullable=False, comment="JSON with the challenge"),
    Column("signature", CleanText, nullable=False, comment="of `authenticator_data` and the SHA-256 of `client_data`"),
    Column("sign_count", Count, nullable=False, comment="that the authenticator named; 0: it does not count"),
    Column("created_at", UtcDateTime, nullable=False, comment="when the signature came"),
    Index(None, "approval_id"),
    Index("uq_passkey_assertions_digest", "digest", unique=True),
    comment="What passkeys have signed, each under one yes, with all that is needed to check the signature again.",
)
