"""What a log event says, as plain and redacted data, and as a line of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

_DEEPEST: Final = 8  # levels of nested values
_GREATEST_INT: Final = 2**63  # orjson writes 64 bits


class JsonLine:
    """Renders an event as one line of JSON, redacted.

    A line is redacted as a whole, and text by text only if that would change it: what the log says itself stays then,
    whatever a secret that runs over several texts would take of the line.
    """

    def __init__(self, redact: Callable[[str], str], redact_line: Callable[[bytes], bytes] | None) -> None:
        self._redacted = PlainValues(redact)
        self._plain = PlainValues(_as_it_is)
        self._redact_line = redact_line

    def __call__(self, fields: Mapping[str, object]) -> str:
        """Return the line of an event."""
        if self._redact_line is not None:
            line = _to_json(self._plain(fields))
            if self._redact_line(line) == line:
                return line.decode()
        return _to_json(self._redacted(fields)).decode()


class PlainValues:
    """Turns every value into plain data; ``text`` is what becomes of each text in it."""

    def __init__(self, text: Callable[[str], str]) -> None:
        self._of_text = text

    def __call__(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return an event's fields."""
        return {self._text(name): self._plain(value, 0) for name, value in fields.items()}

    def _plain(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            return float(value)
        if isinstance(value, int):
            return int(value) if -_GREATEST_INT <= value < _GREATEST_INT else str(value)
        return self._plain_object(value, depth)

    def _plain_object(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray):
            return self._text(value.decode(errors="replace"))
        if isinstance(value, Mapping | Sequence | AbstractSet) and depth == _DEEPEST:
            return "(nested too deeply)"  # as one text, its quotes and escapes could hide a secret
        if isinstance(value, Mapping):
            return {self._text(str(name)): self._plain(entry, depth + 1) for name, entry in value.items()}
        if isinstance(value, Sequence | AbstractSet):
            return [self._plain(entry, depth + 1) for entry in value]
        return self._text(str(value))

    def _text(self, text: str) -> str:
        # Lone surrogates (undecodable file names) have no JSON form.
        return self._of_text(text if text.isascii() else text.encode(errors="backslashreplace").decode())


def _as_it_is(text: str) -> str:
    return text


def _to_json(fields: Mapping[str, object]) -> bytes:
    import orjson  # noqa: PLC0415 - most commands of the CLI never log

    return orjson.dumps(fields)
