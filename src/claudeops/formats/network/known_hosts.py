"""Files of known hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): which hosts they name, and with which keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from claudeops.formats.network.ssh_config import any_matches

_MOST_LINES: Final = 2_000
MOST_COMPARISONS: Final = 500_000
"""Of names with hashed lines, every one with every one, at 1.5 µs. A name that comes after that is not found there."""
_HASHED: Final = "|1|"
_HASHED_PARTS: Final = 4  # "", "1", salt, hash
_REVOKED: Final = "@revoked"
_AUTHORITY: Final = "@cert-authority"
_PATTERN: Final = frozenset("*?!")
_PARTS: Final = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
"""Of how many parts keys consist, by kind: RFC 4253, 5656 and 8709, PROTOCOL.u2f. OpenSSH reads no other kinds."""
_SHORTEST_RSA: Final = 128  # bytes of the modulus that OpenSSH accepts
_LENGTH: Final = 4  # bytes in front of each part


class HostKey(msgspec.Struct, frozen=True):
    """A key with which a host proves to be itself, or of the authority that signs such keys."""

    kind: str
    blob: str  # base64
    authority: bool = False

    def line(self, name: str) -> str:
        """Return it as a line of such a file."""
        marker = f"{_AUTHORITY} " if self.authority else ""
        return f"{marker}{name} {self.kind} {self.blob}"


class _Entry(msgspec.Struct, frozen=True):
    names: str  # lower case
    key: HostKey | None  # None: not one that can be read
    marker: str
    hashed: tuple[bytes, bytes] | None  # salt and hash

    def is_for(self, name: str) -> bool:
        """Whether it is about a name, where it is not hashed."""
        patterns = self.names.split(",")
        unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
        return any_matches(name, wanted) and not any_matches(name, unwanted)


class KnownHosts:
    """Files of known hosts that were read, one after the other."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.is_whole = len(lines) <= _MOST_LINES + 1  # the last one ends with a newline
        entries = [entry for entry in map(_entry, lines[:_MOST_LINES]) if entry is not None]
        self._hashed = [(*entry.hashed, entry) for entry in entries if entry.hashed is not None]
        self._patterns = [entry for entry in entries if entry.hashed is None and _PATTERN & {*entry.names}]
        self._by_name: dict[str, list[_Entry]] = {}
        for entry in entries:
            if entry.hashed is None and not _PATTERN & {*entry.names}:
                for name in entry.names.split(","):
                    self._by_name.setdefault(name, []).append(entry)
        self._revoked = {entry.key.blob for entry in entries if entry.marker == _REVOKED and entry.key is not None}
        self._found: dict[str, tuple[_Entry, ...]] = {}
        self._comparisons = MOST_COMPARISONS  # that are left

    def knows(self, names: Collection[str]) -> bool:
        """Whether some line is about one of these names, whatever its key."""
        return any(entry.marker != _REVOKED for name in names for entry in self._about(name))

    def keys_of(self, name: str) -> tuple[HostKey, ...]:
        """Return the keys of a host, each once, but those that are revoked."""
        return tuple(
            dict.fromkeys(
                entry.key
                for entry in self._about(name)
                if entry.marker != _REVOKED and entry.key is not None and entry.key.blob not in self._revoked
            )
        )

    def names(self) -> Iterator[str]:
        """Yield the names that stand there as they are, in lower case."""
        yield from self._by_name

    def _about(self, name: str) -> tuple[_Entry, ...]:
        """Return the lines that are about a name."""
        if name not in self._found:
            searched = (entry for entry in self._patterns if entry.is_for(name))
            self._found[name] = (*self._by_name.get(name, ()), *searched, *self._with_hash_of(name))
        return self._found[name]

    def _with_hash_of(self, name: str) -> list[_Entry]:
        if self._comparisons < len(self._hashed):
            return []
        self._comparisons -= len(self._hashed)
        text = name.encode()
        return [entry for salt, wanted, entry in self._hashed if hmac.digest(salt, text, hashlib.sha1) == wanted]


def _entry(line: str) -> _Entry | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if not fields or fields[0].startswith("#") or marker not in {"", _REVOKED, _AUTHORITY}:
        return None
    key, hashed = _key(fields[1:], authority=marker == _AUTHORITY), _salt_and_hash(fields[0])
    if fields[0].startswith(_HASHED) and hashed is None:
        return None
    return _Entry(fields[0].lower(), key, marker, hashed)


def _key(fields: list[str], *, authority: bool) -> HostKey | None:
    """Return the key at the end of a line, if OpenSSH reads it: one that it does not would spoil a whole list."""
    if len(fields) < 2 or fields[0] not in _PARTS:  # noqa: PLR2004 - kind and key; a comment may follow
        return None
    try:
        parts = _parts(base64.b64decode(fields[1], validate=True))
    except ValueError:  # binascii.Error is one, too
        return None
    kind = fields[0]
    if parts is None or len(parts) != _PARTS[kind] or parts[0] != kind.encode():
        return None
    if kind == "ssh-rsa" and len(parts[2].lstrip(b"\0")) < _SHORTEST_RSA:
        return None
    if kind == "ssh-ed25519" and len(parts[1]) != 32:  # noqa: PLR2004 - RFC 8709
        return None
    return HostKey(kind, fields[1], authority)


def _parts(blob: bytes) -> list[bytes] | None:
    """Return the strings that a key consists of (RFC 4251), None where it is cut off."""
    parts: list[bytes] = []
    while blob:
        length = int.from_bytes(blob[:_LENGTH], "big")
        if len(blob) < _LENGTH + length:
            return None
        parts.append(blob[_LENGTH : _LENGTH + length])
        blob = blob[_LENGTH + length :]
    return parts


def _salt_and_hash(listed: str) -> tuple[bytes, bytes] | None:
    """Return what ssh's HashKnownHosts wrote: HMAC-SHA1 of a name, with the salt as its key; None: it did not."""
    parts = listed.split("|")
    if not listed.startswith(_HASHED) or len(parts) != _HASHED_PARTS:
        return None
    try:
        return base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except ValueError:
        return None
