"""What every kind of look shares: its result, how far it has come, and how a stranger's text becomes a detail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from time import perf_counter
from typing import Final

import msgspec

from claudeops.domain.probes.probe import MOST_DETAIL, Saw

_MOST_CLEANED: Final = 4096  # characters of a text that are redacted and cleaned before it is cut to a detail
_MOST_QUOTED: Final = 120  # characters of a service's own words
_LEAST_QUOTED: Final = 12  # of a single long one
_BETWEEN_WORDS: Final = frozenset(" \t\r\n\"'<>{}[](),;")
_OURS: Final = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL),
        *(errno.ENETUNREACH, errno.ENETDOWN, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES),
    }
)
"""Errors of this machine: it is out of descriptors, ports or memory, has no route, or its firewall refuses."""


class LookResult(msgspec.Struct, frozen=True):
    """What a look saw, before it is cleaned and gets its time."""

    saw: Saw
    detail: str = ""  # may hold anything that a service has sent
    latency_ms: float | None = None  # None: that of the look as a whole


class LookFailedError(Exception):
    """A look ended before it saw what it was to look at; caught where looks are made."""

    def __init__(self, saw: Saw, detail: str) -> None:
        super().__init__(detail)
        self.saw = saw
        self.detail = detail


def down(detail: str) -> LookFailedError:
    """Return the end of a look at a service that does not work."""
    return LookFailedError(Saw.DOWN, detail)


def blind(detail: str) -> LookFailedError:
    """Return the end of a look that could not be made: a fault of ours, or of what it asks in the service's place."""
    return LookFailedError(Saw.NOTHING, detail)


class Attempt(msgspec.Struct, kw_only=True):
    """One look under way: how long it may take, and what it is doing, which is said when its time runs out."""

    timeout: float  # seconds, as a whole
    asks_other: bool = False  # it asks somebody about the service, whose failure says nothing about the service
    doing: str = "beginning"
    ours: bool = False  # what it is doing depends on this machine alone
    began: float = msgspec.field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        """Return how long the look has taken."""
        return perf_counter() - self.began

    @property
    def left(self) -> float:
        """Return how many seconds it has left."""
        return max(0.0, self.timeout - self.seconds)

    def begin(self, doing: str, *, ours: bool = False) -> None:
        """Note what the look does now."""
        self.doing, self.ours = doing, ours

    def failed(self, detail: str) -> LookFailedError:
        """Return the end of a look whose other side failed: the service, or what is asked in its place."""
        return blind(detail) if self.asks_other else down(detail)

    def broken(self, error: OSError, doing: str) -> LookFailedError:
        """Return the end of a look by an error of the system; some errors are this machine's own."""
        why = os.strerror(error.errno).lower() if error.errno else type(error).__name__
        if error.errno in _OURS:
            return blind(f"{doing}: {why}, which is a fault of this machine")
        return self.failed(f"{doing}: {why}")

    def timed_out(self) -> LookResult:
        """Return what is known of a service when the time is over."""
        nothing = self.ours or self.asks_other
        return LookResult(Saw.NOTHING if nothing else Saw.DOWN, f"no end after {self.timeout:g} s: {self.doing}")


def quote(text: str | bytes) -> str:
    """Return the beginning of what a service has said, in quotation marks; `cleaned` makes it harmless.

    It is cut between two words: half a secret is found by nobody who looks for whole ones.
    """
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    words = words.strip()
    if len(words) <= _MOST_QUOTED:
        return f'"{words}"'
    cut = next((place for place in range(_MOST_QUOTED, 0, -1) if words[place] in _BETWEEN_WORDS), _LEAST_QUOTED)
    return f'"{words[:cut].rstrip()}…"'


def cleaned(detail: str, redact: Callable[[str], str]) -> str:
    """Return a detail as it may be kept: one redacted line of at most `MOST_DETAIL` characters that moves no cursor."""
    line = " ".join(redact(detail[:_MOST_CLEANED]).split())
    if not line.isprintable():
        line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)
    return line if len(line) <= MOST_DETAIL else line[: MOST_DETAIL - 1] + "…"
