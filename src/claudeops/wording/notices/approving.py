"""Questions to people in a chat: who may answer, by which tokens, and what a message shows before and after.

Pure. A tap counts if its sender is a named approver, its token was made for that message of that chat, and the question
still waits. A token says one answer to one question about one call; the database holds nothing but its digest. A card
shows the call whole, or it has no button for yes: nothing of it is cut, and nothing is masked but secrets that the
daemon knows. What only has the shape of a secret may be code.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from claudeops.domain.gate.approval import Approval, ApprovalStatus, CalledScript
from claudeops.domain.notices.approvers import Approver, approver_of
from claudeops.domain.notices.channels import TargetKind
from claudeops.text import join_names, regex
from claudeops.text.escapes import unmistakable, unmistakable_line
from claudeops.text.redact import has_shape
from claudeops.wording.notices.texts import Wording, in_words, safe

TOKEN_BYTES: Final = 16

YES: Final = ApprovalStatus.APPROVED
NO: Final = ApprovalStatus.DENIED

OVER: Final = frozenset(ApprovalStatus) - {ApprovalStatus.PENDING}
"""How a question stands that takes no answer any more."""

_VERBS: Final = {YES: "approve", NO: "deny"}
_OUTCOME_UNITS: Final = 400  # that the line about the outcome may take, once there is one
_REASON_CHARACTERS: Final = 600
_MENTION: Final = regex.Pattern(r"(^|[^0-9A-Za-z_])@([0-9A-Za-z_])")


# --- who may answer -----------------------------------------------------------------------------------------


def may_answer(
    approvers: Iterable[Approver], *, kind: TargetKind, sender: str, tier: int | None, services: Iterable[str] | None
) -> Approver | None:
    """Return the approver that a sender is, if the question is theirs to answer."""
    found = approver_of(approvers, kind=kind, sender=sender)
    return found if found is not None and found.answers_for(tier, services) else None


def has_approver(approvers: Iterable[Approver], *, kind: TargetKind, approval: Approval) -> bool:
    """Return whether an approver could answer a question in a chat of this kind."""
    services = services_of(approval)
    return any(kind in each.ids and each.answers_for(approval.tier, services) for each in approvers)


def services_of(approval: Approval) -> tuple[str, ...] | None:
    """Return the services that a call would change; None: the gate does not know all of them."""
    if approval.services is None:
        return None
    try:
        return msgspec.json.decode(approval.services, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return None


# --- tokens -------------------------------------------------------------------------------------------------


class QuestionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that asks: one row."""

    id: int
    approval_id: int
    call_hash: str
    target: str
    chat: str
    external_id: str | None  # its id in the chat; None: it is not known whether it arrived
    used_at: datetime | None  # when its tokens were used up
    says: ApprovalStatus | None = None  # what the token stands for by which it was found


class Unedited(msgspec.Struct, frozen=True, kw_only=True):
    """A message that does not show how its question stands."""

    row: QuestionRow
    approval: Approval


def button_data(status: ApprovalStatus, token: bytes) -> str:
    """Return what a button holds: its answer and its token, 30 characters at most."""
    return f"{_VERBS[status]}:{base64.urlsafe_b64encode(token).decode().rstrip('=')}"


def digest_of(data: str, *, chat: str) -> str:
    """Return what is stored of a button's data, bound to its chat."""
    return sha256(f"{chat}\n{data}".encode("utf-8", "replace")).hexdigest()


class TapRefusal(StrEnum):
    """Why a tap changes nothing; the value is for logs."""

    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105 - no secret: it names a reason
    OTHER_MESSAGE = "other_message"  # the token belongs to another message, chat or target
    USED_TOKEN = "used_token"  # noqa: S105 - as above
    NOT_LISTED = "not_listed"
    NOT_THEIRS = "not_theirs"  # the tier, or a service
    OVER = "over"  # it was answered, or its time is over
    SAME_PERSON = "same_person"  # whose yes is counted already
    NEEDS_PASSKEY = "needs_passkey"  # a yes, which counts with a passkey's signature alone
    UNAVAILABLE = "unavailable"  # the database does not answer


REFUSALS: Final = {
    TapRefusal.UNKNOWN_TOKEN: "This button is not known here. Nothing was changed.",
    TapRefusal.OTHER_MESSAGE: "This button belongs to another message. Nothing was changed.",
    TapRefusal.USED_TOKEN: "This button was used already. Nothing was changed.",
    TapRefusal.NOT_LISTED: "You are not among the approvers. Nothing was changed.",
    TapRefusal.NOT_THEIRS: "You may not answer for this tier or service. Nothing was changed.",
    TapRefusal.OVER: "This question takes no answer any more. Nothing was changed.",
    TapRefusal.SAME_PERSON: "Your yes is counted already; another person has to say yes too.",
    TapRefusal.NEEDS_PASSKEY: "A yes to this needs a passkey: say it on the page /approvals. Nothing was changed.",
    TapRefusal.UNAVAILABLE: "The answer could not be written. Please tap again.",
}
"""The answers to a tap, in one sentence or two."""


class ButtonTap(msgspec.Struct, frozen=True, kw_only=True):
    """A press of a button."""

    kind: TargetKind
    sender: str  # the sender's id
    chat: str
    message: str  # its id in the chat
    data: str
    targets: frozenset[str]  # whose messages can have been tapped


def refusal(
    tap: ButtonTap,
    row: QuestionRow | None,
    approval: Approval | None,
    approvers: Iterable[Approver],
    *,
    now: datetime,
) -> TapRefusal | None:
    """Return why a tap changes nothing; ``None``: it is an answer.

    Who taps comes first: a person who is not listed learns nothing of a message.
    """
    person = approver_of(approvers, kind=tap.kind, sender=tap.sender)
    if person is None:
        return TapRefusal.NOT_LISTED
    if row is None or approval is None or row.says is None:
        return TapRefusal.UNKNOWN_TOKEN
    foreign = row.external_id is not None and row.external_id != tap.message
    if foreign or row.chat != tap.chat or row.target not in tap.targets or row.call_hash != approval.call_hash:
        return TapRefusal.OTHER_MESSAGE
    if not person.answers_for(approval.tier, services_of(approval)):
        return TapRefusal.NOT_THEIRS
    if is_over(approval, now):
        return TapRefusal.OVER
    return TapRefusal.USED_TOKEN if row.used_at is not None else None


def is_over(approval: Approval, now: datetime) -> bool:
    """Return whether a question takes no answer any more."""
    return approval.status in OVER or approval.expires_at <= now


# --- what a message shows -----------------------------------------------------------------------------------


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a message shows of a question."""

    head: str  # who asks, and why
    call: str  # the input and the scripts that it names; "": it does not fit
    tail: str  # until when, and how else it is answered
    fits: bool  # the call stands there whole, so that a yes can be given
    hidden: bool = False  # parts of the call are masked that only have the shape of a secret
    code: tuple[int, int] = msgspec.field(default=(0, 0))  # where in the text the call stands: from, to

    def __post_init__(self) -> None:
        if self.fits and self.hidden:
            raise ValueError("a card takes no yes to a call that it does not show whole")

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n\n".join(part for part in (self.head, self.call, self.tail) if part)


def units(text: str) -> int:
    """Return the length of a text as chats count it, in UTF-16 code units; no way of counting gives more."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def card(approval: Approval, *, wording: Wording, limit: int, now: datetime, again: bool = False) -> Card:
    """Return the card of a question: whole, or with ``fits=False`` and a sentence about what is not shown.

    A call that exceeds ``limit`` units is not shown at all.
    """
    call, hidden = _call(approval, wording)
    head = _head(approval, wording, again=again)
    tail = _tail(approval, wording, now)
    masked = (
        "Parts of this call look like secrets and are hidden here, and what is hidden runs too, so no yes can be given "
        f"here: see `claudeops list-approvals`.\n{tail}"
    )
    begin = len(head) + 2
    code = (begin, begin + len(call))
    whole = Card(head=head, call=call, tail=masked if hidden else tail, fits=not hidden, hidden=hidden, code=code)
    if units(whole.text) + _OUTCOME_UNITS <= limit:
        return whole
    long = (
        f"The call is {len(call)} characters long and does not fit here, so no yes can be given here: read it by "
        "`claudeops list-approvals`."
    )
    short = Card(head=head, call="", tail=f"{long}\n{tail}", fits=False, hidden=hidden)
    if units(short.text) + _OUTCOME_UNITS <= limit:
        return short
    return Card(head=f"Approval {approval.id} is needed.", call="", tail=short.tail, fits=False, hidden=hidden)


def uncalled(text: str) -> str:
    """Return a text without a mention by a name after ``@``; an address of mail stays as it is."""
    return _MENTION.sub(lambda found: f"{found[1]}@ {found[2]}", text)


def outcome(approval: Approval, wording: Wording) -> str:
    """Return the line that a message ends with once its question is over."""
    by = safe(approval.decided_by or "somebody", wording)[:100]
    at = f" at {approval.decided_at:%H:%M:%S} UTC" if approval.decided_at is not None else ""
    match approval.status:
        case ApprovalStatus.APPROVED:
            return f"YES: {by} said yes{at}."
        case ApprovalStatus.USED:
            return f"YES: {by} said yes{at}, and the call was let through."
        case ApprovalStatus.DENIED:
            return f"NO: {by} said no{at}."
        case _:
            return "OVER: nobody answered in time, or the session has ended."


def counted(name: str) -> str:
    """Return the line about a yes that another one has to follow."""
    return f"1 of 2: {name} said yes."


def shown(card: Card, last: str) -> str:
    """Return the text of a message with a line after its card."""
    return f"{card.text}\n\n{last}"


def _head(approval: Approval, wording: Wording, *, again: bool) -> str:
    still = "Still nobody has answered. " if again else ""
    tier = "" if approval.tier is None else f" (tier {approval.tier})"
    tool = safe(approval.tool_name or "a tool", wording)
    lines = [f"{still}Approval {approval.id}: session {approval.session_id}{tier} asks for {tool}."]
    if services := services_of(approval):
        lines.append(f"services: {safe(join_names(services), wording)}")
    if approval.services is None:
        lines.append("which services it changes is not known, so only who may answer for all of them can answer")
    lines.append(f"why: {safe(approval.reason or '', wording)[:_REASON_CHARACTERS]}")
    lines.append(f"in: {safe(approval.workdir or '', wording)}")
    if approval.agent_id is not None:
        lines.append(f"asked by the subagent {safe(approval.agent_id, wording)}")
    return uncalled("\n".join(lines))


def _tail(approval: Approval, wording: Wording, now: datetime) -> str:
    lines: list[str] = []
    base = wording.public_url.rstrip("/") if wording.public_url else ""
    if not is_over(approval, now):
        lines.append(f"until {approval.expires_at:%H:%M:%S} UTC (in {in_words(approval.expires_at - now)})")
        yes = f"yes, with a passkey alone: {base}/approvals/{approval.id}" if approval.passkey else ""
        lines.append(f"{yes or f'or: claudeops approve {approval.id}'} | claudeops deny {approval.id}")
    if base:
        lines.append(f"{base}/s/{approval.session_id}")
    return "\n".join(lines)


def _call(approval: Approval, wording: Wording) -> tuple[str, bool]:
    """Return the input and the scripts by their hashes, and whether anything unknown in it is masked.

    Nothing is cut, nothing hides, and values are indented, so that no value can imitate another field.
    """
    fields = [(name, _text(value)) for name, value in _input(approval).items()]
    scripts = _scripts(approval)
    named = [f"{_plain_line(name, wording)}:\n{_indented(_plain(text, wording))}" for name, text in fields]
    named += [f"script {_plain_line(script.path, wording)}\nsha256 {script.sha256}" for script in scripts]
    texts = [text for pair in fields for text in pair] + [script.path for script in scripts]
    return "\n".join(named), approval.hidden or any(_looks_secret(text, wording) for text in texts)


def _plain(text: str, wording: Wording) -> str:
    return wording.redact(unmistakable(wording.redact(text)))


def _plain_line(text: str, wording: Wording) -> str:
    return wording.redact(unmistakable_line(wording.redact(text)))


def _looks_secret(text: str, wording: Wording) -> bool:
    """Return whether anything in a text has the shape of a secret; what is known was masked before it was stored."""
    return has_shape(text) or has_shape(unmistakable(wording.redact(text)))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _input(approval: Approval) -> dict[str, object]:
    try:
        given = json.loads(approval.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": approval.input or ""}


_SCRIPTS: Final = msgspec.json.Decoder(tuple[CalledScript, ...])


def _scripts(approval: Approval) -> Sequence[CalledScript]:
    try:
        return _SCRIPTS.decode(approval.scripts or "[]")
    except msgspec.MsgspecError:
        return ()
