"""What pages are made of, and the state of everything that each of them carries."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.clock import Clock
from claudeops.domain.actions import Action
from claudeops.domain.alerts.rules import AlertSource
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.setting import Setting
from claudeops.errors import StoreError
from claudeops.store.database import Database
from claudeops.store.glance import Glance
from claudeops.store.reading.planned import schedules
from claudeops.store.reading.planned.schedules import ScheduleEntry
from claudeops.web.acts import Acting
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.rendering import Pages, PageState
from claudeops.web.password_login import PasswordLogin
from claudeops.web.ports import Logins, LogLines, PolicyInForce, ProviderLogin
from claudeops.wording.readable import count_of, length_of

LATE: Final = timedelta(minutes=15)
"""For which the oldest notice may wait, as in /readyz."""

_FRESH_SECONDS: Final = 1.0
AWAY: Final = PageState(level="bad", text="The database does not answer.")


Reach = tuple[tuple[str, ...], tuple[Action, ...]]
"""What a call reaches: other hosts on which it looks, and the actions that it is."""


class ShownFire(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires next."""

    name: str
    at: datetime | None  # None: it is switched off


@dataclass(kw_only=True)
class Site:
    """What pages are made of."""

    pages: Pages
    database: Database
    logins: Logins
    logs: LogLines
    clock: Clock
    glance: Callable[[], Awaitable[Glance]]  # raises `StoreError`
    next_fires: Callable[[], Sequence[ShownFire]]
    timezone: str  # of the budgets' day
    day_budget_usd: float
    chain_budget_usd: float
    rules: EscalationRules  # by which actions are counted
    interval_seconds: float  # between two whole rounds, where no cron says when they are
    plans: Callable[[], Sequence[SchedulePlan]] = tuple  # of the schedules
    settings: Callable[[], Sequence[Setting]] = tuple  # in effect, secrets masked
    sources: Callable[[], Sequence[AlertSource]] = tuple  # of alerts, as the operator's file declares them
    policy: PolicyInForce | None = None  # None: of several daemons, one after another
    is_replaying: bool = field(default=False, init=False)  # a policy against calls on record
    tls_hosts: frozenset[str] = frozenset()  # by which we are called over TLS
    acting: Acting | None = None  # None: pages and API can only look
    reached: dict[str, Reach] = field(default_factory=dict, init=False)  # by the hashes of calls
    passwords: PasswordLogin | None = None  # None: people log in by links alone
    provider: ProviderLogin | None = None  # None: no provider says who people are
    _seen: tuple[float, Glance] | None = field(default=None, init=False)  # at that monotonic second

    async def seen(self) -> Glance:
        """Return what the database says at a glance, at most a second old. Raises `StoreError`."""
        now = self.clock.monotonic()
        if self._seen is None or now - self._seen[0] >= _FRESH_SECONDS:
            self._seen = (now, await self.glance())
        return self._seen[1]

    async def schedules(self) -> Sequence[ScheduleEntry]:
        """Return the schedules that the daemon keeps. Raises `StoreError`."""
        next_fires = {fire.name: fire.at for fire in self.next_fires()}
        return await self.database.read(partial(schedules.listed, next_fires=next_fires, plans=self.plans()))

    def look_again(self) -> None:
        """Forget what was seen: something was done, and the page that follows shows it."""
        self._seen = None

    async def page(self, call: WebCall, template: str, *, title: str, values: Mapping[str, object]) -> Response:
        """Return a page that carries the state of everything."""
        try:
            state = state_of(await self.seen(), call.at)
        except StoreError:
            state = AWAY
        return self.page_of(call, template, title=title, state=state, values=values)

    def page_of(
        self, call: WebCall, template: str, *, title: str, state: PageState, values: Mapping[str, object]
    ) -> Response:
        """Return a page for whoever is logged in, with what he may do."""
        may = frozenset[str]() if self.acting is None or call.caller is None else call.caller.scopes
        # A form's key: sent twice, it does what it says once.
        own = {"may": may, "once": secrets.token_urlsafe(16)}
        return self.pages.page(call, template, title=title, state=state, values={**values, **own})

    def is_tls(self, call: WebCall) -> bool:
        """Return whether a browser calls over TLS: through the operator's proxy, or by a name that has TLS.

        The second is the browser's word, and says no more than which cookie it will give back.
        """
        return call.connection.is_tls or call.headers.get("host", "").lower() in self.tls_hosts


def state_of(seen: Glance, now: datetime) -> PageState:
    """Return the worst that is so now, in the words for whoever is woken by it."""
    return next(_troubles(seen, now), PageState(level="good", text="Nothing is wrong that is on record."))


def _troubles(seen: Glance, now: datetime) -> Iterator[PageState]:
    """Yield what is wrong, the worst first."""
    down, critical = seen.probes.get("down", 0), seen.open_events.get("critical", 0)
    if seen.incidents_open:
        has_owners = all(one.acked_by for one in seen.incidents) and seen.incidents_open == len(seen.incidents)
        yield PageState(level="warn" if has_owners else "bad", text=_incidents(seen, now))
    if down:
        yield PageState(level="bad", text=f"{count_of(down, 'probe')} down: {', '.join(seen.probes_down)}.")
    if seen.chats_deaf or is_late(seen, now):
        yield PageState(level="bad", text="Notices do not reach people.")
    if seen.approvals_waiting:
        yield PageState(level="warn", text=f"{count_of(seen.approvals_waiting, 'call')} for a person to answer.")
    if critical:
        yield PageState(level="bad", text=f"{count_of(critical, 'critical event')} open.")
    if seen.holds:
        yield PageState(level="warn", text="No session starts now.")
    if warnings := seen.open_events.get("warning", 0):
        yield PageState(level="warn", text=f"Nothing is down; {count_of(warnings, 'warning')} open.")


def is_late(seen: Glance, now: datetime) -> bool:
    """Return whether notices wait for longer than they may."""
    return seen.untold_since is not None and now - seen.untold_since >= LATE


def _incidents(seen: Glance, now: datetime) -> str:
    first = seen.incidents[-1]
    since = length_of(now - first.opened_at)
    if seen.incidents_open == 1:
        who = f"{first.acked_by} is on it" if first.acked_by else "no person is on it yet"
        return f"{first.service}: {first.severity} for {since}; {who}."
    names = ", ".join(dict.fromkeys(one.service for one in seen.incidents))
    return f"{count_of(seen.incidents_open, 'incident')} open: {names}."
