"""What a session is given to read at its start, as it is kept on record."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TextKind(StrEnum):
    """What a text is."""

    CHECK = "check"
    PLAYBOOK = "playbook"
    SKILL = "skill"
    PROMPT = "prompt"
    MANIFEST = "manifest"


@dataclass(frozen=True, kw_only=True, slots=True)
class BriefingText:
    """A text that a session was given; the text itself is not kept."""

    kind: TextKind
    name: str
    origin: str  # where it comes from: a file below the repositories directory, or a built-in one
    digest: str  # SHA-256 (hex) of the text as it was given
