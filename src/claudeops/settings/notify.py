"""Where notices go: the operator's file of targets, and the addresses of ``CLAUDEOPS_APPRISE_URLS``.

The file is named by its variable, else ``/app/config/notify.toml``, if that exists. It names variables and files that
hold addresses and tokens, which are secrets, and the people who may answer questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import CHANNELS, ChannelAccess, SecretKey, TargetKind, hidden_parts
from claudeops.domain.notices.notice import APPRISE, Target
from claudeops.domain.schedules import Cron
from claudeops.errors import ConfigurationError
from claudeops.formats.notices import NamedTarget, NoticesDocument, SecretPlace, read_document
from claudeops.settings.environ import in_notice_url
from claudeops.settings.files import read_text, read_toml, toml_file
from claudeops.settings.reader import VariableReader

VARIABLE: Final = "CLAUDEOPS_NOTIFY_PATH"
DIGEST: Final = "CLAUDEOPS_DIGEST_CRON"
URLS: Final = "CLAUDEOPS_APPRISE_URLS"

_ADDRESS_BYTES: Final = 64 * 1024
_UNSET: Final = "is not set: set it"
_UNKNOWN: Final = "was not there when claudeops was started: restart it"
_BEGINS: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_COMMA: Final = re.compile(r",+(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """The targets of notices, how each is reached, and who may answer."""

    path: Path | None  # of the file
    targets: tuple[Target, ...]
    addresses: Mapping[str, str]  # that Apprise takes, by name; secrets
    chats: Mapping[str, ChannelAccess]  # all others, by name
    approvers: tuple[Approver, ...]
    files: tuple[Path, ...] = field(compare=False)  # the file and those that hold secrets
    environment: Mapping[str, str] = field(compare=False, repr=False)  # the variables that hold secrets

    def secrets(self) -> Iterator[tuple[str, str]]:
        """Yield what must never be shown of targets, each with where it comes from."""
        for name, address in self.addresses.items():
            yield from in_notice_url(f"the address of {name}", address)
        for name, access in self.chats.items():
            yield from hidden_parts(name, access)


def read_notify(reader: VariableReader, environ: Mapping[str, str], *, timezone: str, root: Path) -> Targets:
    """Return the targets of the file and of the variable. Raises `ConfigurationError` with the remedy."""
    path = toml_file(reader.path(VARIABLE), "notify.toml", root=root)
    return _targets(path, notice_urls(reader), environ, timezone=timezone)


def read_notify_again(path: Path, *, before: Targets, timezone: str) -> Targets:
    """Return the targets after an edit of the file; ``before``: as it was when the daemon was started.

    Raises `ConfigurationError` with the remedy, also for a secret that was not there then: log lines and messages would
    not be rid of it.
    """
    urls = [before.addresses[each.name] for each in before.targets if _is_of_variable(each.name)]
    found = _targets(path, urls, before.environment, timezone=timezone, unset=_UNKNOWN)
    known = {secret for _, secret in before.secrets()}
    for origin, secret in found.secrets():
        if secret and secret not in known:
            raise ConfigurationError(f"{VARIABLE}: {path}: {origin} {_UNKNOWN}.")
    return found


def _targets(
    path: Path | None, urls: Sequence[str], environ: Mapping[str, str], *, timezone: str, unset: str = _UNSET
) -> Targets:
    names = [APPRISE if index == 0 else f"{APPRISE}-{index + 1}" for index in range(len(urls))]
    document = NoticesDocument(targets=())
    if path is not None:
        read = partial(read_document, timezone=timezone)
        document = read_toml(path, read, variable=VARIABLE, what="file of targets")
    addresses = dict(zip(names, urls, strict=True))
    chats: dict[str, ChannelAccess] = {}
    files = [] if path is None else [path]
    variables: set[str] = set()
    for each in document.targets:
        name, found = each.target.name, {}
        for secret in CHANNELS[each.target.kind].secrets:
            if (place := each.secrets.get(secret.key)) is None:
                continue
            file, found[secret.key] = _secret(each, secret, place, path or Path(), environ, unset=unset)
            files += [file] if file is not None else []
            variables |= set() if file is not None else {place.variable}
        if each.target.kind is TargetKind.APPRISE:
            addresses[name] = found["url"]
        else:
            chats[name] = ChannelAccess(kind=each.target.kind, secrets=found, place=each.place, api=each.api)
    return Targets(
        path=path,
        targets=(*(Target(name=name) for name in names), *(each.target for each in document.targets)),
        addresses=addresses,
        chats=chats,
        approvers=document.approvers,
        files=tuple(files),
        environment={name: environ[name] for name in variables},
    )


def _is_of_variable(name: str) -> bool:
    return name == APPRISE or name.startswith(f"{APPRISE}-")  # no target of the file may be called so


def notice_urls(reader: VariableReader) -> tuple[str, ...]:
    """Return the addresses of the variable, each once."""
    return tuple(dict.fromkeys(split_addresses(reader.secret(URLS) or "")))


def split_addresses(given: str) -> Iterator[str]:
    """Yield the addresses in a text: spaces part them, and commas where the next one begins with its ``service://``.

    Any other comma belongs to its address, which may list what it is for (``mailto://…?to=a@one.example,b@two.example``),
    and so do the spaces beside that comma.
    """
    pieces: list[str] = []
    for word in given.split():
        for index, piece in enumerate(_COMMA.split(word)):
            begins_anew = index > 0 or not pieces or _BEGINS.match(piece.lstrip(",")) is not None
            if begins_anew or not (pieces[-1].endswith(",") or piece.startswith(",")):
                pieces.append(piece)
            else:
                pieces[-1] += piece
    yield from (stripped for piece in pieces if (stripped := piece.strip(",")))


def read_digest_cron(reader: VariableReader) -> str | None:
    """Return when the daily digest is sent; ``None``: never. Raises `ConfigurationError`."""
    cron = reader.text(DIGEST)
    if cron is not None:
        try:
            Cron(expr=cron)
        except ConfigurationError as error:
            raise ConfigurationError(f"{DIGEST}: {error}.") from None
    return cron


def _secret(
    named: NamedTarget, secret: SecretKey, where: SecretPlace, path: Path, environ: Mapping[str, str], *, unset: str
) -> tuple[Path | None, str]:
    """Return the file that holds a secret of a target, if one does, and the secret."""
    origin = f"{VARIABLE}: {path}, line {named.line}: the target {named.target.name!r}"
    if where.file:
        place = path.parent / where.file
        given = read_text(place, origin=origin, what=secret.noun.partition(" ")[2], limit=_ADDRESS_BYTES).strip()
    else:
        place, given = None, environ.get(where.variable, "").strip()
        if not given:
            raise ConfigurationError(f"{origin} has {secret.noun} in {where.variable}, which {unset}.")
    if secret.form.fullmatch(given) is None:
        where_it_is = place or where.variable
        raise ConfigurationError(f"{origin} has {secret.noun} in {where_it_is} that is none: {secret.remedy}.")
    return place, given
