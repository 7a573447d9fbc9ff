"""MCP servers of the repositories that the operator trusts by name; nothing else of them is trusted.

A repository's file is read by the parser of the operator's own, once, at the start. Whoever writes the repository says
which program runs in a session's cell, and no more: no variable of the operator or of a session is filled in, nothing
but plain programs and addresses is taken, and no server can be taken for one of the operator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError
from claudeops.settings.mcp import VARIABLE as OWN_FILE
from claudeops.settings.mcp import parsed_servers
from claudeops.settings.reader import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from claudeops.settings.reader import Reader

VARIABLE: Final = "CLAUDEOPS_TRUSTED_REPOS"

_FILE: Final = ".mcp.json"
_FILE_BYTES: Final = 64 * 1024  # of several together, a session's pipe still holds all
_KEYS: Final = frozenset({"type", "command", "args", "env", "url", "headers"})
"""Others make the CLI run programs beside the server, or log in, with the session's whole environment."""
_TYPES: Final = ("stdio", "http", "sse")


def read_trusted_servers(reader: Reader, *, repos_dir: Path, own: Iterable[str]) -> Mapping[str, Mapping[str, object]]:
    """Return the servers of all trusted repositories by name; ``own`` are the names of the operator's servers.

    Raises `ConfigurationError` for an entry that is no repository, a file with a mistake, and names that clash.
    """
    holders = dict.fromkeys(own, OWN_FILE)
    merged: dict[str, Mapping[str, object]] = {}
    for repository in reader.names(VARIABLE):
        for name, server in _servers_of(repository, repos_dir).items():
            _refuse_clash(name, repository, holders)
            merged[name] = server
        holders |= dict.fromkeys(merged.keys() - holders.keys(), f"repository {repository}")
    return merged


def _servers_of(repository: str, repos_dir: Path) -> Mapping[str, Mapping[str, object]]:
    directory = _directory(repository, repos_dir)
    try:
        (directory / _FILE).lstat()
        file = (directory / _FILE).resolve(strict=True)
    except FileNotFoundError:
        if (directory / _FILE).is_symlink():
            raise _wrong(repository, f"whose {_FILE} is a link that leads nowhere: correct the link") from None
        return {}
    except (OSError, RuntimeError):
        raise _wrong(repository, f"whose {_FILE} cannot be read: let the daemon's user read it") from None
    if not file.is_relative_to(directory):
        raise _wrong(repository, f"whose {_FILE} leads out of it: put the file itself there")
    return parsed_servers(file, origin=f"{VARIABLE} ({repository})", fill=_as_written, limit=_FILE_BYTES)


def _directory(repository: str, repos_dir: Path) -> Path:
    """Return where a repository really is: below the repositories directory, whatever links say."""
    if "/" in repository or repository.startswith("."):
        raise _wrong(repository, f"which is not the name of a directory in {repos_dir}: write the name alone")
    try:
        directory = (repos_dir / repository).resolve(strict=True)
        if not directory.is_dir():
            raise NotADirectoryError
        root = repos_dir.resolve(strict=True)
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        raise _wrong(repository, f"which is no repository in {repos_dir}: correct the name") from None
    if directory == root or not directory.is_relative_to(root):
        raise _wrong(repository, f"which is a link that leads out of {repos_dir}: put the repository itself there")
    return directory


def _wrong(repository: str, fault: str) -> ConfigurationError:
    return ConfigurationError(f"{VARIABLE} holds {shown(repository)}, {fault}, or remove it from the list.")


def _refuse_clash(name: str, repository: str, holders: Mapping[str, str]) -> None:
    # Tools are called mcp__<server>__<tool>: where one name goes on with two underscores after the other, a rule of the
    # policy for the one server would hold for tools of the other.
    for other, holder in holders.items():
        if f"{name}__".startswith(f"{other}__") or f"{other}__".startswith(f"{name}__"):
            raise ConfigurationError(
                f"{VARIABLE}: the tools of server {name} of repository {repository} could not be told from those of "
                f"server {other} of {holder}: rename one of the two, or remove {repository} from the list."
            )


def _as_written(given: object, server: str, origin: str) -> object:
    """Return a server as it stands in the file, once it is plain and asks for no variable."""
    if not isinstance(given, dict):
        return given
    for key in given.keys() - _KEYS:
        raise ConfigurationError(
            f"{origin}: server {server} has {shown(key)}, which a repository may not set: remove it, or put the server "
            f"into the file of {OWN_FILE}."
        )
    if given.get("type", _TYPES[0]) not in _TYPES:
        raise ConfigurationError(f'{origin}: "type" of server {server} is none of {", ".join(_TYPES)}: correct it.')
    headers = given.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ConfigurationError(f'{origin}: "headers" of server {server} is not an object of texts: correct it.')
    # The CLI fills in more spellings than we do, and from the session's environment: none gets there.
    if any("${" in text for value in given.values() for text in _texts(value)):
        raise ConfigurationError(
            f"{origin}: server {server} asks for a variable with '${{': variables are filled in only in the operator's "
            f"own file, so put the server into the file of {OWN_FILE}."
        )
    return given


def _texts(value: object) -> Iterable[str]:
    entries = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else [value]
    return (entry for entry in entries if isinstance(entry, str))
