"""What was understood of a manifest, as plain values that a file beside it can hold."""

from __future__ import annotations

import msgspec

from claudeops.domain.estate.estate import Estate, MaintenanceWindow, Service
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.manifest import parse_manifest

PATH = "r/CLAUDE-OPS.md"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def estate_of(*texts: str) -> Estate:
    """Return the estate of manifests; the first one's repository is called ``r``, the next one's ``r2``."""
    names = ["r", *(f"r{number}" for number in range(2, len(texts) + 1))]
    return combine([parse_manifest(text, repository=name) for name, text in zip(names, texts, strict=True)])


def understood(text: str) -> dict[str, object]:
    """Return everything that was understood of one manifest, empty parts left out."""
    estate = estate_of(text)
    (manifest,) = estate.manifests
    found: dict[str, object] = {
        "kind": manifest.kind,
        "services": {service.name: facts(service) for service in manifest.services},
        "hosts": list(estate.hosts),
        "other_names": dict(estate.other_names),
        "rules": list(manifest.rules),
        "forbidden": [{"line": rule.source.line, "services": list(rule.services)} for rule in manifest.prohibitions],
        "capabilities": list(manifest.capabilities),
        "faults": [str(fault) for fault in manifest.faults],
        "unused": [str(fault) for fault in manifest.unused],
    }
    return {key: value for key, value in found.items() if value}


def facts(service: Service) -> dict[str, object]:
    """Return what is known of a service, apart from its name."""
    known: dict[str, object] = {
        key: value for key, value in msgspec.structs.asdict(service).items() if key not in {"name", "source"}
    }
    known["aliases"], known["dependencies"] = list(service.aliases), list(service.dependencies)
    known["maintenance"] = [written(window) for window in service.maintenance]
    return {"line": service.source.line} | {key: value for key, value in known.items() if value}


def written(window: MaintenanceWindow) -> str:
    """Return a window in one form."""
    days = ",".join(DAYS[day] for day in sorted(window.days))
    return f"{days} {window.start:%H:%M}-{window.end:%H:%M}"
