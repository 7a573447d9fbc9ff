"""The ports of the engine: what wakes it, and what hears of its sessions. The database has none: see `store`."""

from __future__ import annotations

from typing import Final, Protocol

from claudeops.domain.alerts.alert import AlertDecision
from claudeops.domain.calls import VerdictKind
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.sessions import Ending, Finished, Session
from claudeops.domain.spending.tokens import CallState


class Dispatcher(Protocol):
    """Wakes a node when there may be something to claim. The row is the truth; this is only the wake-up."""

    async def announce(self) -> None:
        """Announce that a session was queued. Never raises for a lost wake-up: waiters look again by themselves."""

    async def wait(self) -> None:
        """Return soon after an `announce`, and at the latest after the dispatcher's own interval (1 s)."""


class SessionListener(Protocol):
    """Is called about sessions, on the event loop, and must not block. What it raises is logged and undoes nothing."""

    def started(self, session: Session) -> None:  # noqa: ARG002 - overrides may use it
        """Take notice that a session is about to run."""
        return

    def ended(self, session: Session, ending: Ending, finished: Finished) -> None:  # noqa: ARG002 - as above
        """Take an end that the database has taken, and what follows from it."""
        return

    def left(self, session: Session) -> None:  # noqa: ARG002 - as above
        """Take notice that a session no longer runs, whether or not its end could be written."""
        return


class Counting(SessionListener, Protocol):
    """Counts what has happened, and waits for nothing and raises nothing.

    Called on the event loop, often: a call may cost microseconds.
    """

    def lost(self, session: Session) -> None:  # noqa: ARG002 - overrides use it, as all below
        """Take a session that ended with its daemon."""
        return

    def call_judged(self, session: Session, verdict: VerdictKind) -> None:  # noqa: ARG002
        """Take the gate's answer to a call; a call that waits for people has two."""
        return

    def call_decided(self, seconds: float) -> None:  # noqa: ARG002
        """Take how long a call waited for its answer, people's time not included."""
        return

    def approval_over(self, status: ApprovalStatus, decided_by: str | None, seconds: float) -> None:  # noqa: ARG002
        """Take how a question to people ended, and after how long."""
        return

    def model_call_over(self, session: Session, model: str, state: CallState) -> None:  # noqa: ARG002
        """Take a call to the model API."""
        return

    def strays_killed(self, count: int) -> None:  # noqa: ARG002
        """Take how many processes had outlived their session."""
        return

    def connected(self, count: int, *, failed: int) -> None:  # noqa: ARG002
        """Take how many connections of a session on its own network led outside, and how many found nothing there."""
        return

    def relayed(self, added: int, *, refused: int, failed: int) -> None:  # noqa: ARG002
        """Take how many requests of a session had a header added, were refused it, or failed for want of TLS."""
        return

    def fired(self, late_seconds: float) -> None:  # noqa: ARG002
        """Take by how much a fire of a schedule came late."""
        return

    def alert_received(self, source: str, status: str) -> None:  # noqa: ARG002
        """Take an alert, or a body that could not be read, as it came."""
        return

    def body_stored(self, seconds: float) -> None:  # noqa: ARG002
        """Take how long a sender of alerts waited until his body was on record."""
        return

    def alert_decided(self, source: str, decision: AlertDecision) -> None:  # noqa: ARG002
        """Take what became of an alert."""
        return

    def message_sent(self, channel: str, result: DeliveryOutcome) -> None:  # noqa: ARG002
        """Take what came of a message to people; the channel is a kind of target."""
        return

    def wrote(self, seconds: float | None) -> None:  # noqa: ARG002
        """Take how long a transaction took; ``None``: the database did not take it. On any thread."""
        return


class Uncounted(Counting):
    """Counts nothing."""


UNCOUNTED: Final = Uncounted()
