"""What kubectl prints where the daemon runs it with the cluster's own credentials: what of it a session may read.

Of its output that is a line for each object, with its name and what was done. Its errors hold more: a patch that failed
stands there whole, and the server repeats values that it refuses, a pod's template with its environment among them. So
only lines pass that begin as such errors do, without what could be a value.
"""

from __future__ import annotations

from typing import Final

from claudeops.text import regex

MASK: Final = "[redacted]"

_DONE: Final = (
    r"created|configured|unchanged|serverside-applied|patched(?: \(no change\))?|rolled back"
    r"|skipped rollback \(current template already matches revision \d{1,19}\)|paused|resumed|image updated|env updated"
    r"|labeled|not labeled|unlabeled|annotated|(?:already )?(?:un)?cordoned"
)
_LINE: Final = regex.Pattern(rf"[a-z0-9][a-z0-9.-]{{0,252}}/[A-Za-z0-9][A-Za-z0-9.:_-]{{0,252}} (?:{_DONE})")
_BEGINNING: Final = regex.Pattern(
    r"(?:error: |Error from server|Warning: |The |\* |Unable to connect to the server|unable to recognize"
    r"|resource mapping not found|no matches for kind|ensure CRDs|for: |from server for: )"
)
_QUOTED: Final = r'"(?:[^"\\]|\\.)*\\?(?:"|$)'  # also where the end is cut off
_VALUE: Final = regex.Pattern(
    # A value that the server refuses: quoted, or a structure and all that follows.
    rf'(?P<before>\b(?:Invalid|Unsupported|Duplicate) value: )(?:{_QUOTED}|[^"].*)'
    rf"|(?P<of>\b(?:parsing|duration|quantity|value) ){_QUOTED}"
    r"|`[^`]*(?:`|$)|(?:\{|\bmap\[|error found in #).*"
)
_MOST: Final = 1000  # characters


def named_line(line: str) -> str:
    """Return a line of its output, or a mask where it is more than an object's name and what was done."""
    return line if _LINE.fullmatch(line) else MASK


def complaint(text: str) -> str:
    """Return what of its errors and warnings a session may read, as one line; the rest is left out."""
    lines = (line for line in text.splitlines() if _BEGINNING.match(line))
    return " ".join(_VALUE.sub(_without_value, " ".join(line.split())) for line in lines)[:_MOST]


def _without_value(found: regex.Match[str]) -> str:
    return f"{found['before'] or found['of'] or ''}{MASK}"
