"""The operator's file of targets and approvers, read: values, or the line that is wrong and what to write."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.domain.events import Level
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.notice import APPRISE, Target, TargetKind, Topic
from claudeops.domain.schedules import Cron
from claudeops.domain.schedules.windows import Window, read_window
from claudeops.errors import ConfigurationError
from claudeops.text import casefold_key, regex
from claudeops.text.toml_lines import Path, key_lines, line_of

MOST_TARGETS: Final = 50
MOST_AN_HOUR: Final = 10_000
MOST_APPROVERS: Final = 200

TELEGRAM_API: Final = "https://api.telegram.org"
SLACK_API: Final = "https://slack.com/api"

_TABLE: Final = "targets"
_PEOPLE: Final = "approvers"
_POSITION: Final = regex.Pattern(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_AT: Final = regex.Pattern(r" - at `\$\.(targets|approvers)\[(\d+)\](?:\.(\w+))?[^`]*`$")
_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE: Final = regex.Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
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
    min_level: Level = Level.WARNING
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
    _TABLE: tuple(each.name for each in msgspec.structs.fields(_Entry)),
    _PEOPLE: tuple(each.name for each in msgspec.structs.fields(_Person)),
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


class NotifyFault(Exception):  # noqa: N818 - not an error of ours: it describes a fault in an operator's text
    """What is wrong with a file of targets; ``str()`` is a clause with the remedy, ``line`` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a secret is: in a variable, or in a file beside this one."""

    variable: str = ""
    file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A target, and where its secrets are."""

    target: Target
    line: int  # for messages
    secrets: Mapping[str, Place] = field(default_factory=lambda: MappingProxyType({}))  # by what each is, as in its key
    chat: str = ""  # or channel
    api: str = ""  # no slash at its end


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a file says."""

    targets: tuple[Named, ...]
    approvers: tuple[Approver, ...] = ()


class _Fault(Exception):  # noqa: N818 - as above
    """A fault of one key of a target."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def read_document(text: str, *, timezone: str) -> Document:
    """Return what a file says; ``timezone`` is that of quiet hours without one. Raises `NotifyFault`."""
    loaded = _load(text)
    lines = key_lines(text)
    _check_keys(loaded, lines)
    try:
        document = msgspec.convert(loaded, _Document)
    except msgspec.ValidationError as error:
        raise _typed(error, lines) from None
    if not document.targets:
        raise NotifyFault(1, "there is no target in it: add a [[targets]], or unset CLAUDEOPS_NOTIFY_PATH")
    for what, most, entries in (
        ("targets", MOST_TARGETS, document.targets),
        ("approvers", MOST_APPROVERS, document.approvers),
    ):
        if len(entries) > most:
            raise NotifyFault(1, f"there are more than {most} {what} in it: leave some out")
    found: list[Named] = []
    for index, entry in enumerate(document.targets):
        with _located(lines, (_TABLE, index)):
            _check_name(entry.name, found)
            found.append(_named(entry, timezone, line_of(lines, (_TABLE, index))))
    people: list[Approver] = []
    for index, person in enumerate(document.approvers):
        with _located(lines, (_PEOPLE, index)):
            people.append(_approver(person, people))
    return Document(targets=tuple(found), approvers=tuple(people))


@contextmanager
def _located(lines: dict[Path, int], entry: Path) -> Iterator[None]:
    """Give a fault of a key the line of that key."""
    try:
        yield
    except _Fault as fault:
        raise NotifyFault(line_of(lines, (*entry, fault.key)), str(fault)) from None


def _load(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _POSITION.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        raise NotifyFault(line, f"this is not TOML: {_POSITION.sub('', str(error))}") from None
    except RecursionError:
        raise NotifyFault(1, "this is nested too deeply to be a file of targets") from None


def _check_keys(loaded: Mapping[str, object], lines: dict[Path, int]) -> None:
    for table in loaded:
        if table not in _KEYS:
            reason = (
                f"the key {table[:40]!r} is not known here: targets stand under [[targets]], "
                "and who may answer under [[approvers]]"
            )
            raise NotifyFault(line_of(lines, (table,)), reason)
    for table, keys in _KEYS.items():
        entries = loaded.get(table)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            for key in entry if isinstance(entry, dict) else ():
                if key not in keys:
                    reason = f"the key {key[:40]!r} is not known here: {_hint(key, keys)}"
                    raise NotifyFault(line_of(lines, (table, index, key)), reason)


def _hint(key: str, keys: Sequence[str]) -> str:
    if f"{key}_env" in keys:
        what = "an address" if key == "url" else "it"
        return f"{what} is a secret: name a variable that holds it by '{key}_env', or a file by '{key}_file'"
    near = difflib.get_close_matches(key, keys, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(keys)}"


def _typed(error: msgspec.ValidationError, lines: dict[Path, int]) -> NotifyFault:
    """Return the fault of a value of the wrong type."""
    found = _AT.search(str(error))
    reason = _AT.sub("", str(error)).replace("`", "'")
    if found is None:
        return NotifyFault(1, f"{reason}: write every entry as a table, [[targets]] or [[approvers]]")
    path: Path = (found[1], int(found[2]), *([found[3]] if found[3] else []))
    return NotifyFault(line_of(lines, path), f"{found[3]}: {reason}" if found[3] else reason)


def _check_name(name: str, others: Sequence[Named]) -> None:
    if not _NAME.fullmatch(name):
        raise _Fault("name", f"{name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if name == APPRISE or name.startswith(f"{APPRISE}-"):
        raise _Fault("name", f"{name!r} is what CLAUDEOPS_APPRISE_URLS is called: choose another name")
    if any(casefold_key(name) == casefold_key(other.target.name) for other in others):
        raise _Fault("name", f"there is another target {name!r}: give every target its own name")


def _named(entry: _Entry, timezone: str, line: int) -> Named:
    _check_own_keys(entry)
    if not entry.topics:
        raise _Fault("topics", f"a target without topics is told nothing: name some of {', '.join(Topic)}")
    if entry.max_per_hour is not None and not 1 <= entry.max_per_hour <= MOST_AN_HOUR:
        raise _Fault("max_per_hour", f"{entry.max_per_hour} messages an hour cannot be kept: give 1 to {MOST_AN_HOUR}")
    zone = entry.timezone or timezone
    target = Target(
        name=entry.name,
        kind=entry.kind,
        topics=frozenset(entry.topics),
        min_level=entry.min_level,
        quiet_hours=tuple(_windows(entry)),
        timezone=_checked_zone(zone),
        max_per_hour=entry.max_per_hour,
    )
    secrets, chat = _reached_by(entry)
    return Named(target=target, line=line, secrets=MappingProxyType(secrets), chat=chat, api=_api(entry))


def _check_own_keys(entry: _Entry) -> None:
    """Refuse a key that a target of another kind has."""
    own = _OWN_KEYS[entry.kind]
    for kind, keys in _OWN_KEYS.items():
        for key in keys:
            if key not in own and getattr(entry, key):
                remedy = f'leave it out, or write kind = "{kind}"'
                raise _Fault(key, f"{key}: a target of the kind {entry.kind} has no such key: {remedy}")


def _reached_by(entry: _Entry) -> tuple[dict[str, Place], str]:
    """Return where a target's secrets are, and its chat or channel."""
    match entry.kind:
        case TargetKind.APPRISE:
            return {"url": _place(entry, "url", "a target's address")}, ""
        case TargetKind.TELEGRAM:
            chat = str(entry.chat)
            if not _CHAT.fullmatch(chat):
                remedy = 'give the number that Telegram calls it by, such as "-1001234567890"'
                raise _Fault("chat", f"chat: {chat[:40]!r} is not the id of a chat: {remedy}")
            return {"token": _place(entry, "token", "a bot's token")}, chat
        case TargetKind.SLACK:
            return _slack(entry), entry.channel


def _slack(entry: _Entry) -> dict[str, Place]:
    if not _CHANNEL.fullmatch(entry.channel):
        remedy = 'give the one that Slack shows below "About" of the channel, such as "C0123456789"'
        raise _Fault("channel", f"channel: {entry.channel[:40]!r} is not the id of a channel: {remedy}")
    secrets = {"bot_token": _place(entry, "bot_token", "a bot's token")}
    for what, said in (("app_token", "an app's token"), ("signing_secret", "a signing secret")):
        if getattr(entry, f"{what}_env") or getattr(entry, f"{what}_file"):
            secrets[what] = _place(entry, what, said)
    if len(secrets) == 1:
        ways = "'app_token_env' for the first, 'signing_secret_env' for the second"
        raise _Fault("name", f"answers come by Socket Mode or by HTTP: give {ways}")
    return secrets


def _place(entry: _Entry, what: str, said: str) -> Place:
    """Return where a secret is."""
    variable, file = getattr(entry, f"{what}_env"), getattr(entry, f"{what}_file")
    if bool(variable) == bool(file):
        remedy = "leave one of them out" if variable else f"give '{what}_env' or '{what}_file'"
        raise _Fault(f"{what}_env", f"{said} is in a variable or in a file: {remedy}")
    if variable and not _VARIABLE.fullmatch(variable):
        kind = "address" if what == "url" else "secret"
        raise _Fault(f"{what}_env", f"{what}_env: name a variable of the environment, and never the {kind} itself")
    return Place(variable=variable, file=file)


def _api(entry: _Entry) -> str:
    usual = {TargetKind.TELEGRAM: TELEGRAM_API, TargetKind.SLACK: SLACK_API}.get(entry.kind, "")
    if entry.api and not _API.fullmatch(entry.api):
        raise _Fault("api", f"api: this is no address of a server: write it as {usual}")
    return (entry.api or usual).rstrip("/")


def _approver(person: _Person, others: Sequence[Approver]) -> Approver:
    telegram = str(person.telegram_id)
    _check_ids(person, telegram)
    for other in others:
        if casefold_key(other.name) == casefold_key(person.name):
            raise _Fault("name", f"there is another approver {person.name!r}: give everybody a name of their own")
        for key, own, theirs in (
            ("telegram_id", telegram, other.telegram_id),
            ("slack_user_id", person.slack_user_id, other.slack_user_id),
        ):
            if own and own == theirs:
                raise _Fault(key, f"{key}: {other.name!r} has the same one: every person is one approver")
    if person.tiers is not None and not (person.tiers and all(1 <= tier <= _HIGHEST_TIER for tier in person.tiers)):
        raise _Fault("tiers", "tiers: name some, such as [2, 3], or leave it out: then it is all of them")
    if person.services is not None and not (person.services and all(name.strip() for name in person.services)):
        raise _Fault("services", 'services: name some, such as ["shop-*"], or leave it out: then it is all of them')
    return Approver(
        name=person.name,
        telegram_id=telegram,
        slack_user_id=person.slack_user_id,
        tiers=None if person.tiers is None else frozenset(person.tiers),
        services=person.services,
    )


def _check_ids(person: _Person, telegram: str) -> None:
    if not _NAME.fullmatch(person.name):
        raise _Fault("name", f"{person.name[:80]!r} is not a name: use letters, digits, dots, dashes and underscores")
    if not telegram and not person.slack_user_id:
        raise _Fault("name", f"nobody can be recognised as {person.name!r}: give 'telegram_id' or 'slack_user_id'")
    if telegram and not _TELEGRAM_USER.fullmatch(telegram):
        reason = f"telegram_id: {telegram[:40]!r} is not a person's id: give the number, not the name"
        raise _Fault("telegram_id", reason)
    if person.slack_user_id and not _SLACK_USER.fullmatch(person.slack_user_id):
        remedy = 'give the member ID of the profile, such as "U0123456789"'
        raise _Fault("slack_user_id", f"slack_user_id: {person.slack_user_id[:40]!r} is not a person's id: {remedy}")


def _windows(entry: _Entry) -> Iterator[Window]:
    for text in (entry.quiet_hours,) if isinstance(entry.quiet_hours, str) else entry.quiet_hours:
        try:
            yield read_window(text)
        except ValueError as error:
            raise _Fault("quiet_hours", str(error)) from None


def _checked_zone(name: str) -> str:
    try:
        Cron(expr="@daily", timezone=name)  # for the zone's name alone
    except ConfigurationError as error:
        raise _Fault("timezone", str(error)) from None
    return name
