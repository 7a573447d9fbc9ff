"""Reads what a call used from an answer of the Messages API: bytes in, counts out. Nothing else of the answer is kept.

https://docs.anthropic.com/en/api/messages-streaming: ``message_start`` carries the usage of the prompt, every
``message_delta`` the cumulative usage so far; a value that a later event does not name stays as it was.
"""

from __future__ import annotations

from typing import Final

import msgspec

from claudeops.domain.holds import ApiError
from claudeops.domain.spending.tokens import TokenUsage
from claudeops.formats.stream.framing import LineSplitter

_DATA: Final = b"data:"
_WORTH_READING: Final = (b'"usage"', b'"error"', b"message_stop")
"""Lines without any of these are deltas of the text, which are not decoded at all."""


LONGEST_BODY: Final = 32 * 1024 * 1024
"""Bytes of an unstreamed answer that are kept in order to read its usage, which comes at the end."""


class UsageReader:
    """Reads one answer as it passes by. No input raises; what cannot be read sets ``unreadable``."""

    def __init__(self, *, streamed: bool) -> None:
        self.usage: TokenUsage | None = None  # None: nothing reported yet
        self.error: ApiError | None = None
        self.whole = False  # the message reached its end
        self.unreadable = False  # something that should have held the usage could not be read
        self._lines = LineSplitter() if streamed else None
        self._body = bytearray()

    def push(self, chunk: bytes) -> bool:
        """Take a piece of the answer; return whether it held usage or an error."""
        if self._lines is None:
            self._keep(chunk)
            return False
        news = [self._take(line) for line in self._lines.push(chunk)]  # a list, because every line must be taken
        return any(news)

    def close(self) -> bool:
        """Take the end of the answer; return what `push` returns."""
        if self._lines is not None:
            rest = self._lines.flush()
            return rest is not None and self._take(rest)
        body, self._body = bytes(self._body), bytearray()
        return bool(body) and not self.unreadable and self._read(body)

    def _keep(self, chunk: bytes) -> None:
        if len(self._body) + len(chunk) > LONGEST_BODY:
            self.unreadable = True
            self._body.clear()
        elif not self.unreadable:
            self._body += chunk

    def _take(self, line: bytes) -> bool:
        if not line.startswith(_DATA) or not any(word in line for word in _WORTH_READING):
            return False
        return self._read(line[len(_DATA) :])

    def _read(self, document: bytes) -> bool:
        try:
            frame = _DECODER.decode(document)
        except (msgspec.DecodeError, RecursionError):  # `ValidationError` is one
            # A delta of the text may well quote these words in another shape, but then it decodes.
            self.unreadable = True
            return False
        if frame.error is not None:
            self.error = ApiError(type=frame.error.type, message=frame.error.message)
        reported = frame.usage if frame.message is None else frame.message.usage
        if reported is not None:
            self.usage = _merged(self.usage or TokenUsage(), reported)
        # An unstreamed message is whole when its JSON is.
        self.whole = self.whole or frame.type in {"message_stop", "message"}
        return reported is not None or frame.error is not None


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _ServerTools(msgspec.Struct):
    web_search_requests: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    server_tool_use: _ServerTools | None = None
    speed: str | None = None
    inference_geo: str | None = None


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Frame(msgspec.Struct):
    """Any event of a stream, an unstreamed message, or an error answer."""

    type: str = ""
    message: _Message | None = None
    usage: _Usage | None = None
    error: _Error | None = None


_DECODER: Final = msgspec.json.Decoder(_Frame)


def _merged(before: TokenUsage, reported: _Usage) -> TokenUsage:
    hour = reported.cache_creation.ephemeral_1h_input_tokens if reported.cache_creation else None
    searches = reported.server_tool_use.web_search_requests if reported.server_tool_use else None
    return TokenUsage(
        input_tokens=_later(reported.input_tokens, before.input_tokens),
        output_tokens=_later(reported.output_tokens, before.output_tokens),
        cache_read_tokens=_later(reported.cache_read_input_tokens, before.cache_read_tokens),
        cache_write_tokens=_later(reported.cache_creation_input_tokens, before.cache_write_tokens),
        cache_write_1h_tokens=_later(hour, before.cache_write_1h_tokens),
        web_searches=_later(searches, before.web_searches),
        fast=before.fast if reported.speed is None else reported.speed == "fast",
        us_only=before.us_only if reported.inference_geo is None else reported.inference_geo == "us",
    )


def _later(reported: int | None, before: int) -> int:
    return before if reported is None else max(0, reported)
