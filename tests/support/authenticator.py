"""A passkey in software: makes and signs what an authenticator and a browser would."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import encode_cbor

from claudeops.domain.gate.passkey import packed

VERIFIED = 0b101
"""Its owner was there, and it has seen that it was its owner."""
PRESENT = 0b001


@dataclass
class Authenticator:
    """One passkey, at one site."""

    rp_id: str = "localhost"
    origin: str = "http://localhost:8080"
    id: bytes = b"i" * 16
    count: int = 0
    step: int = 1  # 0: it does not count what it signs, as those of phones do not
    flags: int = VERIFIED
    key: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))

    def register(self, challenge: str) -> str:
        """Return a browser's answer for a new passkey."""
        numbers = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + encode_cbor(cose)
        data = self._data(0b1000000) + attested
        attestation = encode_cbor({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", challenge)
        return self._answer({"clientDataJSON": packed(client), "attestationObject": packed(attestation)})

    def sign(self, challenge: str, *, kind: str = "webauthn.get") -> str:
        """Return a browser's answer for a signature."""
        self.count += self.step
        data, client = self._data(0), self._client(kind, challenge)
        signature = self.key.sign(data + sha256(client).digest(), ECDSA(SHA256()))
        return self._answer(
            {
                "clientDataJSON": packed(client),
                "authenticatorData": packed(data),
                "signature": packed(signature),
            }
        )

    def _data(self, more: int) -> bytes:
        return sha256(self.rp_id.encode()).digest() + bytes([self.flags | more]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str) -> bytes:
        said = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return json.dumps(said).encode()

    def _answer(self, response: dict[str, str]) -> str:
        own = {"id": packed(self.id), "rawId": packed(self.id), "type": "public-key"}
        return json.dumps({**own, "response": response})
