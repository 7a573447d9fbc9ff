"""What the listener needs of the rest of the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.rules import Source
from claudeops.domain.probe.model import Verb
from claudeops.domain.web.token import ApiToken


class Clock(Protocol):
    """Time, injected so that tests own it."""

    def now(self) -> datetime:
        """Return the wall clock, timezone-aware UTC. May jump."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""


class Tokens(Protocol):
    """Who may call."""

    async def active(self, now: datetime) -> Mapping[int, ApiToken]:
        """Return the tokens that open something now, by id. Raises `StoreError`."""

    async def used(self, last: Mapping[int, datetime]) -> None:
        """Note when tokens were last used, by id. Raises `StoreError`."""


class Sources(Protocol):
    """Who may send alerts, by the operator's file as it is now."""

    def source(self, name: str) -> Source:
        """Return a source; one that the file does not name is generic, and signs nothing."""

    def secrets(self, source: Source) -> Sequence[str]:
        """Return the values of a source's secrets, those that are set."""


class Intake(Protocol):
    """Where alerts go."""

    async def take(
        self, source: str, body: bytes, headers: Mapping[str, str], at: datetime, *, query: Mapping[str, str]
    ) -> Receipt:
        """Store a body, raw; it is on disk when this returns, and what is decided about its alerts follows.

        Whoever calls has proven to be ``source``. A body that cannot be read is stored too. The same body, or one with
        the same id of its sender, is counted instead of stored within ten minutes: its alerts get a decision again,
        which is `duplicate` where they are dealt with. ``headers`` have lower-case names; ``query`` is the address's.
        Raises `StoreError` when nothing could be stored.
        """


class Metrics(Protocol):
    """What the daemon counts of itself."""

    async def __call__(self) -> bytes:
        """Return all of it as text for Prometheus; bounded, with what is known by then."""


class Interactions(Protocol):
    """Where what people press in Slack goes."""

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what Slack says, as JSON; ``False``: there is too much of it now.

        ``targets`` are those for which it was proven to be Slack. Waits for nothing: Slack waits 3 s for us.
        """


class Pings(Protocol):
    """Where heartbeats are heard."""

    async def ping(self, name: str, verb: Verb | None, *, text: str = "", at: datetime, run: str = "") -> bool:
        """Note what a heartbeat says, and about which run; ``False`` if there is none of this name.

        Raises `StoreError`.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that must be well for the daemon to do its work."""

    name: str
    ok: bool
    detail: str = ""  # one sentence, for those who may read it


class Readiness(Protocol):
    """How the daemon is, out of memory: whoever asks waits for nothing."""

    def __call__(self) -> Sequence[Check]:
        """Return all checks, the same ones every time."""
