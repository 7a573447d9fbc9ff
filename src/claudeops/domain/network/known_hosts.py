"""Files of known hosts (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): which hosts they name, and with which keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from claudeops.domain.network.ssh_config import any_matches

_MOST_LINES: Final = 2_000  # each hashed one is compared with every host
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


@dataclass(frozen=True, slots=True)
class HostKey:
    """A key with which a host proves to be itself, or of the authority that signs such keys."""

    kind: str
    blob: str  # base64
    authority: bool = False

    def line(self, name: str) -> str:
        """Return it as a line of such a file."""
        marker = f"{_AUTHORITY} " if self.authority else ""
        return f"{marker}{name} {self.kind} {self.blob}"


@dataclass(frozen=True, slots=True)
class _Entry:
    names: str  # lower case unless hashed
    key: HostKey | None  # None: not one that can be read
    marker: str

    def is_for(self, names: Collection[str]) -> bool:
        if self.names.startswith(_HASHED):
            return any(_is_hash_of(self.names, name) for name in names)
        patterns = self.names.split(",")
        unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
        wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
        return any(any_matches(name, wanted) and not any_matches(name, unwanted) for name in names)


class KnownHosts:
    """Files of known hosts that were read, one after the other."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.is_whole = len(lines) <= _MOST_LINES + 1  # the last one ends with a newline
        self._entries = [entry for entry in map(_entry, lines[:_MOST_LINES]) if entry is not None]
        self._by_name: dict[str, list[_Entry]] = {}
        for entry in self._entries:
            if not _is_searched(entry):
                for name in entry.names.split(","):
                    self._by_name.setdefault(name, []).append(entry)
        self._searched = [entry for entry in self._entries if _is_searched(entry)]

    def knows(self, names: Collection[str]) -> bool:
        """Whether some line is about one of these names, whatever its key."""
        return any(entry.marker != _REVOKED and entry.is_for(names) for entry in self._entries)

    def keys_of(self, name: str) -> tuple[HostKey, ...]:
        """Return the keys of a host, each once, but those that are revoked."""
        found = (*self._by_name.get(name, ()), *(entry for entry in self._searched if entry.is_for((name,))))
        revoked = {entry.key.blob for entry in self._entries if entry.marker == _REVOKED and entry.key is not None}
        return tuple(
            dict.fromkeys(
                entry.key
                for entry in found
                if entry.marker != _REVOKED and entry.key is not None and entry.key.blob not in revoked
            )
        )

    def names(self) -> Iterator[str]:
        """Yield the names that stand there as they are, in lower case."""
        yield from self._by_name


def _is_searched(entry: _Entry) -> bool:
    """Whether an entry is compared with each name: what it names cannot be read off it."""
    return entry.names.startswith(_HASHED) or bool(_PATTERN & {*entry.names})


def _entry(line: str) -> _Entry | None:
    fields = line.split()
    marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
    if not fields or fields[0].startswith("#") or marker not in {"", _REVOKED, _AUTHORITY}:
        return None
    names = fields[0] if fields[0].startswith(_HASHED) else fields[0].lower()
    return _Entry(names, _key(fields[1:], authority=marker == _AUTHORITY), marker)


def _key(fields: list[str], *, authority: bool) -> HostKey | None:
    """Return the key at the end of a line, if OpenSSH reads it: one that it does not would spoil a whole list."""
    if len(fields) < 2 or fields[0] not in _PARTS:  # noqa: PLR2004 - kind and key; a comment may follow
        return None
    try:
        parts = _parts(base64.b64decode(fields[1], validate=True))
    except binascii.Error:
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


def _is_hash_of(listed: str, name: str) -> bool:
    """Compare as ssh's HashKnownHosts does: HMAC-SHA1 of the name, with the salt as its key."""
    parts = listed.split("|")
    if len(parts) != _HASHED_PARTS:
        return False
    try:
        salt, wanted = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.digest(salt, name.encode(), hashlib.sha1) == wanted
