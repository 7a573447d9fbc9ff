"""Logging in by name and password: not too often, and without saying which of both was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from claudeops.clock import Clock
from claudeops.domain.access.logins import Login, NewLogin
from claudeops.domain.access.users import name_key
from claudeops.store.access.users import Users
from claudeops.web.authentication import Rate
from claudeops.web.connection import peer_key
from claudeops.web.passwords import Passwords
from claudeops.web.ports import Logins
from claudeops.web.problems import later

TRIES: Final = 5
"""A minute, of one name, and of one peer."""

_LONGEST_NAME: Final = 100
_AGAIN_SECONDS: Final = 60 // TRIES


@dataclass(kw_only=True)
class PasswordLogin:
    """Logs people in by name and password."""

    users: Users
    logins: Logins
    clock: Clock
    passwords: Passwords = field(default_factory=Passwords)
    _of_peers: Rate = field(init=False)
    _of_names: Rate = field(init=False)

    def __post_init__(self) -> None:
        self._of_peers = Rate(per_second=TRIES / 60, most=TRIES, clock=self.clock)
        self._of_names = Rate(per_second=TRIES / 60, most=TRIES, clock=self.clock)

    async def log_in(self, name: str, password: str, new: NewLogin, *, peer: str) -> Login | None:
        """Begin a login; None: the name or the password is wrong. A right try counts as one as well.

        Raises `RefusedError` for one try too many, `StoreError`, and `TimeoutError`.
        """
        if not self._of_peers.admits(peer_key(peer)):
            raise later("Too many tries to log in came from there; wait a minute.", seconds=_AGAIN_SECONDS)
        # A peer that is refused does not count against a name: else it could keep a person out by itself.
        if not self._of_names.admits(name_key(name)[:_LONGEST_NAME]):
            raise later("Too many tries to log in with this name; wait a minute.", seconds=_AGAIN_SECONDS)
        user = await self.users.named(name) if len(name) <= _LONGEST_NAME else None
        is_right = await self.passwords.are_right(None if user is None else user.password_hash, password)
        return await self.logins.log_in(user, new) if user is not None and is_right else None
