"""The courier: a short-lived process that delivers the messages for one target by Apprise, and ends.

Or it reports which addresses Apprise does not understand, and why. Its stdin is one JSON object (`CourierRequest`); on
stdout it writes a line when it begins with a message and one when it knows what came of it (`CourierReport`), so that
after its death its parent knows which single message may have been delivered. The address never stands in its arguments
or environment, nor in what it writes. Whoever starts it kills it at a deadline: the time-out of Apprise does not end
its threads.

Imports nothing of ours that takes time, and nothing that reads settings: a courier costs what Apprise costs.
"""

from __future__ import annotations

import difflib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from claudeops.domain.notices.refusals import CONTENT, of_apprise

BEGUN: Final = "begun"
DELIVERED: Final = "delivered"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed out"

_MOST_FAILURES: Final = 2
_REVEALING: Final = 3  # characters of a part of an address
_MOST_CHARACTERS: Final = 500  # of an error


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    id: int
    title: str
    body: str
    level: str


class CourierRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a courier does: it delivers messages, or checks addresses."""

    url: str = ""
    timeout_seconds: float  # for one message
    deadline_seconds: int  # for all of them: after that the process ends itself, whether or not its parent lives
    messages: tuple[OutgoingMessage, ...] = ()
    check: tuple[str, ...] = ()  # addresses: whether Apprise understands them, by their places; nothing is sent
    environment: dict[str, str] = {}  # proxies may hold passwords: what a process starts with others can read


class CourierReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a courier's."""

    id: int
    state: str
    error: str = ""


def main() -> None:
    """Deliver what stdin says."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CourierRequest)
    signal.alarm(request.deadline_seconds)
    os.environ.update(request.environment)
    reports = os.dup(1)
    os.dup2(2, 1)  # whatever a plugin prints must not stand between the reports
    for index, address in enumerate(request.check):
        reason = fault_of(address)
        _write(reports, CourierReport(id=index, state=FAILED if reason else DELIVERED, error=reason))
    if request.messages:
        _deliver(request, reports)
    os._exit(0)  # threads that Apprise has given up would keep the process alive


def _deliver(request: CourierRequest, reports: int) -> None:
    deliver = _delivery(request)
    failures = 0
    for message in request.messages:
        _write(reports, CourierReport(id=message.id, state=BEGUN))
        report = deliver(message)
        _write(reports, report)
        # A refusal of the text proves nothing about the next one; the second failure in a row is the target's.
        well = report.state == DELIVERED or of_apprise(report.error) == CONTENT
        failures = 0 if well else failures + 1
        if report.state == TIMED_OUT or failures == _MOST_FAILURES:
            break


def _write(reports: int, report: CourierReport) -> None:
    os.write(reports, msgspec.json.encode(report) + b"\n")


def _delivery(request: CourierRequest) -> Callable[[OutgoingMessage], CourierReport]:
    """Return what delivers a message; the outbox is the truth, so Apprise keeps and repeats nothing."""
    from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType  # noqa: PLC0415 - takes half a second
    from apprise.common import PersistentStoreMode  # noqa: PLC0415 - as above

    asset = AppriseAsset(app_id="claudeops", app_desc="claudeops", storage_mode=PersistentStoreMode.MEMORY)
    service = Apprise(asset=asset)
    known = service.add(request.url)
    kinds = {"critical": NotifyType.FAILURE, "warning": NotifyType.WARNING}

    def deliver(message: OutgoingMessage) -> CourierReport:
        if not known:
            return CourierReport(
                id=message.id, state=FAILED, error=fault_of(request.url) or "Apprise does not take this address"
            )
        outcome = service.notify(
            body=message.body,
            title=message.title,
            notify_type=kinds.get(message.level, NotifyType.INFO),
            body_format=NotifyFormat.TEXT,
            timeout=request.timeout_seconds,
        )
        if outcome:
            return CourierReport(id=message.id, state=DELIVERED)
        reasons = " ".join(entry.message for entry in outcome.logs())[:_MOST_CHARACTERS]
        state = TIMED_OUT if outcome.timeout_count else FAILED
        return CourierReport(id=message.id, state=state, error=reasons or f"Apprise says {outcome.status.name}")

    return deliver


# --- what is wrong with an address ------------------------------------------------------------------------


def fault_of(address: str) -> str:
    """Return why Apprise does not understand an address, without anything of it; empty: it does."""
    from apprise import Apprise  # noqa: PLC0415 - takes half a second
    from apprise.plugins import N_MGR, url_to_dict  # noqa: PLC0415 - as above

    logging.disable()  # what Apprise logs quotes addresses
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    try:
        found = url_to_dict(address, secure_logging=True)  # type: ignore[no-untyped-call]
        if found:
            plugin = N_MGR[found["schema"]]
            if not plugin.enabled:
                needs = plugin.requirements.get("packages_required") or "something that is not here"
                return f"{plugin.service_name} needs {needs}, which is not installed"
            return "" if Apprise.instantiate(address, suppress_exceptions=False) else _form(plugin, scheme)
    except Exception as error:  # noqa: BLE001 - each service has its own ones
        plugin = N_MGR[scheme] if scheme in N_MGR else None  # noqa: SIM401 - it has no get
        reason = _without(address, str(error))
        return "; ".join(part for part in (reason, _form(plugin, scheme)) if part)
    if scheme in N_MGR:
        return _form(N_MGR[scheme], scheme)
    known = sorted(N_MGR.schemas())  # type: ignore[no-untyped-call]
    near = difflib.get_close_matches(scheme, known, n=1)
    hint = f" (did you mean {near[0]}://?)" if near else ""
    return f"Apprise knows no service that is called so{hint}" if scheme else "it begins with no service://"


def _form(plugin: Any, scheme: str) -> str:
    """Return how an address of a service is written."""
    if plugin is None or not plugin.templates:
        return "it is no address of a service"
    form = str(plugin.templates[0]).replace("{schema}", scheme)
    return f"it is no address of {plugin.service_name}, which is written as {form}"


def _without(address: str, reason: str) -> str:
    """Return why a service refuses its address, as far as nothing of the address stands in it."""
    reason = reason.replace(" (None)", "").replace("\n", " ").rstrip(".")
    begin, end = reason.find(" ("), reason.rfind(")")
    reason = reason[:begin] + reason[end + 1 :] if 0 <= begin < end else reason
    parts = "".join(sign if sign.isalnum() else " " for sign in unquote(address)).lower().split()
    reveals = any(len(part) >= _REVEALING and part in reason.lower() for part in parts)
    return "" if reveals else reason[:_MOST_CHARACTERS]


if __name__ == "__main__":
    main()
