"""Reads and checks the files that the operator names, and finds those that ship with claudeops.

A file that cannot be used is reported in one clear sentence. Shipped files are in the wheel, or in the repository that
claudeops was installed from.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

from claudeops.errors import ConfigurationError, ErrorKind, MissingInputError
from claudeops.files import is_file, is_there
from claudeops.settings.variables import prompt_variable
from claudeops.text.toml_file import TomlFault

T = TypeVar("T")
ResourceKind = Literal["schemas", "prompts", "migrations"]

PROMPT_FILES: Final = ("tier1-observe.md", "tier2-investigate.md", "tier3-remediate.md")
LIBRARY: Final = "library"
SCHEMA_FILE: Final = "agent-response.json"
SCHEMA_VARIABLE: Final = "CLAUDEOPS_SCHEMA_PATH"
MOST_CONFIG_BYTES: Final = 10 * 1024 * 1024

_TOML_BYTES: Final = 1024 * 1024
_PROMPT_BYTES: Final = 10 * 1024 * 1024
_ARGUMENT_BYTES: Final = 128 * 1024 - 1
"""The CLI takes the schema as one argument, and Linux limits an argument to 128 KiB including its final NUL."""

_PACKAGE: Final = Path(__file__).resolve().parent.parent


# --- named files -------------------------------------------------------------------------------------


def read_text(path: Path, *, origin: str, what: str, limit: int) -> str:
    """Return the text of a UTF-8 file that is not blank and holds at most ``limit`` bytes.

    ``origin`` names the variable that led here, ``what`` the file's purpose. Raises `MissingInputError` when the file
    does not exist, `ConfigurationError` for everything else. No message shows any content of the file.
    """
    found = f"{origin} leads to {path}, which"
    data = _content(path, limit=limit, found=found, what=what)
    if len(data) > limit:
        raise _not_as_wanted(path, f"{found} is longer than {limit} bytes: set a shorter {what}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_as_wanted(path, f"{found} is not UTF-8: save the {what} as UTF-8.") from None
    if not text.strip():
        raise _not_as_wanted(path, f"{found} is empty: fill it, or set another {what}.")
    return text


def _content(path: Path, *, limit: int, found: str, what: str) -> bytes:
    """Return what a file holds, one byte more than the limit at most."""
    try:
        # Checked before opening: opening a named pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unreadable(path, f"{found} is not a file: set it to the {what}.")
        with path.open("rb") as file:
            return file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        message = f"{found} does not exist: correct the path, or put the {what} there."
        raise MissingInputError(message, operation="read", target=str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise _unreadable(
            path, f"{found} cannot be read ({reason}): let user {os.geteuid()} read the {what}."
        ) from None


def _unreadable(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError(message, kind=ErrorKind.FILESYSTEM, operation="read", target=str(path))


def _not_as_wanted(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError(message, kind=ErrorKind.PARSE, operation="read", target=str(path))


def toml_file(named: Path | None, name: str, *, root: Path) -> Path | None:
    """Return a file of the operator's: the named one, else the one in ``/app/config`` if it is there."""
    placed = root / "app" / "config" / name
    return placed if named is None and is_file(placed) else named


def read_toml(path: Path, read: Callable[[str], T], *, variable: str, what: str) -> T:
    """Return what ``read`` makes of a file. Raises `ConfigurationError` with file, line and remedy."""
    text = read_text(path, origin=variable, what=what, limit=_TOML_BYTES)
    try:
        return read(text)
    except TomlFault as fault:
        raise ConfigurationError(f"{variable}: {path}, line {fault.line}: {fault}.") from None


def load_prompt(tier: int, named: Path | None, *, root: Path) -> tuple[Path, str]:
    """Return path and text of a tier's prompt: the named file, else the one in ``/app``, else the shipped one."""
    variable = prompt_variable(tier)
    if named is None and tier > len(PROMPT_FILES):
        raise ConfigurationError(
            f"{variable} is not set, and tiers above {len(PROMPT_FILES)} have no default: "
            "set it, or lower CLAUDEOPS_MAX_TIER."
        )
    if named is not None:
        return named, read_prompt(tier, named)
    path = _default("prompts", PROMPT_FILES[tier - 1], root=root)
    return path, read_text(path, origin=f"The default of {variable}", what="prompt", limit=_PROMPT_BYTES)


def read_prompt(tier: int, path: Path) -> str:
    """Return the text of a tier's prompt file as it is now; raises `ConfigurationError`."""
    return read_text(path, origin=prompt_variable(tier), what="prompt", limit=_PROMPT_BYTES)


def library_dir(*, root: Path = Path("/")) -> Path:
    """Return the directory of the built-in library: the one in ``/app``, else the shipped one."""
    return _default("prompts", LIBRARY, root=root)


def load_schema(named: Path | None, *, root: Path) -> tuple[Path, str]:
    """Return path and text of the report schema, a valid draft-07 schema of an object."""
    from claudeops.formats.report.response_schema import is_shipped  # noqa: PLC0415 - most commands read no schema

    path = named if named is not None else _default("schemas", SCHEMA_FILE, root=root)
    origin = SCHEMA_VARIABLE if named is not None else f"The default of {SCHEMA_VARIABLE}"
    text = read_text(path, origin=origin, what="schema", limit=MOST_CONFIG_BYTES)
    schema = _json(text, path, origin=origin, what="schema")
    fault = None if is_shipped(text) else _schema_fault(schema)
    if fault is not None:
        raise ConfigurationError(
            f"{origin} leads to {path}, which {fault}: correct the schema, or set another one.",
            kind=ErrorKind.PARSE,
            operation="read",
            target=str(path),
        )
    return path, text


def load_mcp_config(path: Path, *, origin: str, limit: int = MOST_CONFIG_BYTES) -> Mapping[str, object]:
    """Return the servers of an MCP file by name, as they are written there; ``limit`` is in bytes."""
    what = "MCP configuration"
    config = _json(read_text(path, origin=origin, what=what, limit=limit), path, origin=origin, what=what)
    servers = config.get("mcpServers") if isinstance(config, dict) else None
    if not isinstance(servers, dict):
        raise ConfigurationError(
            f'{origin} leads to {path}, which has no "mcpServers" object: write {{"mcpServers": {{…}}}}.',
            kind=ErrorKind.MCP,
            operation="read",
            target=str(path),
        )
    return servers


def _default(kind: ResourceKind, name: str, *, root: Path) -> Path:
    placed = root / "app" / kind / name
    return placed if is_there(placed) else packaged(kind) / name


def _json(text: str, path: Path, *, origin: str, what: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigurationError(
            f"{origin} leads to {path}, which is not valid JSON{where}: correct the {what}, or set another one.",
            kind=ErrorKind.PARSE,
            operation="read",
            target=str(path),
        ) from None
    return value


def _schema_fault(schema: object) -> str | None:
    """Return what is wrong with a report schema, as the end of a sentence."""
    import jsonschema  # noqa: PLC0415 - slow to import, and most commands read no schema

    if not isinstance(schema, dict):
        return "is not a JSON schema of an object"
    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(str(step) for step in error.absolute_path) or "top level"
        return f"is not a valid draft-07 schema (at {where})"
    if schema.get("type") != "object":
        return 'is not a schema of an object ("type": "object" at the top level)'
    if len(json.dumps(schema, separators=(",", ":")).encode()) > _ARGUMENT_BYTES:
        return f"is longer than the {_ARGUMENT_BYTES} bytes that an argument may have"
    return None


# --- shipped files -----------------------------------------------------------------------------------


def packaged(kind: ResourceKind, *, package: Path = _PACKAGE) -> Path:
    """Return the directory of the shipped schemas, prompts or migrations.

    A wheel has them in ``_packaged``, an editable installation beside ``src``. ``package`` is
    the directory of the ``claudeops`` package. Raises `MissingInputError` when neither place has them.
    """
    wheel, checkout = package / "_packaged" / kind, package.parent.parent / kind
    if wheel.is_dir():
        return wheel
    # Only a checkout has the project file two levels up, so a site-packages directory is never taken for one.
    if checkout.is_dir() and (package.parent.parent / "pyproject.toml").is_file():
        return checkout
    raise MissingInputError(f"The {kind} that belong to claudeops are not at {wheel}: reinstall the package.")


def policy_fragments(*, package: Path = _PACKAGE) -> dict[str, Path]:
    """Return the paths of the fragments that a policy may extend beside the default, by name."""
    return {path.stem: path for path in sorted((package / "policy" / "fragments").glob("*.toml"))}


_DEFAULT_PARTS: Final = ("tiers", "machine", "files", "network", "containers", "clusters", "git")


def default_policy_path(*, package: Path = _PACKAGE) -> Path:
    """Return the directory of the policy that is in force where the operator names none."""
    return package / "policy" / "default"


def default_policy_parts(*, package: Path = _PACKAGE) -> tuple[Path, ...]:
    """Return the files of the default policy in their order, which decides between rules of one name."""
    directory = default_policy_path(package=package)
    return tuple(directory / f"{number}-{name}.toml" for number, name in enumerate(_DEFAULT_PARTS, 1))
