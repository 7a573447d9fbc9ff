"""The kinds of channels by which notices leave, and what the operator's file says of a target of each.

Pure, and a table: everything else of a kind is in the module of `claudeops.notify.channels` that has its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.text import regex


class TargetKind(StrEnum):
    """By what a target is reached."""

    APPRISE = "apprise"  # an address of Apprise, by the courier
    TELEGRAM = "telegram"  # a chat, by a bot of the operator's
    SLACK = "slack"  # a channel, by an app of the operator's


class SecretKey(msgspec.Struct, frozen=True, kw_only=True):
    """A secret of a target: the file names its variable by ``KEY_env``, or its file by ``KEY_file``."""

    key: str
    noun: str  # with its article
    full_noun: str  # the same with its owner
    form: regex.Pattern[str]
    remedy: str  # what to write
    is_optional: bool = False
    tail_after: str = ""  # the sign behind which a secret of its own begins

    @property
    def keys(self) -> tuple[str, str]:
        """The keys of the file."""
        return f"{self.key}_env", f"{self.key}_file"


class IdKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the file that holds an id which the service has given."""

    key: str
    form: regex.Pattern[str]
    remedy: str  # what to write
    is_number: bool = False  # it may be written without quotes


class ChannelForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of targets of one kind, and of those who may answer there."""

    secrets: tuple[SecretKey, ...]
    place: IdKey | None = None  # of the chat; None: the secret says it
    person: IdKey | None = None  # of a sender; None: no answer comes from there
    api: str = ""  # address of the server, unless the file has another; "": there is none
    either: str = ""  # what is missing where none of the optional secrets is given; "": all may be left out

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that only targets of this kind have."""
        own = [key for secret in self.secrets for key in secret.keys]
        return (*own, *([self.place.key] if self.place else []), *(["api"] if self.api else []))


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelAccess:
    """How one target is reached."""

    kind: TargetKind
    secrets: Mapping[str, str] = field(repr=False)  # by their keys, without what is left out
    place: str = ""  # the id of the chat
    api: str = ""  # address of the server, without a slash at its end


CHANNELS: Final[Mapping[TargetKind, ChannelForm]] = {
    TargetKind.APPRISE: ChannelForm(
        secrets=(
            SecretKey(
                key="url",
                noun="an address",
                full_noun="a target's address",
                form=regex.Pattern(rf"(?i)[a-z][a-z0-9+.-]*://[^{regex.SPACE}]+"),
                remedy="write one address as Apprise takes it, such as ntfy://host/topic",
            ),
        ),
    ),
    TargetKind.TELEGRAM: ChannelForm(
        secrets=(
            SecretKey(
                key="token",
                noun="a token",
                full_noun="a bot's token",
                form=regex.Pattern(r"\d+:[A-Za-z0-9_-]{20,}"),
                remedy="write it as BotFather gives it, 123456789:ABC…",
                tail_after=":",
            ),
        ),
        place=IdKey(
            key="chat",
            form=regex.Pattern(r"-?[0-9]{1,20}"),
            remedy='give the number that Telegram calls it by, such as "-1001234567890"',
            is_number=True,
        ),
        person=IdKey(
            key="telegram_id",
            form=regex.Pattern(r"[0-9]{1,20}"),
            remedy="give the number, not the name",
            is_number=True,
        ),
        api="https://api.telegram.org",
    ),
    TargetKind.SLACK: ChannelForm(
        secrets=(
            SecretKey(
                key="bot_token",
                noun="a bot's token",
                full_noun="a bot's token",
                form=regex.Pattern(r"xoxb-[A-Za-z0-9-]{10,}"),
                remedy="write the one that begins with xoxb-",
            ),
            SecretKey(
                key="app_token",
                noun="an app's token",
                full_noun="an app's token",
                form=regex.Pattern(r"xapp-[A-Za-z0-9-]{10,}"),
                remedy="write the one that begins with xapp-",
                is_optional=True,
            ),
            SecretKey(
                key="signing_secret",
                noun="a signing secret",
                full_noun="a signing secret",
                form=regex.Pattern(r"[0-9a-f]{16,}"),
                remedy="write the app's one, in hexadecimal",
                is_optional=True,
            ),
        ),
        place=IdKey(
            key="channel",
            form=regex.Pattern(r"[CDG][A-Z0-9]{2,30}"),
            remedy='give the one that Slack shows below "About" of the channel, such as "C0123456789"',
        ),
        person=IdKey(
            key="slack_user_id",
            form=regex.Pattern(r"[UW][A-Z0-9]{2,30}"),
            remedy='give the member ID of the profile, such as "U0123456789"',
        ),
        api="https://slack.com/api",
        either=(
            "answers come by Socket Mode or by HTTP: give 'app_token_env' for the first, 'signing_secret_env' for the "
            "second"
        ),
    ),
}

PERSON_KEYS: Final = {kind: form.person for kind, form in CHANNELS.items() if form.person is not None}
"""The keys of approvers, by the kind of chat in which they answer."""


def by_kind(targets: Mapping[str, ChannelAccess]) -> Mapping[TargetKind, Mapping[str, ChannelAccess]]:
    """Return targets by their kinds, those without any left out."""
    kinds = dict.fromkeys(access.kind for access in targets.values())
    return {kind: {name: one for name, one in targets.items() if one.kind is kind} for kind in kinds}


def hidden_parts(name: str, access: ChannelAccess) -> Iterable[tuple[str, str]]:
    """Yield what must never be shown of a target, each with where it comes from."""
    secrets = CHANNELS[access.kind].secrets
    for secret in secrets:
        value = access.secrets.get(secret.key, "")
        origin = f"a secret of {name}" if len(secrets) > 1 else f"the {secret.key} of {name}"
        yield origin, value
        if secret.tail_after:
            yield origin, value.partition(secret.tail_after)[2]
