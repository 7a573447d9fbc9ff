"""What the programs of a session trust, where it has an authority of its own: the machine's authorities and that one.

Programs look for authorities in different places. Most take the machine's file, which the session sees with one
certificate more; others, which bring authorities of their own, take a variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PLACE: Final = Path("/run/claudeops")
ALL: Final = _PLACE / "certificates.pem"
"""In the session's view: the machine's authorities and its own."""

MORE: Final = _PLACE / "authority.pem"
"""In the session's view: its own authority, for what adds it to those that it has."""

_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # OpenSSL's own place on some
)
_INSTEAD: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE")
"""Variables that name a file which programs take instead of another one."""

_BESIDE: Final = "NODE_EXTRA_CA_CERTS"
_MOST_BYTES: Final = 8 * 1024 * 1024


def variables(hosts: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a session that has an authority; ``hosts`` are not asked through a proxy.

    ``given``: what its variables are otherwise.
    """
    trusted = {**dict.fromkeys(_INSTEAD, str(ALL)), _BESIDE: str(MORE)}
    if any(name.lower().endswith("_proxy") for name in given):
        trusted |= {name: ",".join(filter(None, (given.get(name, ""), *hosts))) for name in ("NO_PROXY", "no_proxy")}
    return trusted


def covered() -> tuple[Path, ...]:
    """Return the machine's files that are covered with `ALL`, by their real places. Accesses the disk."""
    return tuple(dict.fromkeys(path.resolve() for path in map(Path, _BUNDLES) if path.is_file()))


def write(directory: Path, authority: str, given: Mapping[str, str]) -> None:
    """Write both files; raises `OSError`. ``given``: what the session's variables would say otherwise."""
    machine = [given["SSL_CERT_FILE"]] if given.get("SSL_CERT_FILE") else [str(path) for path in covered()[:1]]
    beside = [given[_BESIDE]] if given.get(_BESIDE) else []
    others = [given[name] for name in _INSTEAD[1:] if given.get(name)]
    every = dict.fromkeys((*machine, *others, *beside))
    (directory / ALL.name).write_text("\n".join([*map(_text, every), authority]), encoding="utf-8")
    (directory / MORE.name).write_text("\n".join([*map(_text, beside), authority]), encoding="utf-8")


def _text(name: str) -> str:
    """Return the text of a file that the operator names, "" where programs would not find it either."""
    try:
        with Path(name).open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
