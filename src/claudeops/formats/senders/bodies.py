"""The bytes of a body as the value that they hold: unpacked, decoded, taken out of a form, and read as JSON.

The bytes themselves say how they are packed and written, so that a recorded body, which has no headers any more, reads
as it did at the door. Each step keeps to the size that a body may have.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote_plus

import msgspec

from claudeops.formats.senders.common import MOST_BYTES, Unreadable
from claudeops.text import regex

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ANY_HEADER: Final = 47  # zlib's word for: gzip or zlib, as the bytes say
_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)
"""What marks an encoding at the beginning; the longer ones first, because they begin with the shorter."""

_MOST_MEMBERS: Final = 10  # of one gzip; what follows them is left out
_CONTROLS: Final = bytes(max(code, ord(" ")) for code in range(256))
_AT: Final = regex.Pattern(r"^(?:JSON is malformed: )?(.*) \(byte (\d+)\)$")
_KEY: Final = regex.Pattern(rb"^\s*[A-Za-z0-9_.%+\[\]-]{1,100}=")
_FIELD: Final = regex.Pattern(rb'(?i)\bname="?([^";\r\n]{1,100})')
_MOST_FIELDS: Final = 100
_JSON_FIELDS: Final = ("data", "payload", "json", "body", "alert", "alerts")
_SECOND: Final = "trailing characters"
_HINTS: Final = {
    "expected ',' or '}'": '; a quote within a text is written as \\"',
    "keys must be strings": "; names stand in double quotes",
}


def value_of(body: bytes) -> object:
    """Return the JSON value that a body holds. Raises `Unreadable`."""
    value = _decoded(content(text_of(body)))
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):  # JSON that was encoded twice
        return _decoded(value.encode())
    return value


def text_of(body: bytes) -> bytes:
    """Return a body unpacked, in UTF-8 without a mark; what is no text is shown as U+FFFD. Raises `Unreadable`."""
    plain = _unpacked(body)
    for mark, encoding in _MARKS:
        if plain.startswith(mark):
            return _bounded(plain[len(mark) :].decode(encoding, "replace").encode())
    if plain[:2] in (b"{\x00", b"[\x00"):
        return _bounded(plain.decode("utf-16-le", "replace").encode())
    if plain[:2] in (b"\x00{", b"\x00["):
        return _bounded(plain.decode("utf-16-be", "replace").encode())
    try:
        plain.decode()
    except UnicodeDecodeError:
        return _bounded(plain.decode(errors="replace").encode())
    return plain


def content(text: bytes) -> bytes:
    """Return the JSON of a text: what a field of a form holds, the fields themselves, or the text as it is."""
    fields = form(text)
    if fields is None:
        return text
    found = [fields[name] for name in _JSON_FIELDS if fields.get(name, "").lstrip()[:1] in ("{", "[")]
    if found:
        return found[0].encode(errors="replace")
    return msgspec.json.encode({name: value.encode(errors="replace").decode() for name, value in fields.items()})


def form(text: bytes) -> Mapping[str, str] | None:
    """Return the fields of a form, each with its first value; ``None``: it is none."""
    if text.startswith(b"--"):
        return _firsts(_parts(text)) or None
    if _KEY.search(text[:200]) is None:
        return None
    pieces = text.decode(errors="replace").strip().split("&", _MOST_FIELDS)
    head, _, value = pieces[0].partition("=")
    if value[:1] in ("{", "["):  # not encoded: an ampersand in it divides nothing
        return {unquote_plus(head): unquote_plus("&".join((value, *pieces[1:])))}
    named = (piece.partition("=") for piece in pieces)
    return _firsts((unquote_plus(name), unquote_plus(value)) for name, sign, value in named if sign)


def _firsts(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _parts(text: bytes) -> Iterator[tuple[str, str]]:
    """Yield the fields of a form that is sent as parts."""
    boundary = text.partition(b"\n")[0].strip()
    for part in text.split(boundary, _MOST_FIELDS)[1:] if len(boundary) > len(b"--") else ():
        head, gap, value = part.replace(b"\r\n", b"\n").partition(b"\n\n")
        named = _FIELD.search(head)
        if gap and named is not None:
            yield named[1].decode(errors="replace"), value.decode(errors="replace").strip()


def is_packed(body: bytes) -> bool:
    """Return whether a body may hold far more than its own length: what unpacks it goes by the same bytes."""
    return body.startswith(_GZIP) or _may_be_zlib(body)


def _unpacked(body: bytes) -> bytes:
    if len(body) > MOST_BYTES:
        raise Unreadable(f"it has {len(body)} bytes, and {MOST_BYTES} are read")
    if body.startswith(_ZSTD):
        raise Unreadable("it is packed with zstd, which is not read: let the sender use gzip, or nothing")
    if not is_packed(body):
        return body
    unpacked, rest = bytearray(), body
    try:
        for _ in range(_MOST_MEMBERS):
            if not rest:
                break
            unpacker = zlib.decompressobj(_ANY_HEADER)
            unpacked += unpacker.decompress(rest, MOST_BYTES + 1 - len(unpacked))
            if len(unpacked) > MOST_BYTES:
                raise Unreadable(f"it has more than {MOST_BYTES} bytes when it is unpacked, and no more are read")
            if not unpacker.eof:
                raise Unreadable("it is packed, and breaks off: the sender did not send all of it")
            rest = unpacker.unused_data
    except zlib.error:
        if not body.startswith(_GZIP):  # a text that only begins like it
            return body
        raise Unreadable("it is packed with gzip, and is damaged") from None
    return bytes(unpacked)


def _may_be_zlib(body: bytes) -> bool:
    """Return whether a body begins as zlib's do, which HTTP calls deflate."""
    return body[:1] == b"\x78" and int.from_bytes(body[:2]) % 31 == 0


def _bounded(text: bytes) -> bytes:
    if len(text) > MOST_BYTES:
        raise Unreadable(f"it has {len(text)} bytes in UTF-8, and {MOST_BYTES} are read")
    return text


# --- JSON -------------------------------------------------------------------------------------------------


def _decoded(text: bytes) -> object:
    """Return what JSON says; a line may break within its texts, as it does where a template puts a message in."""
    if not text.strip():
        raise Unreadable("it is empty")
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        plain = text.translate(_CONTROLS)
        if plain == text:
            raise Unreadable(_why(text, str(error))) from None
        try:
            return msgspec.json.decode(plain)
        except RecursionError:
            raise Unreadable("it is nested too deeply") from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise Unreadable(_why(text, str(error))) from None


def _why(text: bytes, error: str) -> str:
    """Return where a text is no JSON, and what is wrong there; nothing of the text itself is repeated."""
    head = text.lstrip()
    if head[:1] not in (b"{", b"[", b'"'):
        return f"{_place(text, len(text) - len(head))}: it is not JSON: send an object in braces"
    found = _AT.search(error)
    if found is None:
        if "truncated" not in error:
            return f"it is not JSON: {error.partition(' - at')[0][:100]}"
        return f"{_place(text, len(text.rstrip()))}: it breaks off before its JSON ends"
    what, at = str(found[1]), int(found[2])
    if what == _SECOND:  # it is counted behind the first of them
        at -= 1
        if text[at : at + 1] in (b"{", b"["):
            return f"{_place(text, at)}: a second document begins: send one at a time, or a list"
    hint = next((hint for words, hint in _HINTS.items() if words in what), "")
    return f"{_place(text, at)}: it is not JSON: {what[:100]}{hint}"


def _place(text: bytes, at: int) -> str:
    """Return a position in words; lines and columns begin with 1, and columns count characters."""
    before = text[:at]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    return f"line {line}, column {column}"
