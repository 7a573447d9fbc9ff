"""The doctor's look at the probes: which there are, which of them cannot work here, and which services have none.

Nothing is asked of any service: that is what ``claudeops probe NAME`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import anyio

from claudeops import logs
from claudeops.app.wiring import PROBES_VARIABLE, estates, probe_reading, refuse_command
from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus, failed, failed_with
from claudeops.cli.reply import ErrorKind
from claudeops.clock import Clock
from claudeops.domain.estate.estate import Estate
from claudeops.domain.probes.probe import Probe, kind_of
from claudeops.domain.probes.tier0 import Tier0
from claudeops.engine.probes.declared import DeclaredNow
from claudeops.engine.probes.preconditions import Preconditions
from claudeops.engine.probes.stream import Means
from claudeops.errors import ClaudeopsError
from claudeops.files import is_there
from claudeops.formats.probes.declaration import absent_sites, unknown_services
from claudeops.settings import Settings
from claudeops.store.reading import opened
from claudeops.store.reading.nodes import listed
from claudeops.text import join_names, one_line
from claudeops.text.redact import Redactor

_MOST_STRANGE: Final = 5  # names that are no service's, in one finding
_MOST_LINES: Final = 100  # probes that cannot work, in the text; the document has all

Stuck = tuple[Probe, str]
"""A probe that cannot work, and why."""


async def probes(_case: DoctorContext, settings: Settings) -> Finding:
    """Check what is declared: each probe, services that have none, and names that are no service's."""
    if settings.probes.named and not is_there(settings.probes.path):
        return failed_with(
            f"{PROBES_VARIABLE} leads to {settings.probes.path}, which does not exist: "
            "correct the path, or put the file there."
        )
    estate = await estates(settings).look(logs.get_logger())
    declared = await probe_reading(settings, lambda: estate).changed()
    if declared is None:
        return failed(f"{settings.probes.path} does not answer.", "Mend its disk.", kind=ErrorKind.FILESYSTEM)
    if declared.fault:
        return failed_with(f"{declared.fault}.")
    here = [each for each in declared.probes if not each.sites or settings.node.site in each.sites]
    absent = await anyio.to_thread.run_sync(_absent, settings, declared.probes)
    return _finding(settings, estate, declared, await _obstacles(settings, estate, here), absent)


def _absent(settings: Settings, declared: tuple[Probe, ...]) -> tuple[str, ...]:
    """Return what is wrong with the sites that are to look."""
    if not any(probe.sites for probe in declared):
        return ()
    running = {settings.node.site}
    try:
        with opened(settings.places.database_url) as connection:
            running.update(one.site for one in listed(connection, now=datetime.now(UTC)) if one.site)
    except ClaudeopsError:
        pass  # the check of the database reports it
    return absent_sites(declared, running)


async def _obstacles(settings: Settings, estate: Estate, declared: Iterable[Probe]) -> list[Stuck]:
    """Return what keeps probes from working here, by probe."""
    refused = refuse_command(settings, estate)
    preconditions = Preconditions(
        means=Means(clock=Clock(), environment=settings.probes.env),
        refuse_command=refused,
        redact=Redactor(settings.secrets).text,
    )
    return [(probe, found) for probe in declared if (found := await preconditions.obstacle(probe))]


def _finding(
    settings: Settings, estate: Estate, declared: DeclaredNow, stuck: list[Stuck], absent: tuple[str, ...]
) -> Finding:
    watched = {declared.dependencies.key(probe.service) for probe in declared.probes}
    bare = [name for name in estate.expected if declared.dependencies.key(name) not in watched]
    strange = unknown_services(declared.probes, estate) if estate.expected else ()
    remedies = ["Mend what is listed, or leave the probe out."] if stuck else []
    if bare or strange:
        remedies.append("Declare a probe for each service, or give it an address in its manifest.")
    wrong = [f"{len(stuck)} cannot work here: {join_names([probe.name for probe, _ in stuck])}."] if stuck else []
    if bare:
        gates = settings.ladder.tier0 == Tier0.GATE
        so = ", so CLAUDEOPS_TIER0=gate leaves out no round of the estate" if gates else ""
        wrong.append(f"Without a probe: {join_names(bare)}{so}.")
    wrong += [f"{sentence}." for sentence in strange[:_MOST_STRANGE]]
    wrong += [f"{sentence[0].upper()}{sentence[1:]}." for sentence in absent]
    if absent:
        remedies.append("Start a node of each site that probes name, or correct `sites` and `quorum`.")
    lines = [f"{one_line(probe.name)} ({one_line(probe.origin)}): {found}" for probe, found in stuck]
    more = len(lines) - _MOST_LINES
    return Finding(
        status=FindingStatus.WARNING if wrong else FindingStatus.OK,
        text=" ".join((f"{_counted(declared.probes)}.", *wrong)),
        remedy=" ".join(remedies) or None,
        lines=(*lines[:_MOST_LINES], *([f"and {more} more"] if more > 0 else [])),
        document={
            "probes": len(declared.probes),
            "without_probe": bare,
            "cannot_work": [{"probe": probe.name, "origin": probe.origin, "message": found} for probe, found in stuck],
        },
    )


def _counted(declared: tuple[Probe, ...]) -> str:
    kinds = Counter(kind_of(probe.look) for probe in declared)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{len(declared)} {'is' if len(declared) == 1 else 'are'} declared" + (f" ({listed})" if listed else "")
