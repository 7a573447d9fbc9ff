"""Which names mean one service, where a report, a look and the cause of a chain each have their own for it.

Alerts and requests often leave out where a service runs (``web`` for ``shop/web``), and reports do so too. A name that
says where means the service of that name, wherever the other does not say it. One that does not say where means a
service that does, unless several services could be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from claudeops.text import casefold_key, parts

_UNIT: Final = ".service"


class KnownServices:
    """The names of services. Two names of one service count as one, whatever their case."""

    def __init__(self, other_names: Mapping[str, str], cut: Callable[[str], str] = str) -> None:
        """Take the other names of services, and how a stored name is cut."""
        self._cut = cut
        self._canonical = {casefold_key(cut(other)): casefold_key(cut(name)) for other, name in other_names.items()}

    def of(self, name: str) -> str:
        """Return the canonical form of a name."""
        plain = casefold_key(self._cut(name))
        return self._canonical.get(plain, plain)

    def place_and_name(self, name: str) -> tuple[str, ...]:
        """Return where a service runs, and its own name in its canonical form as the last part."""
        canonical = self.of(name)
        *place, plain = parts(canonical)
        return (*place, self.of(plain.removesuffix(_UNIT) or plain))


class Meanings:
    """Which of some services a name means; either may leave out where the service runs."""

    def __init__(self, services: Iterable[str], names: KnownServices) -> None:
        self._names = names
        self._exact: dict[str, str] = {}
        self._by_own_name: dict[str, dict[str, tuple[str, ...]]] = {}  # service → place and name
        for service in services:
            if self._exact.setdefault(names.of(service), service) is service:
                where = names.place_and_name(service)
                self._by_own_name.setdefault(where[-1], {})[service] = where

    def of(self, name: str) -> tuple[str, ...]:
        """Return the services that a name means; none where it is not clear which of them."""
        exact = self._exact.get(self._names.of(name))
        if exact is not None:
            return (exact,)
        own = self._names.place_and_name(name)
        candidates = self._by_own_name.get(own[-1], {}).items()
        near = {service: other for service, other in candidates if _ends_alike(own, other)}
        is_clear = len(near) == 1 or all(len(own) >= len(other) for other in near.values())
        return tuple(near) if is_clear else ()


def _ends_alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    length = min(len(one), len(other))
    return one[-length:] == other[-length:]
