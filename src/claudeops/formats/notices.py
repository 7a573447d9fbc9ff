"""The operator's file of targets and approvers, read: values, or the line that is wrong and what to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import CHANNELS, PERSON_KEYS, SecretKey, TargetKind
from claudeops.domain.notices.notice import APPRISE, Target, Topic
from claudeops.domain.schedules import Cron
from claudeops.domain.schedules.windows import read_windows
from claudeops.text import casefold_key, regex
from claudeops.text.toml_file import NAME, VARIABLE, KeyFault, TomlFile, fault_of, keys_of, nearest

MOST_TARGETS: Final = 50
MOST_AN_HOUR: Final = 10_000
MOST_APPROVERS: Final = 200

_TABLE: Final = "targets"
_PEOPLE: Final = "approvers"
_API: Final = regex.Pattern(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~/-]*)?")
_HIGHEST_TIER: Final = 9


class _Entry(msgspec.Struct, kw_only=True, frozen=True):
    """``[[targets]]``, as it is written, without the keys of its kind."""

    name: str
    kind: TargetKind = TargetKind.APPRISE
    topics: tuple[Topic, ...] = tuple(Topic)
    min_level: EventLevel = EventLevel.WARNING
    quiet_hours: tuple[str, ...] | str = ()
    timezone: str = ""
    max_per_hour: int | None = None


class _Person(msgspec.Struct, kw_only=True, frozen=True):
    """``[[approvers]]``, as it is written, without the ids."""

    name: str
    tiers: tuple[int, ...] | None = None
    services: tuple[str, ...] | None = None


class _Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    targets: tuple[_Entry, ...] = ()
    approvers: tuple[_Person, ...] = ()


_OWN_KEYS: Final = (
    *dict.fromkeys(key for form in CHANNELS.values() for key in form.keys if key != "api"),
    "api",
)
"""The keys that targets of some kind have."""

_NUMBERS: Final = frozenset(
    key.key for form in CHANNELS.values() for key in (form.place, form.person) if key is not None and key.is_number
)
_KEYS: Final = {
    _TABLE: ("name", "kind", *_OWN_KEYS, *keys_of(_Entry)[2:]),
    _PEOPLE: ("name", *(key.key for key in PERSON_KEYS.values()), *keys_of(_Person)[1:]),
}


class SecretPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret is: in a variable, or in a file beside this one."""

    variable: str = ""
    file: str = ""


class NamedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target, and where its secrets are."""

    target: Target
    line: int  # for messages
    secrets: Mapping[str, SecretPlace] = msgspec.field(default_factory=lambda: MappingProxyType({}))  # by their keys
    place: str = ""  # the id of the chat
    api: str = ""  # no slash at its end


class NoticesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says."""

    targets: tuple[NamedTarget, ...]
    approvers: tuple[Approver, ...] = ()


def read_document(text: str, *, timezone: str) -> NoticesDocument:
    """Return what a file says; ``timezone`` is that of quiet hours without one. Raises `TomlFault`."""
    file = TomlFile(text, what="a file of targets")
    _check_keys(file)
    document = file.as_document(_Document, remedy="write every entry as a table, [[targets]] or [[approvers]]")
    if not document.targets:
        raise file.fault((), "there is no target in it: add a [[targets]], or unset CLAUDEOPS_NOTIFY_PATH")
    for what, most, entries in (
        ("targets", MOST_TARGETS, document.targets),
        ("approvers", MOST_APPROVERS, document.approvers),
    ):
        if len(entries) > most:
            raise file.fault((), f"there are more than {most} {what} in it: leave some out")
    found: list[NamedTarget] = []
    for entry, (index, table) in zip(document.targets, file.tables(_TABLE), strict=True):
        with file.at(_TABLE, index):
            _check_name(entry.name, found)
            found.append(_named(entry, _texts(table, _OWN_KEYS), timezone, file.line(_TABLE, index)))
    people: list[Approver] = []
    for person, (index, table) in zip(document.approvers, file.tables(_PEOPLE), strict=True):
        with file.at(_PEOPLE, index):
            people.append(_approver(person, _texts(table, [key.key for key in PERSON_KEYS.values()]), people))
    return NoticesDocument(targets=tuple(found), approvers=tuple(people))


def _check_keys(file: TomlFile) -> None:
    for table in file.values:
        if table not in _KEYS:
            reason = (
                f"the key {table[:40]!r} is not known here: targets stand under [[targets]], "
                "and who may answer under [[approvers]]"
            )
            raise file.fault((table,), reason)
    for name, keys in _KEYS.items():
        for index, entry in file.tables(name):
            file.check_keys(entry, (name, index), keys, remedy=_remedy)


def _remedy(key: str, keys: Collection[str]) -> str:
    if f"{key}_env" in keys:
        what = "an address" if key == "url" else "it"
        return f"{what} is a secret: name a variable that holds it by '{key}_env', or a file by '{key}_file'"
    return nearest(key, keys)


def _texts(table: Mapping[str, object], keys: Iterable[str]) -> dict[str, str]:
    """Return some keys of a table that are not empty. Raises `KeyFault`."""
    found = {}
    for key in keys:
        wanted = str | int if key in _NUMBERS else str
        try:
            found[key] = str(msgspec.convert(table.get(key, ""), wanted))
        except msgspec.ValidationError as error:
            raise KeyFault(key, f"{key}: {error}".replace("`", "'")) from None
    return {key: text for key, text in found.items() if text}


def _check_name(name: str, others: Sequence[NamedTarget]) -> None:
    if not NAME.fullmatch(name):
        raise KeyFault("name", f"{name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if name == APPRISE or name.startswith(f"{APPRISE}-"):
        raise KeyFault("name", f"{name!r} is what CLAUDEOPS_APPRISE_URLS is called: choose another name")
    if any(casefold_key(name) == casefold_key(other.target.name) for other in others):
        raise KeyFault("name", f"there is another target {name!r}: give every target its own name")


def _named(entry: _Entry, own: Mapping[str, str], timezone: str, line: int) -> NamedTarget:
    _check_own_keys(entry.kind, own)
    if not entry.topics:
        raise KeyFault("topics", f"a target without topics is told nothing: name some of {', '.join(Topic)}")
    if entry.max_per_hour is not None and not 1 <= entry.max_per_hour <= MOST_AN_HOUR:
        raise KeyFault(
            "max_per_hour", f"{entry.max_per_hour} messages an hour cannot be kept: give 1 to {MOST_AN_HOUR}"
        )
    zone = entry.timezone or timezone
    with fault_of("quiet_hours"):
        quiet_hours = read_windows(entry.quiet_hours)
    with fault_of("timezone"):
        Cron(expr="@daily", timezone=zone)  # for the zone's name alone
    target = Target(
        name=entry.name,
        kind=entry.kind,
        topics=frozenset(entry.topics),
        min_level=entry.min_level,
        quiet_hours=quiet_hours,
        timezone=zone,
        max_per_hour=entry.max_per_hour,
    )
    return NamedTarget(
        target=target,
        line=line,
        place=_place(entry.kind, own),
        secrets=MappingProxyType(_secrets(entry.kind, own)),
        api=_api(entry.kind, own),
    )


def _check_own_keys(kind: TargetKind, own: Mapping[str, str]) -> None:
    """Refuse a key that only targets of another kind have."""
    for other, form in CHANNELS.items():
        for key in form.keys:
            if key in own and key not in CHANNELS[kind].keys:
                remedy = f'leave it out, or write kind = "{other}"'
                raise KeyFault(key, f"{key}: a target of the kind {kind} has no such key: {remedy}")


def _place(kind: TargetKind, own: Mapping[str, str]) -> str:
    """Return the id of a target's chat; empty for a kind without one."""
    key = CHANNELS[kind].place
    if key is None:
        return ""
    place = own.get(key.key, "")
    if not key.form.fullmatch(place):
        raise KeyFault(key.key, f"{key.key}: {place[:40]!r} is not the id of a {key.key}: {key.remedy}")
    return place


def _secrets(kind: TargetKind, own: Mapping[str, str]) -> dict[str, SecretPlace]:
    """Return where the secrets of a target are, by their keys."""
    form = CHANNELS[kind]
    wanted = [each for each in form.secrets if not each.is_optional or any(key in own for key in each.keys)]
    found = {each.key: _secret(each, own) for each in wanted}
    if form.either and all(not each.is_optional for each in wanted):
        raise KeyFault("name", form.either)
    return found


def _secret(secret: SecretKey, own: Mapping[str, str]) -> SecretPlace:
    in_variable, in_file = secret.keys
    variable, file = own.get(in_variable, ""), own.get(in_file, "")
    if bool(variable) == bool(file):
        remedy = "leave one of them out" if variable else f"give '{in_variable}' or '{in_file}'"
        raise KeyFault(in_variable, f"{secret.full_noun} is in a variable or in a file: {remedy}")
    if variable and not VARIABLE.fullmatch(variable):
        kind = "address" if secret.key == "url" else "secret"
        raise KeyFault(in_variable, f"{in_variable}: name a variable of the environment, and never the {kind} itself")
    return SecretPlace(variable=variable, file=file)


def _api(kind: TargetKind, own: Mapping[str, str]) -> str:
    usual = CHANNELS[kind].api
    given = own.get("api", "")
    if given and not _API.fullmatch(given):
        raise KeyFault("api", f"api: this is no address of a server: write it as {usual}")
    return (given or usual).rstrip("/")


def _approver(person: _Person, own: Mapping[str, str], others: Sequence[Approver]) -> Approver:
    _check_ids(person, own)
    ids = {kind: own[key.key] for kind, key in PERSON_KEYS.items() if key.key in own}
    for other in others:
        if casefold_key(other.name) == casefold_key(person.name):
            raise KeyFault("name", f"there is another approver {person.name!r}: give everybody a name of their own")
        for kind, sender in ids.items():
            if other.ids.get(kind) == sender:
                key = PERSON_KEYS[kind].key
                raise KeyFault(key, f"{key}: {other.name!r} has the same one: every person is one approver")
    if person.tiers is not None and not (person.tiers and all(1 <= tier <= _HIGHEST_TIER for tier in person.tiers)):
        raise KeyFault("tiers", "tiers: name some, such as [2, 3], or leave it out: then it is all of them")
    if person.services is not None and not (person.services and all(name.strip() for name in person.services)):
        raise KeyFault("services", 'services: name some, such as ["shop-*"], or leave it out: then it is all of them')
    tiers = None if person.tiers is None else frozenset(person.tiers)
    return Approver(name=person.name, ids=ids, tiers=tiers, services=person.services)


def _check_ids(person: _Person, own: Mapping[str, str]) -> None:
    if not NAME.fullmatch(person.name):
        raise KeyFault("name", f"{person.name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if not own:
        keys = " or ".join(f"'{key.key}'" for key in PERSON_KEYS.values())
        raise KeyFault("name", f"nobody can be recognised as {person.name!r}: give {keys}")
    for key in PERSON_KEYS.values():
        if key.key in own and not key.form.fullmatch(own[key.key]):
            reason = f"{key.key}: {own[key.key][:40]!r} is not a person's id: {key.remedy}"
            raise KeyFault(key.key, reason)
