"""Maintenance windows: when a service may be unwell on purpose, so that nobody repairs what somebody works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from claudeops.domain.estate.estate import MaintenanceWindow, Service
from claudeops.domain.report.evidence import KnownServices
from claudeops.domain.schedules.windows import open_at
from claudeops.text import casefold_key, clip, parts


def held_back(
    name: str, services: Sequence[Service], *, at: datetime, timezone: str, other_names: Mapping[str, str]
) -> MaintenanceWindow | None:
    """Return the window in which the service of this name is at a moment, ``None`` where it is in none.

    ``web1/web`` is the service ``web`` of the host ``web1``; with no host in the manifest it is ``web`` anywhere.
    """
    names = KnownServices(other_names, clip)
    for service in services:
        if _is(name, service, names) and (found := open_at(service.maintenance, at, timezone)) is not None:
            return found
    return None


def _is(name: str, service: Service, names: KnownServices) -> bool:
    own = {names.of(each) for each in (service.name, *service.aliases)}
    if names.of(name) in own:
        return True
    *places, plain = parts(name)
    host = casefold_key(service.host)
    return names.of(plain) in own and bool(places) and (not host or host in map(casefold_key, places))
