"""What passkeys have signed: kept with the answers, and checked again from what is on record alone.

A second check needs no library but the one for keys: the public key stands beside the signature. Whoever can write to
the database can write a key and a signature of his own there, and a passkey into its table as well, so comparing the
two would prove nothing. What he lacks is the approval key, which is no part of the database: the proof of the answer
names the digest of the signature, public key included. So with that key the proof is checked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from claudeops.domain.gate.approval import Answer, Approval, ApprovalStatus, proven
from claudeops.domain.gate.passkey import YES, Assertion, Challenge, content_fault, unpacked
from claudeops.store.rows import TableRow
from claudeops.store.tables.approvals import approval_answers, approvals, passkey_assertions
from claudeops.store.tables.web import passkeys


class SignatureFault(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that is not as it was kept."""

    session_id: int
    is_missing: bool
    says: str  # without a full stop


def keep_signature(connection: Connection, row: Approval, said: Answer, made: Assertion) -> bool:
    """Keep a passkey's signature with its answer; return ``False`` if the passkey is gone, or has signed since."""
    columns, count = passkeys.c, made.sign_count
    is_next = columns.sign_count < count if count else columns.sign_count == 0
    used = connection.execute(
        update(passkeys)
        .where(columns.credential_id == made.credential_id, columns.user_id == made.user_id, is_next)
        .values(sign_count=count, last_used_at=said.decided_at)
    )
    kept = passkey_assertions.c
    same = select(kept.id).where(kept.digest == made.digest)
    if used.rowcount != 1 or connection.execute(same).first() is not None:
        return False
    values = {
        "approval_id": row.id,
        "user_id": made.user_id,
        "digest": made.digest,
        "call_hash": made.challenge.call_hash,
        "answer": made.challenge.answer,
        "nonce": made.challenge.nonce.hex(),
        "expires_at": made.challenge.expires_at,
        "rp_id": made.rp_id,
        "credential_id": made.credential_id,
        "public_key": made.public_key,
        "authenticator_data": made.authenticator_data,
        "client_data": made.client_data,
        "signature": made.signature,
        "sign_count": made.sign_count,
        "created_at": said.decided_at,
    }
    connection.execute(insert(passkey_assertions).values(values))
    return True


def has_signatures(connection: Connection) -> bool:
    """Tell whether any answer names a passkey's signature."""
    signed = select(approval_answers.c.id).where(approval_answers.c.assertion.is_not(None)).limit(1)
    return connection.execute(signed).first() is not None


def last_answer(connection: Connection) -> int:
    """Return the highest id of an answer; 0: there is none."""
    return connection.execute(select(func.max(approval_answers.c.id))).scalar() or 0


def signature_faults(
    connection: Connection, session_id: int | None, key: bytes | None, *, above: int, up_to: int
) -> Iterator[SignatureFault]:
    """Yield the answers of a session, or of all, whose passkey has not signed what they say.

    They are those with an id ``above`` one and ``up_to`` another. ``key`` is the one by which answers are proven; None:
    it is not at hand, and the proofs are not checked.
    """
    query = (
        select(
            approvals.c.session_id,
            approvals.c.call_hash.label("asked"),
            approval_answers.c.approval_id.label("question"),
            approval_answers.c.status,
            approval_answers.c.decided_by,
            approval_answers.c.decided_at,
            approval_answers.c.mac,
            approval_answers.c.assertion,
            passkey_assertions,
        )
        .select_from(approval_answers)
        .join(approvals, approvals.c.id == approval_answers.c.approval_id)
        .outerjoin(passkey_assertions, passkey_assertions.c.digest == approval_answers.c.assertion)
        .where(approval_answers.c.assertion.is_not(None))
        .where(approval_answers.c.id > above, approval_answers.c.id <= up_to)
        .order_by(approval_answers.c.id)
    )
    if session_id is not None:
        query = query.where(approvals.c.session_id == session_id)
    for row in connection.execute(query):
        fault = _fault(row)
        if not fault and key is not None and not _is_proven(key, row):
            fault = "is not the one that the person gave, or the approval key has been replaced since"
        if fault:
            says = f"the passkey's signature under the yes to approval {row.question} {fault}"
            yield SignatureFault(session_id=row.session_id, is_missing=row.digest is None, says=says)


def _fault(row: TableRow) -> str:
    if row.digest is None:
        return "is gone, or no longer says what it said"
    try:
        nonce = bytes.fromhex(row.nonce)
    except ValueError:
        return "cannot be read"
    made = Assertion(
        challenge=Challenge(
            nonce=nonce,
            call_hash=row.call_hash,
            approval_id=row.approval_id,
            expires_at=row.expires_at,
            answer=row.answer,
        ),
        user_id=row.user_id,
        rp_id=row.rp_id,
        credential_id=row.credential_id,
        public_key=row.public_key,
        authenticator_data=row.authenticator_data,
        client_data=row.client_data,
        signature=row.signature,
    )
    if made.digest != row.digest:
        return "no longer says what it said"
    signed = (made.challenge.approval_id, made.challenge.call_hash, made.challenge.answer)
    if signed != (row.question, row.asked, YES) or row.status != ApprovalStatus.APPROVED:
        return "is under another answer"
    if fault := content_fault(made):
        return fault
    return "" if _is_signed(made) else "does not hold"


class _Asked(NamedTuple):
    id: int
    session_id: int
    call_hash: str


def _is_proven(key: bytes, row: TableRow) -> bool:
    """Return whether the answer with this signature was given by a holder of the key."""
    said = Answer(
        status=ApprovalStatus(row.status),
        decided_by=row.decided_by,
        decided_at=row.decided_at,
        mac=row.mac,
        assertion=row.assertion,
    )
    return proven(key, _Asked(id=row.question, session_id=row.session_id, call_hash=row.asked), said)


def _is_signed(made: Assertion) -> bool:
    """Return whether the public key on record has signed what is on record."""
    # 30 ms that no other reader of the database needs.
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415

    try:
        key, signature = load_der_public_key(unpacked(made.public_key)), unpacked(made.signature)
        if isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, made.signed, ECDSA(SHA256()))
        elif isinstance(key, Ed25519PublicKey):
            key.verify(signature, made.signed)
        elif isinstance(key, RSAPublicKey):
            key.verify(signature, made.signed, PKCS1v15(), SHA256())
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True
