"""The operator's file of headers that the daemon adds to what sessions send, with the secrets that it refers to.

It is read at the start. Secrets come from the daemon's environment (never its own ones) and from files.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError
from claudeops.formats.network.headers import REFERENCE, SecretHeader, WrittenHeader, read_headers
from claudeops.settings.environ import SHORTEST
from claudeops.settings.files import read_text, read_toml
from claudeops.settings.model import KNOWN
from claudeops.settings.reader import VariableReader
from claudeops.settings.variables import FILE_SUFFIX

VARIABLE: Final = "CLAUDEOPS_HEADERS_PATH"
_MOST_BYTES: Final = 1024 * 1024
_SECRET_BYTES: Final = 16 * 1024
_MOST_CHARACTERS: Final = 8 * 1024  # of a value; servers take no longer header
_PRINTABLE: Final = re.compile(r"[ -~]+")
_BASIC: Final = "basic "


@dataclass(frozen=True, kw_only=True, slots=True)
class Headers:
    """What a file of headers says, filled in."""

    headers: tuple[SecretHeader, ...] = ()
    files: tuple[Path, ...] = field(default=(), compare=False)  # the file and those that hold secrets

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield what must never be shown, each with where it comes from."""
        for header in self.headers:
            for secret in header.secrets:
                yield f"the header {header.name} for {header.host} ({VARIABLE})", secret


def load_secret_headers(reader: VariableReader, environ: Mapping[str, str]) -> Headers:
    """Return the headers; none without a file. Raises `ConfigurationError` with file, line and remedy."""
    path = reader.path(VARIABLE)
    if path is None:
        return Headers()
    written = read_toml(path, read_headers, variable=VARIABLE, what="file of headers")
    files = {path: None}
    return Headers(headers=tuple(_filled(each, path, environ, files) for each in written), files=tuple(files))


def _filled(written: WrittenHeader, path: Path, environ: Mapping[str, str], files: dict[Path, None]) -> SecretHeader:
    """Return a header with its secrets; ``files`` takes those that hold one."""
    origin = f"{VARIABLE}: {path}, line {written.line}: the header {written.name} for {written.host}"
    parts: list[str] = []
    value, end = "", 0
    for found in REFERENCE.finditer(written.value):
        variable, file = found[1], found[2]
        part = _of_file(path.parent / file, origin, files) if file else _of_variable(str(variable), origin, environ)
        parts.append(part)
        value += written.value[end : found.start()] + part
        end = found.end()
    value += written.value[end:]
    if value != value.strip() or len(value) > _MOST_CHARACTERS:
        fault = f"is longer than {_MOST_CHARACTERS} characters" if len(value) > _MOST_CHARACTERS else "ends in a blank"
        raise ConfigurationError(f"{origin} {fault} (not shown): correct its value.")
    return SecretHeader(
        host=written.host,
        port=written.port,
        tls=written.tls,
        name=written.name,
        value=value,
        secrets=tuple(dict.fromkeys((*parts, *_of_basic(value)))),
        tiers=written.tiers,
        authority=_authority(path.parent / written.ca_file, origin) if written.ca_file else "",
    )


def _of_variable(name: str, origin: str, environ: Mapping[str, str]) -> str:
    if name.removesuffix(FILE_SUFFIX) in KNOWN and KNOWN[name.removesuffix(FILE_SUFFIX)].secret:
        raise ConfigurationError(f"{origin} names {name}, which is the daemon's alone: name another variable.")
    given = environ.get(name, "").strip()
    if not given:
        raise ConfigurationError(f"{origin} names {name}, which is not set: set it, or take the header out.")
    return _checked(given, name, origin)


def _of_file(place: Path, origin: str, files: dict[Path, None]) -> str:
    files[place] = None
    given = read_text(place, origin=origin, what="file with the secret", limit=_SECRET_BYTES).strip()
    return _checked(given, str(place), origin)


def _checked(secret: str, place: str, origin: str) -> str:
    if not _PRINTABLE.fullmatch(secret):
        raise ConfigurationError(
            f"{origin} has a secret in {place} (not shown) that is no printable ASCII on one line: write the key alone."
        )
    if len(secret) < SHORTEST:
        raise ConfigurationError(
            f"{origin} has a secret in {place} of fewer than {SHORTEST} characters, too short to be found and hidden "
            "in answers: set a longer one."
        )
    return secret


def _of_basic(value: str) -> Iterator[str]:
    """Yield user with password, and the password alone, of a value by which a server admits both in base 64."""
    if not value.lower().startswith(_BASIC):
        return
    try:
        both = base64.b64decode(value[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield from (part for part in (both, both.partition(":")[2]) if len(part) >= SHORTEST)


def _authority(place: Path, origin: str) -> str:
    text = read_text(place, origin=origin, what="file with certificates", limit=_MOST_BYTES)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(
            f"{origin} has ca_file = {place}, which holds no certificate: write the authority's there, as PEM."
        ) from None
    return text
