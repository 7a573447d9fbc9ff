"""Redaction: takes secrets out of lines and texts, and keeps the structure of JSON.

A line is scanned once; without a hit it is returned as it came. A JSON line with a hit is split into its string and
number tokens: only strings that held a secret are rewritten, and everything between the tokens (key order, spacing,
numbers of any length) is copied. The mask is a barrier: no match reaches into or across it. A text is searched again
until nothing more is found, so that redacting twice equals redacting once.

A secret is found with signs in it that nobody sees, too, as they are or escaped: a text is made visible before it is
redacted here, and after it there.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Protocol

import msgspec
import re2

from claudeops.text.redact.patterns import ESCAPED_LETTER, SHAPES, UNSEEN, pattern

MASK: Final = "[redacted]"
SHORTEST: Final = 6
"""Characters; a shorter value is too common to be removed wherever it occurs."""

_MASK: Final = MASK.encode()
_BARRIER: Final = b"<\0>\n"
"""Stands for a mask while a text is searched: no shape runs into it or across it, and what follows it is found as at
the beginning of a text. A known secret that has such signs itself might."""

_NOTHING_LEFT: Final = b'"[redacted]"'
_MOST_PASSES: Final = 8  # two are the rule; a text that needs more was made on purpose
_MAX_MEMORY: Final = 64 << 20  # bytes that one expression and its state cache may take
_MOST_CHARACTERS: Final = 50_000  # of all secrets together; more would make every start slow
_PIECE: Final = 200  # characters; a longer secret is searched for in pieces, which also finds one that was cut off
_MOST_EXPRESSION: Final = 250_000  # bytes; google-re2 gives up on a few times this, with noise on stderr
_LONG_LINE: Final = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PADDING: Final = " \t\r\n\v\f\x00\ufeff"  # what the lenient reader of a line strips

_LONG: Final = 1 << 20  # bytes of a line
_PAD_BYTES: Final = 4096
_QUOTE: Final = ord('"')
_WELL_FORMED: Final = msgspec.json.Decoder(msgspec.Raw)
_JSON_BEGINNINGS: Final = frozenset(b'{["-0123456789tfnNI')

_Span = tuple[int, int]


class Redactor:
    """Removes known secrets, in every form they may be written in, and texts with the shape of a secret.

    Raises `ValueError` when the secrets together are too long to be searched for.
    """

    __slots__ = ("_known", "_shapes", "_triggers")

    def __init__(self, secrets: Iterable[str]) -> None:
        wanted = search_values(secrets)
        size = sum(len(secret) for secret in wanted)
        if size > _MOST_CHARACTERS:
            raise ValueError(
                f"the secrets have {size} characters in all, {_MOST_CHARACTERS} can be redacted;"
                " configure fewer or shorter ones"
            )
        known = expressions(wanted)
        shapes = b"|".join((*(shape.trigger for shape in SHAPES), ESCAPED_LETTER, UNSEEN))
        self._known = [compiled(expression, longest=True) for expression in known]
        self._shapes = _SHAPES
        self._triggers = [compiled(b"|".join(part)) for part in ([shapes, *known[:1]], *([more] for more in known[1:]))]

    def line(self, raw: bytes) -> bytes:
        """Return a whole line of any kind without its secrets; the same object when it holds none.

        Valid JSON stays valid JSON. What is not JSON is redacted as text.
        """
        if not self._triggered(raw):
            return raw
        return _until_stable(raw, self._line_once) if len(raw) < _LONG else self._long_line(raw)

    def lines(self, raw: Sequence[bytes], joined: bytes | None = None) -> Sequence[bytes]:
        """Return whole lines as `line` returns each of them; the same sequence when none of them holds a secret.

        They are scanned in one go: as ``joined``, with LF between them, if the caller has joined them already.
        """
        redacted: list[bytes] | None = None
        for index in self._suspects(raw, b"\n".join(raw) if joined is None else joined):
            redacted = list(raw) if redacted is None else redacted
            redacted[index] = self.line(raw[index])
        return raw if redacted is None else redacted

    def text(self, text: str) -> str:
        """Return a text without its secrets; the same object when it holds none. JSON goes through `line`."""
        raw = text.encode("utf-8", "surrogatepass")
        if not self._triggered(raw):
            return text
        redacted = _until_stable(raw, self._masked)
        return text if redacted == raw else _decoded(redacted)

    def hides_unknown(self, line: bytes) -> bool:
        """Tell whether `line` takes more out of a JSON object than the values that are known.

        What has the shape of a secret may be anything else. Whoever reads the rest then does not know what the whole
        says; where known values alone are masked, they do, unless the mask itself stands there: to a shell it is a
        pattern of file names.
        """
        if _MASK in line:
            return True
        known = self._known_alone().line(line)
        return known.strip() == _NOTHING_LEFT or known != self.line(line)

    def _known_alone(self) -> Redactor:
        alone = object.__new__(Redactor)
        alone._known, alone._shapes, alone._triggers = self._known, (), [*self._known, _UNSEEN]
        return alone

    def _triggered(self, text: bytes) -> bool:
        """Tell whether there may be a secret; for a text without one this is the only scan."""
        return any(trigger.search(text) is not None for trigger in self._triggers)

    def _suspects(self, lines: Sequence[bytes], text: bytes) -> Iterator[int]:
        """Yield the indices of lines that may hold a secret, in no order and possibly more than once."""
        starts: list[int] = []
        for trigger in self._triggers:
            found = trigger.search(text)
            while found is not None:
                starts = starts or list(accumulate((len(line) + 1 for line in lines), initial=0))
                following = bisect_right(starts, found.span()[0])
                yield following - 1
                # A match that runs into the next line may hide one that begins there: search that line as well.
                found = trigger.search(text, starts[following]) if following < len(lines) else None

    def _line_once(self, line: bytes) -> bytes:
        if not _is_json(line):
            return self._masked(line)
        redacted = _TOKEN.sub(self._token, line)
        return _nothing_left(line) if self._holds_known(redacted) else redacted

    def _long_line(self, line: bytes) -> bytes:
        """Return a line as `line` does, and hold little more beside it than what comes of it."""
        from claudeops.text.redact.segments import (  # noqa: PLC0415 - no command has such lines
            SEGMENT_BYTES,
            redacted_segments,
        )

        redacted = io.BytesIO()
        if not _is_long_json(line):
            for segment in redacted_segments(line, 0, len(line), lambda text: _until_stable(text, self._masked)):
                redacted.write(segment)
            return redacted.getvalue()
        view, done = memoryview(line), 0
        for match in _TOKEN.finditer(line):
            begin, end = match.span()
            if end - begin > SEGMENT_BYTES and line[begin] == _QUOTE:
                redacted.write(view[done : begin + 1])
                for segment in redacted_segments(line, begin + 1, end - 1, self._within):
                    redacted.write(segment)
                done = end - 1
            elif (token := _until_stable(match[0], self._token_alone)) != match[0]:
                redacted.write(view[done:begin])
                redacted.write(token)
                done = end
        redacted.write(view[done:])
        whole = redacted.getvalue()
        return _nothing_left(line) if self._holds_known(whole) else whole

    def _within(self, text: bytes) -> bytes:
        """Mask the secrets in a part of a JSON string."""
        return _until_stable(b'"' + text + b'"', self._token_alone)[1:-1] if self._triggered(text) else text

    def _holds_known(self, line: bytes) -> bool:
        """Return whether known secrets stand between the masks of a line."""
        begin = 0
        while begin <= len(line):
            end = line.find(_MASK, begin)
            end = len(line) if end < 0 else end
            if any(known.search(line, begin, end) is not None for known in self._known):
                return True
            begin = end + len(_MASK)
        return False

    def _token(self, match: re.Match[bytes]) -> bytes:
        return self._token_alone(match[0])

    def _token_alone(self, token: bytes) -> bytes:
        if not self._triggered(token):
            return token
        if not token.startswith(b'"'):
            return token if self._masked(token) == token else _NOTHING_LEFT
        raw = _decoded_token(token).encode("utf-8", "surrogatepass")
        masked = self._masked(raw)
        inside = token[1:-1] if masked == raw else _encoded(_decoded(masked))
        return b'"' + self._masked_escaped(inside) + b'"'

    def _masked(self, text: bytes) -> bytes:
        """Mask the secrets in a text, in one pass."""
        if _MASK not in text:
            return masked_spans(text, self._spans(text))
        if _BARRIER not in text:  # in one go, or a text with thousands of masks is searched in as many parts
            whole = text.replace(_MASK, _BARRIER)
            masked = masked_spans(whole, self._spans(whole))
            if masked.count(_BARRIER) == whole.count(_BARRIER):
                return masked.replace(_BARRIER, _MASK)
        return _MASK.join(masked_spans(part, self._spans(part)) for part in text.split(_MASK))

    def _masked_escaped(self, text: bytes) -> bytes:
        """Mask the secrets in the raw content of a JSON string, in one pass; escapes stay whole."""
        return _MASK.join(masked_spans(part, _widened(part, self._known_spans(part))) for part in text.split(_MASK))

    def _spans(self, text: bytes) -> list[_Span]:
        """Return where secrets are, in no order and possibly overlapping."""
        if not self._triggered(text):
            return []
        spans = self._plain_spans(text)
        if (removed := [match.span() for match in _UNSEEN.finditer(text)]) and (
            found := self._plain_spans(_without(text, removed))
        ):
            spans += _moved(found, removed)
        return spans

    def _plain_spans(self, text: bytes) -> list[_Span]:
        shapes = self._shapes if self._shapes and _ANY_SHAPE.search(text) else ()
        return self._known_spans(text) + [match.span(1) for shape in shapes for match in shape.finditer(text)]

    def _known_spans(self, text: bytes) -> list[_Span]:
        """Return where known secrets are: from each place the longest, overlapping ones too."""
        spans: list[_Span] = []
        for known in self._known:
            found = known.search(text)
            while found is not None:
                spans.append(found.span())
                found = known.search(text, found.span()[0] + 1)
        return spans


def has_shape(text: str) -> bool:
    """Tell whether anything in a text has the shape of a secret; masks have none."""
    parts = text.encode("utf-8", "surrogatepass").split(_MASK)
    parts += [_without(part, [match.span() for match in _UNSEEN.finditer(part)]) for part in parts]
    return any(
        shape.search(part) is not None for part in parts if _ANY_SHAPE.search(part) is not None for shape in _SHAPES
    )


class _Match(Protocol):
    def span(self, group: int = 0) -> _Span: ...


class BytesPattern(Protocol):
    """A compiled expression over bytes."""

    def search(self, text: bytes, pos: int = 0, endpos: int | None = None) -> _Match | None:
        """Return the first match from a position on; ``endpos``: up to another one."""

    def finditer(self, text: bytes) -> Iterator[_Match]:
        """Yield all matches, none of which overlap."""


def search_values(secrets: Iterable[str]) -> list[str]:
    """Return the values to search for, longest first: none too short, and none that is part of the mask."""
    wanted: set[str] = set()
    values = list(secrets)
    unix = [value.replace("\r\n", "\n") for value in values]  # base64 distinguishes line ends, people do not
    for value in (*values, *unix):
        secret = value.strip()
        barrier = secret in MASK or MASK in secret
        if len(secret) >= SHORTEST and not barrier:
            wanted.add(secret)
        if "\n" in secret:  # a key file is also printed in parts: its long lines count by themselves
            wanted.update(line for line in secret.split("\n") if _LONG_LINE.fullmatch(line))
    return sorted(wanted, key=lambda secret: (-len(secret), secret))


def expressions(secrets: Iterable[str], *, form: Callable[[str], bytes] = pattern) -> list[bytes]:
    """Return the expressions that find the secrets: one, or several where one would be too large.

    ``form`` makes that of one secret.
    """
    groups: list[list[bytes]] = []
    room = 0
    for secret in secrets:
        for start in range(0, max(len(secret) - SHORTEST, 1), _PIECE):
            rest = len(secret) - start
            one = form(secret[start : start + (_PIECE if rest >= _PIECE + SHORTEST else rest)])
            if len(one) > room:
                groups.append([])
                room = _MOST_EXPRESSION
            groups[-1].append(one)
            room -= len(one)
    return [b"|".join(group) for group in groups]


def compiled(expression: bytes, *, longest: bool = False) -> BytesPattern:
    """Return an expression over bytes, compiled; ``longest``: of several matches at one place the longest.

    The caller alone keeps it: the library's own cache would keep the secrets of the last hundred sessions, and for each
    of them up to a MiB of what was found out while it ran.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_MEMORY
    options.log_errors = False  # they would go to stderr, with the expression in them
    options.longest_match = longest
    try:
        found: BytesPattern = re2.compile(expression, options)
    except re2.error:  # its text quotes the expression, and with it a secret
        raise ValueError("the secrets make an expression that google-re2 refuses") from None
    re2.purge()
    return found


_UNSEEN: Final = compiled(UNSEEN)
_ANY_SHAPE: Final = compiled(b"|".join(shape.trigger for shape in SHAPES))
_SHAPES: Final = tuple(compiled(shape.secret) for shape in SHAPES)


def _until_stable(text: bytes, once: Callable[[bytes], bytes]) -> bytes:
    """Repeat until nothing changes: after a replacement its neighbours may match anew."""
    for _ in range(_MOST_PASSES):
        redacted = once(text)
        if redacted == text:
            return text
        text = redacted
    return _NOTHING_LEFT


def masked_spans(text: bytes, spans: Sequence[_Span]) -> bytes:
    """Replace spans that overlap or touch with one mask."""
    if not spans:
        return text
    parts = [b""]
    done = 0
    for start, end in sorted(spans):
        if start > done or len(parts) == 1:
            parts[-1] += text[done:start]
            parts.append(b"")
        done = max(done, end)
    parts[-1] = text[done:]
    return _MASK.join(parts)


def _without(text: bytes, removed: Sequence[_Span]) -> bytes:
    """Return a text without some of its parts."""
    begins, ends = (0, *(end for _, end in removed)), (*(start for start, _ in removed), len(text))
    return b"".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))


def _moved(spans: Iterable[_Span], removed: Sequence[_Span]) -> Iterator[_Span]:
    """Yield where spans of a text are that has lost some parts, in the text as it was."""
    lost = [0, *accumulate(end - start for start, end in removed)]
    begins = [start - before for (start, _), before in zip(removed, lost, strict=False)]  # in what is left
    for start, end in spans:
        if start < end:
            yield start + lost[bisect_right(begins, start)], end + lost[bisect_right(begins, end - 1)]


def _widened(text: bytes, spans: Sequence[_Span]) -> list[_Span]:
    """Return the spans, and those of the escape sequences that they cut into."""
    if not spans:
        return []
    inside = {
        position: match.span() for match in _ESCAPE.finditer(text) for position in range(match.start() + 1, match.end())
    }
    edges = {edge for span in spans for edge in span}
    return [*spans, *(inside[edge] for edge in edges if edge in inside)]


def _nothing_left(line: bytes) -> bytes:
    """Return what is left of a line with a secret that contains JSON's own signs, and so runs across its tokens."""
    return _NOTHING_LEFT + line[len(line.rstrip(b"\r\n")) :]


def _is_long_json(line: bytes) -> bool:
    """Return what `_is_json` does, without reading the values of a line."""
    begins = line[:_PAD_BYTES].lstrip(_PADDING.encode())[:1]
    return not (begins and begins[0] not in _JSON_BEGINNINGS) and (_is_strict_json(line) or _is_mendable(line))


def _is_strict_json(line: bytes | bytearray) -> bool:
    try:
        _WELL_FORMED.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_mendable(line: bytes) -> bool:
    from claudeops.text.mended_json import mended  # noqa: PLC0415 - few lines need it

    return _is_strict_json(mended(line))


def _is_json(line: bytes) -> bool:
    text = line.decode("utf-8", "surrogateescape").strip(_PADDING)
    try:
        json.loads(text, strict=False, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def _decoded_token(token: bytes) -> str:
    value = json.loads(token.decode("utf-8", "surrogateescape"), strict=False)
    return value if isinstance(value, str) else ""


def _encoded(text: str) -> bytes:
    """Return the content of a JSON string, without its quotes."""
    try:
        return json.dumps(text, ensure_ascii=False).encode()[1:-1]
    except UnicodeEncodeError:  # half of a surrogate pair can be written only as an escape
        return json.dumps(text).encode()[1:-1]


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # a secret with a byte that is not UTF-8 was cut out of a character
        return text.decode("utf-8", "replace")
