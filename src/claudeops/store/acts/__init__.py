"""What people do by hand: by a command, a page or the API.

An act is one function. It returns what every way in answers with, or a `Refusal`; nothing is done then.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class RefusalKind(StrEnum):
    """Why an act was not done."""

    MISSING = "missing"  # there is nothing of this name
    REFUSED = "refused"  # it is not allowed, or no longer possible
    LATER = "later"  # it may be possible later


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An act that was not done."""

    kind: RefusalKind
    subject: str  # what kind of thing it is about: "approval"
    name: str  # which one, as it was written
    sentence: str
    hint: str = ""  # the remedy; empty: a look at how things stand


def missing(subject: str, name: object, sentence: str) -> Refusal:
    """Return the refusal for something that does not exist."""
    return Refusal(kind=RefusalKind.MISSING, subject=subject, name=str(name), sentence=sentence)


def refused(subject: str, name: object, sentence: str, *, hint: str = "") -> Refusal:
    """Return the refusal for something that is not allowed, or no longer possible."""
    return Refusal(kind=RefusalKind.REFUSED, subject=subject, name=str(name), sentence=sentence, hint=hint)
