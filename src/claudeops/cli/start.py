"""What every command that works on a node does first: settings, log, checks; all before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from claudeops import logs
from claudeops.app_kit import binaries, check_harnesses, check_prompts
from claudeops.domain.redact import Redactor
from claudeops.engine.cli_version import check_version
from claudeops.logs import LogEvent
from claudeops.settings import load_settings, require_credentials, require_repos

if TYPE_CHECKING:
    from claudeops.logs import Logger
    from claudeops.settings import Settings


def read_settings() -> Settings:
    """Read the environment for a command that starts no session; the log, from warnings up, goes to stderr.

    Raises `ConfigurationError`.
    """
    settings = load_settings(os.environ, cwd=Path.cwd()).settings
    logs.configure(level="warning", fmt=settings.log_format, stream=sys.stderr, redact=Redactor(settings.secrets).text)
    return settings


def start(stream: TextIO | None = sys.stderr, *, quiet: bool = False, line_start: str = "") -> tuple[Settings, Logger]:
    """Read the environment and set up logging to ``stream``; raises `ConfigurationError`.

    ``quiet``: what is as it should be is not logged, because it is told in another way; unless more than the
    usual is asked for. ``line_start`` stands before each line of the log.
    """
    loaded = load_settings(os.environ, cwd=Path.cwd())
    settings = loaded.settings
    require_repos(settings.repos_dir)
    require_credentials(settings)
    check_prompts(settings)
    check_harnesses(settings)
    logs.configure(
        level="warning" if quiet and settings.log_level == "info" else settings.log_level,
        fmt=settings.log_format,
        stream=stream,
        redact=Redactor(settings.secrets).text,
        line_start=line_start,
    )
    log = logs.get_logger()
    for warning in loaded.warnings:
        log.warning(LogEvent.CONFIGURATION_WARNING, warning=warning)
    for harness, path in binaries(settings).items():
        # Of the other CLIs no version is known to be too old.
        version = check_version(path) if harness == "claude" else None
        log.info(LogEvent.CLI_FOUND, harness=harness, path=str(path), version=version)
    return settings, log
