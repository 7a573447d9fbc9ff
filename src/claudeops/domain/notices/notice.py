"""A notice and its targets, as values.

Pure. A notice says its parts; the sentence that people read is made of them when it is sent, by
`claudeops.wording.notices.texts`. A target is a name: its address is a secret, which neither a value nor a row holds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from claudeops.closed_set import ClosedSet
from claudeops.domain.events import EventLevel
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.refusals import RefusalCause
from claudeops.domain.schedules.windows import Window
from claudeops.text import json_text

UNROUTED: Final = ""
"""The target of a row that waits to be given to its targets: whoever writes it knows none of them."""

APPRISE: Final = "apprise"
"""The target that ``CLAUDEOPS_APPRISE_URLS`` is."""


DEAD: Final = "notification_dead:"
"""What the fingerprint of an event begins with about a target to which nothing could be delivered for a day."""

PICKY: Final = "notices_refused:"
"""The same of a target that refuses some of what it is sent, for the text."""

REFUSED: Final = "target_refused:"
"""The same of a target that refuses everything until a person mends it."""

DEAF: Final = "chat_deaf:"
"""The same of chats whose answers do not arrive, by the names of their targets."""

MOVED: Final = "chat_moved:"
"""The same of a group that has become another chat than the file says."""

ADDRESS: Final = "address_refused:"
"""The same of an address that Apprise does not understand."""

ABOUT_TARGETS: Final = (DEAD, PICKY, REFUSED, DEAF, MOVED, ADDRESS)


class Topic(ClosedSet):
    """What a notice is about; targets choose among these."""

    INCIDENT = "incident", "an incident is opened, escalated, unresolved or resolved"
    APPROVAL = "approval", "a call waits for a person's answer"
    EVENT = "event", "a condition was seen for the first time"
    DIGEST = "digest", "the daily digest"
    SELF = "self", "the daemon's own troubles"


class DeliveryOutcome(ClosedSet):
    """What came of an attempt to deliver a notice."""

    DELIVERED = "delivered", "the target took it"
    FAILED = "failed", "the target refused it, or could not be reached"
    UNKNOWN = "unknown", "the time ran out: it may have been delivered"
    SUPPRESSED = "suppressed", "covered by another message, or wanted by no target"


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that people should know; stored as JSON, so a field may only be added with a default."""

    topic: Topic
    level: EventLevel
    text: str  # one sentence
    key: str  # of its subject; a target gets the same key once
    service: str = ""
    session_id: int | None = None  # for the link
    tier: int | None = None
    done: tuple[str, ...] = ()  # what was done
    denied: tuple[str, ...] = ()  # what was not allowed
    cost_usd: float | None = None
    again: bool = False  # it may have been delivered before
    approval_id: int | None = None  # the question that it is about; once that is answered it is not sent
    besides: str = ""  # the target that it is not for: it is about that target
    call: str = ""  # the call that a question is about, as far as it fits; it is only to be read
    incident: int | None = None  # that it is about
    also: Topic | None = None  # a second topic under which it is wanted
    probe: str = ""  # whose failure it is about, unless that is part of an incident before it is sent


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a notice says besides its own sentence, as far as whoever raises an event or ends a session knows it."""

    topic: Topic | None = None  # None: as the event itself says
    tier: int | None = None
    cost_usd: float | None = None  # of the chain
    done: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    key: str = ""  # under which it is sent once; "": the event's own
    approval_id: int | None = None  # of the question that it is
    besides: str = ""  # the target that it is not for
    call: str = ""  # that it asks about
    service: str = ""  # that it concerns, where the event itself names none
    also: Topic | None = None  # a second topic under which it is wanted
    probe: str = ""  # whose failure it is: an incident may announce it instead
    quiet: bool = False  # another notice announces it: the event is on record alone


PLAIN: Final = Announcement()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where notices go."""

    name: str
    kind: TargetKind = TargetKind.APPRISE
    topics: frozenset[Topic] = frozenset(Topic)
    min_level: EventLevel = EventLevel.WARNING
    quiet_hours: tuple[Window, ...] = ()
    timezone: str = "UTC"  # of the quiet hours
    max_per_hour: int | None = None  # messages; what is more is one message


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A notice on its way to one target."""

    id: int
    target: str
    notice: Notice
    created_at: datetime
    attempts: int = 0  # that were made
    refusals: int = 0  # how often the target is known to have refused the message that it stood in, for its text


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a claimed notice."""

    id: int
    result: DeliveryOutcome | None  # None: it was not tried
    error: str = ""
    again_at: datetime | None = None  # when it is tried (again); None: it is over
    instead: tuple[str, ...] = ()  # targets of which the first that has not got it gets it now
    cause: RefusalCause | None = None  # why the target has refused it, where that will not pass


def encoded(notice: Notice) -> str:
    """Return a notice as it is stored."""
    return json_text(msgspec.to_builtins(notice))


_NOTICE: Final = msgspec.json.Decoder(Notice)


def decoded(payload: str) -> Notice | None:
    """Return a stored notice; ``None`` if it is not one of ours."""
    try:
        return _NOTICE.decode(payload)
    except msgspec.DecodeError:
        return None
