"""Reads what people log in with at an identity provider: all of it or nothing, and never in the clear."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from claudeops.errors import ConfigurationError
from claudeops.settings.reader import VariableReader
from claudeops.settings.variables import quoted

if TYPE_CHECKING:
    from claudeops.formats.oidc import OidcClient

SECRET: Final = "CLAUDEOPS_OIDC_CLIENT_SECRET"  # noqa: S105 - the name of a variable

_ISSUER: Final = "CLAUDEOPS_OIDC_ISSUER"
_CLIENT: Final = "CLAUDEOPS_OIDC_CLIENT_ID"
_CLAIM: Final = "CLAUDEOPS_OIDC_CLAIM"
_PUBLIC_URL: Final = "CLAUDEOPS_PUBLIC_URL"
_NEEDED: Final = (_ISSUER, _CLIENT, SECRET)
_ALL: Final = (*_NEEDED, _CLAIM)
_LIBRARIES: Final = ("authlib", "joserfc")


def read_oidc(reader: VariableReader, public_urls: Sequence[str]) -> OidcClient | None:
    """Return what we are to the identity provider; None: there is none. Raises `ConfigurationError`."""
    given = [name for name in _ALL if reader.is_set(name)]
    if not given:
        return None
    from claudeops.formats.oidc import CLAIM, OidcClient, issuer_fault  # noqa: PLC0415 - most have no provider

    if missing := [name for name in _NEEDED if not reader.is_set(name)]:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigurationError(
            f"{given[0]} is set, and {' and '.join(missing)} {verb} not: logging in by OpenID Connect takes all of "
            f"{', '.join(_NEEDED)}; set them, or unset {given[0]}."
        )
    issuer, claim = reader.text(_ISSUER) or "", reader.text(_CLAIM) or ""
    if fault := issuer_fault(issuer):
        raise ConfigurationError(f"{_ISSUER} (not shown, it may hold a password) {fault}.")
    if not CLAIM.fullmatch(claim):
        raise ConfigurationError(
            f"{_CLAIM} is {quoted(claim)}, which is no name of a claim: set one such as preferred_username or email."
        )
    if not public_urls:
        raise ConfigurationError(
            f"{_ISSUER} is set, and {_PUBLIC_URL} is not: the identity provider leads people back there, so set it "
            "to the address at which they open the pages."
        )
    if any(find_spec(library) is None for library in _LIBRARIES):
        raise ConfigurationError(
            f"{_ISSUER} is set, and the library {_LIBRARIES[0]} is not installed: install claudeops[oidc], or unset "
            f"{_ISSUER}."
        )
    return OidcClient(
        issuer=issuer,
        client_id=reader.text(_CLIENT) or "",
        client_secret=reader.token(SECRET) or "",
        claim=claim,
        public_urls=public_urls,
    )
