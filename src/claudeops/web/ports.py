"""What the listener needs of the rest of the daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol, TypeAlias

import msgspec

from claudeops.domain.access.logins import Login, NewLogin
from claudeops.domain.access.users import User
from claudeops.domain.alerts.receipt import Receipt
from claudeops.domain.alerts.rules import AlertSource
from claudeops.domain.live import LiveFact
from claudeops.formats.oidc import LoginCallback, LoginFailure, LoginStart, LoginSuccess
from claudeops.policy.judge import TierVerdict
from claudeops.policy.replay import RecordedCall, ReplayBound, ReplayCount
from claudeops.store.reading.calls import CallVerdict
from claudeops.wording.stream import ShownLine


class PolicyInForce(Protocol):
    """The policy as the daemon has read it."""

    @property
    def tiers(self) -> Sequence[int]:
        """The tiers that there are."""

    @property
    def text(self) -> str:
        """All of it as a file that means the same; why it cannot be shown, where that is so."""

    async def judged(self, command: str, tier: int) -> TierVerdict | str:
        """Return the verdict on a command at one of the tiers, or why there is none; bounded, off the event loop."""

    async def replay(
        self, text: str, calls: Callable[[int | None], Awaitable[Sequence[RecordedCall]]], count: ReplayCount
    ) -> ReplayBound | None:
        """Count what the policy of another file says to calls on record; return the bound that has ended it, if any.

        ``calls`` returns those before the one of an id, newest first; none where there are no more. Puts nothing in
        force; bounded in time, off the event loop. Raises `ConfigurationError` with what is wrong with the file.
        """


class Logins(Protocol):
    """Who has logged in. Every method raises `StoreError`."""

    changes: int
    """How many logins began or ended by way of us: what was read before the last of them is out of date."""

    async def active(self, now: datetime) -> Mapping[str, Login]:
        """Return the logins that open something now, by the digest of their cookie."""

    async def used(self, last: Mapping[int, datetime]) -> None:
        """Note when logins were last used, by id."""

    async def use_link(self, digest: str, new: NewLogin) -> Login | None:
        """Begin the login that a link is for; ``None``: there is no such link, it was used, or it is over."""

    async def log_in(self, user: User, new: NewLogin) -> Login | None:
        """Begin the login of a user whose password was right; ``None``: the user is not as it was then."""

    async def log_in_by(self, provider: str, user: User, new: NewLogin) -> Login | None:
        """Begin the login of a user for whom a provider vouches; ``None``: the user was removed."""

    async def end(self, login_id: int, *, now: datetime) -> None:
        """Let a login open nothing from now on."""


class ProviderLogin(Protocol):
    """Logins at an identity provider. What serves it imports the libraries of an extra."""

    host: str
    """The provider's, as people know it."""

    def begins_at(self, host: str) -> str:
        """Return the public address at which a login begins and ends, by the Host header of a request."""

    async def begin(self, *, host: str, wanted: str, peer: str, at: datetime) -> LoginStart | LoginFailure:
        """Begin a login in a browser. Raises `RefusedError` for one try too many."""

    async def end(self, returned: LoginCallback, *, secret: str, new: NewLogin) -> LoginSuccess | LoginFailure:
        """End the login that was begun in the browser with this secret. Raises `RefusedError`, and `StoreError`."""


class Sources(Protocol):
    """Who may send alerts, by the operator's file as it is now."""

    def source(self, name: str) -> AlertSource:
        """Return a source; one that the file does not name is generic, and signs nothing."""

    def secrets(self, source: AlertSource) -> Sequence[str]:
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


Metrics: TypeAlias = Callable[[], Awaitable[bytes]]
"""Returns what the daemon counts of itself, as text for Prometheus; bounded, with what is known by then."""


class Interactions(Protocol):
    """Where what people press in Slack goes."""

    def take(self, payload: bytes, targets: frozenset[str]) -> bool:
        """Take what Slack says, as JSON; ``False``: there is too much of it now.

        ``targets`` are those for which it was proven to be Slack. Waits for nothing: Slack waits 3 s for us.
        """


class ReadinessCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must be well for the daemon to do its work."""

    name: str
    ok: bool
    detail: str = ""  # one sentence, for those who may read it


Readiness: TypeAlias = Callable[[], Sequence[ReadinessCheck]]
"""Returns all checks, the same ones every time, out of memory: whoever asks waits for nothing."""


class LiveFacts(Protocol):
    """What a subscriber has not taken yet."""

    def take(self) -> LiveFact | None:
        """Return the next fact, or that some were lost; ``None`` if there is nothing new."""


class Live(Protocol):
    """What sessions do, while they do it."""

    def subscribe(self, *, wake: Callable[[], None]) -> AbstractContextManager[LiveFacts]:
        """Subscribe for the length of the block; ``wake`` is called on the event loop for every new fact."""


class LinesPart(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a log, in order and without a gap."""

    lines: Sequence[ShownLine]
    verdicts: Mapping[str, CallVerdict]  # on the calls among them, by ``tool_use_id``
    more: bool  # there may be more already
    ended: bool  # the session has, and these were its last lines


class LogElsewhereError(FileNotFoundError):
    """The log is on another machine; ``strerror`` is a sentence that says where."""


class OpenLog(Protocol):
    """The log of one session. One reading at a time."""

    async def read(self, after: int, *, limit: int) -> LinesPart:
        """Return the lines after line ``after``, none where there are none yet; bounded in size and time.

        Raises `OSError` where the log cannot be read, `FileNotFoundError` where it is not kept any more,
        `LogElsewhereError` where another machine has it.
        """

    async def digest(self) -> str:
        """Return the SHA-256 of the whole log as it was written, in hexadecimal. Raises `OSError`."""

    def close(self) -> None:
        """Close what reading may have left open. Waits for nothing."""


class LogLines(Protocol):
    """The logs of sessions."""

    async def open(self, session_id: int) -> OpenLog | None:
        """Return the log of a session, which may have none yet; ``None``: there is no such session.

        Raises `StoreError`.
        """
