"""What every command that works on a node does first: settings, log, checks; all before anything starts.

Signals, at the rim: they become requests to stop and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from claudeops import logs
from claudeops.app.wiring import binaries, check_harnesses, check_prompts
from claudeops.cli import early_signals
from claudeops.domain.redact import Redactor
from claudeops.engine.gate.admission import check_version
from claudeops.engine.system import Shutdown
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings, load_settings, require_credentials, require_repos


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


@contextmanager
def listening(shutdown: Shutdown, log: Logger) -> Iterator[None]:
    """Take SIGINT and SIGTERM as requests to stop, those first that came before the block. On the event loop.

    What comes after the block is kept and has no effect: by then everything ends anyway.
    """
    ear = early_signals.hear()

    def heed() -> None:
        for number in early_signals.heard():
            log.warning(LogEvent.SIGNAL_RECEIVED, signal=number.name)
            shutdown.request()

    loop = asyncio.get_running_loop()
    heed()
    loop.add_reader(ear, heed)
    try:
        yield
    finally:
        loop.remove_reader(ear)
