"""The lines of a stream, counted; with the warnings about them and the bound on what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.stream.events import LineMalformed
from claudeops.domain.stream.frames import Frame, Malformed

if TYPE_CHECKING:
    from claudeops.domain.stream.transcript import Transcript

RETAINED_BYTES: Final = 52_428_800
"""So many bytes of lines have their text and inputs kept; what comes later is counted and stands in the log only."""

_MALFORMED_NAMED: Final = 20  # malformed lines that get a warning each; the rest shares one
_WARNINGS: Final = 100  # warnings kept; more of them say nothing new
_WARNING_CHARS: Final = 500


@dataclass(kw_only=True, slots=True)
class LineTally:
    """Accumulates lines in order of arrival."""

    format_name: str = "stream-json"  # what the lines should have been, as the warnings call it
    lines: int = 0
    frames: int = 0
    typed: int = 0
    unknown: int = 0  # counted by the reader, who knows the types
    malformed: int = 0
    _retained: int = 0
    _warnings: list[str] = field(default_factory=list)

    def take(self, item: Frame | Malformed | None) -> Frame | LineMalformed | None:
        """Count one line as `decode` gave it; ``None`` when it says nothing (blank, or JSON that is no object)."""
        self.lines += 1
        if isinstance(item, Malformed):
            return self._line_malformed(item.reason)
        if item is not None:
            self.frames += 1
            self.typed += "type" in item.body
        return item

    def has_room(self, size: int) -> bool:
        """Say whether the text and input of a line of ``size`` bytes are kept; one long line always is."""
        if self._retained >= RETAINED_BYTES:
            return False
        self._retained += size
        if self._retained >= RETAINED_BYTES:
            self.warn(
                f"stream-events-truncated: {RETAINED_BYTES} bytes kept; later text and tool inputs are in the log only"
            )
        return True

    def warn(self, warning: str) -> None:
        """Keep a warning, within bounds."""
        if len(self._warnings) < _WARNINGS:
            self._warnings.append(warning[:_WARNING_CHARS])

    def onto(self, transcript: Transcript) -> Transcript:
        """Return ``transcript`` with the counts and warnings so far."""
        return replace(
            transcript,
            lines=self.lines,
            frames=self.frames,
            typed_frames=self.typed,
            unknown_frames=self.unknown,
            malformed_lines=self.malformed,
            warnings=(*self._warnings, *self._unnamed()),
        )

    def _line_malformed(self, reason: str) -> LineMalformed:
        self.malformed += 1
        if self.malformed <= _MALFORMED_NAMED:
            self.warn(f"malformed {self.format_name} line skipped: {reason} (line {self.lines})")
        return LineMalformed(reason=reason, line=self.lines)

    def _unnamed(self) -> tuple[str, ...]:
        more = self.malformed - _MALFORMED_NAMED
        return (f"malformed {self.format_name} lines skipped: {more} more",) if more > 0 else ()
