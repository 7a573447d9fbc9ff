"""An authority of the tests' own, and certificates that it issues: good ones, and each kind of bad one."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Somebody who signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def trust(self) -> ssl.SSLContext:
        """Return a context that trusts this authority and no other."""
        return ssl.create_default_context(cadata=self.pem)

    def issue(
        self, path: Path, *, names: tuple[str, ...] = ("localhost", "127.0.0.1"), days: float = 90, begins: float = -400
    ) -> Path:
        """Write a certificate with its key to a file, and return its path."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _signed(key, names, days=days, begins=begins, issuer=self.certificate.subject, by=self.key)
        path.write_bytes(_private(key) + signed.public_bytes(serialization.Encoding.PEM))
        return path


def make_authority() -> Authority:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority.example.org")])
    certificate = _signed(key, (), days=900, begins=-900, issuer=name, by=key, subject=name, is_authority=True)
    return Authority(key=key, certificate=certificate)


def self_signed(path: Path, *, names: tuple[str, ...] = ("localhost", "127.0.0.1"), days: float = 90) -> Path:
    """Write a certificate that nobody but itself vouches for, with its key; return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    signed = _signed(key, names, days=days, begins=-400, issuer=name, by=key, subject=name)
    path.write_bytes(_private(key) + signed.public_bytes(serialization.Encoding.PEM))
    return path


def serving_with(path: Path) -> ssl.SSLContext:
    """Return the context of a server that shows a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def _signed(
    key: ec.EllipticCurvePrivateKey,
    names: tuple[str, ...],
    *,
    days: float,
    begins: float,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    subject: x509.Name | None = None,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=days, minutes=5))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    return builder.sign(by, hashes.SHA256())


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
