"""The commands of ``claudeops``: their names, help texts, arguments and options.

A module here is imported when one of its commands is named, or when help lists them all; what a command does is
imported when it is called. So help and mistakes are answered at once, and a container's health costs little.

Help shows the first sentence of every command in full, under headings; click alone would cut sentences off in the
middle and list all commands alphabetically.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import ClassVar, Final

import click

from claudeops.cli.commands.completion import complete_names
from claudeops.cli.commands.options import WholeHelp

_DECLARED: Final = {
    "access": (
        "login-link",
        "token",
        "user",
    ),
    "act": (
        "approve",
        "deny",
        "list-approvals",
        "pause",
        "resume",
        "stop",
    ),
    "completion": ("completion",),
    "history": (
        "chain",
        "config",
        "diff-chains",
        "list-actions",
        "list-checks",
        "list-events",
        "list-nodes",
        "spend",
        "stats",
        "status",
        "why",
    ),
    "incidents": (
        "ack",
        "alerts",
        "end-silence",
        "incident",
        "list-incidents",
        "list-silences",
        "list-sources",
        "resolve",
        "silence",
    ),
    "look": (
        "audit",
        "probe",
    ),
    "memories": ("memories",),
    "notify": ("notify",),
    "policy": (
        "policy",
        "remote-commands",
        "show-tool",
    ),
    "sessions": (
        "delete-session",
        "flush-transcript",
        "list-sessions",
        "load-session",
        "replay",
    ),
    "set_up": (
        "backup",
        "copy-database",
        "doctor",
        "migrate",
        "migrate-from",
        "rehearse",
        "version",
    ),
    "tiers": (
        "bootstrap-graph",
        "command-graph",
        "exec-command",
        "exec-tool",
        "route",
        "show-command",
        "tool-pool",
    ),
    "watch": (
        "bootstrap",
        "health",
        "ping",
        "run",
        "tail",
    ),
}
"""Which module declares which commands, each under its name with underscores."""


class _CommandsByName(MutableMapping[str, click.Command]):
    """All commands; each is imported when it is taken."""

    def __init__(self) -> None:
        self._homes = {name: module for module, names in _DECLARED.items() for name in names}
        self._taken: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._taken:
            module = importlib.import_module(f"{__name__}.{self._homes[name]}")
            self[name] = getattr(module, name.replace("-", "_"))
        return self._taken[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._homes.setdefault(name, "")
        self._taken[name] = complete_names(command)

    def __delitem__(self, name: str) -> None:
        del self._homes[name]
        self._taken.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


class _Commands(WholeHelp):
    headings: ClassVar = {
        "Watch": ("status", "list-nodes", "run", "bootstrap", "tail", "health", "ping"),
        "Act": ("list-approvals", "approve", "deny", "stop", "pause", "resume", "memories"),
        "Incidents": (
            *("list-incidents", "incident", "ack", "resolve"),
            *("silence", "end-silence", "list-silences", "list-sources", "alerts"),
        ),
        "Look back": ("chain", "diff-chains", "why", "list-events", "list-checks", "list-actions", "spend", "stats"),
        "Look": ("probe", "audit", "policy"),
        "Tiers and tools": (
            *("exec-command", "show-command", "route", "exec-tool", "show-tool"),
            *("command-graph", "tool-pool", "bootstrap-graph"),
        ),
        "Sessions": ("list-sessions", "load-session", "delete-session", "flush-transcript", "replay"),
        "Set up": (
            *("doctor", "config", "notify", "rehearse", "backup", "migrate", "copy-database", "migrate-from"),
            *("remote-commands", "login-link", "user", "token", "version", "completion"),
        ),
    }


@click.group(
    cls=_Commands,
    commands=_CommandsByName(),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Settings are environment variables. The state of the daemon (its database too, unless CLAUDEOPS_DATABASE_URL "
        "names one) is looked for in CLAUDEOPS_STATE_DIR, else in /state, else in .claudeops/state of the working "
        "directory."
    ),
)
@click.version_option(package_name="claudeops")
def claudeops() -> None:
    """Keep watch over infrastructure with tiered, gated claude sessions."""
