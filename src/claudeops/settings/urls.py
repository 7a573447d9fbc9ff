"""URLs: checked without ever being shown, for they may hold passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from claudeops.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from claudeops.settings.reader import Reader

_DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
_POSTGRESQL: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
_SQLITE: Final = frozenset({"sqlite", "sqlite+pysqlite"})


def read_database_url(reader: Reader, *, state_dir: Path, cwd: Path) -> str:
    """Return ``sqlite:///<absolute path>`` or ``postgresql+psycopg://…``."""
    given = reader.secret(_DATABASE)
    if given is None:
        return f"sqlite:///{state_dir / 'claudeops.db'}"
    scheme = given.partition("://")[0].lower()
    if scheme in _SQLITE:
        return _sqlite(given, cwd)
    if scheme in _POSTGRESQL:
        return _postgresql(given)
    raise ConfigurationError(
        f"{_DATABASE} is not a URL of SQLite or PostgreSQL (not shown, it may hold a password): "
        "set sqlite:////path/to/file.db or postgresql://user:password@host/name."
    )


def read_http_url(reader: Reader, name: str) -> str | None:
    """Return an http or https URL without a slash at its end."""
    given = reader.secret(name)
    if given is None:
        return None
    parts = _split(given)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or parts.fragment:
        raise ConfigurationError(
            f"{name} is not an http or https URL (not shown, it may hold a secret): "
            "set it to one such as https://api.example.com."
        )
    return given.rstrip("/")


def _sqlite(given: str, cwd: Path) -> str:
    # The forms are those of SQLAlchemy: three slashes and a relative path, or four and an absolute one.
    path, question, options = given.partition("://")[2].partition("?")
    if not path.startswith("/") or path in {"/", "/:memory:"} or path.startswith("/file:"):
        raise ConfigurationError(
            f"{_DATABASE} names no SQLite file, so nothing would outlive the process: set sqlite:////path/to/file.db."
        )
    return f"sqlite:///{cwd / path[1:]}{question}{options}"


def _postgresql(given: str) -> str:
    parts = _split(given)
    # An `@`, `/`, `?` or `#` in a password ends it early, and part of it would be taken for the host.
    if parts is None or parts.netloc.count("@") > 1 or parts.fragment or "@" in parts.path + parts.query:
        raise ConfigurationError(
            f"{_DATABASE} cannot be split into user, password, host and name (not shown, it may hold a password): "
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
