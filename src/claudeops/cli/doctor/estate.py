"""The check of the estate: what the repositories' manifests say, as the daemon understands it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio.to_thread

from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus, skipped
from claudeops.domain.estate.estate import Estate, MaintenanceWindow, Manifest, Prohibition, Service
from claudeops.engine.estate import read_estate
from claudeops.formats.estate.rules import EVERY_SERVICE
from claudeops.settings import Settings
from claudeops.text import one_line

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_REMEDY: Final = (
    "Mend what is listed, in its repository; docs/how-to/describe-your-estate.md shows how each is written."
)


async def estate(_case: DoctorContext, settings: Settings) -> Finding:
    """Read the manifests, and tell what was understood and what could not be used."""
    try:
        found = await anyio.to_thread.run_sync(read_estate, settings.places.repos_dir)
    except OSError:
        return skipped("Not read: there are no repositories.")
    faults = len(found.faults)
    says = _summary(found)
    return Finding(
        status=FindingStatus.WARNING if faults else FindingStatus.OK,
        text=f"{says} {_count(faults, 'thing')} could not be used." if faults else says,
        remedy=_REMEDY if faults else None,
        lines=tuple(map(_printable, _lines(found))),
        document=_document(found),
    )


def _summary(found: Estate) -> str:
    services = len(tuple(found.services))
    if not found.manifests:
        return "No repository has a manifest, so sessions find out by themselves what there is."
    return (
        f"{_count(services, 'service')} in {_count(len(found.manifests), 'repository')}, on or at "
        f"{_count(len(found.hosts), 'host')}; {_count(len(found.prohibitions), 'rule')} that the gate enforces."
    )


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


# --- lines ---------------------------------------------------------------------------------------------


def _lines(found: Estate) -> Iterator[str]:
    for manifest in found.manifests:
        yield f"{manifest.repository}{f' ({manifest.kind})' if manifest.kind else ''}:"
        yield from (f"  {_service(service)}" for service in manifest.services)
        if not manifest.services:
            yield "  no service is described"
        yield from (f"  forbidden: {_forbidden(rule)}" for rule in manifest.prohibitions)
        yield from (f"  not used: {one_line(str(column))}" for column in manifest.unused)
    yield from (f"! {one_line(str(fault))}" for fault in found.faults)


def _printable(line: str) -> str:
    """Return a line that leaves the terminal alone, whatever a repository or its directory is called."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def _service(service: Service) -> str:
    facts = {
        "on": service.host,
        "at": service.address,
        "also called": ", ".join(service.aliases),
        "needs": ", ".join(service.dependencies),
        "away": ", ".join(window_text(window) for window in service.maintenance),
    }
    told = "; ".join(f"{what} {fact}" for what, fact in facts.items() if fact)
    return one_line(f"{service.name}: {told}" if told else service.name)


def _forbidden(rule: Prohibition) -> str:
    place = f"{rule.source.path}:{rule.source.line}"
    return one_line(f"every action on {_services(rule)} ({place}: {rule.text})")


def _services(rule: Prohibition) -> str:
    return "every service of this repository" if EVERY_SERVICE in rule.services else ", ".join(rule.services)


def window_text(window: MaintenanceWindow) -> str:
    """Return a window in one form, however it was written: ``Sun 03:00-05:00``."""
    days = "daily" if len(window.days) == len(_DAYS) else ",".join(_DAYS[day] for day in sorted(window.days))
    return f"{days} {window.start:%H:%M}-{window.end:%H:%M}"


# --- the document -------------------------------------------------------------------------------------


def _document(found: Estate) -> dict[str, object]:
    return {
        "repositories": [_manifest(manifest) for manifest in found.manifests],
        "other_names": dict(found.other_names),
        "hosts": list(found.hosts),
        "faults": [
            {"path": fault.source.path, "line": fault.source.line, "message": fault.sentence} for fault in found.faults
        ],
    }


def _manifest(manifest: Manifest) -> dict[str, object]:
    return {
        "repository": manifest.repository,
        "kind": manifest.kind,
        "services": [_fields(service) for service in manifest.services],
        "rules": list(manifest.rules),
        "forbidden": [
            {
                "services": list(rule.services),
                "kinds": [],  # every kind of action
                "rule": rule.text,
                "path": rule.source.path,
                "line": rule.source.line,
            }
            for rule in manifest.prohibitions
        ],
        "capabilities": list(manifest.capabilities),
        "unused": [
            {"path": column.source.path, "line": column.source.line, "message": column.sentence}
            for column in manifest.unused
        ],
    }


def _fields(service: Service) -> dict[str, object]:
    return {
        "name": service.name,
        "aliases": list(service.aliases),
        "kind": service.kind,
        "host": service.host,
        "address": service.address,
        "check": service.check,
        "healthy": service.healthy,
        "depends_on": list(service.dependencies),
        "restart": service.restart,
        "maintenance": [window_text(window) for window in service.maintenance],
        "path": service.source.path,
        "line": service.source.line,
    }
