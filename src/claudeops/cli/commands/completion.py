"""Completion of command lines: the script for a shell, and the names that are on record."""

# ruff: noqa: PLC0415 - a shell waits for each answer: nothing is imported before it is needed

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from claudeops.cli.commands.options import examples

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_CLAUDEOPS_COMPLETE"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command(
    epilog=examples(
        "claudeops completion bash > /etc/bash_completion.d/claudeops",
        'claudeops completion zsh > "${fpath[1]}/_claudeops"',
        "claudeops completion fish > ~/.config/fish/completions/claudeops.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> int:
    """Print the script that completes claudeops in SHELL; it asks claudeops itself, so it never grows old.

    Commands, options and their values are completed, and from the database sessions, services, approvals, memories and
    probes. Exit status: 0 printed.
    """
    made = get_completion_class(shell)
    if made is None:  # click knows all three
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(made(cli=click.Group(), ctx_args={}, prog_name="claudeops", complete_var=_VARIABLE).source())
    return 0


def names(subject: str) -> Complete:
    """Return what completes names on record; ``subject`` is a question of `claudeops.store.knowledge.completion`."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from claudeops.errors import ConfigurationError
        from claudeops.settings.where import database_url
        from claudeops.store.knowledge import completion as known

        try:
            url = database_url(os.environ, cwd=Path.cwd())
        except ConfigurationError:
            return []
        rows = known.found(url, getattr(known, subject.upper()))
        return [CompletionItem(name, help=says) for name, says in rows if name.startswith(begun)]

    return complete


_SUBJECTS: Final = {
    "session": "sessions",
    "session_id": "sessions",
    "service": "services",
    "services": "services",
    "approval_id": "approvals",
    "memory_id": "memories",
    "supersedes": "memories",
}
"""What a parameter of this name takes, whichever command it belongs to."""
_PROBES: Final = ("probe", "ping", "exec-tool")
"""Commands whose ``name`` is a probe's."""


def complete_names(command: click.Command) -> click.Command:
    """Let every parameter that takes a name from the record complete it, those of commands below too."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            complete_names(below)
        return command
    for parameter in command.params:
        subject = _SUBJECTS.get(parameter.name or "")
        if parameter.name == "name" and command.name in _PROBES:
            subject = "probes"
        if subject is not None:
            parameter._custom_shell_complete = names(subject)  # noqa: SLF001 - click sets it in constructors alone
    return command
