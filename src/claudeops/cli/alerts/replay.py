"""``alerts replay``: recorded bodies, decided about by the rules as they are now; nothing is written, nothing started.

A file has a line for each body: ``{"source": "prometheus", "at": "2026-03-01T12:00:00Z", "body": {…}}``. A body may be
a text too; without ``at`` it comes a second after the one before, and the first one now. With a source given, the file
is one body of it, byte for byte as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.app.wiring import estate_now, probe_reading
from claudeops.cli.reply import CommandResult, Exit, print_failure, print_result
from claudeops.cli.with_settings import read_settings
from claudeops.domain.alerts.alert import AlertDecision, SenderBody, Unparsed
from claudeops.domain.alerts.replay import Replayed, replay
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.estate.estate import NO_ESTATE
from claudeops.domain.probes.dependencies import NO_DEPENDENCIES, Dependencies
from claudeops.errors import ClaudeopsError, ConfigurationError, ErrorKind, MissingInputError
from claudeops.formats.senders import read
from claudeops.settings import Settings
from claudeops.text import join_names
from claudeops.text.escapes import visible

_NAME: Final = "alerts replay"
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_SHOWN: Final = 1000  # decisions in the document, and bodies that cannot be read
_MOST_TOLD: Final = 20  # bodies that cannot be read, for people
_MARK: Final = b"\xef\xbb\xbf"
_APART: Final = timedelta(seconds=1)

Body = tuple[datetime, SenderBody | Unparsed]


class _Line(msgspec.Struct):
    body: object
    source: str = ""
    at: datetime | None = None


def replay_file(file: Path, *, source: str | None, runs_for: timedelta, as_json: bool) -> int:
    """Print what becomes of the bodies in a file; return the exit status."""
    try:
        settings = read_settings()
        rules = settings.alerts.rules
        now = datetime.now(UTC).replace(microsecond=0)
        bodies = sorted(_bodies(file, rules, source, now=now), key=lambda body: body[0])
        done = replay(bodies, rules, runs_for=runs_for, dependencies=anyio.run(_dependencies, settings))
    except ClaudeopsError as error:
        sysexit = Exit.NO_INPUT if isinstance(error, MissingInputError) else None
        return print_failure(_NAME, error, as_json=as_json, target=str(file), sysexit=sysexit)
    return print_result(_NAME, CommandResult(text="\n".join(_lines(done)), body=_document(done)), as_json=as_json)


async def _dependencies(settings: Settings) -> Dependencies:
    """Return what the manifests and probes say of services; nothing, where there are none."""
    try:
        estate = estate_now(settings)
    except OSError:
        estate = NO_ESTATE
    declared = await probe_reading(settings, lambda: estate).changed()
    return NO_DEPENDENCIES if declared is None else declared.dependencies


def _bodies(file: Path, rules: Rules, only: str | None, *, now: datetime) -> Iterator[Body]:
    """Yield the bodies of a file; ``now``: when the first came that does not say so.

    Raises `ConfigurationError` and `MissingInputError`.
    """
    content, at = _content(file), now - _APART
    if only is not None:
        _require(only, rules, file, "it")
        yield now, read(rules.source(only), content, received_at=now)
        return
    for number, line in enumerate(_entries(content, rules, file), 1):
        _require(line.source, rules, file, f"entry {number}")
        given = line.at
        at = at + _APART if given is None else given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        raw = line.body.encode() if isinstance(line.body, str) else msgspec.json.encode(line.body)
        yield at, read(rules.source(line.source), raw, received_at=at)


def _require(name: str, rules: Rules, file: Path, what: str) -> None:
    if not any(source.name == name for source in rules.sources):
        raise _fault(file, f"{what} is of the source {name!r}, which is not declared; {_known(rules)}")


def _known(rules: Rules) -> str:
    return f"known are {join_names([source.name for source in rules.sources]) or 'none: set CLAUDEOPS_ALERTS_PATH'}"


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise MissingInputError(f"there is no file {file}: name one with recorded bodies.") from None
    except OSError as error:
        raise _fault(file, f"it cannot be read ({error.strerror})") from None
    if len(data) > _MOST_BYTES:
        raise _fault(file, f"it is longer than {_MOST_BYTES} bytes: replay a part of it")
    return data


def _entries(data: bytes, rules: Rules, file: Path) -> Sequence[_Line]:
    """Return the bodies that a file has lines for. Raises `ConfigurationError`."""
    lines = [line for line in data.removeprefix(_MARK).splitlines() if line.strip()]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=_Line))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            remedy = f"if the file is one body, say with --source who has sent it; {_known(rules)}"
            raise _fault(file, f"line {number} is no object with 'source' and 'body': {remedy}") from None
    return found


def _fault(file: Path, clause: str) -> ConfigurationError:
    return ConfigurationError(f"{file}: {clause}.", kind=ErrorKind.PARSE, operation="read", target=str(file))


def _document(done: Replayed) -> Mapping[str, object]:
    return {
        "deliveries": done.deliveries,
        "unparsed": done.unparsed,
        "decisions_count": len(done.rulings) + done.unparsed,
        "decisions": done.counts(),
        "chains": [
            {
                "at": at,
                "incident": start.incident,
                "tier": start.tier,
                "severity": start.severity.value,
                "services": [visible(service) for service in start.services],
                "alerts": len(start.alerts),
            }
            for at, start in done.starts
        ],
        "unreadable": [
            {"at": at, "source": body.source, "reason": visible(body.why)} for at, body in done.unread[:_MOST_SHOWN]
        ],
        "alerts": [
            {
                "at": at,
                "source": ruling.alert[0],
                "fingerprint": visible(ruling.alert[1]),
                "decision": ruling.decision.value,
                "because": visible(ruling.reason),
                "incident": ruling.incident,
            }
            for at, ruling in done.rulings[:_MOST_SHOWN]
        ],
    }


def _lines(done: Replayed) -> Iterator[str]:
    chains = "1 chain" if len(done.starts) == 1 else f"{len(done.starts)} chains"
    yield f"{done.deliveries} bodies, {len(done.rulings) + done.unparsed} decisions, {chains}"
    for name, count in done.counts().items():
        yield f"  {count:>6} {name}"
    for at, body in done.unread[:_MOST_TOLD]:
        yield f"{at:%Y-%m-%d %H:%M:%S} UTC  {body.source} sends what cannot be read: {visible(body.why)}"
    if len(done.unread) > _MOST_TOLD:
        yield f"and {len(done.unread) - _MOST_TOLD} more that cannot be read"
    about = {ruling.incident: ruling.about for _, ruling in done.rulings if ruling.decision is AlertDecision.STARTED}
    for at, start in done.starts:
        services = about.get(start.incident, "") if len(start.services) == 1 else ""
        alerts = "1 alert" if len(start.alerts) == 1 else f"{len(start.alerts)} alerts"
        named = visible(services or join_names(start.services))
        yield f"{at:%Y-%m-%d %H:%M:%S} UTC  incident {start.incident}, tier {start.tier}, {alerts}: {named}"
