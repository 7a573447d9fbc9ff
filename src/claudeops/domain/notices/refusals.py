"""What it means that a chat or an address says no: the message is at fault, the target is, or it passes.

Pure. Telegram says so in English, Slack by a word, Apprise by the status of the server behind it. What is not known
here passes: it is tried again, and after a day goes another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class RefusalSubject(StrEnum):
    """What a refusal is about; what is neither may pass."""

    CONTENT = "content"  # this message: others may be taken
    TARGET = "target"  # everything, until a person mends it


class RefusalCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is refused again and again, and what a person can do."""

    refusal: RefusalSubject = RefusalSubject.TARGET
    remedy: str = ""  # a clause; "": the message is at fault


CONTENT: Final = RefusalCause(refusal=RefusalSubject.CONTENT)

_HTTP_PASSING: Final = frozenset({407, 408, 409, 423, 425, 429})
_HTTP_TARGET: Final = frozenset({401, 404, 410})  # 403 is also what a filter says of a text

# --- Telegram ---------------------------------------------------------------------------------------------

_NEW_BOT: Final = "the bot's token is not valid: take a new one from BotFather, and restart claudeops"
_REJOIN: Final = "add the bot to the chat again, with the right to write there, or name another chat"
_TOPIC: Final = "open the topic again, or name a chat that takes messages"
_TELEGRAM: Final[Mapping[str, str]] = {
    "upgraded to a supergroup": "name the group by its new id, which begins with -100",
    "topic_closed": _TOPIC,
    "topic_deleted": _TOPIC,
    "topic_id_invalid": _TOPIC,
    "thread not found": _TOPIC,
    "chat not found": "correct the chat's id, and let the bot be added to the chat or be started in it",
    "blocked": "let that person unblock the bot, or name another chat",
    "deactivated": "name another chat: this one is gone",
    "can't initiate conversation": "let that person press Start in the chat with the bot",
    "can't send messages to bots": "name a chat of people",
    "kicked": _REJOIN,
    "not a member": _REJOIN,
    "rights": _REJOIN,
    "chat_write_forbidden": _REJOIN,
    "chat_send_plain_forbidden": _REJOIN,
    "chat_guest_send_forbidden": _REJOIN,
    "chat_admin_required": _REJOIN,
    "chat_restricted": _REJOIN,
    "channel_private": _REJOIN,
    "chat_forbidden": _REJOIN,
    "peer_id_invalid": "correct the chat's id",
    "user_is_bot": "name a chat of people",
}
"""What of a description says that the chat itself refuses, in lower case, and the remedy; the first one counts."""


def of_telegram(status: int | None, description: str) -> RefusalCause | None:
    """Return what it means that the Bot API refuses a message; ``None``: it may pass."""
    if status in {401, 404}:
        return RefusalCause(remedy=_NEW_BOT)
    text = description.lower()
    remedy = next((remedy for part, remedy in _TELEGRAM.items() if part in text), "")
    if status == 403:  # noqa: PLR2004 - HTTP's
        return RefusalCause(remedy=remedy or _REJOIN)
    if status in {400, 413}:
        return RefusalCause(remedy=remedy) if remedy else CONTENT
    return None


def telegram_deafness(status: int | None, description: str) -> str:
    """Return what to do about a bot that gets no updates; empty: that may pass."""
    match status:
        case 401 | 404:
            return _NEW_BOT
        case 409 if "webhook" in description.lower():
            return "the bot has a webhook, which takes its updates: delete it (deleteWebhook of the Bot API)"
        case 409:
            return "another program polls the same bot: end that one, or give claudeops a bot of its own"
        case 400 | 403:
            return "the Bot API refuses getUpdates: see what `claudeops doctor` says of the bot"
    return ""


# --- Slack ------------------------------------------------------------------------------------------------

_REINSTALL: Final = "install the app in the workspace again, give claudeops its new token, and restart it"
_SCOPE: Final = "give the app the scopes of the guide, and install it in the workspace again"
_INVITE: Final = "invite the app to the channel (/invite), or name another channel"
_ALLOW: Final = "let the app post in the channel, or name another channel"
_SLACK: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive"),
            *("not_allowed_token_type", "org_login_required", "team_access_not_granted", "ekm_access_denied"),
        ),
        _REINSTALL,
    ),
    **dict.fromkeys(("missing_scope", "no_permission", "access_denied"), _SCOPE),
    **dict.fromkeys(("channel_not_found", "not_in_channel", "user_not_found", "user_not_in_channel"), _INVITE),
    "is_archived": "unarchive the channel, or name another one",
    **dict.fromkeys(
        ("cannot_dm_bot", "messages_tab_disabled", "is_inactive", "posting_to_general_channel_denied"), _ALLOW
    ),
}
_RESTRICTED: Final = "restricted_action"  # and its kinds, such as restricted_action_read_only_channel
_CONTENT: Final = frozenset(
    {"msg_too_long", "msg_blocks_too_long", "no_text", "invalid_blocks", "invalid_blocks_format", "block_mismatch"}
    | {"invalid_attachments", "too_many_attachments", "attachment_payload_limit_exceeded", "markdown_text_conflict"}
    | {
        "invalid_arguments",
        "invalid_arg_name",
        "invalid_array_arg",
        "invalid_json",
        "json_not_object",
        "invalid_charset",
    }
    | {"invalid_form_data", "invalid_metadata_format", "invalid_metadata_schema", "metadata_too_large"}
)
_PASSING: Final = frozenset(
    {"ratelimited", "rate_limited", "message_limit_exceeded", "internal_error", "fatal_error", "service_unavailable"}
    | {"request_timeout", "team_added_to_org", "accesslimited", "too_many_websockets"}
)


def of_slack(word: str) -> RefusalCause | None:
    """Return what Slack's word for a refused message means; ``None``: it may pass."""
    if word in _CONTENT:
        return CONTENT
    remedy = _ALLOW if word.startswith(_RESTRICTED) else _SLACK.get(word, "")
    return RefusalCause(remedy=remedy) if remedy else None


def slack_deafness(word: str) -> str:
    """Return what to do about an app for which Slack opens no connection; empty: that may pass."""
    if not word or word in _PASSING or word.startswith("status "):
        return ""
    if _SLACK.get(word) == _SCOPE:
        return "give the app's token (xapp-…) the scope connections:write, or generate a new one with it"
    if _SLACK.get(word) == _REINSTALL:
        return "generate a new token of the app (xapp-…) with the scope connections:write, and restart claudeops"
    return "see that Socket Mode is on in the app's settings, and that its token (xapp-…) is of this app"


# --- Apprise ----------------------------------------------------------------------------------------------


def of_apprise(error: str) -> RefusalCause | None:
    """Return what it means that Apprise could not send, by the last status that it names; ``None``: it may pass."""
    digits = error.rpartition("error=")[2][:3] if "error=" in error else ""
    status = int(digits) if len(digits) == 3 and digits.isascii() and digits.isdecimal() else 0  # noqa: PLR2004 - HTTP's
    if not 400 <= status < 500 or status in _HTTP_PASSING:  # noqa: PLR2004 - as above
        return None
    if status in _HTTP_TARGET:
        return RefusalCause(remedy="see that its address is right and what it stands for still exists")
    return CONTENT
