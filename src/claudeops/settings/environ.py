"""What the environment holds: known, misspelt and foreign names, what sessions inherit, and every secret value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from claudeops.errors import ConfigurationError
from claudeops.settings.model import KNOWN
from claudeops.settings.variables import BROWSER_CREDENTIAL_PREFIX, FILE_SUFFIX, WITHOUT_EFFECT, is_text

INHERITED: Final = (
    "LANG",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
)
"""Variables that every session inherits where they are set, besides all ``LC_*``; it inherits nothing else."""

PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")

GATE_OFF: Final = {
    "CLAUDE_CODE_SIMPLE": "switches the gate of the CLI off",
    "CLAUDE_CODE_SUBPROCESS_ENV_SCRUB": "takes the CLI out of the permission mode that the gate needs",
}
"""Variables of the CLI that undo the gate. No session gets them, but whoever sets them expects it, so they are refused.
(``--bare`` does the same on the command line, which only the harness writes.)"""

SHORTEST: Final = 6
"""A shorter value appears in ordinary text by chance, and redacting it would garble logs: it is not redacted."""

_PREFIX: Final = "CLAUDEOPS_"
_SERVICE_NAME: Final = re.compile(
    # A Service called `claudeops` gives CLAUDEOPS_SERVICE_* and CLAUDEOPS_PORT*; one called `claudeops-db`
    # gives CLAUDEOPS_DB_SERVICE_HOST, CLAUDEOPS_DB_PORT_5432_TCP_ADDR and the like to every pod of its namespace.
    # https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
    r"CLAUDEOPS_(SERVICE_|PORT|\w+_SERVICE_(HOST|PORT)|\w+_PORT_\d+_(TCP|UDP|SCTP)).*"
)
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://\S+")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)
_LONG_STEP: Final = 16  # characters; in URLs of chat services a path segment this long is a token


# --- names and values --------------------------------------------------------------------------------


def without_services(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what Kubernetes adds to it for a Service.

    A Service called ``claudeops-dashboard`` even occupies a known name: ``CLAUDEOPS_DASHBOARD_PORT`` is then an
    address such as ``tcp://10.0.0.1:80``.
    """
    return {name: value for name, value in environ.items() if not _is_of_a_service(name, value)}


def check_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Refuse unknown ``CLAUDEOPS_*`` names; return a warning for each known one that has no effect."""
    given = sorted(name for name, value in environ.items() if value.strip())
    unknown = [name for name in sorted(environ) if name.startswith(_PREFIX) and not _is_known(name)]
    if unknown:
        names = ", ".join(f"{name}{_hint(name)}" for name in unknown)
        verb = "is not a setting" if len(unknown) == 1 else "are not settings"
        raise ConfigurationError(f"{names} {verb}: correct the name, or unset it.")
    for name, why in GATE_OFF.items():
        if environ.get(name, "").strip():
            raise ConfigurationError(f"{name} is set, which {why}: unset it.")
    unused = [name for name in given if _base(name) in KNOWN and not KNOWN[_base(name)].used]
    reasons = {name: _why_without_effect(name) for name in given}
    return (
        *(f"{name} is set, but nothing uses it yet: it has no effect." for name in unused),
        *(f"{name} is set, but has no effect: {reason}; unset it." for name, reason in reasons.items() if reason),
    )


def child_path(environ: Mapping[str, str]) -> str:
    """Return ``PATH`` for the sessions: absolute directories only, as others would depend on the working directory."""
    entries = environ.get("PATH", "").split(":")
    return ":".join(entry for entry in entries if entry.startswith("/")) or _DEFAULT_PATH


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what every session inherits: locale, time zone, proxies and CA files.

    A proxy's user and password are removed, because every tool of every tier could read them. Requests of a session to
    this machine itself never go through a proxy.
    """
    passed = {
        name: without_user(value) if name in PROXIES else value
        for name, value in environ.items()
        if value and (name in INHERITED or name.startswith("LC_")) and is_text(value)
    }
    if passed.keys() & set(PROXIES):
        for name in ("NO_PROXY", "no_proxy"):
            given = [entry for entry in passed.get(name, "").split(",") if entry.strip()]
            passed[name] = ",".join((*given, *(host for host in _LOOPBACK if host not in given)))
    return passed


def proxy_warnings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for each proxy whose user and password sessions do not get."""
    return tuple(
        f"{name} holds a user or password, which sessions do not get: let the proxy admit this machine without one, "
        f"or name {name} in CLAUDEOPS_TIER<n>_ENV of a tier that may know it."
        for name in PROXIES
        if without_user(environ.get(name, "")) != environ.get(name, "")
    )


def without_user(url: str) -> str:
    """Return a URL (or ``host:port``) without user and password."""
    scheme, separator, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def watchdog_seconds(environ: Mapping[str, str], *, pid: int) -> float | None:
    """Return the seconds within which the service manager expects each sign of life of process ``pid``, if any.

    https://www.freedesktop.org/software/systemd/man/latest/sd_watchdog_enabled.html
    """
    given, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not given or (whose and whose != str(pid)):
        return None
    if not given.isascii() or not given.isdigit() or int(given) == 0:
        raise ConfigurationError(f"WATCHDOG_USEC is {given!r}, which is not a number of microseconds: unset it.")
    return int(given) / 1_000_000


def _is_of_a_service(name: str, value: str) -> bool:
    if not name.startswith(_PREFIX):
        return False
    if _SERVICE_NAME.fullmatch(name):
        return True
    return name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value) is not None


def _base(name: str) -> str:
    """Return the variable that a ``_FILE`` name stands for, else the name itself."""
    base = name.removesuffix(FILE_SUFFIX)
    return base if base in KNOWN and KNOWN[base].secret else name


def _is_known(name: str) -> bool:
    return _base(name) in KNOWN or name in WITHOUT_EFFECT


def _why_without_effect(name: str) -> str | None:
    if name.startswith(BROWSER_CREDENTIAL_PREFIX):
        return WITHOUT_EFFECT["CLAUDEOPS_BROWSER_ALLOWED_ORIGINS"]
    return WITHOUT_EFFECT.get(name)


def _hint(name: str) -> str:
    from claudeops.settings import claude_ops  # noqa: PLC0415 - few have a name that is not known

    if (sentence := claude_ops.sentence_for(name)) is not None:
        return f" ({sentence})"
    if name.removesuffix(FILE_SUFFIX) in KNOWN:
        return f" (only secrets come from files; the known name is {name.removesuffix(FILE_SUFFIX)})"
    nearest = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0)
    return f" (nearest known name: {nearest[0]})"


# --- known secrets, for the redactor -----------------------------------------------------------------


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
    # Longest first, so that a secret that contains another one is redacted whole; then by text, for a fixed order.
    return tuple(sorted(long_enough, key=lambda secret: (-len(secret), secret))), warnings


def in_url(origin: str, url: str) -> Iterator[tuple[str, str]]:
    """Yield the password and the secret parameters of a URL, both as written and decoded."""
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
    """Yield values whose names are those of secrets, and the passwords and secret parameters in URLs."""
    for name, value in environment.items():
        if names_a_secret(name):
            yield f"{name} ({origin})", value
        elif "://" in value:
            yield from in_url(f"{name} ({origin})", value)
