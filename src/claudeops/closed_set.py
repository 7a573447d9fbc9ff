"""Closed sets: enums whose members carry their meanings."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ClosedSet(StrEnum):
    """Values that stand in columns, documents or logs; pages of ``docs/reference`` are made of their meanings.

    A meaning is a phrase, in Markdown without links. A member equals its value, is written and pickled as it, and is
    found by it, as in every `StrEnum`.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:  # "": for `Status("queued")`, which finds a member
        """Make a member."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member
