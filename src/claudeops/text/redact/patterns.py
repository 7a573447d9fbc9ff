"""What redaction searches for: known secrets in every written form, and the shapes of unknown ones.

All expressions are for google-re2 over bytes, in Latin-1. A known secret is found as it is; with any of its characters
JSON-escaped, at any depth of JSON within JSON; percent-encoded, also more than once; in base64 (standard and URL-safe
alphabet, at any position within a longer encoded text, wrapped or not); and in hexadecimal.

The shapes are the formats that issuers of secrets publish for secret scanners. No shape is made of hexadecimal digits
or plain letters alone, so that UUIDs, commit hashes, session ids and numbers stay readable.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import re2

from claudeops.text import signs

# A backslash in these patterns is one in the text. JSON within JSON doubles it at every level, hence \\+.
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
_WRAP: Final = rb"[\s\\rnt]*"  # line ends, escaped ones too; one class, because it comes between all characters
_PADDING: Final = rb"(?:=|%3[dD]|\\+u003[dD]){0,2}"
_TORN: Final = rb"(?:\\+(?:u[0-9a-fA-F]{0,3})?|%(?:25)*[0-9a-fA-F]?)"  # of a form of one character
_PARTIAL: Final = rb"[A-Za-z0-9+/_-]?"  # a character that carries bits of the secret and of its neighbour


def pattern(secret: str) -> bytes:
    """Return the expression that matches ``secret`` in all its forms; it has no capturing groups."""
    raw = secret.encode("utf-8", "surrogatepass")
    plain = b"".join(_character(character) for character in secret)
    hexadecimal = b"".join(_hex(byte) for byte in raw)
    return b"|".join((plain, hexadecimal, *(_base64(raw, offset) for offset in range(3))))


def beginning(secret: str) -> bytes:
    """Return the expression that matches at the end of a text what may be the beginning of ``secret``, or all of it.

    It takes what `pattern` takes, also where it ends within a character's form. The secret is of ASCII.
    """
    raw = secret.encode("ascii")
    forms = [
        _begun([_character(character) for character in secret], _TORN),
        _begun([_hex(byte) for byte in raw], b"[0-9a-fA-F]"),
    ]
    for offset in range(3):
        before, characters, after = _base64_parts(raw, offset)
        wrapped = [_WRAP + character for character in characters[1:]]
        rest = _begun(wrapped, rb"(?:[\s\\rnt]+" + _TORN + b"?|" + _TORN + b")", last=after + _TORN + b"?")
        whole = _begun([characters[0]], _TORN, last=b"(?:" + rest + b")?")
        forms.append(before + whole)
        forms += [before] if before else []
    return rb"(?:" + b"|".join(forms) + rb")\z"


def _begun(units: Sequence[bytes], torn: bytes, *, last: bytes = b"") -> bytes:
    """Return the expression of some first units, or all of them, and of a part of the next one."""
    whole = last
    for number, unit in enumerate(reversed(units)):
        rest = b"(?:" + whole + b")?" if number else whole
        whole = b"(?:" + unit + rest + b"|" + torn + b")"
    return whole


def _character(character: str) -> bytes:
    raw = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    forms = [
        _ESCAPED.get(character) or re2.escape(raw),
        b"".join(rb"\\+u" + _hex(high) + _hex(low) for high, low in zip(units[::2], units[1::2], strict=True)),
        b"".join(b"%(?:25)*" + _hex(byte) for byte in raw),
    ]
    if "\udc80" <= character <= "\udcff":  # how Python reads a byte of the environment that is not UTF-8
        forms.append(re2.escape(bytes([ord(character) - 0xDC00])))
        forms.append("\ufffd".encode())
    return b"(?:" + b"|".join(forms) + b")"


def _hex(byte: int) -> bytes:
    return b"".join(
        b"[%c%c]" % (digit, digit - 32) if digit >= ord("a") else bytes([digit]) for digit in b"%02x" % byte
    )


def _base64(raw: bytes, offset: int) -> bytes:
    before, characters, after = _base64_parts(raw, offset)
    return before + _WRAP.join(characters) + after


def _base64_parts(raw: bytes, offset: int) -> tuple[bytes, list[bytes], bytes]:
    """Return the part of the encoded text that depends on the secret alone, with ``offset`` bytes in front of it.

    That is what may stand before its characters, the characters, and what may stand behind them.
    """
    first = -(-8 * offset // 6)  # six bits a character: the first whole one, and the one after the last
    end = 8 * (offset + len(raw)) // 6
    encoded = base64.b64encode(b"\0" * offset + raw)[first:end]
    characters = [_BASE64.get(byte) or bytes([byte]) for byte in encoded]
    before = _PARTIAL if offset else b""
    after = _PARTIAL if 8 * (offset + len(raw)) % 6 else b""
    return before, characters, after + _PADDING


# --- signs that nobody sees ---------------------------------------------------------------------------


def _between(
    low: Sequence[int], high: Sequence[int], *, ends: tuple[int, int], one: Callable[[int, int], bytes]
) -> bytes:
    """Return the expression of all numbers from one to another; both have as many digits, from ``ends``.

    ``one`` returns the expression of a range of digits.
    """
    if not low:
        return b""
    (first, *low_rest), (last, *high_rest) = low, high
    lowest, highest = [ends[0]] * len(low_rest), [ends[1]] * len(low_rest)

    def rest(begin: Sequence[int], end: Sequence[int]) -> bytes:
        return _between(begin, end, ends=ends, one=one)

    if first == last:
        return one(first, first) + rest(low_rest, high_rest)
    parts = []
    if low_rest != lowest:
        parts.append(one(first, first) + rest(low_rest, highest))
        first += 1
    if high_rest != highest:
        parts.append(one(last, last) + rest(lowest, high_rest))
        last -= 1
    if first <= last:
        parts.append(one(first, last) + rest(lowest, highest))
    return b"(?:" + b"|".join(parts) + b")"


def _bytes(low: int, high: int) -> bytes:
    return re2.escape(bytes([low])) if low == high else b"[\\x%02x-\\x%02x]" % (low, high)


def _digits(low: int, high: int) -> bytes:
    return b"[" + b"".join(_hex_digit(digit) for digit in range(low, high + 1)) + b"]"


def _hex_digit(digit: int) -> bytes:
    return b"%x%X" % (digit, digit) if digit > 9 else b"%d" % digit  # noqa: PLR2004 - the last that is no letter


def _in_hex(low: int, high: int, digits: int) -> bytes:
    """Return the expression of hexadecimal numbers from one to another, in either case."""
    places = range(4 * (digits - 1), -1, -4)
    first, last = ([number >> place & 15 for place in places] for number in (low, high))
    return _between(first, last, ends=(0, 15), one=_digits)


def _signs(low: int, high: int) -> bytes:
    """Return the expression of signs as they are, and escaped as in JSON or for people to see."""
    raw = _between(chr(low).encode(), chr(high).encode(), ends=(0x80, 0xBF), one=_bytes)
    if high <= 0xFFFF:  # noqa: PLR2004 - the last of one UTF-16 unit
        return raw + rb"|\\+u" + _in_hex(low, high, 4)
    (first, low_unit), (last, high_unit) = _units(low), _units(high)
    halves = rb"\\+u" + _in_hex(first, last, 4) + rb"\\+u" + _in_hex(low_unit, high_unit, 4)
    return raw + rb"|\\+U" + _in_hex(low, high, 8) + b"|" + halves


def _units(code: int) -> tuple[int, int]:
    """Return the halves of a surrogate pair."""
    raw = chr(code).encode("utf-16-be")
    return int.from_bytes(raw[:2]), int.from_bytes(raw[2:])


UNSEEN: Final = b"|".join(_signs(low, high) for low, high in signs.WIDTHLESS)
"""Signs that can stand within a secret so that it reads as before."""


# --- secrets by their shape ---------------------------------------------------------------------------


# What precedes a key may end in a letter without being a word: escapes of JSON, URLs and terminals.
_BEFORE: Final = rb"(?:\A|[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|\[[0-9;]*m)"
_QUOTES: Final = rb"[\"'\\]*"
_SEPARATOR: Final = rb"(?:[\"'\\:=]|\s|\\[nrt]){1,20}"
_VALUE: Final = rb"[^\s\"'\\,;<>&${][^\s\"'\\,;<>&]{5,}"  # not $TOKEN: a variable's name is not a secret
_SLASH: Final = rb"\\*/"

_KEYS: Final = b"|".join(
    (
        rb"sk-(?:ant|proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{10,}",  # Anthropic, OpenAI, OpenRouter, Langfuse
        rb"sk-[A-Za-z0-9]{20,}",  # OpenAI, older
        rb"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        rb"gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent)-[A-Za-z0-9_.-]{16,}",  # GitLab
        rb"xox[abceoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}",  # Slack
        rb"(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
        rb"AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,}",  # Google
        rb"hf_[A-Za-z0-9]{20,}",  # Hugging Face
        rb"npm_[A-Za-z0-9]{20,}|pypi-(?:AgE[A-Za-z0-9_-]{16,}|[A-Za-z0-9_-]{64,})",
        rb"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/]{16,}=*",  # Stripe
        rb"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_.-]*",  # JSON Web Token
        rb"hv[sbr]\.[A-Za-z0-9_-]{20,}",  # Vault
        rb"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
        rb"do[opr]_v1_[a-f0-9]{40,}|tskey-[A-Za-z0-9-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{40,}",
        rb"(?:bot)?[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",  # Telegram
        rb"cops_[0-9]{1,9}_[A-Za-z0-9_-]{40,}",  # our own
    )
)
_AUTHORIZATION: Final = rb"(?:bearer|basic|token|digest|api-?key)"
_KEY_NAMES: Final = (
    rb"(?:x-api-key|x-auth-token|x-vault-token|x-amz-security-token|private-token|job-token"
    rb"|secret_?access_?key|aws_session_token)"
)
_PARAMETERS: Final = (
    rb"(?:(?:[a-z]+[_-])?(?:token|password|secret)|passwd|pass|pwd|(?:x[_-])?api[_-]?key|access[_-]?key"
    rb"|sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))"
)
_EQUALS: Final = rb"(?:=|\\+u003d|%3d)"

_PEM: Final = rb"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_PEM_TEXT: Final = rb"(?:[^\"'`<>{}$;\\]|\\+[rnt])"  # with what `cat -n` or a log prefix adds to the lines
_LINE_END: Final = rb"(?:\s|\\+[rn])"

ESCAPED_LETTER: Final = rb"(?i:\\u00(?:2[d-f]|3[0-9a]|4[0-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a]))"
"""An escaped letter, digit or one of ``-./:@_``: no JSON writer needs to escape these, and it hides a shape."""


class SecretShape(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of secret. ``trigger`` matches the raw line wherever ``secret`` matches the text in it."""

    secret: bytes  # its only capturing group is removed; what is around it is kept
    trigger: bytes  # cheap, without capturing groups and whatever is in front


SHAPES: Final = (
    SecretShape(secret=_BEFORE + b"(" + _KEYS + b")", trigger=_KEYS),
    SecretShape(
        secret=rb"(?i:authorization" + _SEPARATOR + _AUTHORIZATION + rb"(?:[ \t+]|\\t|%20)+)" + b"(" + _VALUE + b")",
        trigger=rb"(?i:authorization" + _SEPARATOR + _AUTHORIZATION + b")",
    ),
    SecretShape(
        secret=rb"(?i:bearer)(?:[ \t+]|\\t|%20)+([A-Za-z0-9._~+/-]{20,}=*)",
        trigger=rb"(?i:bearer)(?:[ \t+]|\\t|%20)+[A-Za-z0-9._~+/-]{20}",
    ),
    SecretShape(
        secret=rb"(?i:" + _KEY_NAMES + _SEPARATOR + b")(" + _VALUE + b")",
        trigger=rb"(?i:" + _KEY_NAMES + _SEPARATOR + b")",
    ),
    SecretShape(  # scheme://user:password@host; the password may hold an @
        secret=rb"[A-Za-z][A-Za-z0-9+.-]*:" + _SLASH * 2 + rb"[^\s/?#:@\"'<>\\]*:([^\s/?#\"'<>\\]+)@",
        trigger=rb":" + _SLASH * 2 + rb"[^\s/?#:@\"'<>\\]*:[^\s/?#\"'<>\\]+@",
    ),
    SecretShape(  # in a query string, or between the semicolons of a connection string
        secret=rb"(?i:(?:[?&;]|\\+u0026|%26|%3f)(?:amp;)?" + _PARAMETERS + _EQUALS + rb")([^\s&;\"'<>\\#]+)",
        trigger=rb"(?i:" + _PARAMETERS + _EQUALS + b")",
    ),
    SecretShape(  # libpq: host=db user=ops password=...
        secret=rb"(?i:(?:\A|[\s\"']|\\[nrt])(?:password|passwd|pwd)=)" + _QUOTES + rb"([^\s&;\"'<>\\#$]+)",
        trigger=rb"(?i:password|passwd|pwd)=",
    ),
    SecretShape(
        secret=rb"(?i:hooks\.slack\.com)" + _SLASH + rb"([a-z]+(?:" + _SLASH + rb"[A-Za-z0-9_-]+)+)",
        trigger=rb"(?i:hooks\.slack\.com)",
    ),
    SecretShape(
        secret=_SLASH.join((rb"(?i:discord(?:app)?\.com)", rb"api", rb"webhooks", rb"([0-9]+"))
        + _SLASH
        + rb"[A-Za-z0-9_-]+)",
        trigger=rb"(?i:discord(?:app)?\.com)" + _SLASH + b"api",
    ),
    SecretShape(  # also without its end
        secret=b"(-----BEGIN " + _PEM + b"(?:" + _PEM_TEXT + b"*?-----END " + _PEM + b"|" + _PEM_TEXT + b"*))",
        trigger=rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY",
    ),
    SecretShape(  # without its beginning
        secret=rb"((?:[A-Za-z0-9+/]{30,}={0,2}" + _LINE_END + rb"+)+(?:[A-Za-z0-9+/]+={0,2}" + _LINE_END + b"*)?"
        rb"-----END " + _PEM + b")",
        trigger=rb"-----END [A-Z0-9 ]*PRIVATE KEY",
    ),
)
