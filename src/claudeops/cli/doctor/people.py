"""The doctor's look at who tells the daemon something, whom it tells, and who would notice that it is dead.

Nothing is sent, no update is taken, because that poll would end the daemon's, and no watchdog is pinged: that would be
a sign of life of a daemon that may be dead.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from claudeops.app.notify import channels_of, network_of
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, failed, fine
from claudeops.cli.text.layout import count_of
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import PERSON_KEYS, ChannelAccess, TargetKind
from claudeops.domain.notices.notice import DEAF
from claudeops.engine.daemon.healthcheck_ping import MonitorVerb, address
from claudeops.errors import ClaudeopsError, ConfigurationError
from claudeops.notify.channels import ChannelFaults, channel_of
from claudeops.settings import Settings
from claudeops.store.glance import noted_of_targets
from claudeops.tasks import open_tasks
from claudeops.text import join_names
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor

_ANSWERS: Final = "answers in "  # how the daemon's sentences about chats without answers begin
_CONNECT_SECONDS: Final = 5.0
_PORTS: Final = {"https": 443, "http": 80}


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
    faults = await target_faults(settings)
    if faults.certain:
        return _unreached(faults)
    names = join_names([target.name for target in targets])
    kinds = [target.kind for target in targets]
    wrong = [*unreachable_approvers(settings.notices.approvers, kinds), *faults.doubtful]
    if all(not target.topics - {"digest"} for target in targets):
        wrong.append("None of them is told of anything but the daily sum.")
    if wrong:
        return doubtful(f"Notices go to {names}. {' '.join(wrong)}", "Correct the file of targets.")
    return fine(f"Notices go to {names}; `claudeops notify test` says what each of them answers.")


def _unreached(faults: ChannelFaults) -> Finding:
    """Return the finding that targets take nothing, or that answers do not arrive."""
    remedies = list(faults.remedies)
    if len(faults.certain) > bool(remedies):  # the sentence that these remedies are of is one
        remedies.append("Mend what each says; `claudeops notify test` shows whether a target takes messages again.")
    return failed(" ".join(faults.certain), " ".join(remedies))


def unreachable_approvers(approvers: Sequence[Approver], kinds: Iterable[TargetKind]) -> Iterator[str]:
    """Yield the approvers without a chat, and the chats without an approver."""
    present = set(kinds)
    for approver in approvers:
        if not approver.ids.keys() & present:
            wanted = " or ".join(sorted(approver.ids))
            yield f"{approver.name} can answer nowhere: there is no target of the kind {wanted}."
    for kind in sorted(present & PERSON_KEYS.keys()):
        if not any(kind in approver.ids for approver in approvers):
            yield f"Nobody may answer in {kind}: no approver has a {PERSON_KEYS[kind].key}."


# --- the servers of targets --------------------------------------------------------------------------


async def target_faults(settings: Settings) -> ChannelFaults:
    """Return what is wrong with the targets of notices, as far as it can be seen without a message."""
    kinds = channels_of(settings)
    found = {kind: ChannelFaults() for kind in kinds}
    async with open_tasks() as tasks:
        for kind, targets in kinds.items():
            tasks.start_soon(_check, settings, kind, targets, found[kind])
    redact = Redactor(settings.secrets).text
    faults = ChannelFaults()
    for each in found.values():
        faults.certain += sorted(redact(fault) for fault in each.certain if fault not in faults.certain)
        faults.doubtful += sorted(redact(fault) for fault in each.doubtful)
        faults.remedies += map(redact, each.remedies)
    faults.certain += [each for each in await _noted(settings) if each not in faults.certain]
    return faults


async def _check(
    settings: Settings, kind: TargetKind, targets: Mapping[str, ChannelAccess], faults: ChannelFaults
) -> None:
    channel, approvers = channel_of(kind, network_of(settings)), settings.notices.approvers
    has_approvers = any(kind in approver.ids for approver in approvers)
    with anyio.move_on_after(channel.check_seconds) as bound:
        try:
            await channel.check(targets, faults, has_approvers=has_approvers)
        except ConfigurationError as error:  # a proxy that cannot be used
            faults.certain.append(visible(str(error)))
    if bound.cancelled_caught:
        faults.doubtful.append(f"Some chat's server has not answered within {channel.check_seconds:.0f} s.")


async def _noted(settings: Settings) -> Sequence[str]:
    """Return what the daemon says of targets; nothing where its database does not answer, which another check says."""
    with suppress(ClaudeopsError):
        ask = partial(noted_of_targets, settings.places.database_url)
        noted = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
        names = {target.name for target in settings.notices.targets}
        return sorted(_sentence(message) for name, message in noted if name.startswith(DEAF) or _about(name) in names)
    return ()


def _about(fingerprint: str) -> str:
    return fingerprint.partition(":")[2]


def _sentence(message: str) -> str:
    """Return a message as a sentence; those about chats without answers, of whichever machine, begin small."""
    return f"{message[:1].upper()}{visible(message[1:])}" if _ANSWERS in message else visible(message)


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
