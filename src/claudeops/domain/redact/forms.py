"""One secret as a regular expression (google-re2, bytes, Latin-1) that knows every form it may be written in.

As it is; with any of its characters JSON-escaped, at any depth of JSON within JSON; percent-encoded, also more
than once; in base64 (standard and URL-safe alphabet, at any position within a longer encoded text, wrapped or
not); in hexadecimal.
"""

from __future__ import annotations

import base64
from typing import Final

import re2

# A backslash in the pattern below is one in the text: JSON within JSON doubles it at every level, hence \\+.
_ESCAPED: Final = {
    '"': rb'\\*"',
    "'": rb"\\*'",
    "/": rb"\\*/",
    "\\": rb"\\+",
    " ": rb" |\+",
    "\n": rb"(?:\r|\\+r|\\+u000[dD]|%(?:25)*0[dD])?(?:\n|\\+n|\\+u000[aA]|%(?:25)*0[aA])",
    "\r": rb"\r|\\+r",
    "\t": rb"\t|\\+t",
    "\b": rb"\x08|\\+b",
    "\f": rb"\f|\\+f",
}
_BASE64: Final = {
    ord("+"): rb"(?:[+-]|%2[bB]|\\+u002[bB])",
    ord("/"): rb"(?:\\*/|_|%2[fF]|\\+u002[fF])",
}
_WRAP: Final = rb"[\s\\rnt]*"  # line ends, escaped ones too; one class, because it stands between all characters
_PADDING: Final = rb"(?:=|%3[dD]|\\+u003[dD]){0,2}"
_PARTIAL: Final = rb"[A-Za-z0-9+/_-]?"  # a character that carries bits of the secret and of its neighbour


def pattern(secret: str) -> bytes:
    """Return the expression that matches ``secret`` in all its forms; it has no capturing group."""
    raw = secret.encode("utf-8", "surrogatepass")
    plain = b"".join(_character(character) for character in secret)
    hexadecimal = b"".join(_hex(byte) for byte in raw)
    return b"|".join((plain, hexadecimal, *(_base64(raw, offset) for offset in range(3))))


def _character(character: str) -> bytes:
    raw = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    forms = [
        _ESCAPED.get(character) or re2.escape(raw),
        b"".join(rb"\\+u" + _hex(high) + _hex(low) for high, low in zip(units[::2], units[1::2], strict=True)),
        b"".join(b"%(?:25)*" + _hex(byte) for byte in raw),
    ]
    if "\udc80" <= character <= "\udcff":  # how Python reads a byte of the environment that is no UTF-8
        forms.append(re2.escape(bytes([ord(character) - 0xDC00])))
        forms.append("\ufffd".encode())
    return b"(?:" + b"|".join(forms) + b")"


def _hex(byte: int) -> bytes:
    return b"".join(
        b"[%c%c]" % (digit, digit - 32) if digit >= ord("a") else bytes([digit]) for digit in b"%02x" % byte
    )


def _base64(raw: bytes, offset: int) -> bytes:
    """Return the part of the encoded text that depends on the secret alone, when ``offset`` bytes stand before it."""
    first = -(-8 * offset // 6)  # six bits a character: the first whole one, and the one after the last
    end = 8 * (offset + len(raw)) // 6
    encoded = base64.b64encode(b"\0" * offset + raw)[first:end]
    whole = _WRAP.join(_BASE64.get(byte) or bytes([byte]) for byte in encoded)
    before = _PARTIAL if offset else b""
    after = _PARTIAL if 8 * (offset + len(raw)) % 6 else b""
    return before + whole + after + _PADDING
