"""The courier: a short-lived process that delivers the messages for one target by Apprise, and ends.

Its stdin is one JSON object (`Order`); on stdout it writes a line when it begins with a message and one when it knows
what came of it (`Report`), so that after its death its parent knows which single message may have been delivered. The
address never stands in its arguments or environment, nor in what it writes. Whoever starts it kills it at a deadline:
Apprise's own time-out does not end its threads.

Imports nothing of ours that takes time, and nothing that reads settings: a courier costs what Apprise costs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from claudeops.domain.notice.refusals import CONTENT, of_apprise

BEGUN: Final = "begun"
DELIVERED: Final = "delivered"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed out"

_MOST_FAILURES: Final = 2
_MOST_CHARACTERS: Final = 500  # of an error


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    id: int
    title: str
    body: str
    level: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a courier is to do."""

    url: str
    timeout_seconds: float  # for one message
    deadline_seconds: int  # for all of them: after that the process ends itself, whether or not its parent lives
    letters: tuple[Letter, ...]
    sends: bool = True  # False: only whether the address is understood, is asked
    environment: dict[str, str] = {}  # proxies may hold passwords: what a process starts with others can read


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a courier's."""

    id: int
    state: str
    error: str = ""


def main() -> None:
    """Deliver what stdin says."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    signal.alarm(order.deadline_seconds)
    os.environ.update(order.environment)
    reports = os.dup(1)
    os.dup2(2, 1)  # whatever a plugin prints must not stand between the reports
    deliver = _delivery(order)
    failures = 0
    for letter in order.letters:
        _write(reports, Report(id=letter.id, state=BEGUN))
        report = deliver(letter)
        _write(reports, report)
        # What is refused for what it says tells nothing of the next one; the second failure in a row is the target's.
        well = report.state == DELIVERED or of_apprise(report.error) == CONTENT
        failures = 0 if well else failures + 1
        if report.state == TIMED_OUT or failures == _MOST_FAILURES:
            break
    os._exit(0)  # threads that Apprise has given up would keep the process alive


def _write(reports: int, report: Report) -> None:
    os.write(reports, msgspec.json.encode(report) + b"\n")


def _delivery(order: Order) -> Callable[[Letter], Report]:
    """Return what delivers a message; the outbox is the truth, so Apprise keeps and repeats nothing."""
    from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType  # noqa: PLC0415 - takes half a second
    from apprise.common import PersistentStoreMode  # noqa: PLC0415 - as above

    asset = AppriseAsset(app_id="claudeops", app_desc="claudeops", storage_mode=PersistentStoreMode.MEMORY)
    service = Apprise(asset=asset)
    known = service.add(order.url)
    kinds = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING}

    def deliver(letter: Letter) -> Report:
        if not known:
            return Report(id=letter.id, state=FAILED, error="Apprise does not know this kind of address")
        if not order.sends:
            return Report(id=letter.id, state=DELIVERED)
        told = service.notify(
            body=letter.body,
            title=letter.title,
            notify_type=kinds.get(letter.level, NotifyType.INFO),
            body_format=NotifyFormat.TEXT,
            timeout=order.timeout_seconds,
        )
        if told:
            return Report(id=letter.id, state=DELIVERED)
        said = " ".join(entry.message for entry in told.logs())[:_MOST_CHARACTERS]
        state = TIMED_OUT if told.timeout_count else FAILED
        return Report(id=letter.id, state=state, error=said or f"Apprise says {told.status.name}")

    return deliver


if __name__ == "__main__":
    main()
