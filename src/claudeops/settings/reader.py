"""Reads variables from the environment: checks type and bounds, and reports a wrong value in one clear sentence.

URLs are checked too, but never shown, because they may hold passwords.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from claudeops.errors import ConfigurationError
from claudeops.settings.variables import FILE_SUFFIX, HIGHEST_TIER, ValueKind, Variable, is_text, plain_fields, quoted

N = TypeVar("N", int, float)
T = TypeVar("T")

_SECRET_BYTES: Final = 64 * 1024  # far more than any secret needs
_FEWEST_CHARACTERS: Final = 16  # of a secret that lets its owner in
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,62}")
_MODEL: Final = re.compile(r"[A-Za-z0-9][^\s,]{0,199}")  # a leading dash would read as a flag
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_COMMA_OUTSIDE_BRACKETS: Final = re.compile(r",(?![^()]*\))")
_TOOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_*:.-]*(\([^()]+\))?")
OFF: Final = "off"
_TRUE: Final = frozenset({"true", "t", "on", "yes", "y", "1"})
_FALSE: Final = frozenset({"false", "f", "off", "no", "n", "0"})
_PRINTABLE_ASCII: Final = re.compile(r"[!-~]+")

_DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
_POSTGRESQL: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_SQLITE: Final = frozenset({"sqlite", "sqlite+pysqlite"})


class VariableReader:
    """Typed access to ``known`` variables. A blank value counts as unset; blanks around a value are ignored.

    Every method takes the full name of a known variable, and raises `ConfigurationError` with one sentence.
    """

    def __init__(self, environ: Mapping[str, str], known: Mapping[str, Variable[object]], *, cwd: Path) -> None:
        self._known = known
        self._cwd = cwd
        self._home = environ.get("HOME", "")
        self._given = {
            name: _normal(variable, environ[name].strip())
            for name, variable in known.items()
            if environ.get(name, "").strip()
        }
        self._secret_files = {
            name: environ[name + FILE_SUFFIX].strip()
            for name, variable in known.items()
            if variable.secret and environ.get(name + FILE_SUFFIX, "").strip()
        }
        for name, value in self._given.items():
            if not is_text(value):
                raise ConfigurationError(f"{name} holds bytes that are not UTF-8: set it again as UTF-8 text.")
        self._secrets: dict[
            str, str | None
        ] = {}  # each file is read once, so that the value in use is the one that gets redacted

    def is_set(self, name: str) -> bool:
        """Return whether the operator set a value, in the variable or in its file."""
        return name in self._given or name in self._secret_files

    def text(self, name: str) -> str | None:
        """Return text of one line, or the default, if there is one."""
        value = self._given.get(name, self._known[name].default)
        if value is not None and _CONTROL.search(value):
            raise ConfigurationError(f"{name} holds a line break or a control character: put it on one line.")
        return value

    def prose(self, name: str) -> str | None:
        """Return text that may have several lines."""
        return self._given.get(name)

    def number(self, name: str) -> float:
        """Return a finite number within the variable's bounds."""
        return self._within(name, float)

    def whole(self, name: str) -> int:
        """Return a whole number within the variable's bounds."""
        return self._within(name, int)

    def switch(self, name: str) -> bool:
        """Return true or false; yes, no, on, off, 1 and 0 are accepted too."""
        word = self._given.get(name, self._known[name].default or "false")
        if word not in _TRUE | _FALSE:
            raise self._invalid(name)
        return word in _TRUE

    def choice(self, name: str) -> str:
        """Return one of the variable's choices, in lower case."""
        choices = self._known[name].choices
        word = self._given.get(name, choices[0])
        if word not in choices:
            raise self._invalid(name)
        return word

    def model(self, name: str) -> str | None:
        """Return the name or alias of a model, or the default, if there is one."""
        value = self.text(name)
        if value is not None and not _MODEL.fullmatch(value):
            raise ConfigurationError(f"{name} is {quoted(value)}, which is not a model: set a name such as 'sonnet'.")
        return value

    def identifier(self, name: str) -> str | None:
        """Return the name of a machine or a place, or the default, if there is one."""
        value = self.text(name)
        if value is not None and not _IDENTIFIER.fullmatch(value):
            raise ConfigurationError(
                f"{name} is {quoted(value)}, which is no name: set at most 63 letters, digits and . _ : @ -, the first "
                "one a letter or a digit."
            )
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return the comma-separated entries, without blanks and repetitions."""
        entries = (entry.strip() for entry in (self.text(name) or "").split(","))
        return tuple(dict.fromkeys(entry for entry in entries if entry))

    def tools(self, name: str) -> tuple[str, ...]:
        """Return tool names and patterns; a comma between brackets does not split."""
        entries = (entry.strip() for entry in _COMMA_OUTSIDE_BRACKETS.split(self.text(name) or ""))
        tools = tuple(dict.fromkeys(entry for entry in entries if entry))
        for tool in tools:
            if not _TOOL.fullmatch(tool):
                raise ConfigurationError(
                    f"{name} holds {quoted(tool)}, which is neither a tool nor a pattern: "
                    "write names or patterns like Bash(docker ps:*), separated by commas."
                )
        return tools

    def path(self, name: str) -> Path | None:
        """Return an absolute path; a relative one starts at the working directory, ``~/`` at ``HOME``."""
        value = self.text(name)
        return None if value is None else self._absolute(name, value)

    def paths(self, name: str) -> tuple[Path, ...]:
        """Return the comma-separated entries as absolute paths, as `path` does."""
        return tuple(dict.fromkeys(self._absolute(name, entry) for entry in self.names(name)))

    def private_files(self) -> tuple[Path, ...]:
        """Return the absolute paths of the files with secrets and of the daemon's configuration files."""
        secret = (self._absolute(name + FILE_SUFFIX, file) for name, file in self._secret_files.items())
        configuration = sorted(name for name, variable in self._known.items() if variable.configuration)
        named = (self.path(name) for name in configuration)
        return (*secret, *(path for path in named if path is not None))

    def secret(self, name: str) -> str | None:
        """Return a secret from its variable or its file; no message shows it."""
        if name not in self._secrets:
            self._secrets[name] = self._read_secret(name)
        return self._secrets[name]

    def token(self, name: str) -> str | None:
        """Return a secret that is sent in an HTTP header: printable ASCII without blanks."""
        value = self.secret(name)
        if value is not None and not _PRINTABLE_ASCII.fullmatch(value):
            raise ConfigurationError(
                f"{name} holds blanks or characters that no key contains (not shown): set it to the key alone."
            )
        return value

    def _read_secret(self, name: str) -> str | None:
        file = self._secret_files.get(name)
        if file is None:
            return self._given.get(name)
        origin = name + FILE_SUFFIX
        if name in self._given:
            raise ConfigurationError(f"Both {name} and {origin} are set: unset one of them.")
        from claudeops.settings.files import read_text  # noqa: PLC0415 - quick commands need no secret

        path = self._absolute(origin, file)
        return read_text(path, origin=origin, what="file with the secret", limit=_SECRET_BYTES).strip()

    def _absolute(self, name: str, value: str) -> Path:
        if value == "~" or value.startswith("~/"):
            if not self._home:
                raise ConfigurationError(f"{name} starts with '~', but HOME is not set: write an absolute path.")
            return Path(self._home) / value[2:]
        return self._cwd / value

    def _within(self, name: str, read: Callable[[str], N]) -> N:
        variable = self._known[name]
        if name not in self._given:
            return read(variable.default or "0")
        try:
            number = read(self._given[name])
        except ValueError:
            raise self._invalid(name) from None
        low = -math.inf if variable.low is None else variable.low
        high = math.inf if variable.high is None else variable.high
        if not (abs(number) < math.inf and low <= number <= high):  # which is no number fulfils nothing
            raise self._invalid(name)
        return number

    def _invalid(self, name: str) -> ConfigurationError:
        variable, value = self._known[name], quoted(self._given[name])
        default = f", or unset it for the default {variable.default}" if variable.default is not None else ""
        return ConfigurationError(f"{name} is {value}, but must be {variable.bounds}: set it so{default}.")


def by_default(reader: VariableReader, name: str) -> str:
    """Return what a sentence about two values adds where the operator set but one of them."""
    return "" if reader.is_set(name) else " unless you set it"


def _normal(variable: Variable[object], value: str) -> str:
    return value.lower() if variable.kind in {ValueKind.SWITCH, ValueKind.CHOICE} else value


# --- URLs --------------------------------------------------------------------------------------------


def read_database_url(reader: VariableReader, *, state_dir: Path, cwd: Path) -> str:
    """Return ``sqlite:///<absolute path>`` or ``postgresql+psycopg://…``."""
    return read_address_of_database(reader, _DATABASE, cwd=cwd) or f"sqlite:///{state_dir / 'claudeops.db'}"


def read_address_of_database(reader: VariableReader, name: str, *, cwd: Path) -> str | None:
    """Return what `read_database_url` does, of any variable; ``None``: it is not set."""
    given = reader.secret(name)
    if given is None:
        return None
    scheme = given.partition("://")[0].lower()
    if scheme in _SQLITE:
        return _sqlite(name, given, cwd)
    if scheme in _POSTGRESQL:
        return _postgresql(name, given)
    raise ConfigurationError(
        f"{name} is not a URL of SQLite or PostgreSQL (not shown, it may hold a password): "
        "set sqlite:////path/to/file.db or postgresql://user:password@host/name."
    )


def read_http_url(reader: VariableReader, name: str) -> str | None:
    """Return an http or https URL without a slash at the end."""
    given = reader.secret(name)
    if given is None:
        return None
    parts = _split_http(given)
    if parts is None or parts.fragment:
        raise ConfigurationError(
            f"{name} is not an http or https URL (not shown, it may hold a secret): "
            "set it to one such as https://api.example.com."
        )
    return given.rstrip("/")


def read_address(reader: VariableReader, name: str) -> str:
    """Return an IP address."""
    given = reader.text(name) or ""
    try:
        return str(ipaddress.ip_address(given.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ConfigurationError(
            f"{name} is {quoted(given)}, which is no IP address: set 127.0.0.1, or 0.0.0.0 to be reached from outside."
        ) from None


def read_long_token(reader: VariableReader, name: str) -> str | None:
    """Return a secret for an HTTP header that others must not find by trying."""
    token = reader.token(name)
    if token is not None and len(token) < _FEWEST_CHARACTERS:
        raise ConfigurationError(
            f"{name} has fewer than {_FEWEST_CHARACTERS} characters (not shown): set a random one, as by `openssl rand "
            "-hex 32`."
        )
    return token


def read_networks(reader: VariableReader, name: str) -> tuple[str, ...]:
    """Return networks as CIDR; an address is a network of its own."""
    found = []
    for given in reader.names(name):
        try:
            found.append(str(ipaddress.ip_network(given)))
        except ValueError:
            raise ConfigurationError(
                f"{name} holds {quoted(given)}, which is no network: write networks such as 10.1.0.0/16 (no bits "
                "beyond the prefix), separated by commas."
            ) from None
    return tuple(found)


def read_tier_list(reader: VariableReader, name: str) -> frozenset[int]:
    """Return the numbers of tiers; ``off`` stands for none."""
    given = reader.names(name)
    if given == (OFF,):
        return frozenset()
    tiers = {entry for entry in given if len(entry) == 1 and entry in "123456789"}
    if wrong := [entry for entry in given if entry not in tiers]:
        raise ConfigurationError(
            f"{name} holds {quoted(wrong[0])}, which is no tier: set off, or numbers from 1 to {HIGHEST_TIER} such as "
            "3, separated by commas."
        )
    return frozenset(map(int, tiers))


def read_public_urls(reader: VariableReader, name: str) -> tuple[str, ...]:
    """Return http or https URLs that may be shown to anybody, without a slash at the end."""
    urls = reader.names(name)
    for url in urls:
        parts = _split_http(url)
        if parts is None or parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigurationError(
                f"{name} holds something that is no http or https URL, or has a user, a query or a fragment (not "
                "shown, it may hold a secret): set it to one such as https://ops.example.com."
            )
    return tuple(url.rstrip("/") for url in urls)


def _sqlite(name: str, given: str, cwd: Path) -> str:
    # As in SQLAlchemy: three slashes and a relative path, or four and an absolute one.
    path, question, options = given.partition("://")[2].partition("?")
    if not path.startswith("/") or path in {"/", "/:memory:"} or path.startswith("/file:"):
        raise ConfigurationError(
            f"{name} names no SQLite file, so no data would outlive the process: set sqlite:////path/to/file.db."
        )
    return f"sqlite:///{cwd / path[1:]}{question}{options}"


def _postgresql(name: str, given: str) -> str:
    parts = _split(given)
    # An `@`, `/`, `?` or `#` in a password ends it early, and the rest would be taken for the host.
    if parts is None or parts.netloc.count("@") > 1 or parts.fragment or "@" in parts.path + parts.query:
        raise ConfigurationError(
            f"{name} cannot be split into user, password, host and name (not shown, it may hold a password): "
            "percent-encode special characters of the password, such as %40 for '@'."
        )
    return f"postgresql+psycopg://{given.partition('://')[2]}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a port that is no number is only noticed here
    except ValueError:
        return None
    return None if any(character.isspace() for character in url) else parts


def _split_http(url: str) -> SplitResult | None:
    parts = _split(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    try:
        parts.hostname.encode("idna")  # as whoever connects does: there are names that no server can have
    except UnicodeError:
        return None
    return parts


# --- groups --------------------------------------------------------------------------------------------


_SHARE_OF_GREATER: Final = 0.9
"""A default that does not fit below another time becomes this share of it."""

_READ: Final[Mapping[ValueKind, Callable[[VariableReader, str], object]]] = {
    ValueKind.TEXT: VariableReader.text,
    ValueKind.PROSE: VariableReader.prose,
    ValueKind.ADDRESS: read_address,
    ValueKind.IDENTIFIER: VariableReader.identifier,
    ValueKind.MODEL: VariableReader.model,
    ValueKind.SECONDS: VariableReader.number,
    ValueKind.WHOLE: VariableReader.whole,
    ValueKind.MONEY: VariableReader.number,
    ValueKind.SWITCH: VariableReader.switch,
    ValueKind.CHOICE: VariableReader.choice,
    ValueKind.FILE: VariableReader.path,
    ValueKind.DIRECTORY: VariableReader.path,
    ValueKind.NAMES: VariableReader.names,
    ValueKind.TIERS: read_tier_list,
    ValueKind.NETWORKS: read_networks,
    ValueKind.PATHS: VariableReader.paths,
    ValueKind.TOOLS: VariableReader.tools,
    ValueKind.URL: read_http_url,
    ValueKind.SECRET: VariableReader.secret,
    ValueKind.TOKEN: VariableReader.token,
    ValueKind.LONG_TOKEN: read_long_token,
    ValueKind.SECRET_URL: read_http_url,
}


def fill(group: type[T], reader: VariableReader, /, *, tier: int | None = None, **derived: object) -> T:
    """Return a group of settings; ``tier`` stands in the names of its variables. Raises `ConfigurationError`."""
    plain = {field: _value(reader, variable, tier) for field, variable in plain_fields(group)}
    make: Callable[..., T] = group
    return make(**plain, **derived)


def _value(reader: VariableReader, variable: Variable[object], tier: int | None) -> object:
    name = variable.name.replace("{n}", str(tier))
    return _time_below(reader, name, variable.below) if variable.below else _READ[variable.kind](reader, name)


def _time_below(reader: VariableReader, name: str, greater: str) -> float:
    """Return a time in seconds that is below another one."""
    limit, value = reader.number(greater), reader.number(name)
    if value < limit:
        return value
    if not reader.is_set(name):
        return limit * _SHARE_OF_GREATER
    raise ConfigurationError(
        f"{name} is {value:g} s, not below {greater}, which is {limit:g} s{by_default(reader, greater)}: "
        "lower the first, or raise the second."
    )
