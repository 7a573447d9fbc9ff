"""Secrets that give themselves away by their shape, known to us or not (google-re2, bytes, Latin-1).

The formats are those that their issuers publish for secret scanners. No shape is made of hexadecimal digits or
plain letters alone, so that UUIDs, commit hashes, session ids and numbers stay readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One kind of secret. ``trigger`` matches the raw line wherever ``secret`` matches the text in it."""

    secret: bytes  # its only capturing group is what is taken out; what stands around it is kept
    trigger: bytes  # cheap, without capturing groups and without regard to what stands before


# What stands before a key may end in a letter and yet be none: escapes of JSON, URLs and terminals.
_BEFORE: Final = rb"(?:\A|[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|\[[0-9;]*m)"
_QUOTES: Final = rb"[\"'\\]*"
_SEPARATOR: Final = rb"(?:[\"'\\:=]|\s|\\[nrt]){1,20}"
_VALUE: Final = rb"[^\s\"'\\,;<>&${][^\s\"'\\,;<>&]{5,}"  # not $TOKEN: a variable's name is no secret
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
_PEM_TEXT: Final = rb"(?:[^\"'`<>{}$;\\]|\\+[rnt])"  # what `cat -n` or a log prefix adds to the lines, too
_LINE_END: Final = rb"(?:\s|\\+[rn])"

SHAPES: Final = (
    Shape(secret=_BEFORE + b"(" + _KEYS + b")", trigger=_KEYS),
    Shape(
        secret=rb"(?i:authorization" + _SEPARATOR + _AUTHORIZATION + rb"(?:[ \t+]|\\t|%20)+)" + b"(" + _VALUE + b")",
        trigger=rb"(?i:authorization" + _SEPARATOR + _AUTHORIZATION + b")",
    ),
    Shape(
        secret=rb"(?i:bearer)(?:[ \t+]|\\t|%20)+([A-Za-z0-9._~+/-]{20,}=*)",
        trigger=rb"(?i:bearer)(?:[ \t+]|\\t|%20)+[A-Za-z0-9._~+/-]{20}",
    ),
    Shape(
        secret=rb"(?i:" + _KEY_NAMES + _SEPARATOR + b")(" + _VALUE + b")",
        trigger=rb"(?i:" + _KEY_NAMES + _SEPARATOR + b")",
    ),
    Shape(  # scheme://user:password@host; the password may hold an @
        secret=rb"[A-Za-z][A-Za-z0-9+.-]*:" + _SLASH * 2 + rb"[^\s/?#:@\"'<>\\]*:([^\s/?#\"'<>\\]+)@",
        trigger=rb":" + _SLASH * 2 + rb"[^\s/?#:@\"'<>\\]*:[^\s/?#\"'<>\\]+@",
    ),
    Shape(  # in a query string, or between the semicolons of a connection string
        secret=rb"(?i:(?:[?&;]|\\+u0026|%26|%3f)(?:amp;)?" + _PARAMETERS + _EQUALS + rb")([^\s&;\"'<>\\#]+)",
        trigger=rb"(?i:" + _PARAMETERS + _EQUALS + b")",
    ),
    Shape(  # libpq: host=db user=ops password=...
        secret=rb"(?i:(?:\A|[\s\"']|\\[nrt])(?:password|passwd|pwd)=)" + _QUOTES + rb"([^\s&;\"'<>\\#$]+)",
        trigger=rb"(?i:password|passwd|pwd)=",
    ),
    Shape(
        secret=rb"(?i:hooks\.slack\.com)" + _SLASH + rb"([a-z]+(?:" + _SLASH + rb"[A-Za-z0-9_-]+)+)",
        trigger=rb"(?i:hooks\.slack\.com)",
    ),
    Shape(
        secret=_SLASH.join((rb"(?i:discord(?:app)?\.com)", rb"api", rb"webhooks", rb"([0-9]+"))
        + _SLASH
        + rb"[A-Za-z0-9_-]+)",
        trigger=rb"(?i:discord(?:app)?\.com)" + _SLASH + b"api",
    ),
    Shape(  # also without its end
        secret=b"(-----BEGIN " + _PEM + b"(?:" + _PEM_TEXT + b"*?-----END " + _PEM + b"|" + _PEM_TEXT + b"*))",
        trigger=rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY",
    ),
    Shape(  # without its beginning
        secret=rb"((?:[A-Za-z0-9+/]{30,}={0,2}" + _LINE_END + rb"+)+(?:[A-Za-z0-9+/]+={0,2}" + _LINE_END + b"*)?"
        rb"-----END " + _PEM + b")",
        trigger=rb"-----END [A-Z0-9 ]*PRIVATE KEY",
    ),
)

ESCAPED_LETTER: Final = rb"(?i:\\u00(?:2[d-f]|3[0-9a]|4[0-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9a]))"
"""A letter, digit or one of ``-./:@_`` that somebody escaped: no JSON writer needs to, and it hides a shape."""
