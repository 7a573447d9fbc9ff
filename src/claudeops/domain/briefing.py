"""What a session is given to read at its start, as it is kept on record."""

from __future__ import annotations

import msgspec

from claudeops.closed_set import ClosedSet


class TextKind(ClosedSet):
    """What a text is."""

    CHECK = "check", "how to find out whether something is healthy"
    PLAYBOOK = "playbook", "how to mend something; for tier 2 and above"
    SKILL = "skill", "how to read something well, such as git's history"
    PROMPT = "prompt", "the file of the tier's prompt"
    MANIFEST = "manifest", "the `CLAUDE-OPS.md` of a repository"


class BriefingText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a session was given; the text itself is not kept."""

    kind: TextKind
    name: str
    origin: str  # where it comes from: a file below the repositories directory, or a built-in one
    digest: str  # SHA-256 (hex) of the text as it was given
