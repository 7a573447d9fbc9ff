"""Passwords of people: hashed by Argon2id, which takes a tenth of a second and 64 MiB on purpose.

The event loop never waits for it: two are worked on at once, some more wait, and whoever tries beyond that is refused.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from claudeops.domain.access.users import MOST_CHARACTERS
from claudeops.tasks import Threads
from claudeops.web.problems import later

AT_ONCE: Final = 2
MOST_WAITING: Final = 16
SECONDS: Final = 10.0
"""For which a try may wait and be worked on."""

_AGAIN_SECONDS: Final = 5
# The second choice of RFC 9106, for machines that have other things to do.
_HASHER: Final = PasswordHasher(time_cost=3, memory_cost=65_536, parallelism=4, hash_len=32, salt_len=16)


def _text(length: int) -> str:
    return base64.b64encode(bytes(length)).decode().rstrip("=")


NO_PASSWORD: Final = f"$argon2id$v=19$m=65536,t=3,p=4${_text(16)}${_text(32)}"
"""What stands for the hash of whoever has none: no password is right, and to see that takes as long."""


def hash_of(password: str) -> str:
    """Return what is kept of a password."""
    return _HASHER.hash(_normal(password))


def is_right(hashed: str, password: str) -> bool:
    """Return whether a password is the one that was hashed."""
    try:
        return _HASHER.verify(hashed, _normal(password))
    except (VerificationError, InvalidHashError):
        return False


@dataclass(kw_only=True)
class Passwords:
    """Checks passwords in threads."""

    check: Callable[[str, str], bool] = is_right  # a hash and a password
    seconds: float = SECONDS
    _threads: Threads = field(default_factory=lambda: Threads(most=AT_ONCE))
    _waiting: int = 0

    async def are_right(self, hashed: str | None, password: str) -> bool:
        """Return whether a password is right, as late for one as for another; ``None``: there is none.

        Raises `RefusedError` where too many wait, and `TimeoutError`.
        """
        if self._waiting >= MOST_WAITING:
            raise later("Too many passwords are being looked at.", seconds=_AGAIN_SECONDS)
        self._waiting += 1
        try:
            check = partial(self.check, hashed or NO_PASSWORD, password[:MOST_CHARACTERS])
            is_it = await self._threads.run(check, seconds=self.seconds, what="looking at a password")
        finally:
            self._waiting -= 1
        return is_it and hashed is not None and len(password) <= MOST_CHARACTERS


def _normal(password: str) -> str:
    """Return a password as every keyboard writes it: the same letter may have several forms."""
    return unicodedata.normalize("NFKC", password)
