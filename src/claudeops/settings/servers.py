"""Reads MCP servers: those in the operator's own file, and those of the repositories that the operator trusts by name.

Variables in the operator's file are filled in from the daemon's own environment. Sessions never see that file, and none
of their tools inherits its contents; see ``claudeops.engine.session.mcp_servers``.

A trusted repository's file is read once, at the start, with the same parser. Nothing else of the repository is trusted,
and its authors decide only which program runs in a session's cell: no variable of the operator or of a session is
filled in, only plain programs and addresses are accepted, and no server can be mistaken for one of the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError, ErrorKind
from claudeops.files import is_directory
from claudeops.settings.environ import names_a_secret
from claudeops.settings.files import MOST_CONFIG_BYTES, load_mcp_config
from claudeops.settings.model import KNOWN
from claudeops.settings.reader import VariableReader
from claudeops.settings.variables import FILE_SUFFIX, is_text, quoted

MCP_CONFIG: Final = "CLAUDEOPS_MCP_CONFIG"

TRUSTED_REPOS: Final = "CLAUDEOPS_TRUSTED_REPOS"

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The CLI makes tool names from it (``mcp__<server>__<tool>``)."""
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A server's wrapper gets these names as one text; a blank in a name would let a variable of the session through."""

_FILES: Final = (".claude-ops/mcp.json", ".mcp.json")
"""Where a repository may keep its servers; the first one that is there serves."""

_FILE_BYTES: Final = 64 * 1024  # small enough for a session's pipe to hold several
_KEYS: Final = frozenset({"type", "command", "args", "env", "url", "headers"})
"""Other keys make the CLI run programs beside the server, or log in, with the session's whole environment."""
_TYPES: Final = ("stdio", "http", "sse")


# --- the operator's file -----------------------------------------------------------------------------


def read_mcp_servers(reader: VariableReader, environ: Mapping[str, str]) -> Mapping[str, Mapping[str, object]] | None:
    """Return the servers by name, with ``${NAME}`` and ``${NAME:-default}`` filled in; ``None`` without a file."""
    path = reader.path(MCP_CONFIG)
    if path is None:
        return None
    return parsed_servers(path, origin=MCP_CONFIG, fill=lambda given, server, _: _filled(given, server, environ))


def parsed_servers(
    path: Path, *, origin: str, fill: Callable[[object, str, str], object], limit: int = MOST_CONFIG_BYTES
) -> Mapping[str, Mapping[str, object]]:
    """Return the servers of a file of at most ``limit`` bytes, checked.

    ``origin`` names the variable that led here. ``fill`` gets a server as it is written, its name and the origin, and
    returns the server with its variables filled in.
    """
    found = load_mcp_config(path, origin=origin, limit=limit).items()
    return {name: _server(name, given, origin=origin, fill=fill) for name, given in found}


def secrets_in(servers: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield the secrets in the servers' ``env`` and ``headers``; those after a word such as ``Bearer`` also alone."""
    for server_name, server in servers.items():
        for section in ("env", "headers"):
            entries = server.get(section)
            for name, value in entries.items() if isinstance(entries, dict) else ():
                if isinstance(value, str) and names_a_secret(name):
                    origin = f"{name} of MCP server {server_name}"
                    yield origin, value
                    yield origin, value.rpartition(" ")[2]


def referred_secrets(reader: VariableReader, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values of variables that the file refers to anywhere and whose names are those of secrets."""
    path = reader.path(MCP_CONFIG)
    for server in () if path is None else load_mcp_config(path, origin=MCP_CONFIG).values():
        for name in _referred(server):
            if names_a_secret(name) and name in environ:
                yield f"{name} ({MCP_CONFIG})", environ[name]


def _server(
    name: str, given: object, *, origin: str, fill: Callable[[object, str, str], object]
) -> Mapping[str, object]:
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{origin} has a server called {quoted(name)}: name it with letters, digits, '-' and '_'.",
            kind=ErrorKind.MCP,
        )
    filled = fill(given, name, origin)
    if not isinstance(filled, dict) or not any(isinstance(filled.get(key), str) for key in ("command", "url")):
        raise ConfigurationError(
            f'{origin}: server {name} has neither a "command" nor a "url": give it one of them.', kind=ErrorKind.MCP
        )
    if not _is_list_of_texts(filled.get("args", [])):
        raise ConfigurationError(
            f'{origin}: "args" of server {name} is not a list of texts: correct it.', kind=ErrorKind.MCP
        )
    env = filled.get("env", {})
    if not isinstance(env, dict) or not _is_list_of_texts(list(env.values())):
        raise ConfigurationError(
            f'{origin}: "env" of server {name} is not an object of texts: correct it.', kind=ErrorKind.MCP
        )
    for variable in env:
        if not _ENVIRONMENT_NAME.fullmatch(variable):
            raise ConfigurationError(
                f'{origin}: "env" of server {name} names {quoted(variable)}, which is not the name of a variable: '
                "name it with letters, digits and '_'.",
                kind=ErrorKind.MCP,
            )
    return filled


def _is_list_of_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _filled(value: object, server: str, environ: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: _looked_up(found, server, environ), value)
    if isinstance(value, list):
        return [_filled(entry, server, environ) for entry in value]
    if isinstance(value, dict):
        return {key: _filled(entry, server, environ) for key, entry in value.items()}
    return value


def _looked_up(found: re.Match[str], server: str, environ: Mapping[str, str]) -> str:
    name: str = found.group(1)
    default: str | None = found.group(2)
    if name.removesuffix(FILE_SUFFIX) in KNOWN and KNOWN[name.removesuffix(FILE_SUFFIX)].secret:
        raise ConfigurationError(
            f"{MCP_CONFIG}: server {server} names {name}, which is the daemon's alone: remove it.", kind=ErrorKind.MCP
        )
    value: str | None = environ.get(name, default)
    if value is None or not is_text(value):
        raise ConfigurationError(
            f"{MCP_CONFIG}: server {server} names {name}, which is not set: set it, or remove it.", kind=ErrorKind.MCP
        )
    return value


def _referred(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from (found.group(1) for found in _REFERENCE.finditer(value))
    elif isinstance(value, list):
        for entry in value:
            yield from _referred(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _referred(entry)


# --- trusted repositories ----------------------------------------------------------------------------


def read_trusted_servers(
    reader: VariableReader, *, repos_dir: Path, own: Iterable[str]
) -> Mapping[str, Mapping[str, object]]:
    """Return the servers of all trusted repositories by name; ``own`` are the names of the operator's servers.

    Raises `ConfigurationError` for an entry that is not a repository, an invalid file, and names that clash.
    """
    holders = dict.fromkeys(own, MCP_CONFIG)
    merged: dict[str, Mapping[str, object]] = {}
    for repository in reader.names(TRUSTED_REPOS):
        for name, server in _servers_of(repository, repos_dir).items():
            _refuse_clash(name, repository, holders)
            merged[name] = server
        holders |= dict.fromkeys(merged.keys() - holders.keys(), f"repository {repository}")
    return merged


def idle_servers(reader: VariableReader, *, repos_dir: Path) -> Iterator[str]:
    """Yield a warning for each trusted repository that has its servers in two places, of which one serves."""
    serves, idle = _FILES
    for repository in reader.names(TRUSTED_REPOS):
        directory = _directory(repository, repos_dir)
        if all(_file(repository, directory, name) is not None for name in _FILES):
            yield f"{TRUSTED_REPOS}: repository {repository} has two files: {serves} serves, so remove {idle}."


def _servers_of(repository: str, repos_dir: Path) -> Mapping[str, Mapping[str, object]]:
    directory = _directory(repository, repos_dir)
    for name in _FILES:
        if (file := _file(repository, directory, name)) is not None:
            return parsed_servers(file, origin=f"{TRUSTED_REPOS} ({repository})", fill=_as_written, limit=_FILE_BYTES)
    return {}


def _file(repository: str, directory: Path, name: str) -> Path | None:
    """Return the real path of a repository's file, which must be inside the repository; ``None`` if there is none."""
    try:
        (directory / name).lstat()
        file = (directory / name).resolve(strict=True)
    except FileNotFoundError:
        if any(step.is_symlink() for step in (directory / name, (directory / name).parent)):
            raise _refused(repository, f"whose {name} is a link that leads nowhere: correct the link") from None
        return None
    except NotADirectoryError:
        return None  # of .claude-ops; who reads the library says so
    except (OSError, RuntimeError):
        raise _refused(repository, f"whose {name} cannot be read: let the daemon's user read it") from None
    if not file.is_relative_to(directory):
        raise _refused(repository, f"whose {name} leads out of it: put the file itself there")
    return file


def _directory(repository: str, repos_dir: Path) -> Path:
    """Return a repository's real path, which must be inside the repositories directory."""
    if "/" in repository or repository.startswith("."):
        raise _refused(repository, f"which is not the name of a directory in {repos_dir}: write the name alone")
    try:
        directory = (repos_dir / repository).resolve(strict=True)
        if not is_directory(directory):
            raise NotADirectoryError
        root = repos_dir.resolve(strict=True)
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        raise _refused(repository, f"which is no repository in {repos_dir}: correct the name") from None
    if directory == root or not directory.is_relative_to(root):
        raise _refused(repository, f"which is a link that leads out of {repos_dir}: put the repository itself there")
    return directory


def _refused(repository: str, fault: str) -> ConfigurationError:
    return ConfigurationError(
        f"{TRUSTED_REPOS} holds {quoted(repository)}, {fault}, or remove it from the list.", kind=ErrorKind.MCP
    )


def _refuse_clash(name: str, repository: str, holders: Mapping[str, str]) -> None:
    # Tools are called mcp__<server>__<tool>. If one server's name is another's plus two underscores and more, a policy
    # rule for the one would also apply to tools of the other.
    for other, holder in holders.items():
        if f"{name}__".startswith(f"{other}__") or f"{other}__".startswith(f"{name}__"):
            raise ConfigurationError(
                f"{TRUSTED_REPOS}: the tools of server {name} of repository {repository} could not be told from "
                f"those of server {other} of {holder}: rename one of the two, or remove {repository} from the list.",
                kind=ErrorKind.MCP,
            )


def _as_written(given: object, server: str, origin: str) -> object:
    """Return a server as it is written, if it is plain and refers to no variable."""
    if not isinstance(given, dict):
        return given
    for key in given.keys() - _KEYS:
        raise ConfigurationError(
            f"{origin}: server {server} has {quoted(key)}, which a repository may not set: remove it, or put the "
            f"server into the file of {MCP_CONFIG}.",
            kind=ErrorKind.MCP,
        )
    if given.get("type", _TYPES[0]) not in _TYPES:
        raise ConfigurationError(
            f'{origin}: "type" of server {server} is none of {", ".join(_TYPES)}: correct it.', kind=ErrorKind.MCP
        )
    headers = given.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise ConfigurationError(
            f'{origin}: "headers" of server {server} is not an object of texts: correct it.', kind=ErrorKind.MCP
        )
    # The CLI fills in more spellings than we do, from the session's environment: none may reach it.
    if any("${" in text for value in given.values() for text in _strings(value)):
        raise ConfigurationError(
            f"{origin}: server {server} refers to a variable with '${{': variables are filled in only in the "
            f"operator's own file, so put the server into the file of {MCP_CONFIG}.",
            kind=ErrorKind.MCP,
        )
    return given


def _strings(value: object) -> Iterable[str]:
    entries = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else [value]
    return (entry for entry in entries if isinstance(entry, str))
