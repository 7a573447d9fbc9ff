"""The doctor's look at who tells the daemon something, whom it tells, and who would notice that it is dead.

Nothing is sent, and nobody is pinged: that would be a sign of life of a daemon that may be dead.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from claudeops.app.notify import courier
from claudeops.cli.doctor.chats import ChatFaults, chat_faults
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, failed, fine
from claudeops.cli.text.layout import count_of
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.notice import TargetKind
from claudeops.engine.daemon.healthcheck_ping import MonitorVerb, address
from claudeops.settings import Settings
from claudeops.text import join_names
from claudeops.text.redact import Redactor

_WIKI: Final = "Write it as https://github.com/caronc/apprise/wiki says for that service."
_CONNECT_SECONDS: Final = 5.0
_PORTS: Final = {"https": 443, "http": 80}
_KEYS: Final = {TargetKind.TELEGRAM: "telegram_id", TargetKind.SLACK: "slack_user_id"}  # of approvers


# --- who tells the daemon something -----------------------------------------------------------------------


async def alerts(_case: DoctorContext, settings: Settings) -> Finding:
    """Check what the file of alerts says, and whether its senders can prove who they are."""
    rules = settings.alerts.rules
    if settings.alerts.path is None:
        return fine("There is no file of alerts: every source with a token is a generic one, and nobody signs.")
    wrong = list(_unheard(rules, settings))
    if wrong:
        return doubtful(f"{_counted(rules)} {' '.join(wrong)}", "Set what is missing, or correct the file.")
    return fine(f"{_counted(rules)} Those without a secret need a token (`claudeops token list`).")


def _counted(rules: Rules) -> str:
    kinds = Counter(source.kind.value for source in rules.sources)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    what = ((len(rules.sources), "source"), (len(rules.rules), "rule"), (len(rules.heartbeats), "heartbeat"))
    counts = ", ".join(count_of(count, name) for count, name in what)
    return f"It declares {counts}" + (f" ({listed})." if listed else ".")


def _unheard(rules: Rules, settings: Settings) -> Iterator[str]:
    """Yield why some source could not be heard."""
    if not settings.listener.enabled and (rules.sources or rules.heartbeats):
        yield "CLAUDEOPS_LISTENER is off, so nobody can send anything."
    for source in rules.sources:
        missing = [name for name in source.secret_env if name not in settings.alerts.env]
        if missing:
            some = "none of its signatures holds" if len(missing) == len(source.secret_env) else "old ones still hold"
            yield f"{source.name} signs with {join_names(missing)}, which is not set: {some}."


# --- whom it tells ----------------------------------------------------------------------------------------


async def notify(_case: DoctorContext, settings: Settings) -> Finding:
    """Check the targets of notices, without a message to any of them, and whether questions find somebody."""
    targets = settings.notices.targets
    if not targets:
        return fine("There is no target of notices (CLAUDEOPS_APPRISE_URLS, CLAUDEOPS_NOTIFY_PATH): nobody is told.")
    plain = {target.name for target in targets if target.kind is TargetKind.APPRISE}
    unknown = await _not_understood(settings, {name: settings.notices.addresses[name] for name in sorted(plain)})
    faults = await chat_faults(settings)
    if unknown or faults.certain:
        return _unreached(unknown, faults)
    names = join_names([target.name for target in targets])
    kinds = [target.kind for target in targets]
    wrong = [*nobody(settings.notices.approvers, kinds), *faults.doubtful]
    if all(not target.topics - {"digest"} for target in targets):
        wrong.append("None of them is told of anything but the daily sum.")
    if wrong:
        return doubtful(f"Notices go to {names}. {' '.join(wrong)}", "Correct the file of targets.")
    return fine(f"Notices go to {names}; `claudeops notify test` says what each of them answers.")


def _unreached(unknown: Mapping[str, str], faults: ChatFaults) -> Finding:
    """Return the finding that targets take nothing, or that answers do not arrive."""
    says, remedies = list(faults.certain), []
    if unknown:
        says.insert(0, f"Apprise does not understand the address of {join_names(sorted(unknown))}.")
        remedies = [*(f"{name}: {reason}." for name, reason in sorted(unknown.items())), _WIKI]
    if faults.certain:
        remedies.append("Mend what each says; `claudeops notify test` shows whether a target takes messages again.")
    return failed(" ".join(says), " ".join(remedies))


def nobody(approvers: Sequence[Approver], kinds: Iterable[TargetKind]) -> Iterator[str]:
    """Yield why approvers cannot be reached, or chats have none: each needs the other's kind."""
    present = set(kinds)
    for approver in approvers:
        known = _chats_of(approver)
        if not known & present:
            wanted = " or ".join(sorted(known))
            yield f"{approver.name} can answer nowhere: there is no target of the kind {wanted}."
    for kind in sorted(present - {TargetKind.APPRISE}):
        if not any(kind in _chats_of(approver) for approver in approvers):
            yield f"Nobody may answer in {kind}: no approver has a {_KEYS[kind]}."


def _chats_of(approver: Approver) -> frozenset[TargetKind]:
    known = {TargetKind.TELEGRAM: approver.telegram_id, TargetKind.SLACK: approver.slack_user_id}
    return frozenset(kind for kind, number in known.items() if number)


async def _not_understood(settings: Settings, addresses: Mapping[str, str]) -> Mapping[str, str]:
    """Return why Apprise does not understand addresses, by their targets; a process of its own looks at them."""
    if not addresses:
        return {}
    redact = Redactor(settings.secrets).text
    checked = await courier(settings).check(addresses)
    return {name: redact(reason) for name, reason in checked.items() if reason}


# --- who would notice that it is dead ---------------------------------------------------------------------


async def heartbeat(_case: DoctorContext, settings: Settings) -> Finding:
    """Check the address of the watchdog outside; it is not pinged."""
    url = settings.upkeep.heartbeat_url
    if url is None:
        return fine("No watchdog is set (CLAUDEOPS_HEARTBEAT_URL): nobody would notice that the daemon is dead.")
    parts = urlsplit(url)
    if parts.path.rstrip("/").rpartition("/")[2] in {verb.value for verb in MonitorVerb} | {"log"}:
        return failed(
            "CLAUDEOPS_HEARTBEAT_URL ends with a verb, so every ping would say that.",
            "Leave /start, /fail or /log out: the daemon adds what it has to say.",
        )
    kind = "a monitor that knows no verbs" if address(url, MonitorVerb.SUCCESS, 0) is None else "healthchecks"
    kind = "Uptime Kuma" if address(url, MonitorVerb.START, 0) == "" else kind
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)
    why = (
        "" if _is_proxied(settings, parts.scheme) else await anyio.to_thread.run_sync(partial(_unreachable, host, port))
    )
    if why:
        return doubtful(f"The watchdog ({kind}) cannot be reached: {why}.", "Mend the address, or the way there.")
    if parts.scheme == "http" and not _is_near(host):
        return doubtful(
            f"The watchdog ({kind}) is told in plain HTTP, and whoever listens could ping it too.", "Use https."
        )
    return fine(f"After each healthy round {kind} is told.")


def _is_proxied(settings: Settings, scheme: str) -> bool:
    return any(settings.environment.proxies.get(name) for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()))


def _unreachable(host: str, port: int) -> str:
    """Return why nothing answers there; blocks for seconds at most. No request is made."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host
