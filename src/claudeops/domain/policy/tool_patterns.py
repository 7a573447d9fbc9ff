"""The operator's tool patterns, as the CLI writes them: ``Read``, ``Bash(docker ps:*)``, ``Write(/srv/notes/**)``.

They only ever narrow what the policy allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.domain import glob, regex

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUBAGENTS: Final = ("Task", "Agent")
_LISTED: Final = regex.Pattern(r"[^\s,(]+(?:\([^)]*\))?")
_PATTERN: Final = regex.Pattern(r"([A-Za-z_][\w-]*)(?:\((.*)\))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPattern:
    """One pattern; ``body`` is None when it names the whole tool."""

    tool: str
    body: str | None = None

    def matches(self, subject: str) -> bool:
        """Whether a command line (of Bash) or a path (of the file tools) is meant."""
        if self.body is None or self.body in {"*", ":*"}:
            return True
        if self.body.endswith(":*"):
            prefix = " ".join(self.body[:-2].split())
            return subject == prefix or subject.startswith(f"{prefix} ")
        body = "/" + self.body.lstrip("/") if self.body.startswith("//") else self.body
        return subject == body or glob.matches(subject, regex.sub(r"\*+", "*", body).replace("[", "[[]"))


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a list of patterns at commas and blanks outside parentheses: ``Read, Bash(docker ps:*)``."""
    return tuple(part[0] for part in _LISTED.finditer(text))


def parse_patterns(patterns: Sequence[str]) -> tuple[ToolPattern, ...]:
    """Return patterns from their text. One that cannot be read names a tool that does not exist: it allows nothing."""
    found = [_PATTERN.fullmatch(pattern.strip()) for pattern in patterns if pattern.strip()]
    return tuple(
        ToolPattern(tool=tool, body=match[2] if match else None)
        for match in found
        for tool in with_both_names([match[1] if match else ""])
    )


def with_both_names(tools: Sequence[str]) -> tuple[str, ...]:
    """Return tools with both names of the one that starts subagents: CLI 2.1 lists ``Task``, and calls it ``Agent``."""
    other = [name for name in _SUBAGENTS if name not in tools and any(tool in _SUBAGENTS for tool in tools)]
    return (*tools, *other)
