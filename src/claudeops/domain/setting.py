"""A setting as it is shown: the value in effect and where it comes from, and of a secret only that it is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

OF_OURS: Final = frozenset({"computed", "default", "unset"})
"""Origins of what no operator has set."""

MASK: Final = "********"
"""Stands for every secret, whatever its length."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A variable with the value in effect."""

    name: str
    value: str | None  # None: it has none; secrets are masked
    origin: str  # ``environment``, ``file PATH``, ``default``, ``computed``, ``unset``
    default: str | None
    secret: bool
    used: bool  # False: nothing acts on it yet
    meaning: str


def chosen(found: Sequence[Setting], names: Sequence[str], *, only_set: bool = False) -> Sequence[Setting]:
    """Return the settings whose names hold one of ``names``; with ``only_set`` those that an operator has set."""
    wanted = [one for one in found if not names or any(name.upper() in one.name for name in names)]
    return [one for one in wanted if one.origin not in OF_OURS] if only_set else wanted
