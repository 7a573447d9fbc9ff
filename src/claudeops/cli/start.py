"""What commands do before anything starts: read the settings, check them, set up the log, listen for signals."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from claudeops import logs
from claudeops.app.start.checks import binaries, check_harnesses, check_prompts
from claudeops.cli import early_signals
from claudeops.engine.gate.cli_version import check_version
from claudeops.engine.system import Shutdown
from claudeops.files import is_there
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings, load_settings, require_credentials, require_repos
from claudeops.text.redact import Redactor


def start(stream: TextIO | None = sys.stderr, *, quiet: bool = False, line_start: str = "") -> tuple[Settings, Logger]:
    """Read the settings as `read_settings` does, and look at the CLIs. Raises `ConfigurationError`."""
    settings, log = read_settings(stream, quiet=quiet, line_start=line_start)
    log_clis(settings, log, find_versions(settings))
    return settings, log


def read_settings(
    stream: TextIO | None = sys.stderr, *, quiet: bool = False, line_start: str = ""
) -> tuple[Settings, Logger]:
    """Read and check the settings for a command that starts sessions, and log to ``stream``.

    ``quiet`` logs only warnings and worse, because a live printer shows the rest; a log level other than ``info`` is
    kept all the same. ``line_start`` is put before each line of the log. Raises `ConfigurationError`.
    """
    loaded = load_settings(os.environ, cwd=Path.cwd())
    settings = loaded.settings
    require_repos(settings.places.repos_dir)
    require_credentials(settings)
    check_prompts(settings)
    check_harnesses(settings)
    if settings.probes.named or is_there(settings.probes.path):
        from claudeops.app.wiring import check_probes  # noqa: PLC0415 - a start without probes tries first, and loads then

        check_probes(settings)
    redactor = Redactor(settings.secrets)
    logs.configure(
        level="warning" if quiet and settings.log.level == "info" else settings.log.level,
        fmt=settings.log.format,
        stream=stream,
        redact=redactor.text,
        redact_line=redactor.line,
        line_start=line_start,
    )
    log = logs.get_logger()
    for warning in loaded.warnings:
        log.warning(LogEvent.CONFIGURATION_WARNING, warning=warning)
    return settings, log


def begin_versions(settings: Settings) -> Future[Mapping[str, str | None]]:
    """Begin `find_versions` on a thread: a CLI takes up to a quarter of a second for its answer."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="versions")
    versions = thread.submit(find_versions, settings)
    thread.shutdown(wait=False)
    return versions


def find_versions(settings: Settings) -> Mapping[str, str | None]:
    """Return the version of each CLI, by its harness; raises `ConfigurationError` if it is no CLI or too old.

    No version of other CLIs than claude is known to be too old, so they have none here.
    """
    return {
        harness: check_version(path) if harness == "claude" else None for harness, path in binaries(settings).items()
    }


def log_clis(settings: Settings, log: Logger, versions: Mapping[str, str | None]) -> None:
    """Log which CLIs sessions will run."""
    for harness, path in binaries(settings).items():
        log.info(LogEvent.CLI_FOUND, harness=harness, path=str(path), version=versions[harness])


@contextmanager
def listening(shutdown: Shutdown, log: Logger) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into requests to stop, and nothing else; those that came before the block count too.

    Call it on the event loop. Signals that come after the block have no effect: everything ends then anyway.
    """
    descriptor = early_signals.catch()

    def request_stop() -> None:
        for number in early_signals.caught():
            log.warning(LogEvent.SIGNAL_RECEIVED, signal=number.name)
            shutdown.request()

    loop = asyncio.get_running_loop()
    request_stop()
    loop.add_reader(descriptor, request_stop)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
