"""Finds the three directories and the CLIs, checks that they can be used, and says what to do when they cannot."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.files import is_directory
from claudeops.settings.model import ProbeSettings, Settings
from claudeops.settings.reader import VariableReader, read_address_of_database, read_database_url
from claudeops.settings.sessions import ROOM_SECONDS, STOP_GRACE, TAKEOVER
from claudeops.settings.variables import HARNESSES
from claudeops.settings.where import (
    DISPATCHER,
    PROCRASTINATE,
    STATE,
    TARGET_DATABASE,
    NodeSettings,
    PlaceSettings,
    find_directory,
    refuse_shared_file,
)

BUNDLED: Final = "claude"
"""The harness whose CLI comes with claudeops."""

_METER: Final = "CLAUDEOPS_METER"

_RESULTS: Final = "CLAUDEOPS_RESULTS_DIR"
_REPOS: Final = "CLAUDEOPS_REPOS_DIR"
_PROBES: Final = "CLAUDEOPS_PROBES_PATH"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def read_probes_file(reader: VariableReader, environ: Mapping[str, str], *, root: Path) -> ProbeSettings:
    """Return the file that the variable names, else the one that is looked for; and what it needs of ``environ``."""
    named = reader.path(_PROBES)
    path = named or root / "app" / "config" / "probes.toml"
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    except OSError:
        text = ""  # whoever reads it says so
    wanted = dict.fromkeys(_REFERENCE.findall(text))
    env = MappingProxyType({name: environ[name] for name in wanted if name in environ})
    return ProbeSettings(path=path, named=named is not None, env=env)


# --- directories -------------------------------------------------------------------------------------


def read_places(
    reader: VariableReader, *, cwd: Path, root: Path, may: Callable[[Path, int], bool] = os.access
) -> tuple[PlaceSettings, tuple[str, ...]]:
    """Return where things are, and a warning for each directory that is not in its usual place.

    They are those of the variables, else ``/state`` and so on, else below the working directory.
    """
    warnings: list[str] = []

    def find(variable: str, name: str, access: int) -> Path:
        found, usual = find_directory(reader, variable, name, access, cwd=cwd, root=root, may=may)
        if reader.path(variable) is None and usual != found and is_directory(usual):
            warnings.append(
                f"{usual} exists, but user {os.geteuid()} may not use it, so {found} is used instead: "
                f"change its owner, or set {variable}."
            )
        return found

    state = find(STATE, "state", os.W_OK | os.X_OK)
    results = find(_RESULTS, "results", os.W_OK | os.X_OK)
    repos = find(_REPOS, "repos", os.R_OK | os.X_OK)
    if repos in {state, results}:
        raise ConfigurationError(
            f"{_REPOS} is {repos}, the same directory as {STATE if repos == state else _RESULTS}: set another one."
        )
    try:
        require_repos(repos)
    except ConfigurationError as nothing:
        # A directory that the operator named must exist; a default one may not, because a rehearsal watches none.
        if reader.is_set(_REPOS):
            raise
        warnings.append(str(nothing))
    found = PlaceSettings(
        state_dir=state,
        results_dir=results,
        repos_dir=repos,
        database_url=read_database_url(reader, state_dir=state, cwd=cwd),
        target_database_url=read_address_of_database(reader, TARGET_DATABASE, cwd=cwd),
    )
    return found, tuple(warnings)


def check_fleet(node: NodeSettings, places: PlaceSettings, reader: VariableReader) -> None:
    """Raise `ConfigurationError` where the database cannot be shared, or sessions would outlive a daemon's lease."""
    if not node.in_fleet:
        return
    refuse_shared_file(places.database_url)
    takeover, grace = reader.number(TAKEOVER), reader.number(STOP_GRACE)
    if takeover < grace + ROOM_SECONDS:
        raise ConfigurationError(
            f"{TAKEOVER} is {takeover:g} s: a daemon that cannot reach the database waits for it, and has to stop its "
            f"sessions within {STOP_GRACE}, which is {grace:g} s, before that: set the first to "
            f"{grace + ROOM_SECONDS:g} s at least, or lower the second."
        )
    if not reader.switch(_METER):
        raise ConfigurationError(
            f"{DISPATCHER} is {PROCRASTINATE} and {_METER} is off: without the meter a session asks its model on while "
            "its daemon is stopped and another one has taken the session over: set "
            f"{_METER} to on, or unset {DISPATCHER}."
        )


def require_repos(repos_dir: Path) -> None:
    """Raise `ConfigurationError` unless the directory has at least one entry that is not hidden."""
    remedy = f"set {_REPOS} to a directory that holds repositories, or mount one there."
    try:
        with os.scandir(repos_dir) as entries:
            watched = any(not entry.name.startswith(".") for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(
            f"There is nothing to watch, because {repos_dir} is not a directory: {remedy}"
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"There is nothing to watch, because user {os.geteuid()} cannot read {repos_dir}, which belongs to user "
            f"{_owner(repos_dir)} ({error.strerror}): run `chmod -R o+rX` on it where it is mounted from, or {remedy}"
        ) from None
    if not watched:
        raise MissingInputError(f"There is nothing to watch, because {repos_dir} is empty: {remedy}")


def prepare_directories(settings: Settings) -> None:
    """Create the state and results directories where they are missing, and check that files can be written there.

    Raises `ConfigurationError` with a sentence that says who owns what and how to fix it.
    """
    # The database and the daemon's socket are private; a group may read session logs.
    _prepare(settings.places.state_dir, STATE, mode=0o700)
    _prepare(settings.places.results_dir, _RESULTS, mode=0o750)


def unusable_directories(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each of the two that could not be created or written; creates nothing."""
    found: list[str] = []
    for directory, variable in ((settings.places.state_dir, STATE), (settings.places.results_dir, _RESULTS)):
        try:
            _check_writable(directory)
        except OSError as error:
            found.append(unusable(directory, variable, error, user=os.geteuid()))
    return tuple(found)


def unusable(directory: Path, variable: str, error: OSError, *, user: int) -> str:
    """Return the sentence for a directory that cannot be written."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        there = _nearest(directory)
        owner = there.stat().st_uid
        # Never advise to change the owner of a parent directory: it may be the root of the file system.
        remedy = (
            f"run `chown -R {user} {there}` where it is mounted from, or run the daemon as user {owner}."
            if there == directory
            else f"run `install -d -o {user} {directory}` as root, or set another directory."
        )
        return (
            f"{variable} leads to {directory}, but user {user} may not write in {there}, which belongs to user "
            f"{owner}: {remedy}"
        )
    if error.errno == errno.EROFS:
        return f"{variable} leads to {directory}, which is mounted read-only: mount it writable, or set another one."
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{variable} leads to {directory}, where no space is left: make room, or set another directory."
    if error.errno in {errno.EEXIST, errno.ENOTDIR}:
        return f"{variable} leads to {directory}, which is not a directory: move the file away, or set a directory."
    return f"{variable} leads to {directory}, which cannot be used ({error.strerror}): set another directory."


def _check_writable(directory: Path) -> None:
    """Raise `OSError` unless a file can be written to the directory, or the directory could be created."""
    there = _nearest(directory)
    if there == directory:
        tempfile.TemporaryFile(dir=directory).close()
    elif not is_directory(there):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    elif os.statvfs(there).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    elif not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _prepare(directory: Path, variable: str, *, mode: int) -> None:
    _or_refuse(lambda: directory.mkdir(parents=True, exist_ok=True, mode=mode), directory, variable)
    # By trying: access(2) knows neither full disks nor what a file server forbids.
    _or_refuse(lambda: tempfile.TemporaryFile(dir=directory).close(), directory, variable)


def _or_refuse(act: Callable[[], None], directory: Path, variable: str) -> None:
    try:
        act()
    except OSError as error:
        raise ConfigurationError(unusable(directory, variable, error, user=os.geteuid())) from None


def _owner(directory: Path) -> str:
    try:
        return str(directory.stat().st_uid)
    except OSError:
        return "unknown"


def _nearest(directory: Path) -> Path:
    """Return the directory itself, or the nearest one above it that exists."""
    for candidate in (directory, *directory.parents):
        try:
            if candidate.exists():
                return candidate
        except PermissionError:
            continue
    return Path(directory.anchor)


# --- programs ----------------------------------------------------------------------------------------


def find_cli(harness: str, reader: VariableReader, *, path: str, cwd: Path) -> Path:
    """Return the absolute path of a harness's CLI; starts nothing.

    The operator may set a path (relative to ``cwd``) or a name on ``path``, the directories of ``PATH``. Otherwise the
    harness's own name is looked for on ``path``; for ``claude`` the last resort is the CLI bundled in
    ``claude-agent-sdk``. Raises `ConfigurationError` when there is none.
    """
    variable = program_variable(harness)
    named = reader.text(variable)
    if named is not None:
        return _named(named, variable, path=path, cwd=cwd)
    found = shutil.which(harness, path=path)
    if found is not None:
        return Path(found)
    bundled = bundled_claude() if harness == BUNDLED else None
    if bundled is None:
        raise ConfigurationError(_missing(harness, variable))
    return bundled


def idle_programs(reader: VariableReader, used: Collection[str]) -> tuple[str, ...]:
    """Return a warning for every program that the operator set and no tier uses."""
    variables = {harness: program_variable(harness) for harness in HARNESSES if harness not in used}
    return tuple(
        f"{variable} is set, but no tier runs on {harness}: it has no effect."
        for harness, variable in variables.items()
        if reader.is_set(variable)
    )


def program_variable(harness: str) -> str:
    """Return the name of the variable for a harness's CLI."""
    return f"CLAUDEOPS_{harness.upper()}_BIN"


def bundled_claude() -> Path | None:
    """Return the CLI inside ``claude-agent-sdk``, if the SDK is installed with one for this platform."""
    # The SDK is located but not imported: importing it takes longer than all the rest of the start.
    spec = importlib.util.find_spec("claude_agent_sdk")
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        candidate = Path(directory) / "_bundled" / "claude"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    return None


def _missing(harness: str, variable: str) -> str:
    if harness == BUNDLED:
        return (
            f"There is no claude CLI on PATH and none is bundled: set {variable}, or reinstall claudeops with its "
            "dependency claude-agent-sdk."
        )
    return f"A tier runs on {harness}, but there is no {harness} CLI on PATH: install it, or set {variable}."


def _named(named: str, variable: str, *, path: str, cwd: Path) -> Path:
    if "/" not in named:
        found = shutil.which(named, path=path)
        if found is None:
            raise MissingInputError(f"{variable} is {named!r}, which is not on PATH: set the full path of the CLI.")
        return Path(found)
    candidate = cwd / named
    if not candidate.is_file():
        raise MissingInputError(f"{variable} leads to {candidate}, which is not a file: set the path of the CLI.")
    if not os.access(candidate, os.X_OK):
        raise ConfigurationError(
            f"{variable} leads to {candidate}, which user {os.geteuid()} may not run: make it executable."
        )
    return candidate
