"""Private keys of ssh, as files hold them: what is one, whether it has a passphrase, and its public half.

OpenSSH's own form has the public key in front, in the open, so that it is known without the private one.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

OWN_FORM_CHARACTERS: Final = 64
"""So many from the beginning of a file show whether it is a key in a form that only ssh's keys have."""

_OPENSSH: Final = "-----BEGIN OPENSSH PRIVATE KEY-----"
_PUTTY: Final = "PuTTY-User-Key-File-"  # OpenSSH does not read it
_BEGIN: Final = "-----BEGIN "
_END: Final = "-----END "
_PRIVATE: Final = "PRIVATE KEY-----"
_ENCRYPTED: Final = "ENCRYPTED"  # in the first line (PKCS#8), or in a header ("Proc-Type: 4,ENCRYPTED")
_HEADERS: Final = 3  # lines below the first
_MAGIC: Final = b"openssh-key-v1\0"
_COUNT_BYTES: Final = 4  # of the number of keys, in front of the public one
_LENGTH: Final = 4  # bytes in front of each string


class PrivateKey(msgspec.Struct, frozen=True):
    """What everybody may know of a private key."""

    is_locked: bool = False  # it has a passphrase
    public: str | None = None  # as a line; None: the file does not say it in the open


def has_own_form(beginning: str) -> bool:
    """Whether a file that begins so is a private key of ssh, and of no other program."""
    return beginning.startswith((_OPENSSH, _PUTTY))


def private_key(text: str) -> PrivateKey | None:
    """Return what a file's text says of the private key in it; None: there is none."""
    if text.startswith(_PUTTY):
        return PrivateKey()
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith(_BEGIN) and _PRIVATE in line), None)
    if first is None:
        return None
    if lines[first].startswith(_OPENSSH):
        return _openssh(lines[first + 1 :])
    return PrivateKey(is_locked=any(_ENCRYPTED in line for line in lines[first : first + 1 + _HEADERS]))


def _openssh(lines: list[str]) -> PrivateKey:
    """Read the beginning of OpenSSH's form (PROTOCOL.key): a cipher, two strings about it, a number, the public key."""
    end = next((at for at, line in enumerate(lines) if line.startswith(_END)), len(lines))
    try:
        content = base64.b64decode("".join(line.strip() for line in lines[:end]), validate=True)
    except ValueError:  # binascii.Error is one, too
        return PrivateKey()
    if not content.startswith(_MAGIC):
        return PrivateKey()
    cipher, rest = _string(content[len(_MAGIC) :])
    for _ in range(2):
        _, rest = _string(rest)
    blob, _ = _string(rest[_COUNT_BYTES:])
    kind, _ = _string(blob)
    public = f"{kind.decode('ascii', 'replace')} {base64.b64encode(blob).decode()}"
    return PrivateKey(is_locked=cipher != b"none", public=public if kind else None)


def _string(content: bytes) -> tuple[bytes, bytes]:
    """Return the string with which it begins, and what follows."""
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "big")
    return content[_LENGTH:end], content[end:]
