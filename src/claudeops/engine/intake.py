"""The way of a CLI's output into a session: bytes → lines → redacted → log → frames.

Whatever arrived together goes together: one scan for secrets, one write. Lines are in the log, or on their way to it,
before anybody acts on them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

import msgspec

from claudeops.domain.stream import LineSplitter, decode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from claudeops.domain.redact import Redactor
    from claudeops.domain.stream import Frame, Malformed
    from claudeops.engine.logfile import SessionLog
    from claudeops.engine.ports import Clock

CHUNK_BYTES: Final = 256 * 1024
"""So much is best read at once: what is done once a chunk is done seldom, and the chunk stays in the CPU's cache."""

_WORTH_A_THREAD_BYTES: Final = 64 * 1024
"""From here on it pays to decode on one core and scan on another; ordinary sessions stay below and start no thread."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One line, as `decode` gives it."""

    asked: Frame | Malformed | None  # as the CLI printed it: for the gate alone
    kept: Frame | Malformed | None  # without its secrets: for everything else
    arrived_at: datetime


class Intake:
    """Takes a child's output in order. Use it as a context manager: it may have to end a thread."""

    def __init__(self, *, redactor: Redactor, sink: SessionLog, clock: Clock) -> None:
        self._redactor = redactor
        self._sink = sink
        self._clock = clock
        self._splitter = LineSplitter()
        self._decoder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")  # no thread before the first use

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoder.shutdown()

    def push(self, chunk: bytes) -> list[Taken]:
        """Return the lines that ``chunk`` completes, in order. They are with the log already."""
        return self._take(self._splitter.push(chunk))

    def flush(self) -> list[Taken]:
        """Return the last line if the stream ended without a newline."""
        last = self._splitter.flush()
        return [] if last is None else self._take([last])

    def _take(self, lines: Sequence[bytes]) -> list[Taken]:
        if not lines:
            return []
        arrived_at = self._clock.now()
        redacted, asked = self._read(lines)
        self._sink.extend(redacted, arrived_at)
        return [
            Taken(asked=frame, kept=frame if clean is line else decode(clean), arrived_at=arrived_at)
            for line, clean, frame in zip(lines, redacted, asked, strict=True)
        ]

    def _read(self, lines: Sequence[bytes]) -> tuple[list[bytes], list[Frame | Malformed | None]]:
        if sum(map(len, lines)) < _WORTH_A_THREAD_BYTES:
            return self._redactor.lines(lines), _decoded(lines)
        # google-re2 lets go of the interpreter while it scans, so both get done in the time of the longer one.
        decoding = self._decoder.submit(_decoded, lines)
        return self._redactor.lines(lines), decoding.result()


def _decoded(lines: Sequence[bytes]) -> list[Frame | Malformed | None]:
    return [decode(line) for line in lines]
