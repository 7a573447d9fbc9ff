"""What a start does before anything else: it checks prompts and harnesses, and makes its directories.

Whoever waits for a daemon waits for what is imported here before anything can be tried: no more than these need.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.harness import HARNESSES, ungated_refusal
from claudeops.settings import Settings, TierSettings, prepare_directories
from claudeops.settings.variables import prompt_variable
from claudeops.tasks import Threads
from claudeops.wording.prompt import template_fault

T = TypeVar("T")

_SQLITE: Final = "sqlite:///"
_ANSWER_SECONDS: Final = 30.0  # how long a disk may take to answer
_FILES: Final = Threads(most=4)


def check_prompts(settings: Settings) -> None:
    """Raise `ConfigurationError` for a prompt that the CLI would not take literally."""
    for tier in settings.tiers:
        check_prompt(tier, tier.prompt_text)


def check_harnesses(settings: Settings) -> None:
    """Raise `ConfigurationError` for a tier that would run without a gate unless the operator has accepted that."""
    for tier in settings.tiers:
        refusal = ungated_refusal(HARNESSES[tier.harness], allowed=settings.sessions.allow_ungated, tier=tier.number)
        if refusal is not None:
            raise ConfigurationError(refusal, kind=ErrorKind.POLICY)


def check_prompt(tier: TierSettings, text: str) -> None:
    """Raise `ConfigurationError` for a tier's prompt that the CLI would not take literally."""
    if (fault := template_fault(text)) is not None:
        raise ConfigurationError(
            f"{prompt_variable(tier.number)}: {tier.prompt_path}: {fault}",
            kind=ErrorKind.PARSE,
            operation="read",
            target=str(tier.prompt_path),
        )


async def make_directories(settings: Settings) -> None:
    """Make the directories of state and results where they are missing. Raises `ConfigurationError`."""
    await answered(lambda: prepare_directories(settings), "making the state and results directories")


async def answered(work: Callable[[], T], what: str, *, seconds: float = _ANSWER_SECONDS) -> T:
    """Return the result of work with files; raises `ConfigurationError` when their disk does not answer."""
    try:
        return await _FILES.run(work, seconds=seconds, what=what)
    except TimeoutError as error:
        raise ConfigurationError(
            f"The disk of the daemon's own directories does not answer ({error.strerror}): "
            "mend it, or name others in CLAUDEOPS_STATE_DIR and CLAUDEOPS_RESULTS_DIR.",
            kind=ErrorKind.FILESYSTEM,
        ) from error


def binaries(settings: Settings) -> dict[str, Path]:
    """Return the programs that the tiers use, by harness."""
    found = {
        "claude": settings.sessions.claude_bin,
        "codex": settings.sessions.codex_bin,
        "caliban": settings.sessions.caliban_bin,
    }
    return {name: path for name, path in found.items() if path is not None}


def forbidden_paths(settings: Settings) -> tuple[str, ...]:
    """Return what no session may ever look at, whatever its tier: our own files and the database."""
    own = (str(settings.places.state_dir), str(settings.places.results_dir))
    if not settings.places.database_url.startswith(_SQLITE):
        return own
    file = settings.places.database_url.removeprefix(_SQLITE)
    return (*own, file, f"{file}-wal", f"{file}-shm", f"{file}.lock")
