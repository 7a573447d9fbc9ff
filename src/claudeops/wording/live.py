"""The lines that people read about what a session does, for the live feed, the log viewer and the daemon's log.

Their wording is erk's. Everything that comes from the model is redacted before it is cut, and stripped of line breaks
and control characters, so that a command can neither show half a secret nor forge a line.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from claudeops.domain.stream.events import StreamEvent, ToolStarted

Redact = Callable[[str], str]

_COMMAND_CHARS: Final = 50
_NAME_CHARS: Final = 200  # of a path, tool name or slash command
_SUBJECT_CHARS: Final = 200
_TEXT_CHARS: Final = 500
_RESULT_CHARS: Final = 200
_RESULT_LINES: Final = 3
_READ_CHARS: Final = 4096  # of a text that may be megabytes long

_QUIET: Final = {
    "Read": "Reading files...",
    "Glob": "Searching for files...",
    "Grep": "Searching code...",
}
_FILE_VERBS: Final = {"Edit": "Editing", "Write": "Writing"}
_CI_WORDS: Final = ("fast-ci", "all-ci")
_PULL_REQUEST_COMMANDS: Final = ("/gt:submit-pr", "/git:push-pr", "/gt:pr-submit", "/erk:git-pr-push")

# C0, DEL, C1 and Unicode's line breaks become one space each, so that lengths do not change.
_ONE_LINE: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")


def _anything(_: str) -> bool:
    return True


class Viewpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The point of view from which a call is described."""

    root: str | None  # the session's working directory, absolute; None: not known
    redact: Redact
    exists: Callable[[str], bool] = _anything  # whether a path is on disk, for callers that can see the disk
    command_chars: int = _COMMAND_CHARS  # how much of a command is displayed

    def display(self, text: str, limit: int = _NAME_CHARS) -> str:
        """Return text of the model, safe to display on one line."""
        return self.redact(text).translate(_ONE_LINE)[:limit]

    def path(self, path: str) -> str:
        """Return a path for display: relative if it is absolute, under the root and on disk.

        The root ``/`` shortens nothing: every path is below it, and without its slash would be another one.
        """
        root, normal = posixpath.normpath(self.root or "/"), posixpath.normpath(path)
        below = root.rstrip("/") + "/"
        inside = below != "/" and posixpath.isabs(path) and (normal == root or normal.startswith(below))
        return self.display(posixpath.relpath(normal, root) if inside and self.exists(path) else path)


def tool_summary(name: object, given: object, view: Viewpoint) -> str | None:
    """Return one line about a tool call, or ``None`` for calls that people need not see.

    ``given`` is the call's input; anything but an object counts as an empty one. The exception is ``None``: the
    input did not parse, so only the name is known.
    """
    if not isinstance(name, str) or not name or name in _QUIET:
        return None
    if given is None:
        return _using(name, view)
    params = given if isinstance(given, Mapping) else {}
    if name == "Bash":
        return _bash(params.get("command", ""), view)
    if name == "SlashCommand":
        return _slash_command(params.get("command", ""), view)
    path = params.get("file_path", "")
    if name in _FILE_VERBS and isinstance(path, str):
        return f"{_FILE_VERBS[name]} {view.path(path)}..."
    return _using(name, view)


def live_status(name: object, given: object, view: Viewpoint, *, task: str) -> str:
    """Return what a session is doing now, quiet tools included; ``task`` names what it runs when no tool is open."""
    if isinstance(name, str) and name in _QUIET:
        return _QUIET[name]
    summary = tool_summary(name, given, view)
    if summary is not None:
        return summary
    return _using(name, view) if isinstance(name, str) and name else f"Running {task}..."


def summaries(events: Iterable[StreamEvent], view: Viewpoint) -> tuple[str, ...]:
    """Return a line for every call among ``events`` that people want to see, in order."""
    lines = (tool_summary(event.name, event.input, view) for event in events if isinstance(event, ToolStarted))
    return tuple(line for line in lines if line is not None)


def agent_text_line(text: str, view: Viewpoint) -> str:
    """Return the model's text as one line; "" when it is blank."""
    return " ".join(view.display(text, _READ_CHARS).split())[:_TEXT_CHARS]


def result_line(text: str | None, view: Viewpoint) -> str:
    """Return the first lines of a call's result that are not blank, as one; "" when there are none.

    ``text`` comes from redacted frames; only its beginning is read.
    """
    lines = filter(None, (line.strip() for line in (text or "")[:_READ_CHARS].splitlines()))
    return view.display(" / ".join(itertools.islice(lines, _RESULT_LINES)), _RESULT_CHARS)


def status_line(*, is_error: bool, cost_usd: float | None, duration_ms: int | None) -> str:
    """Return the line under a finished session."""
    mark = "\u274c Error" if is_error else "\u2705 Success"
    cost = "N/A" if cost_usd is None else f"${cost_usd:.4f}"
    return f"\n\n{mark} - Cost: {cost}, Duration: {duration_ms or 0}ms\n"


def api_key_line(source: str | None, subject: str = "") -> str | None:
    """Return the log line that names the credential a session used; ``None`` when the CLI did not name it.

    ``subject`` is a free label of the session. The source is a label too, not a secret.
    """
    if source is None:
        return None
    label = subject.translate(_ONE_LINE).strip()[:_SUBJECT_CHARS]
    return f"apiKeySource={source.translate(_ONE_LINE)[:_NAME_CHARS]}" + (f" ({label})" if label else "")


def _using(name: str, view: Viewpoint) -> str:
    return f"Using {view.display(name)}..."


def _bash(command: object, view: Viewpoint) -> str | None:
    if not isinstance(command, str):
        return None
    if "pytest" in command:
        return "Running tests..."
    if any(word in command for word in _CI_WORDS):
        return "Running CI checks..."
    return f"Running: {view.display(command, view.command_chars)}..."


def _slash_command(command: object, view: Viewpoint) -> str | None:
    if not isinstance(command, str):
        return None
    if any(known in command for known in _PULL_REQUEST_COMMANDS):
        return "Creating pull request..."
    if any(f"/{word}" in command for word in _CI_WORDS):
        return "Running CI checks..."
    return f"Running {view.display(command)}..."
