"""A session's own authority: it certifies what the daemon answers as (hosts with a header, clusters), to it alone.

Its key, and those of the certificates, are in the daemon's memory and nowhere else; they are gone with the session.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from claudeops.domain.estate.strangers import address_in

if TYPE_CHECKING:  # takes as long to import as all the rest, and most installations add no header
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

ALPN: Final = "http/1.1"
_EARLY: Final = timedelta(minutes=5)
_HOST_AGE: Final = timedelta(days=2)  # longer than any session runs
_OWN_AGE: Final = timedelta(days=3)


class Authority:
    """Makes certificates. Used on one thread."""

    def __init__(self, now: datetime | None = None, *, name: str = "headers") -> None:
        from cryptography import x509  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
        from cryptography.x509.oid import NameOID  # noqa: PLC0415 - as above

        self._now = now or datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"claudeops: {name} of this session")])
        self._contexts: dict[str, ssl.SSLContext] = {}
        usage = _usage(certifies=True)
        own = (
            self._builder(self._name, self._key.public_key(), _OWN_AGE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self.certificate: Final = self._signed(own).public_bytes(serialization.Encoding.PEM).decode()
        """As PEM: what a session trusts besides the machine's authorities."""

    def context_for(self, host: str) -> ssl.SSLContext:
        """Return what answers as a host, by HTTP/1.1."""
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols([ALPN])
            _load(context, self.certified(host))
            self._contexts[host] = context
        return self._contexts[host]

    def certified(self, host: str) -> bytes:
        """Return a key and the certificate of a host, as PEM."""
        from cryptography import x509  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415 - as above

        key = ec.generate_private_key(ec.SECP256R1())
        named = x509.DNSName(host) if address_in(host) is None else x509.IPAddress(ipaddress.ip_address(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])  # the longest that X.520 has room for
        builder = (
            self._builder(subject, key.public_key(), _HOST_AGE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([named]), critical=False)
            .add_extension(_usage(certifies=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private + self._signed(builder).public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, age: timedelta) -> x509.CertificateBuilder:
        from cryptography import x509  # noqa: PLC0415 - as above

        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _EARLY)
            .not_valid_after(self._now + age)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - as above

        return builder.sign(self._key, hashes.SHA256())


def _usage(*, certifies: bool) -> x509.KeyUsage:
    from cryptography import x509  # noqa: PLC0415 - as above

    return x509.KeyUsage(
        digital_signature=not certifies,
        key_cert_sign=certifies,
        crl_sign=certifies,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Give a context its key and certificate; ssl reads them from a path, so from memory that has one."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
