"""What the messages of a stream say that they used: all that is known where no result line came and nobody counted.

The CLI prints a message once for each of its blocks, every time with the usage known by then, so messages are told
apart by their id. Side requests are not in the stream, and a message that was cut off says too little.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.stream.values import as_count, as_object, as_text
from claudeops.domain.tokens import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.domain.stream.transcript import Transcript

_SYNTHETIC: Final = "<synthetic>"
"""The model of messages that the CLI wrote itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageUsage:
    """What one message used, as far as the stream says."""

    model: str
    usage: TokenUsage


@dataclass(kw_only=True, slots=True)
class SpendTally:
    """Accumulates usage by message."""

    messages: dict[str, tuple[str, Mapping[str, object]]] = field(default_factory=dict)
    """Model and usage by message id; what came last counts. Read at the end: a message comes once for each block."""

    def message(self, body: Mapping[str, object]) -> None:
        """Take the message of an ``assistant`` frame, a subagent's too."""
        key, model, usage = as_text(body.get("id")), as_text(body.get("model")), body.get("usage")
        if key is None or model is None or model == _SYNTHETIC or not isinstance(usage, dict):
            return
        self.messages[key] = (model, usage)

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the usage so far."""
        used = (MessageUsage(model=model, usage=_used(usage)) for model, usage in self.messages.values())
        return replace(transcript, messages_used=tuple(used))


def _used(usage: Mapping[str, object]) -> TokenUsage:
    return TokenUsage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cache_read_tokens=as_count(usage.get("cache_read_input_tokens")),
        cache_write_tokens=as_count(usage.get("cache_creation_input_tokens")),
        cache_write_1h_tokens=as_count(as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens")),
        fast=usage.get("speed") == "fast",
        us_only=usage.get("inference_geo") == "us",
    )
