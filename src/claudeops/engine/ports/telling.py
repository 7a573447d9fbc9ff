"""What people are told and asked: the outbox, in which it waits for its targets, and the messages that ask."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.domain.notices.notice import Notice, Pending, Settled, Target
from claudeops.wording.notices.approving import Asked, Unedited
from claudeops.wording.notices.digest import Sums


class Outbox(Protocol):
    """Notifications on their way. Whoever decides writes them in the commit that decides."""

    async def tell(self, notice: Notice, *, now: datetime) -> None:
        """Write a notice that nothing else in the database stands for."""

    async def is_told(self, key: str) -> bool:
        """Tell whether a notice with a key was written, for anybody."""

    async def sums(self, since: datetime, *, now: datetime) -> Sums:
        """Return what the daily sum counts, from a time on; one snapshot of the database."""

    async def waiting(self, now: datetime) -> frozenset[str]:
        """Return the targets for which something is due; `claudeops.domain.notices.notice.UNROUTED` is one of them."""

    async def asking(self, now: datetime) -> frozenset[str]:
        """Return the targets for which a question to people is due that was never tried, or without a known end."""

    async def oldest(self, now: datetime) -> datetime | None:
        """Return since when the notice waits that should have been told first; ``None``: none waits.

        What quiet hours or a bound hold back should not have been told yet.
        """

    async def route(self, targets: Sequence[Target], *, now: datetime, most: int) -> int:
        """Give notices to the targets that want them; return how many were looked at, oldest first.

        What is on its way to none of ``targets`` is suppressed.
        """

    async def claim(self, target: str, *, now: datetime, until: datetime, most: int) -> Sequence[Pending]:
        """Take what is due for a target, until a time at which it may be taken again; questions first.

        What was taken before and is not known to have failed says that it may be told again.
        """

    async def sent(self, target: str, since: datetime) -> Sequence[datetime]:
        """Return when a target was sent a message, from a time on."""

    async def settle(self, target: str, settled: Sequence[Settled], *, now: datetime) -> None:
        """Write what came of claimed rows, in one transaction.

        What is over without having been delivered opens the event ``notification_dead`` of the target and goes to
        another one; the next delivery resolves it, and the event ``target_refused`` of a target that takes nothing
        until somebody mends it. A question to people that no target got is on record at once, with
        what each one said, and opens the event ``approval_unheard``; the next delivery to one of them resolves it.
        """

    async def end_events(self, standing: Collection[str], *, now: datetime) -> None:
        """Resolve the events about targets, by their fingerprints, but for those that may still stand."""


class Questions(Protocol):
    """Messages that ask people in chats whether a call may run.

    A message has a token for each of its buttons, of which only digests are stored. They are used up together, by the
    answer that decides the question (`claudeops.engine.ports.Verdicts.answer_approval`).
    """

    async def open(
        self, approval: Approval, *, target: str, chat: str, yes: str | None, no: str | None, now: datetime
    ) -> int:
        """Write that a message is about to ask, before it is sent; ``yes`` and ``no`` are digests. Return its id."""

    async def sent(self, message_id: int, external_id: str) -> bool:
        """Write what a message is called in its chat, unless that is known; tell whether it is called so now.

        It is not if another message of its target is.
        """

    async def by_token(self, digest: str) -> Asked | None:
        """Return the message with a token, and what the token says."""

    async def asking(self, approval_id: int, targets: Collection[str]) -> Sequence[Asked]:
        """Return the messages of some targets that ask one question and are known to have arrived."""

    async def unedited(self, targets: Collection[str], *, now: datetime) -> Sequence[Unedited]:
        """Return the messages of some targets that do not show that their question is over, oldest first."""

    async def edited(self, message_id: int, status: ApprovalStatus, *, now: datetime) -> None:
        """Write that a message shows how its question stands; once that is final, nobody edits it any more."""
