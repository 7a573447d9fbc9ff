"""The operator's file of targets and approvers, read: values, or the line that is wrong and what to write."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.notice import APPRISE, Target, TargetKind, Topic
from claudeops.domain.schedules import Cron
from claudeops.domain.schedules.windows import read_windows
from claudeops.text import casefold_key, regex
from claudeops.text.toml_file import NAME, VARIABLE, KeyFault, TomlFile, fault_of, keys_of, nearest

MOST_TARGETS: Final = 50
MOST_AN_HOUR: Final = 10_000
MOST_APPROVERS: Final = 200

TELEGRAM_API: Final = "https://api.telegram.org"
SLACK_API: Final = "https://slack.com/api"

_TABLE: Final = "targets"
_PEOPLE: Final = "approvers"
_CHAT: Final = regex.Pattern(r"-?[0-9]{1,20}")
_CHANNEL: Final = regex.Pattern(r"[CDG][A-Z0-9]{2,30}")
_TELEGRAM_USER: Final = regex.Pattern(r"[0-9]{1,20}")
_SLACK_USER: Final = regex.Pattern(r"[UW][A-Z0-9]{2,30}")
_API: Final = regex.Pattern(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~/-]*)?")
_HIGHEST_TIER: Final = 9


class _Entry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[targets]]``, as it is written."""

    name: str
    kind: TargetKind = TargetKind.APPRISE
    url_env: str = ""
    url_file: str = ""
    token_env: str = ""
    token_file: str = ""
    chat: str | int = ""
    bot_token_env: str = ""
    bot_token_file: str = ""
    app_token_env: str = ""
    app_token_file: str = ""
    signing_secret_env: str = ""
    signing_secret_file: str = ""
    channel: str = ""
    api: str = ""
    topics: tuple[Topic, ...] = tuple(Topic)
    min_level: EventLevel = EventLevel.WARNING
    quiet_hours: tuple[str, ...] | str = ()
    timezone: str = ""
    max_per_hour: int | None = None


class _Person(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[approvers]]``, as it is written."""

    name: str
    telegram_id: str | int = ""
    slack_user_id: str = ""
    tiers: tuple[int, ...] | None = None
    services: tuple[str, ...] | None = None


class _Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    targets: tuple[_Entry, ...] = ()
    approvers: tuple[_Person, ...] = ()


_KEYS: Final = {
    _TABLE: keys_of(_Entry),
    _PEOPLE: keys_of(_Person),
}
_OWN_KEYS: Final[Mapping[TargetKind, tuple[str, ...]]] = {
    TargetKind.APPRISE: ("url_env", "url_file"),
    TargetKind.TELEGRAM: ("token_env", "token_file", "chat", "api"),
    TargetKind.SLACK: (
        *("bot_token_env", "bot_token_file", "app_token_env", "app_token_file"),
        *("signing_secret_env", "signing_secret_file", "channel", "api"),
    ),
}
"""The keys that only targets of one kind have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPlace:
    """Where a secret is: in a variable, or in a file beside this one."""

    variable: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedTarget:
    """A target, and where its secrets are."""

    target: Target
    line: int  # for messages
    secrets: Mapping[str, SecretPlace] = field(
        default_factory=lambda: MappingProxyType({})
    )  # by what each is, as in its key
    chat: str = ""  # or channel
    api: str = ""  # no slash at its end


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticesDocument:
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
    for index, entry in enumerate(document.targets):
        with file.at(_TABLE, index):
            _check_name(entry.name, found)
            found.append(_named(entry, timezone, file.line(_TABLE, index)))
    people: list[Approver] = []
    for index, person in enumerate(document.approvers):
        with file.at(_PEOPLE, index):
            people.append(_approver(person, people))
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


def _check_name(name: str, others: Sequence[NamedTarget]) -> None:
    if not NAME.fullmatch(name):
        raise KeyFault("name", f"{name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if name == APPRISE or name.startswith(f"{APPRISE}-"):
        raise KeyFault("name", f"{name!r} is what CLAUDEOPS_APPRISE_URLS is called: choose another name")
    if any(casefold_key(name) == casefold_key(other.target.name) for other in others):
        raise KeyFault("name", f"there is another target {name!r}: give every target its own name")


def _named(entry: _Entry, timezone: str, line: int) -> NamedTarget:
    _check_own_keys(entry)
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
    secrets, chat = _reached_by(entry)
    return NamedTarget(target=target, line=line, secrets=MappingProxyType(secrets), chat=chat, api=_api(entry))


def _check_own_keys(entry: _Entry) -> None:
    """Refuse a key that a target of another kind has."""
    own = _OWN_KEYS[entry.kind]
    for kind, keys in _OWN_KEYS.items():
        for key in keys:
            if key not in own and getattr(entry, key):
                remedy = f'leave it out, or write kind = "{kind}"'
                raise KeyFault(key, f"{key}: a target of the kind {entry.kind} has no such key: {remedy}")


def _reached_by(entry: _Entry) -> tuple[dict[str, SecretPlace], str]:
    """Return where a target's secrets are, and its chat or channel."""
    match entry.kind:
        case TargetKind.APPRISE:
            return {"url": _place(entry, "url", "a target's address")}, ""
        case TargetKind.TELEGRAM:
            chat = str(entry.chat)
            if not _CHAT.fullmatch(chat):
                remedy = 'give the number that Telegram calls it by, such as "-1001234567890"'
                raise KeyFault("chat", f"chat: {chat[:40]!r} is not the id of a chat: {remedy}")
            return {"token": _place(entry, "token", "a bot's token")}, chat
        case TargetKind.SLACK:
            return _slack(entry), entry.channel


def _slack(entry: _Entry) -> dict[str, SecretPlace]:
    if not _CHANNEL.fullmatch(entry.channel):
        remedy = 'give the one that Slack shows below "About" of the channel, such as "C0123456789"'
        raise KeyFault("channel", f"channel: {entry.channel[:40]!r} is not the id of a channel: {remedy}")
    secrets = {"bot_token": _place(entry, "bot_token", "a bot's token")}
    for what, said in (("app_token", "an app's token"), ("signing_secret", "a signing secret")):
        if getattr(entry, f"{what}_env") or getattr(entry, f"{what}_file"):
            secrets[what] = _place(entry, what, said)
    if len(secrets) == 1:
        ways = "'app_token_env' for the first, 'signing_secret_env' for the second"
        raise KeyFault("name", f"answers come by Socket Mode or by HTTP: give {ways}")
    return secrets


def _place(entry: _Entry, what: str, said: str) -> SecretPlace:
    """Return where a secret is."""
    variable, file = getattr(entry, f"{what}_env"), getattr(entry, f"{what}_file")
    if bool(variable) == bool(file):
        remedy = "leave one of them out" if variable else f"give '{what}_env' or '{what}_file'"
        raise KeyFault(f"{what}_env", f"{said} is in a variable or in a file: {remedy}")
    if variable and not VARIABLE.fullmatch(variable):
        kind = "address" if what == "url" else "secret"
        raise KeyFault(f"{what}_env", f"{what}_env: name a variable of the environment, and never the {kind} itself")
    return SecretPlace(variable=variable, file=file)


def _api(entry: _Entry) -> str:
    usual = {TargetKind.TELEGRAM: TELEGRAM_API, TargetKind.SLACK: SLACK_API}.get(entry.kind, "")
    if entry.api and not _API.fullmatch(entry.api):
        raise KeyFault("api", f"api: this is no address of a server: write it as {usual}")
    return (entry.api or usual).rstrip("/")


def _approver(person: _Person, others: Sequence[Approver]) -> Approver:
    telegram = str(person.telegram_id)
    _check_ids(person, telegram)
    for other in others:
        if casefold_key(other.name) == casefold_key(person.name):
            raise KeyFault("name", f"there is another approver {person.name!r}: give everybody a name of their own")
        for key, own, theirs in (
            ("telegram_id", telegram, other.telegram_id),
            ("slack_user_id", person.slack_user_id, other.slack_user_id),
        ):
            if own and own == theirs:
                raise KeyFault(key, f"{key}: {other.name!r} has the same one: every person is one approver")
    if person.tiers is not None and not (person.tiers and all(1 <= tier <= _HIGHEST_TIER for tier in person.tiers)):
        raise KeyFault("tiers", "tiers: name some, such as [2, 3], or leave it out: then it is all of them")
    if person.services is not None and not (person.services and all(name.strip() for name in person.services)):
        raise KeyFault("services", 'services: name some, such as ["shop-*"], or leave it out: then it is all of them')
    return Approver(
        name=person.name,
        telegram_id=telegram,
        slack_user_id=person.slack_user_id,
        tiers=None if person.tiers is None else frozenset(person.tiers),
        services=person.services,
    )


def _check_ids(person: _Person, telegram: str) -> None:
    if not NAME.fullmatch(person.name):
        raise KeyFault("name", f"{person.name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if not telegram and not person.slack_user_id:
        raise KeyFault("name", f"nobody can be recognised as {person.name!r}: give 'telegram_id' or 'slack_user_id'")
    if telegram and not _TELEGRAM_USER.fullmatch(telegram):
        reason = f"telegram_id: {telegram[:40]!r} is not a person's id: give the number, not the name"
        raise KeyFault("telegram_id", reason)
    if person.slack_user_id and not _SLACK_USER.fullmatch(person.slack_user_id):
        remedy = 'give the member ID of the profile, such as "U0123456789"'
        raise KeyFault("slack_user_id", f"slack_user_id: {person.slack_user_id[:40]!r} is not a person's id: {remedy}")
