"""Services: how they are, how they were, what was done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import unquote

import msgspec
from starlette.responses import Response

from claudeops.domain.cases import Case
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.listing import Listing
from claudeops.domain.probes.history import HOUR
from claudeops.store.knowledge.history import cases_about
from claudeops.store.reading import Connection, events, memories, services, uptime
from claudeops.store.reading.uptime import Bar
from claudeops.text import casefold_key
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

SHOWN: Final = timedelta(days=7)
"""The time that bars show."""

_BARS: Final = 56  # of three hours each
_MOST: Final = 20  # entries of each kind on the page of one service


class DrawnBar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of a row of bars."""

    left: int  # in hundredths of the row's width
    kind: str  # up, some, down, none
    title: str  # what a pointer on it shows


class ServiceStory(msgspec.Struct, frozen=True, kw_only=True):
    """A service: how it is, and the latest of all that is on record about it."""

    service: str  # as it was asked for
    probes: tuple[services.ProbeEntry, ...]
    bars: tuple[Bar, ...]  # what its probes saw in the last seven days, oldest first
    checks: tuple[services.CheckEntry, ...]
    actions: tuple[services.ActionEntry, ...]
    events: tuple[events.EventEntry, ...]
    memories: tuple[memories.MemoryEntry, ...]
    cases: tuple[Case, ...]  # earlier ones

    @property
    def is_known(self) -> bool:
        """Whether anything is on record about it."""
        return any((self.probes, self.checks, self.actions, self.events, self.memories))


async def service_list(site: Site, call: WebCall) -> Response:
    """Answer with the services that probes watch."""
    now, bars = await site.database.read(partial(_all, since=call.at - SHOWN))
    drawn = {service.service: drawn_bars(bars.get(service.service, ()), call.at) for service in now}
    return await site.page(call, "services.html", title="Services", values={"found": now, "bars": drawn})


async def service_page(site: Site, call: WebCall) -> Response:
    """Answer with one service. Raises `RefusedError` where nothing is on record of it."""
    found = await _story(site, call)
    values = {"found": found, "bars": drawn_bars(found.bars, call.at), "state_of": memories.state_of}
    return await site.page(call, "service.html", title=found.service, values=values)


async def service_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return single(call, await _story(site, call))


async def _story(site: Site, call: WebCall) -> ServiceStory:
    name = unquote(call.params["name"])
    read = partial(_one, name=name, since=call.at - SHOWN, now=call.at, rules=site.rules)
    found = await site.database.read(read)
    if not found.is_known:
        raise RefusedError(404, f"Nothing is on record of a service {name}.")
    return found


def drawn_bars(found: Sequence[Bar], now: datetime) -> Sequence[DrawnBar]:
    """Return the bars of `SHOWN` until now."""
    width = SHOWN / _BARS
    start = now - SHOWN
    checks, failures = [0] * _BARS, [0] * _BARS
    for bar in found:
        place = int((bar.start + HOUR / 2 - start) / width)
        if 0 <= place < _BARS:
            checks[place] += bar.checks
            failures[place] += bar.failures
    return [
        DrawnBar(left=place, kind=_kind(*counted), title=_title(start + place * width, *counted))
        for place, counted in enumerate(zip(checks, failures, strict=True))
    ]


def _kind(checks: int, failures: int) -> str:
    if not checks:
        return "none"
    if not failures:
        return "up"
    return "down" if failures == checks else "some"


def _title(start: datetime, checks: int, failures: int) -> str:
    at = f"{start:%d %b %H:%M} UTC"
    return f"{at}: {failures} of {checks} looks failed" if checks else f"{at}: no look"


def _all(connection: Connection, since: datetime) -> tuple[Sequence[uptime.ServiceNow], Mapping[str, Sequence[Bar]]]:
    return uptime.services_now(connection), uptime.bars(connection, since=since)


def _one(connection: Connection, name: str, since: datetime, now: datetime, rules: EscalationRules) -> ServiceStory:
    wanted = Listing(service=name, limit=_MOST)
    same = casefold_key(name)
    bars = uptime.bars(connection, since=since)
    return ServiceStory(
        service=name,
        probes=tuple(services.probes_of(connection, name)),
        bars=tuple(next((found for service, found in bars.items() if casefold_key(service) == same), ())),
        checks=services.checks(connection, wanted).items,
        actions=services.actions(connection, wanted).items,
        events=events.listed(connection, wanted).items,
        memories=memories.listed(connection, wanted, now=now).items,
        cases=cases_about(connection, name, rules=rules, now=now),
    )
