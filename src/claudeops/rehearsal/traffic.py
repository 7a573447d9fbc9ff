"""What was asked and what was served: kept in memory, and line by line in a file for other processes."""

from __future__ import annotations

import os
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations at run time
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.rehearsal.recorded import Kind, Recorded
from claudeops.rehearsal.script import Usage

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Ending(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    CUT = "cut"  # broken off, as scripted
    GONE = "gone"  # the client left first
    CLOSED = "closed"  # the server stopped first


class Served(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="served"):
    """How one request ended. Tokens are those of the answer as far as it went out, as an API would book them."""

    number: int  # of the request
    kind: Kind
    tier: str | None
    session: str
    model: str
    place: str | None  # the step, as tiers.haiku.steps[2]; None: no step answered
    status: int | None  # None: not one byte went out
    ending: Ending
    started: datetime  # UTC, arrival of the request
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="problem"):
    """Something that the script did not foresee; a rehearsal with a problem has failed."""

    number: int  # of the request
    text: str  # one sentence that begins with the place


class Traffic:
    """Requests in order of arrival, answers in order of their end, problems. Grows as long as it lives."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.served: list[Served] = []
        self.problems: list[str] = []

    def add(self, entry: Recorded | Served | Problem) -> None:
        """Keep one entry."""
        match entry:
            case Recorded():
                self.requests.append(entry)
            case Served():
                self.served.append(entry)
            case Problem() if entry.text not in self.problems:  # the CLI repeats what was refused
                self.problems.append(entry.text)

    def main(self, tier: str | None = None, session: str | None = None) -> list[Recorded]:
        """Return the agent's turns, those of one tier or session where these are given."""
        return [seen for seen in self.requests if seen.kind is Kind.MAIN and _is_of(seen, tier, session)]

    def sessions(self, tier: str) -> list[str]:
        """Return the keys of a tier's sessions, in the order in which they first asked."""
        return list(dict.fromkeys(seen.session for seen in self.main(tier)))

    def mentioning(self, text: str) -> list[Recorded]:
        """Return the requests in which a text stands anywhere; what to ask about a secret."""
        return [seen for seen in self.requests if seen.mentions(text)]

    def tokens(self, tier: str | None = None, session: str | None = None) -> Usage:
        """Return the sum of all tokens served, side requests included."""
        chosen = [served for served in self.served if _is_of(served, tier, session)]
        fields = Usage.__struct_fields__
        return Usage(**{name: sum(getattr(served, name) for served in chosen) for name in fields})


class Journal:
    """Appends every entry to a file as one JSON line, readable by the owner alone.

    Written in the event loop, on purpose: the lines then stand in the order of events, and none of them is
    later than what the client saw.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigurationError(f"journal {path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def append(self, entry: Recorded | Served | Problem) -> None:
        """Write one entry; a reader in another process sees it at once."""
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def _is_of(entry: Recorded | Served, tier: str | None, session: str | None) -> bool:
    return tier in (None, entry.tier) and session in (None, entry.session)
