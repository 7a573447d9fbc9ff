"""What the agents said, the main agent's text; of subagents nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from claudeops.domain.stream.blocks import display_text

if TYPE_CHECKING:
    from claudeops.domain.stream.transcript import Transcript


@dataclass(kw_only=True, slots=True)
class TextTally:
    """Accumulates text."""

    blocks: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    message_seen: bool = False  # deltas count only where no message ever comes
    last: str | None = None  # blocks of the last message that had text

    def message(self, texts: list[str], *, from_subagent: bool) -> None:
        """Take the text blocks of one message."""
        if from_subagent:
            return
        self.message_seen = True
        self.blocks += texts
        said = "\n".join(texts)
        if said and not said.isspace():  # not strip(): it copies a text of any length
            self.last = said

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the text so far."""
        streamed = "".join(self.deltas)
        parts = self.blocks if self.message_seen else [streamed] if streamed else []
        return replace(
            transcript,
            main_texts=tuple(parts),
            text="\n".join(parts),
            display_text=display_text(parts) or "",
            last_assistant_text=self.last if self.message_seen else streamed or None,
        )
