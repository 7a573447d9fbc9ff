"""The frames of long lines, without what nothing reads, so that one of 16 MB takes its own memory and little more.

Of the fields that a session reads of a frame, texts are abridged where they are long. Everything else is passed over
where it stands. Read whole, up to 4 MiB, are the input of a call, which the gate judges, and a text that may hold a
report.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.domain.report.report import MARKER_BEGINNINGS, REPORT_CHARACTERS, STRUCTURED_OUTPUT_TOOL
from claudeops.domain.stream.events import INPUT_LEFT_OUT
from claudeops.domain.stream.transcript import TEXT_CHARACTERS, LongText, both_ends, says_it_waits
from claudeops.formats.stream.framing import Malformed, StreamFrame, decode, decode_leniently
from claudeops.formats.stream.tallies import HELD_INPUT_BYTES
from claudeops.text import regex
from claudeops.text.redact.segments import cut_before

LONG_BYTES: Final = 1024 * 1024
"""Lines from this size on are read here; so are texts within them."""

_PIECE_BYTES: Final = 256 * 1024
_RESULT_CHARACTERS: Final = 64 * 1024
"""Of a tool's result: half at the beginning, which people see, and half at the end."""

_HEAD_BYTES: Final = 64 * 1024
_VALUE_BEGINNINGS: Final = frozenset(b'{["-0123456789tfnNI')
_PADDING: Final = b" \t\r\n\v\f\x00\xef\xbb\xbf"
_TOO_DEEP: Final = "nested too deeply"

_MOST_VALUES: Final = 100_000
"""Values of one field of a long line: as objects they take a hundred times the memory of what they are written with."""

_DEEPEST: Final = 8  # objects and lists around a long text that is read
_PART: Final = regex.Pattern(rb'(?s)"(?:[^"\\]|\\.)*"|,')

_KEPT_LINES: Final = (*MARKER_BEGINNINGS, "```", "~~~")
_REPORT_WORDS: Final = ("summary", "escalation")  # keys of every report
_HIDDEN_LETTER: Final = regex.Pattern(r"\\u00[67]")  # of such a key in JSON within JSON
_WORD_CHARACTERS: Final = 32

_Raw = bytes | memoryview
_Absent = msgspec.UnsetType


def _fields(name: str, *names: str) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder that takes some fields of an object as they stand, and passes over the others."""
    fields = [(field, msgspec.Raw | _Absent, msgspec.UNSET) for field in names]
    return msgspec.json.Decoder(msgspec.defstruct(name, fields, gc=False))


_ALWAYS: Final = ("type", "subtype", "session_id")
_MESSAGE: Final = ("message", "content", "parent_tool_use_id")
_CONTROL: Final = ("request_id", "request", "response")
_BY_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "assistant": (*_MESSAGE, "error"),
    "user": _MESSAGE,
    "message": (*_MESSAGE, "role"),
    "system": (
        *("apiKeySource", "model", "permissionMode", "permission_mode", "claude_code_version", "tools", "mcp_servers"),
        *("cwd", "attempt", "error_status", "error", "error_category", "tool_use_id", "tool_name", "tool_input"),
        *("message", "parent_tool_use_id", "original_model", "fallback_model", "api_refusal_category", "scope"),
    ),
    "result": (
        *("is_error", "result", "error", "errors", "structured_output", "last_assistant_text", "terminal_reason"),
        *("stop_reason", "api_error_status", "num_turns", "turns", "total_cost_usd", "duration_ms", "usage"),
        *("total_input_tokens", "total_output_tokens", "tool_calls_seen", "permission_denials"),
    ),
    "control_request": _CONTROL,
    "control_response": _CONTROL,
    "control_cancel_request": _CONTROL,
    "tool_progress": ("tool_use_id", "tool_name"),
    "rate_limit_event": ("rate_limit_info",),
    "text": ("delta",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "is_error", "content"),
    "warning": ("message",),
    "thread.started": ("thread_id",),
    "turn.completed": ("usage",),
    "turn.failed": ("error",),
    "error": ("message",),
    "item.started": ("item",),
    "item.updated": ("item",),
    "item.completed": ("item",),
}
"""The fields that are read of a frame; of every other frame only those of each."""

_TOP: Final = _fields("_Top", *dict.fromkeys((*_ALWAYS, *(name for names in _BY_TYPE.values() for name in names))))
_IN_MESSAGE: Final = _fields("_InMessage", "id", "model", "usage", "stop_reason", "content")
_BLOCK: Final = ("type", "text", "id", "name", "input", "tool_use_id", "is_error", "content")
_ITEM: Final = _fields("_Item", "type", "text")
_INPUT: Final = _fields("_Input", "command", "file_path", "timeout", "run_in_background")
_REQUEST: Final = _fields(
    "_Request", "subtype", "callback_id", "request_id", "tool_use_id", "tool_name", "input", "agent_id", "cwd"
)
_HOOK_INPUT: Final = _fields("_HookInput", "tool_use_id", "tool_name", "tool_input", "agent_id", "cwd")
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()
_STRING: Final = msgspec.json.Decoder(str)
_WELL_FORMED: Final = msgspec.json.Decoder(msgspec.Raw)
_BLOCK_FIELDS: Final = _fields("_Block", *_BLOCK)


def decode_abridged(line: bytes) -> StreamFrame | Malformed | None:
    """Return what `decode` returns of a line, but of a long one only what a session reads. Never raises."""
    return decode(line) if len(line) < LONG_BYTES else decode_long(line)


def decode_long(line: bytes) -> StreamFrame | Malformed | None:
    """Return what a session reads of a line."""
    try:
        return _frame(line, size=len(line))
    except _CrowdedError:
        return Malformed(reason=_CROWDED)
    except RecursionError:
        return Malformed(reason=_TOO_DEEP)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _read_leniently(line)


def _frame(line: bytes | bytearray, *, size: int) -> StreamFrame | None:
    """Return a line's frame; ``None``: it is JSON, and no object. Raises what its reader does where it is no JSON."""
    try:
        fields = _taken(_TOP, line)
    except msgspec.ValidationError:
        _WELL_FORMED.decode(line)
        return None
    body: dict[str, object] = {name: _field(fields[name]) for name in _ALWAYS if name in fields}
    kind, subtype = (found if isinstance(found := body.get(name), str) else "" for name in ("type", "subtype"))
    reads = _READERS.get(kind, {})
    for name in _BY_TYPE.get(kind, ()):
        if (raw := fields.get(name)) is not None:
            body[name] = reads.get(name, _field)(raw)
    return StreamFrame(type=kind, subtype=subtype, body=body, size=size)


def _read_leniently(line: bytes) -> StreamFrame | Malformed | None:
    """Return what a line holds that is no JSON, or not quite; its head shows that mostly."""
    if len(line) < LONG_BYTES:
        return decode_leniently(line)
    begins = line[:_HEAD_BYTES].lstrip(_PADDING)[:1]
    if begins and begins[0] not in _VALUE_BEGINNINGS:
        return decode_leniently(line[:_HEAD_BYTES])
    from claudeops.text.mended_json import mended  # noqa: PLC0415 - few lines need it

    strict = mended(line)
    try:
        return _frame(strict, size=len(line)) if strict else None
    except _CrowdedError:
        return Malformed(reason=_CROWDED)
    except RecursionError:
        return Malformed(reason=_TOO_DEEP)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # its words repeat nothing of the line
        return Malformed(reason=str(error))


# --- values


def _taken(decoder: msgspec.json.Decoder[msgspec.Struct], raw: _Raw | bytearray) -> dict[str, _Raw]:
    """Return the fields that a decoder takes of an object, as they stand in it."""
    found = decoder.decode(raw)
    values = ((name, getattr(found, name)) for name in found.__struct_fields__)
    return {name: memoryview(value) for name, value in values if isinstance(value, msgspec.Raw)}


class _CrowdedError(Exception):
    """A field has more values than are read."""


_CROWDED: Final = f"a field of more than {_MOST_VALUES} values"


def _is_crowded(raw: _Raw) -> bool:
    """Return whether a value consists of too many."""
    if len(raw) < LONG_BYTES or _is_text(raw):
        return False
    pieces = (raw[at : at + _PIECE_BYTES] for at in range(0, len(raw), _PIECE_BYTES))
    if sum(bytes(piece).count(b",") for piece in pieces) < _MOST_VALUES:  # those in texts count here, too
        return False
    commas = 0
    for part in _PART.finditer(bytes(raw)):
        commas += part.end() - part.start() == 1
        if commas >= _MOST_VALUES:
            return True
    return False


def _items(raw: _Raw) -> Sequence[_Raw]:
    """Return the values of a list, as they stand in it. Raises `_CrowdedError`."""
    if _is_crowded(raw):
        raise _CrowdedError
    return [memoryview(each) for each in _LIST.decode(raw)]


def _value(raw: _Raw) -> object:
    """Return a value, whole; of one that is too long only its text, if it is one. Raises `_CrowdedError`."""
    if len(raw) > HELD_INPUT_BYTES:
        return _abridged(raw, _RESULT_CHARACTERS) if _is_text(raw) else None
    if _is_crowded(raw):
        raise _CrowdedError
    try:
        return _ANY.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        held = decode_leniently(b'{"value":' + bytes(raw) + b"}")
        return held.body["value"] if isinstance(held, StreamFrame) else None


def _field(raw: _Raw) -> object:
    """Return a value, whole but for the middles of long texts."""
    return _abridged(raw, _RESULT_CHARACTERS) if len(raw) >= LONG_BYTES and _is_text(raw) else _trimmed(raw)


def _trimmed(raw: _Raw, depth: int = 0) -> object:
    """Return a value without the middles of its long texts, such as a report, of each text of which little counts."""
    if len(raw) < LONG_BYTES:
        return _value(raw)
    if _is_text(raw):
        return str(_abridged(raw, _RESULT_CHARACTERS))
    if depth == _DEEPEST:
        return None
    if not _is_object(raw):
        return [_trimmed(each, depth + 1) for each in _items(raw)] if raw[:1] == b"[" else None
    return {name: _trimmed(value, depth + 1) for name, value in _all_fields(raw)}


def _all_fields(raw: _Raw) -> Iterator[tuple[str, _Raw]]:
    """Yield the fields of an object, as they stand in it. Raises `_CrowdedError`."""
    if _is_crowded(raw):
        raise _CrowdedError
    for name, value in _OBJECT.decode(raw).items():
        yield name, memoryview(value)


def _item(raw: _Raw) -> object:
    """Return an item of codex: its text, in which a report may stand, and the ends of what else is long."""
    if not _is_object(raw):
        return _trimmed(raw)
    return {name: _spoken(value) if name == "text" else _trimmed(value, 1) for name, value in _all_fields(raw)}


def _report(raw: _Raw) -> object:
    return _spoken(raw) if _is_text(raw) else _trimmed(raw)


def _text_field(fields: Mapping[str, _Raw], name: str) -> str:
    value = _field(fields[name]) if name in fields else None
    return value if isinstance(value, str) else ""


def _is_text(raw: _Raw) -> bool:
    return raw[:1] == b'"'


def _is_object(raw: _Raw) -> bool:
    return raw[:1] == b"{"


def _object(raw: _Raw, decoder: msgspec.json.Decoder[msgspec.Struct], **reads: Callable[[_Raw], object]) -> object:
    """Return the fields that a decoder takes of an object; anything else as it is."""
    if len(raw) < _HEAD_BYTES or not _is_object(raw):
        return _value(raw)
    return {name: reads.get(name, _value)(field) for name, field in _taken(decoder, raw).items()}


# --- messages


def _message(raw: _Raw) -> object:
    if _is_text(raw):  # what caliban warns of
        return _abridged(raw, _RESULT_CHARACTERS)
    return _object(raw, _IN_MESSAGE, content=_content)


def _content(raw: _Raw) -> object:
    if raw[:1] != b"[":
        return None  # of a message only lists count
    return [_block(each) for each in _items(raw)]


def _block(block: _Raw) -> object:
    if len(block) < _HEAD_BYTES or not _is_object(block):
        return _value(block)
    fields = _taken(_BLOCK_FIELDS, block)
    is_report = _text_field(fields, "name") == STRUCTURED_OUTPUT_TOOL
    reads = {"text": _spoken, "content": _result_content, "input": _trimmed if is_report else _input}
    return {name: reads.get(name, _value)(field) for name, field in fields.items()}


def _input(raw: _Raw) -> object:
    """Return a call's input: of one that is too long to be held what is seen of it, and what distinguishes it."""
    if len(raw) < HELD_INPUT_BYTES and not _is_crowded(raw):
        return _value(raw)
    if raw[:1] != b"{":
        return _abridged(raw, _RESULT_CHARACTERS) if _is_text(raw) else None
    seen = {name: _value(field) for name, field in _taken(_INPUT, raw).items() if len(field) < _HEAD_BYTES}
    digest = hashlib.sha256(raw).hexdigest()
    return {**seen, INPUT_LEFT_OUT: f"[{len(raw)} bytes, sha256 {digest}; the log of the session has them]"}


def _result_content(raw: _Raw) -> object:
    """Return the content of a tool's result: its text, or in a list the first text."""
    if _is_text(raw):
        return _abridged(raw, _RESULT_CHARACTERS)
    if raw[:1] != b"[":
        return _value(raw) if len(raw) < _HEAD_BYTES else None
    for item in _items(raw):
        fields = _taken(_ITEM, item) if _is_object(item) else {}
        if _text_field(fields, "type") == "text" and _is_text(text := fields.get("text", b"")):
            return [{"type": "text", "text": _abridged(text, _RESULT_CHARACTERS)}]
    return []


# --- requests


def _request(raw: _Raw) -> object:
    """Return a request with its input as `_input` reads it, and without the answer of a tool: its result has that."""
    if len(raw) < _HEAD_BYTES or not _is_object(raw):
        return _value(raw)
    fields = _taken(_REQUEST, raw)
    reads = {"input": _hook_input if _text_field(fields, "subtype") == "hook_callback" else _input_for(fields)}
    return {name: reads.get(name, _value)(field) for name, field in fields.items()}


def _hook_input(raw: _Raw) -> object:
    if len(raw) < _HEAD_BYTES or not _is_object(raw):
        return _value(raw)
    fields = _taken(_HOOK_INPUT, raw)
    reads = {"tool_input": _input_for(fields)}
    return {name: reads.get(name, _value)(field) for name, field in fields.items()}


def _input_for(fields: Mapping[str, _Raw]) -> Callable[[_Raw], object]:
    return _trimmed if _text_field(fields, "tool_name") == STRUCTURED_OUTPUT_TOOL else _input


# --- texts


def _spoken(raw: _Raw) -> object:
    """Return a text in which a report may stand: whole if it may be there, and else both ends and all markers.

    Of one that is longer than is read whole, a report counts that stands at its ends.
    """
    if len(raw) < LONG_BYTES or not _is_text(raw):
        return _value(raw)
    abridgement = _Abridgement()
    for piece in _pieces(raw):
        abridgement.add(piece)
        if len(raw) <= HELD_INPUT_BYTES and abridgement.may_hold_report:
            return _value(raw)
    return abridgement.text()


def _abridged(raw: _Raw, most: int) -> object:
    """Return both ends of a text, ``most`` characters together."""
    if len(raw) <= most:
        return _value(raw)
    beginning, end, total = "", "", 0
    for piece in _pieces(raw):
        total += len(piece)
        if len(beginning) < most // 2:
            beginning = (beginning + piece)[: most // 2]
        end = (end + piece)[-(most - most // 2) :]
    if total <= most:
        return _value(raw)
    return LongText(both_ends(beginning, end, total=total), characters=total)


class _Abridgement:
    """Takes a long text in pieces, and holds both its ends and the lines between them that may matter."""

    def __init__(self) -> None:
        self._half = TEXT_CHARACTERS // 2
        self._beginning: list[str] = []
        self._kept: list[str] = []
        self._end: deque[str] = deque()
        self._sizes = [0, 0, 0]  # characters of the three
        self._line = ""  # has not ended yet
        self._total = 0
        self._last_word = ""
        self._words: set[str] = set()
        self._waits = False

    @property
    def may_hold_report(self) -> bool:
        """Say whether a report may stand in the text so far."""
        return len(self._words) == len(_REPORT_WORDS)

    def add(self, piece: str) -> None:
        """Take the next piece."""
        self._total += len(piece)
        self._look_for_words(self._last_word + piece)
        self._last_word = piece[-_WORD_CHARACTERS:]
        piece = self._line + piece
        end = piece.rfind("\n") + 1
        if not end and len(piece) < self._half:
            self._line = piece
            return
        end = end or len(piece)
        self._line = piece[end:]
        self._take(piece[:end])

    def text(self) -> LongText:
        """Return what is held of the text, once it is over."""
        self._take(self._line)
        if self._kept:
            self._beginning += ("\n", "\n".join(self._kept), "\n")
        text = "".join((*self._beginning, *self._end))
        self._beginning.clear()
        self._end.clear()
        return LongText(text, characters=self._total, waits=self._waits)

    def _look_for_words(self, text: str) -> None:
        self._words.update(word for word in _REPORT_WORDS if word in text)
        if _HIDDEN_LETTER.search(text):
            self._words.update(_REPORT_WORDS)

    def _take(self, lines: str) -> None:
        if self._sizes[0] < self._half:
            self._beginning.append(lines)
            self._sizes[0] += len(lines)
            return
        self._end.append(lines)
        self._sizes[2] += len(lines)
        while self._sizes[2] - len(self._end[0]) >= self._half:
            gone = self._end.popleft()
            self._sizes[2] -= len(gone)
            self._leave_out(gone)

    def _leave_out(self, lines: str) -> None:
        self._waits = self._waits or says_it_waits(lines)
        if not self._kept:
            self._kept.append("")  # what follows does not go on with the line before
        if any(sign in lines for sign in _KEPT_LINES) and self._sizes[1] < REPORT_CHARACTERS:
            kept = [line for line in lines.split("\n") if any(sign in line for sign in _KEPT_LINES)]
            self._kept += kept
            self._sizes[1] += sum(map(len, kept))


def _pieces(raw: _Raw) -> Iterator[str]:
    """Yield the characters of a JSON string, piece by piece."""
    at, last = 1, len(raw) - 1
    while at < last:
        end = min(at + _PIECE_BYTES, last)
        if end < last:
            end = cut_before(raw, at, end)
        yield _decoded(raw[at:end])
        at = end


def _decoded(inside: _Raw) -> str:
    text = b'"' + bytes(inside) + b'"'
    try:
        return _STRING.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _STRING.decode(text.decode("utf-8", "replace"))


_READERS: Final[Mapping[str, Mapping[str, Callable[[_Raw], object]]]] = {
    "assistant": {"message": _message, "content": _content},
    "user": {"message": _message, "content": _content},
    "message": {"message": _message, "content": _content},
    "system": {"message": _message},
    "result": {"result": _spoken, "last_assistant_text": _spoken, "structured_output": _report},
    "control_request": {"request": _request},
    "text": {"delta": _value},
    "tool_use": {"input": lambda raw: _spoken(raw) if _is_text(raw) else _input(raw)},
    "tool_result": {"content": _result_content},
    "warning": {"message": _message},
    "item.started": {"item": _item},
    "item.updated": {"item": _item},
    "item.completed": {"item": _item},
}
