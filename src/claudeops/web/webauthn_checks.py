"""What the library `webauthn` checks of a passkey's answers. Imported only where a passkey is used: it is an extra."""

from __future__ import annotations

from typing import Final

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from webauthn import verify_authentication_response, verify_registration_response
from webauthn.helpers import decode_credential_public_key, decoded_public_key_to_cryptography
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.exceptions import WebAuthnException

from claudeops.domain.gate.passkey import Assertion, Challenge, Passkey, PasskeyPlace, packed, unpacked

_ALGORITHMS: Final = (
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
)
ALGORITHMS: Final = tuple(int(one) for one in _ALGORITHMS)
"""The signatures that are taken, as COSE numbers them."""

_FAULTS: Final = (WebAuthnException, ValueError, KeyError, TypeError, AttributeError)


class _Signed(msgspec.Struct, rename="camel"):
    authenticator_data: str
    signature: str
    client_data: str = msgspec.field(name="clientDataJSON")


class _Credential(msgspec.Struct):
    id: str
    response: _Signed


def registered(text: str, challenge: bytes, place: PasskeyPlace) -> tuple[str, str, int] | None:
    """Return the credential's id, its public key and count; None: the browser's answer does not hold."""
    try:
        found = verify_registration_response(
            credential=text,
            expected_challenge=challenge,
            expected_rp_id=place.rp_id,
            expected_origin=place.origin,
            require_user_verification=True,
            supported_pub_key_algs=list(_ALGORITHMS),
        )
    except _FAULTS:
        return None
    return packed(found.credential_id), packed(found.credential_public_key), found.sign_count


def signed(text: str, challenge: Challenge, place: PasskeyPlace, passkey: Passkey) -> Assertion | None:
    """Return the signature that a passkey has made, as it goes on record; None: it does not hold."""
    try:
        found = verify_authentication_response(
            credential=text,
            expected_challenge=challenge.digest,
            expected_rp_id=place.rp_id,
            expected_origin=place.origin,
            credential_public_key=unpacked(passkey.public_key),
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
        sent = msgspec.json.decode(text, type=_Credential)
        return Assertion(
            challenge=challenge,
            user_id=passkey.user_id,
            rp_id=place.rp_id,
            credential_id=packed(found.credential_id),
            public_key=packed(_as_openssl_reads_it(passkey.public_key)),
            authenticator_data=sent.response.authenticator_data,
            client_data=sent.response.client_data,
            signature=sent.response.signature,
            sign_count=found.new_sign_count,
        )
    except _FAULTS:
        return None


def _as_openssl_reads_it(public_key: str) -> bytes:
    found = decoded_public_key_to_cryptography(decode_credential_public_key(unpacked(public_key)))
    return found.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
