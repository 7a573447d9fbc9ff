"""Secrets to plant, and the forms in which they may be written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

SECRETS = {
    "plain": "hunter2hunter2",
    "regular-expression": r"a.*(b|c)+[^d]$^?{2}\d",
    "quotes-and-backslashes": r"""p"a's\s\\w"ord\n""",
    "slashes": "a/b//c+d==",
    "lines": "first line\nsecond\tline\r\nthird",
    "not-ascii": "pässwörd-日本-№",
    "beyond-the-basic-plane": "key-🔑🗝-key",
    "html": "<b>&amp;</b>='x'",
    "spaces": "correct horse battery staple",
    "digits": "314159265358979",
    "control-characters": "a\x00b\x07c\x1bd\x7f",
    "raw-byte": "abc\udcffdef",
    "half-a-pair": "abc\ud83ddef",
}


def escape_all(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02X}" for high, low in zip(units[::2], units[1::2], strict=True))


def percent_all(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


def inside(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def in_base64(text: str, offset: int) -> str:
    return base64.b64encode(b"\xff" * offset + text.encode("utf-8", "surrogatepass") + b"\xff\xff").decode()


def wrapped(text: str) -> str:
    return "\n".join(re.findall(".{1,5}", in_base64(text, 1)))


FORMS: dict[str, Callable[[str], str]] = {
    "as-it-is": lambda secret: secret,
    "json": lambda secret: inside(secret, ascii_only=False),
    "json-ascii": lambda secret: inside(secret, ascii_only=True),
    "json-in-json": lambda secret: inside(inside(secret, ascii_only=True), ascii_only=False),
    "json-three-deep": lambda secret: inside(
        inside(inside(secret, ascii_only=False), ascii_only=True), ascii_only=True
    ),
    "json-slash": lambda secret: inside(secret, ascii_only=False).replace("/", r"\/"),
    "json-every-character": escape_all,
    "json-every-character-in-json": lambda secret: inside(escape_all(secret), ascii_only=False),
    "url": lambda secret: quote(secret, safe="", errors="surrogatepass"),
    "url-lower": lambda secret: re.sub("%..", lambda m: m[0].lower(), quote(secret, safe="", errors="surrogatepass")),
    "url-plus": lambda secret: quote_plus(secret, errors="surrogatepass"),
    "url-path": lambda secret: quote(secret, errors="surrogatepass"),
    "url-twice": lambda secret: quote(quote(secret, safe="", errors="surrogatepass"), safe=""),
    "url-every-character": percent_all,
    "hexadecimal": lambda secret: secret.encode("utf-8", "surrogatepass").hex(),
    "hexadecimal-upper": lambda secret: secret.encode("utf-8", "surrogatepass").hex().upper(),
    "base64": lambda secret: in_base64(secret, 0),
    "base64-offset-1": lambda secret: in_base64(secret, 1),
    "base64-offset-2": lambda secret: in_base64(secret, 2),
    "base64-url-safe": lambda secret: in_base64(secret, 0).replace("+", "-").replace("/", "_"),
    "base64-in-url": lambda secret: quote(in_base64(secret, 0), safe=""),
    "base64-json-slash": lambda secret: in_base64(secret, 0).replace("/", r"\/"),
    "base64-wrapped": wrapped,
    "base64-wrapped-in-json": lambda secret: inside(wrapped(secret), ascii_only=False),
}


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
