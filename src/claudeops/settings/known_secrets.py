"""Every secret value that the daemon knows, for the redactor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHORTEST: Final = 6
"""A shorter value turns up in ordinary text by chance; hiding it would garble logs, so it is not looked for."""

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)
_LONG_STEP: Final = 16  # characters; a step of a path as long as this is a token in the URLs of chat services


def names_a_secret(name: str) -> bool:
    """Return whether a variable, header or parameter of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def known_secrets(named: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the secrets among (origin, value) pairs, longest first, and a warning for each one too short."""
    long_enough: set[str] = set()
    too_short: dict[str, None] = {}
    for origin, value in named:
        if len(value) >= SHORTEST:
            long_enough.add(value)
        elif value:
            too_short[origin] = None
    warnings = tuple(
        f"{origin} holds a secret of fewer than {SHORTEST} characters, too short to be found and hidden in logs: "
        "set a longer one."
        for origin in too_short
    )
    # Longest first: a secret that holds another one is hidden whole. The text makes the order a fixed one.
    return tuple(sorted(long_enough, key=lambda secret: (-len(secret), secret))), warnings


def in_url(origin: str, url: str) -> Iterator[tuple[str, str]]:
    """Yield the password of a URL and its secret parameters, as they stand there and decoded."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        yield origin, url
        return
    found = [password] if password else []
    found += [value for name, value in parse_qsl(parts.query) if names_a_secret(name)]
    for value in found:
        yield origin, value
        yield origin, unquote(value)


def in_notice_url(origin: str, url: str) -> Iterator[tuple[str, str]]:
    """Yield a notification URL, its password and the tokens in its path (``discord://id/token``)."""
    yield origin, url
    yield from in_url(origin, url)
    for step in url.partition("://")[2].partition("?")[0].split("/")[1:]:
        if len(step) >= _LONG_STEP:
            yield origin, step


def in_environment(origin: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what a child is handed under a secret's name, and the passwords in the URLs of proxies."""
    for name, value in environment.items():
        if names_a_secret(name):
            yield f"{name} ({origin})", value
        elif "://" in value:
            yield from in_url(f"{name} ({origin})", value)
