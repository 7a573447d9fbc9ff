"""The operator's MCP file: read, checked, and its variables filled in from the daemon's own environment.

Sessions never see the file, and none of their tools inherits what stands in it: see ``claudeops.engine.mcp_servers``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError
from claudeops.settings.environ import is_text
from claudeops.settings.files import MOST_CONFIG_BYTES, load_mcp_config
from claudeops.settings.known_secrets import names_a_secret
from claudeops.settings.names import FILE_SUFFIX, KNOWN
from claudeops.settings.reader import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from claudeops.settings.reader import Reader

VARIABLE: Final = "CLAUDEOPS_MCP_CONFIG"

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the CLI makes tool names of (``mcp__<server>__<tool>``)."""
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The wrapper of a server is told these names in one text; a blank in one would keep a variable of the session."""


def read_mcp_servers(reader: Reader, environ: Mapping[str, str]) -> Mapping[str, Mapping[str, object]] | None:
    """Return the servers by name, their ``${NAME}`` and ``${NAME:-default}`` filled in; ``None`` without a file."""
    path = reader.path(VARIABLE)
    if path is None:
        return None
    return parsed_servers(path, origin=VARIABLE, fill=lambda given, server, _: _filled(given, server, environ))


def parsed_servers(
    path: Path, *, origin: str, fill: Callable[[object, str, str], object], limit: int = MOST_CONFIG_BYTES
) -> Mapping[str, Mapping[str, object]]:
    """Return the servers of a file of at most ``limit`` bytes, checked.

    ``origin`` names the variable that led here; ``fill`` gets a server as it is written, its name and the origin, and
    returns it with its variables filled in.
    """
    found = load_mcp_config(path, origin=origin, limit=limit).items()
    return {name: _server(name, given, origin=origin, fill=fill) for name, given in found}


def secrets_in(servers: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield secrets in the ``env`` and ``headers`` of the servers, ``Bearer …`` also without that word."""
    for server_name, server in servers.items():
        for section in ("env", "headers"):
            entries = server.get(section)
            for name, value in entries.items() if isinstance(entries, dict) else ():
                if isinstance(value, str) and names_a_secret(name):
                    origin = f"{name} of MCP server {server_name}"
                    yield origin, value
                    yield origin, value.rpartition(" ")[2]


def referred_secrets(reader: Reader, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the values of variables whose name is a secret's and that the file refers to, wherever it does."""
    path = reader.path(VARIABLE)
    for server in () if path is None else load_mcp_config(path, origin=VARIABLE).values():
        for name in _referred(server):
            if names_a_secret(name) and name in environ:
                yield f"{name} ({VARIABLE})", environ[name]


def _server(
    name: str, given: object, *, origin: str, fill: Callable[[object, str, str], object]
) -> Mapping[str, object]:
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{origin} has a server called {shown(name)}: name it with letters, digits, '-' and '_'."
        )
    filled = fill(given, name, origin)
    if not isinstance(filled, dict) or not any(isinstance(filled.get(key), str) for key in ("command", "url")):
        raise ConfigurationError(f'{origin}: server {name} has neither a "command" nor a "url": give it one of them.')
    if not _is_list_of_texts(filled.get("args", [])):
        raise ConfigurationError(f'{origin}: "args" of server {name} is not a list of texts: correct it.')
    env = filled.get("env", {})
    if not isinstance(env, dict) or not _is_list_of_texts(list(env.values())):
        raise ConfigurationError(f'{origin}: "env" of server {name} is not an object of texts: correct it.')
    for variable in env:
        if not _ENVIRONMENT_NAME.fullmatch(variable):
            raise ConfigurationError(
                f'{origin}: "env" of server {name} names {shown(variable)}, which is no variable: '
                "name it with letters, digits and '_'."
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
        raise ConfigurationError(f"{VARIABLE}: server {server} names {name}, which is the daemon's alone: remove it.")
    value: str | None = environ.get(name, default)
    if value is None or not is_text(value):
        raise ConfigurationError(f"{VARIABLE}: server {server} names {name}, which is not set: set it, or remove it.")
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
