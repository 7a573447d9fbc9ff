"""Commands that need the settings: all of them are read.

What needs the database's address alone runs in `on_database`, which is several times as quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from claudeops import logs
from claudeops.cli.reply import CommandResult, print_failure, print_result
from claudeops.errors import ClaudeopsError
from claudeops.settings import Settings, load_settings
from claudeops.text.redact import Redactor


def read_settings() -> Settings:
    """Read the settings for a command that starts no session, and log warnings and worse to stderr.

    Raises `ConfigurationError`.
    """
    settings = load_settings(os.environ, cwd=Path.cwd()).settings
    logs.configure(level="warning", fmt=settings.log.format, stream=sys.stderr, redact=Redactor(settings.secrets).text)
    return settings


def run_with_settings(
    command: str, work: Callable[[Settings], Awaitable[CommandResult]], *, as_json: bool, target: str = ""
) -> int:
    """Read the settings, do the work, print the result and return the exit status; without a database."""

    async def with_settings() -> CommandResult:
        return await work(read_settings())

    try:
        done = anyio.run(with_settings)
    except ClaudeopsError as error:
        return print_failure(command, error, as_json=as_json, target=target or None)
    return print_result(command, done, as_json=as_json)
