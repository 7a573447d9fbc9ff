"""The people who may answer questions in a chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from claudeops.domain.notices.channels import TargetKind
from claudeops.text import casefold_key, glob


class Approver(msgspec.Struct, frozen=True, kw_only=True):
    """A person who may answer questions in a chat; known by the sender's id alone."""

    name: str
    ids: Mapping[TargetKind, str] = msgspec.field(default_factory=dict)  # by the kinds of chats where they may answer
    tiers: frozenset[int] | None = None  # None: all
    services: tuple[str, ...] | None = None  # globs; None: all

    def answers_for(self, tier: int | None, services: Iterable[str] | None) -> bool:
        """Return whether a question about these services is theirs.

        Without a name, and where not all are known (None), it is for those who answer for all.
        """
        if self.tiers is not None and tier not in self.tiers:
            return False
        if self.services is None:
            return True
        named = [casefold_key(service) for service in services or ()]
        globs = [casefold_key(pattern) for pattern in self.services]
        return bool(named) and all(any(glob.matches(name, pattern) for pattern in globs) for name in named)


def approver_of(approvers: Iterable[Approver], *, kind: TargetKind, sender: str) -> Approver | None:
    """Return the approver with a sender's id, if there is one."""
    return next((each for each in approvers if sender and each.ids.get(kind) == sender), None)
