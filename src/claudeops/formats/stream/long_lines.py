"""The frames of long lines, without what nothing reads, so that a line of 50 MB takes its own memory and little more.

Of the fields that a session reads of a frame, texts are abridged where they are long. Everything else is passed over
where it stands. What a report may be is read whole, and what the gate judges: a report's input or output, a text that
may hold one, and the input of a call for the gate.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from claudeops.domain.report.report import MARKER_BEGINNINGS, REPORT_CHARACTERS, STRUCTURED_OUTPUT_TOOL
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
_UNTERMINATED: Final = "Unterminated"
_PLACE: Final = regex.Pattern(r"\(byte (\d+)\)$")

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
        fields = _taken(_TOP, line)
    except msgspec.ValidationError:
        return _no_object(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unreadable(line, error)
    except RecursionError:
        return Malformed(reason="nested too deeply")
    body: dict[str, object] = {name: _field(fields[name]) for name in _ALWAYS if name in fields}
    kind, subtype = (found if isinstance(found := body.get(name), str) else "" for name in ("type", "subtype"))
    reads = _READERS.get(kind, {})
    for name in _BY_TYPE.get(kind, ()):
        if (raw := fields.get(name)) is not None:
            body[name] = reads.get(name, _field)(raw)
    return StreamFrame(type=kind, subtype=subtype, body=body, size=len(line))


# --- lines that are no frame


def _no_object(line: bytes) -> StreamFrame | Malformed | None:
    try:
        _WELL_FORMED.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unreadable(line, error)
    except RecursionError:
        return Malformed(reason="nested too deeply")
    return None


def _unreadable(line: bytes, error: Exception) -> StreamFrame | Malformed | None:
    """Return what a line holds that is no JSON, or not quite; its head shows that mostly."""
    begins = line[:_HEAD_BYTES].lstrip(_PADDING)[:1]
    if begins and begins[0] not in _VALUE_BEGINNINGS:
        return decode_leniently(line[:_HEAD_BYTES])
    place = _PLACE.search(str(error))
    end = 0 if place is None else int(place[1]) + _HEAD_BYTES
    if 0 < end < len(line) and (reason := _fault_in(line[:end])) is not None:
        return Malformed(reason=reason)
    return decode_leniently(line)


def _fault_in(head: bytes) -> str | None:
    """Return what is wrong in the beginning of a line; ``None``: nothing, or it may be that it ends there."""
    text = head.decode("utf-8", "replace").strip(_PADDING.decode())
    try:
        json.loads(text, strict=False, parse_int=len)
    except json.JSONDecodeError as error:
        is_within = error.pos < len(text) - _WORD_CHARACTERS and not error.msg.startswith(_UNTERMINATED)
        return str(error) if is_within else None
    except (ValueError, RecursionError):
        return None
    return None


# --- values


def _taken(decoder: msgspec.json.Decoder[msgspec.Struct], raw: _Raw) -> dict[str, _Raw]:
    """Return the fields that a decoder takes of an object, as they stand in it."""
    found = decoder.decode(raw)
    values = ((name, getattr(found, name)) for name in found.__struct_fields__)
    return {name: memoryview(value) for name, value in values if isinstance(value, msgspec.Raw)}


def _value(raw: _Raw) -> object:
    """Return a value, whole."""
    try:
        return _ANY.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        held = decode_leniently(b'{"value":' + bytes(raw) + b"}")
        return held.body["value"] if isinstance(held, StreamFrame) else None


def _field(raw: _Raw) -> object:
    """Return a value, whole but for a long text."""
    return _abridged(raw, _RESULT_CHARACTERS) if len(raw) >= LONG_BYTES and _is_text(raw) else _value(raw)


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
    return [_block(each) for each in _LIST.decode(raw)]


def _block(raw: msgspec.Raw) -> object:
    block = memoryview(raw)
    if len(block) < _HEAD_BYTES or not _is_object(block):
        return _value(block)
    fields = _taken(_BLOCK_FIELDS, block)
    is_report = _text_field(fields, "name") == STRUCTURED_OUTPUT_TOOL
    reads = {"text": _spoken, "content": _result_content, "input": _value if is_report else _input}
    return {name: reads.get(name, _value)(field) for name, field in fields.items()}


def _input(raw: _Raw) -> object:
    """Return a call's input: of one that is too long to be held what is seen of it, and what distinguishes it."""
    if len(raw) < HELD_INPUT_BYTES:
        return _value(raw)
    if raw[:1] != b"{":
        return _abridged(raw, _RESULT_CHARACTERS) if _is_text(raw) else None
    seen = {name: _value(field) for name, field in _taken(_INPUT, raw).items() if len(field) < _HEAD_BYTES}
    digest = hashlib.sha256(raw).hexdigest()
    return {**seen, "…": f"[{len(raw)} bytes, sha256 {digest}; the log of the session has them]"}


def _result_content(raw: _Raw) -> object:
    """Return the content of a tool's result: its text, or in a list the first text."""
    if _is_text(raw):
        return _abridged(raw, _RESULT_CHARACTERS)
    if raw[:1] != b"[":
        return _value(raw) if len(raw) < _HEAD_BYTES else None
    for each in _LIST.decode(raw):
        item = memoryview(each)
        fields = _taken(_ITEM, item) if _is_object(item) else {}
        if _text_field(fields, "type") == "text" and _is_text(text := fields.get("text", b"")):
            return [{"type": "text", "text": _abridged(text, _RESULT_CHARACTERS)}]
    return []


# --- requests


def _request(raw: _Raw) -> object:
    """Return a request whole, but for the answer of a tool that has run: that is in its result as well."""
    if len(raw) < _HEAD_BYTES or not _is_object(raw):
        return _value(raw)
    fields = _taken(_REQUEST, raw)
    is_hook = _text_field(fields, "subtype") == "hook_callback"
    reads = {"input": lambda given: _object(given, _HOOK_INPUT)} if is_hook else {}
    return {name: reads.get(name, _value)(field) for name, field in fields.items()}


# --- texts


def _spoken(raw: _Raw) -> object:
    """Return a text in which a report may stand: whole if it may be there, and else both ends and all markers."""
    if len(raw) < LONG_BYTES or not _is_text(raw):
        return _value(raw)
    abridgement = _Abridgement()
    for piece in _pieces(raw):
        abridgement.add(piece)
        if abridgement.may_hold_report:
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
    "result": {"result": _spoken, "last_assistant_text": _spoken, "structured_output": _value},
    "control_request": {"request": _request},
    "text": {"delta": _value},
    "tool_use": {"input": _value},
    "tool_result": {"content": _result_content},
    "warning": {"message": _message},
}
