"""``claudeops probe``, which looks with the daemon's eyes.

It works with and without a running daemon. A look of this command changes nothing: how a probe stands is the daemon's
to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import anyio
import msgspec

from claudeops.cli.reply import CommandResult, Exit, not_found_body, print_failure, print_result
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, status_cell, table
from claudeops.cli.text.screen import looks_of
from claudeops.clock import Clock
from claudeops.domain.probes.probe import (
    CommandLook,
    HeartbeatLook,
    Observation,
    Pings,
    Probe,
    Saw,
    Standing,
    kind_of,
    target_of,
)
from claudeops.domain.probes.record import StoredProbe
from claudeops.domain.probes.state_machine import due
from claudeops.errors import ClaudeopsError, ConfigurationError, ErrorKind
from claudeops.settings import Settings
from claudeops.store.store import open_store
from claudeops.text.redact import Redactor

_PROBE: Final = "probe"

Body = dict[str, object]


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared, and how it stands on record."""

    probes: tuple[Probe, ...]
    fault: str  # in the probes file
    kept: Mapping[str, StoredProbe]


# --- probe ------------------------------------------------------------------------------------------------


def print_probe(name: str | None, *, as_json: bool) -> int:
    """Print how all probes stand, or look once with one of them; return the exit status: 0 up, 1 not."""
    from claudeops.cli.with_settings import read_settings  # noqa: PLC0415 - `ping` does without it and is quick

    try:
        settings = read_settings()
        text, body, code = anyio.run(partial(_shown, name, settings))
    except ClaudeopsError as error:
        return print_failure(_PROBE, error, as_json=as_json, target=name)
    done = CommandResult(text=text, body=body, exit_code=code, on_stdout=name is None or "error" not in body)
    return print_result(_PROBE, done, as_json=as_json)


async def _shown(name: str | None, settings: Settings) -> tuple[str, Body, Exit]:
    known = await _known(settings)
    if name is None:
        return _table(known)
    probe = next((each for each in known.probes if each.name == name), None)
    if probe is None:
        message = f"no probe {name!r} is declared; `claudeops probe` shows those that are"
        return f"claudeops: {message}", not_found_body("probe_not_found", name, message), Exit.UNRESOLVED
    return _seen(probe, await _look(probe, settings, known.kept))


async def declared_probes(settings: Settings) -> tuple[tuple[Probe, ...], str]:
    """Return the probes that are declared, and what is wrong with their file. Raises `ConfigurationError`."""
    from claudeops import logs  # noqa: PLC0415 - as above
    from claudeops.app.wiring import estates, probe_reading  # noqa: PLC0415 - as above

    estate = await estates(settings).look(logs.get_logger())
    declared = await probe_reading(settings, lambda: estate).changed()
    if declared is None:
        raise ConfigurationError(
            f"{settings.probes.path} cannot be read: its disk does not answer.",
            kind=ErrorKind.FILESYSTEM,
            operation="read",
            target=str(settings.probes.path),
        )
    return declared.probes, declared.fault


async def _known(settings: Settings) -> _Known:
    probes, fault = await declared_probes(settings)
    return _Known(probes=probes, fault=fault, kept=await _kept(settings))


async def look_once(probe: Probe, settings: Settings) -> Observation:
    """Look with a probe, and keep nothing of it."""
    return await _look(probe, settings, await _kept(settings))


async def _kept(settings: Settings) -> Mapping[str, StoredProbe]:
    """Return how the probes stand on record; nothing where no daemon has made a database yet."""
    try:
        store = open_store(settings.places.database_url)
    except ConfigurationError:
        return {}
    try:
        return await store.probes.kept()
    finally:
        await store.close()


async def _look(probe: Probe, settings: Settings, kept: Mapping[str, StoredProbe]) -> Observation:
    if isinstance(probe.look, HeartbeatLook):
        pings = kept[probe.name].pings if probe.name in kept else Pings()
        return due(pings, every=probe.look.every, grace=probe.look.grace, now=datetime.now(UTC))
    from claudeops import logs  # noqa: PLC0415 - as above
    from claudeops.app.cell import LateLooks, choose_cell  # noqa: PLC0415 - as above
    from claudeops.app.probes import looker  # noqa: PLC0415 - as above
    from claudeops.app.start.trial import trying  # noqa: PLC0415 - as above
    from claudeops.engine.cell.look_cell import NO_LOOKS  # noqa: PLC0415 - as above

    log, cell, looks = logs.get_logger(), None, NO_LOOKS
    if isinstance(probe.look, CommandLook):
        async with trying(settings) as trial:
            cell, looks = await choose_cell(trial, log), await LateLooks(trial, log).found()
    return await looker(
        settings, clock=Clock(), log=log, redactor=Redactor(settings.secrets), cell=cell, looks=looks
    ).look(probe)


def _seen(probe: Probe, observation: Observation) -> tuple[str, Body, Exit]:
    took = "" if observation.latency_ms is None else f" · {observation.latency_ms:.0f} ms"
    text = f"{probe.name} · {kind_of(probe.look)} {target_of(probe.look)} · {observation.saw}{took}"
    body: Body = {
        **_declared(probe),
        "saw": observation.saw.value,
        "detail": observation.detail,
        "latency_ms": observation.latency_ms,
        "at": observation.at,
    }
    status = Exit.OK if observation.saw is Saw.UP else Exit.UNRESOLVED
    return f"{text}\n  {observation.detail or 'nothing more to say'}", body, status


def _table(known: _Known) -> tuple[str, Body, Exit]:
    looks = looks_of()
    columns = [Column("PROBE"), Column("STATE"), Column("SINCE"), Column("TOOK"), Column("DETAIL", shrinks=True)]
    rows = [_row(probe, known.kept.get(probe.name), looks) for probe in known.probes]
    lines = table(columns, rows, looks) or ["no probe is declared"]
    if known.fault:
        lines.append(f"The probes file is wrong: {known.fault}.")
    body: Body = {
        "probes_count": len(known.probes),
        "probes": [_document(probe, known.kept.get(probe.name)) for probe in known.probes],
        "fault": known.fault or None,
    }
    return "\n".join(lines), body, Exit.CONFIGURATION if known.fault else Exit.OK


def _row(probe: Probe, kept: StoredProbe | None, looks: Layout) -> Sequence[TableCell | str]:
    standing = kept.standing if kept is not None else Standing()
    since = "not looked yet" if standing.last_checked_at is None else looks.time(standing.since)
    took = "" if standing.latency_ms is None else f"{standing.latency_ms:.0f} ms"
    name = TableCell(f"{probe.name} ({kind_of(probe.look)})", Style.NAME)
    return (name, status_cell(standing.state.value), since, took, standing.detail)


def _document(probe: Probe, kept: StoredProbe | None) -> Body:
    standing = kept.standing if kept is not None else Standing()
    return {
        **_declared(probe),
        "state": standing.state.value,
        "since": standing.since,
        "last_checked_at": standing.last_checked_at,
        "latency_ms": standing.latency_ms,
        "detail": standing.detail,
        "explained_by": standing.explained_by or None,
        "session_id": None if kept is None else kept.session_id,
    }


def _declared(probe: Probe) -> Body:
    return {"name": probe.name, "service": probe.service, "kind": kind_of(probe.look), "origin": probe.origin}
