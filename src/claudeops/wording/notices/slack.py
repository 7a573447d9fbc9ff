"""What Slack is sent, what it sends when a button is pressed, and how it proves that it is Slack.

Pure. A text is sent so that Slack shows it as it is: calls stand in a block of code, which knows neither formats nor
mentions, and everything else has what Slack would read as a sign of its own written out.

Of what Slack sends only ids are read: names that a person may choose, and the message as Slack sends it back, prove
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from claudeops.formats.senders.common import Claim, claim, is_recent
from claudeops.wording.notices.approving import Card

LIMIT: Final = 3000
"""Characters of one block, and so of a whole card: where a call does not fit into that, there is no Yes."""

MOST_ACTIONS: Final = 5
"""Of one message from Slack; a press is one."""

_YES: Final = "Yes"
_NO: Final = "No"
_PRESSED: Final = "block_actions"
_SIGNATURE: Final = "x-slack-signature"
_STAMP: Final = "x-slack-request-timestamp"
_VERSION: Final = "v0="
_MOST_FIELDS: Final = 20
_MOST_ID: Final = 64  # characters; Slack's have 9 to 11
_MOST_VALUE: Final = 200


Json = dict[str, Any]


# --- what is sent -----------------------------------------------------------------------------------------


def plain(text: str) -> Json:
    """Return what is sent of a text that is only to be read."""
    return {"text": _escaped(text), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def asking(card: Card, *, yes: str, no: str, last: str = "") -> Json:
    """Return what is sent of a question; ``yes`` and ``no`` are what the buttons hold, empty where there is none.

    Only what fits has a yes. ``last``: a line that says what has happened to it.
    """
    held = {_NO: no, _YES: yes if card.fits else ""}
    buttons = [_button(name, value) for name, value in held.items() if value]
    actions = [{"type": "actions", "elements": buttons}] if buttons else []
    return _with_blocks(card, [*_parts(card), *([_line(last)] if last else []), *actions])


def answered(card: Card, last: str) -> Json:
    """Return what a question's message becomes: without buttons, and with a line that says what came of it."""
    return {**_with_blocks(card, [*_parts(card), _line(last)]), "text": _escaped(last)}


def _with_blocks(card: Card, blocks: Sequence[Json]) -> Json:
    return {**plain(card.head.partition("\n")[0]), "blocks": blocks}


def _parts(card: Card) -> list[Json]:
    call = [_code(card.call)] if card.call else []
    return [_line(card.head), *call, *([_line(card.tail)] if card.tail else [])]


def _line(text: str) -> Json:
    return {"type": "section", "text": {"type": "plain_text", "text": text[:LIMIT] or " ", "emoji": False}}


def _code(text: str) -> Json:
    element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text or " "}]}
    return {"type": "rich_text", "elements": [element]}


def _button(name: str, value: str) -> Json:
    style = "primary" if name == _YES else "danger"
    text = {"type": "plain_text", "text": name, "emoji": False}
    return {"type": "button", "action_id": f"approval_{name.lower()}", "text": text, "value": value, "style": style}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# --- what is pressed --------------------------------------------------------------------------------------


class _Named(msgspec.Struct, frozen=True):
    id: str = ""


class _Container(msgspec.Struct, frozen=True):
    channel_id: str = ""
    message_ts: str = ""


class _Action(msgspec.Struct, frozen=True):
    value: str = ""


class _Interaction(msgspec.Struct, frozen=True):
    type: str = ""
    user: _Named = _Named()
    channel: _Named = _Named()
    container: _Container = _Container()
    actions: tuple[_Action, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Press:
    """One button that was pressed."""

    user: str  # his id; who he is
    channel: str  # the id of where he did it
    ts: str  # of the message
    value: str = field(repr=False)  # of the button


def presses(payload: bytes) -> tuple[Press, ...]:
    """Return what was pressed; nothing for what is no press, or cannot be read."""
    try:
        interaction = msgspec.json.decode(payload, type=_Interaction)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    channel, ts = interaction.channel.id or interaction.container.channel_id, interaction.container.message_ts
    if (
        interaction.type != _PRESSED
        or not interaction.user.id
        or max(map(len, (interaction.user.id, channel, ts))) > _MOST_ID
    ):
        return ()
    return tuple(
        Press(user=interaction.user.id, channel=channel, ts=ts, value=action.value)
        for action in interaction.actions[:MOST_ACTIONS]
        if 0 < len(action.value) <= _MOST_VALUE
    )


def payload_of(body: bytes) -> bytes:
    """Return what a form that Slack posts has in it; empty if there is nothing."""
    try:
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return b""
    return next((value.encode(errors="replace") for name, value in pairs if name == "payload"), b"")


# --- who says it ------------------------------------------------------------------------------------------


def claimed(headers: Mapping[str, str], *, now: datetime) -> Claim | None:
    """Return the signature that headers present; ``None``: none of now. Proves nothing: the body is not known yet."""
    stamp, proof = headers.get(_STAMP, ""), headers.get(_SIGNATURE, "")
    if not proof.startswith(_VERSION) or not is_recent(stamp, now):
        return None
    return claim(f"v0:{stamp}:".encode(), [proof.removeprefix(_VERSION)])


def signers(body: bytes, headers: Mapping[str, str], secrets: Mapping[str, str], *, now: datetime) -> frozenset[str]:
    """Return the targets whose signing secret has signed a body, not long ago, in constant time.

    ``headers`` by lower-case names; ``secrets`` by the names of targets.
    """
    presented = claimed(headers, now=now)
    if presented is None:
        return frozenset()
    return frozenset(name for name, secret in secrets.items() if presented.is_of(body, [secret.encode()]))
