"""A rehearsal: the daemon itself, on a scripted model and small services of our own. Part of the composition root.

Policy, prompts, schema and limits are the operator's. Everything that leads into the real world is replaced:
credentials, the model's address, repositories, probes and schedules, database and directories, what tiers are given
(environment, home, MCP servers), proxies, notifications.
"""

from __future__ import annotations

import math
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypedDict

import anyio
import msgspec

from claudeops.app.daemon import run_daemon
from claudeops.app.node import Node, open_node
from claudeops.domain.access.tokens import SECRET_BYTES, NewToken, ScopeKind, digest_of, scope_of, written
from claudeops.domain.alerts.rules import NO_RULES, AlertSource, Rules, SenderKind
from claudeops.domain.chains.chain_record import ChainRecord
from claudeops.domain.live import EventRaised
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import ChannelAccess, TargetKind
from claudeops.domain.notices.notice import Target
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import FAILING, StoredProbe
from claudeops.domain.schedules import Interval, Schedule
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.sessions import Session, Status
from claudeops.engine.live.hub import Hub, Subscription
from claudeops.engine.system import Shutdown
from claudeops.errors import ConfigurationError, StoreError
from claudeops.logs import Logger
from claudeops.rehearsal.chat import ROOM, TARGET, TOKEN, PlayedChat
from claudeops.rehearsal.course import Course, send_heartbeats
from claudeops.rehearsal.monitoring import SOURCE, Monitoring
from claudeops.rehearsal.scenario import Scenario, ScenarioAlerts
from claudeops.rehearsal.stage import KEY, Stage, set_up
from claudeops.rehearsal.verdict import ProbeTurn, Record, may_still_come, shortfalls
from claudeops.settings import Settings
from claudeops.settings.model import (
    AlertSettings,
    EnvironmentSettings,
    McpSettings,
    ProbeSettings,
)
from claudeops.settings.sessions import AccessSettings
from claudeops.settings.where import PlaceSettings
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.tasks import open_tasks

LONGEST_SECONDS: Final = 600.0
"""How long a rehearsal may take before it counts as failed."""

_APPROVAL_SECONDS: Final = 5.0  # nobody is there to answer: a call that needs approval is denied
_CHAT_SECONDS: Final = 60.0  # somebody is
_LOOK_SECONDS: Final = 0.1
_FIRST_LOOKS_SECONDS: Final = 60.0  # in which every probe has looked, and every heartbeat was heard once

# With probes, for what is expected and has not come: while there was no chain, and after the last one.
_ALARM_SECONDS: Final = 30.0
_RECOVERY_SECONDS: Final = 10.0
_SENDERS: Final = Rules(sources=(AlertSource(name=SOURCE, kind=SenderKind.ALERTMANAGER),))
_HARNESS: Final = "claude"
_A_MONTH: Final = 2_678_400.0  # the longest interval allowed, so that the chain at the start is the only one


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rehearsal, and what in it was not as expected."""

    record: Record
    shortfalls: Sequence[str]
    interrupted: bool  # a stop was requested before the end


class _Said(TypedDict):
    """What was said in the chat, for a record."""

    answers: Sequence[str]
    shown: Sequence[str]
    asking: bool


@asynccontextmanager
async def _silent() -> AsyncIterator[None]:
    yield


def _nobody(_node: Node) -> AbstractAsyncContextManager[None]:
    return _silent()


async def rehearse(
    settings: Settings,
    scenario: Scenario,
    root: Path,
    *,
    shutdown: Shutdown,
    log: Logger,
    pace_seconds: float = 0,
    live: Callable[[Node], AbstractAsyncContextManager[None]] = _nobody,
    hub: Hub | None = None,
) -> Rehearsed:
    """Run a scenario to its end with the daemon's own parts; files stay below ``root``, an empty directory.

    ``live`` is a context, such as a live printer, that is open while the daemon works; ``hub`` gets what is published.
    A stop request stops everything at once. When this returns or raises, nothing that it started is still running.
    Raises `RehearsalError` when the services do not start, and whatever `open_node` raises.
    """
    async with set_up(scenario, root, path=settings.environment.path, pace_seconds=pace_seconds) as stage:
        ours = rehearsal_settings(settings, stage, scheduled=scenario.scheduled)
        if scenario.alerts is not None:
            ours = replace(
                ours,
                listener=replace(ours.listener, enabled=True, port=_free_port()),
                alerts=replace(ours.alerts, rules=_SENDERS),
            )
        interrupted = False
        async with open_node(ours, log=log, hub=hub) as node, live(node), open_tasks() as tasks:
            with node.context.hub.subscribe() as facts:
                watcher = Watcher(store=node.store, facts=facts)
                course = Course(environment=stage.environment, faults=scenario.faults, until_seen=watcher.until_seen)
                tasks.start_soon(run_daemon, node, shutdown)
                async with open_tasks() as beside:
                    beside.start_soon(watcher.run)
                    beside.start_soon(partial(send_heartbeats, stage.environment, state_dir=stage.state_dir))
                    beside.start_soon(_run_course, course, watcher, scenario)
                    if scenario.alerts is not None:
                        beside.start_soon(_monitor, ours, stage, scenario.alerts, watcher)
                    if stage.chat is not None:
                        beside.start_soon(stage.chat.play)
                    with anyio.move_on_after(LONGEST_SECONDS):
                        interrupted = await _until_over(watcher, course, scenario, shutdown, stage.chat)
                    beside.cancel_scope.cancel()  # what the end of the daemon does is no part of the story
                said = _said_in(stage.chat)
            # Twice: the second request means that nothing is waited for.
            shutdown.request()
            shutdown.request()
        record = await _record(ours, stage, watcher, course, said)
    return Rehearsed(record=record, shortfalls=shortfalls(record, scenario.expect), interrupted=interrupted)


def check_rehearsable(settings: Settings) -> None:
    """Raise `ConfigurationError` for a tier whose CLI cannot talk to the scripted API."""
    for tier in settings.tiers:
        if tier.harness != _HARNESS:
            raise ConfigurationError(
                f"Tier {tier.number} runs on {tier.harness}, which cannot be rehearsed: the scripted model speaks the "
                f"Messages API only. Unset CLAUDEOPS_HARNESS and CLAUDEOPS_TIER{tier.number}_HARNESS for this command."
            )


def rehearsal_settings(settings: Settings, stage: Stage, *, scheduled: bool = True) -> Settings:
    """Return the operator's settings with the stage in place of the real world.

    A round is due at once and never again, or, if not ``scheduled``, not at all.
    """
    once = Schedule(name="rehearsal", cadence=Interval(seconds=_A_MONTH))
    inherited = settings.environment.inherited
    return replace(
        _telling_only(stage.chat, settings),
        access=AccessSettings(api_key=KEY, oauth_token=None, base_url=stage.api.url),
        schedule=replace(
            settings.schedule,
            interval_seconds=_A_MONTH,
            cron=None,
            jitter_seconds=0.0,
            path=None,
            plans=(SchedulePlan(schedule=once, enabled=scheduled, origin="the rehearsal"),),
            follow_up_seconds=0.0,
        ),
        alerts=AlertSettings(path=None, rules=NO_RULES, env={}),
        probes=ProbeSettings(path=stage.probes_path, named=True, env={}),
        tiers=tuple(replace(tier, env={"REHEARSAL": stage.commands_url}, home=None) for tier in settings.tiers),
        mcp=McpSettings(config=None, trusted_repos={}),
        environment=EnvironmentSettings(
            path=f"{stage.commands_dir}:{settings.environment.path}",
            proxies={},
            inherited={name: value for name, value in inherited.items() if not _is_proxy(name)},
        ),
        places=PlaceSettings(
            state_dir=stage.state_dir,
            results_dir=stage.results_dir,
            repos_dir=stage.repos_dir,
            database_url=f"sqlite:///{stage.state_dir / 'claudeops.db'}",
            target_database_url=None,
        ),
        # The state directory is new, so the test would run every time.
        cell=replace(settings.cell, cli_self_test=False),
        node=replace(settings.node, dispatcher="local"),
        # The operator's own daemon may listen on the port.
        listener=replace(settings.listener, enabled=False, host="127.0.0.1", public_url=None),
        upkeep=replace(settings.upkeep, heartbeat_url=None),
    )


def _telling_only(chat: PlayedChat | None, settings: Settings) -> Settings:
    """Return the settings with nobody to tell and ask but the scenario's people."""
    alone = replace(settings.notices, path=None, addresses={}, digest_cron=None)
    if chat is None:
        notices, seconds = replace(alone, targets=(), chats={}, approvers=()), _APPROVAL_SECONDS
    else:
        seconds = _CHAT_SECONDS
        access = ChannelAccess(kind=TargetKind.TELEGRAM, secrets={"token": TOKEN}, place=str(ROOM), api=chat.url)
        notices = replace(
            alone,
            targets=(Target(name=TARGET, kind=TargetKind.TELEGRAM),),
            chats={TARGET: access},
            approvers=tuple(
                Approver(name=name, ids={TargetKind.TELEGRAM: str(number)}) for name, number in chat.people.items()
            ),
        )
    return replace(settings, notices=notices, approvals=replace(settings.approvals, timeout_seconds=seconds))


# --- the course of a rehearsal ------------------------------------------------------------------------


class Watcher(msgspec.Struct, kw_only=True):
    """Follows what the daemon has on record, as a person at a second terminal could."""

    store: Store
    facts: Subscription
    turns: list[ProbeTurn] = msgspec.field(default_factory=list)
    own_events: list[EventRaised] = msgspec.field(default_factory=list)  # that no session wrote
    _kept: Mapping[str, StoredProbe] = msgspec.field(default_factory=dict)
    _looked: anyio.Event = msgspec.field(default_factory=anyio.Event)  # another one for each look

    async def run(self) -> None:
        """Follow it until cancelled."""
        while True:
            with suppress(StoreError):  # the daemon logs it; the next look may work
                self._look(await self.store.probes.kept())
            await anyio.sleep(_LOOK_SECONDS)

    async def until_seen(self, service: str, *, unwell: bool) -> None:
        """Wait until the looks of a probe agree that a service is not well, or is; whether or not that is news."""
        while unwell is not any(
            kept.service == service and kept.standing.beneath in FAILING for kept in self._kept.values()
        ):
            await self._looked.wait()

    async def until_enrolled(self) -> None:
        """Wait until the daemon knows of its probes, and with them of what depends on what."""
        while not self._kept:
            await self._looked.wait()

    async def until_known(self) -> None:
        """Wait until every probe has come to know how its service is."""
        while not self._kept or any(kept.standing.state is ProbeState.UNKNOWN for kept in self._kept.values()):
            await self._looked.wait()

    def _look(self, kept: Mapping[str, StoredProbe]) -> None:
        for name, now in kept.items():
            before = self._kept.get(name)
            if now.standing.since is not None and (before is None or before.standing.state is not now.standing.state):
                self.turns.append(ProbeTurn(probe=name, state=now.standing.state, at=now.standing.since))
        self._kept = kept
        self._looked.set()
        self._looked = anyio.Event()
        while (fact := self.facts.take()) is not None:
            if isinstance(fact, EventRaised) and fact.session_id is None:
                self.own_events.append(fact)


async def _run_course(course: Course, watcher: Watcher, scenario: Scenario) -> None:
    """Let the faults come once every probe has looked, so that each is seen to change something."""
    with anyio.move_on_after(_FIRST_LOOKS_SECONDS):
        if scenario.probes is not None:
            await watcher.until_known()
        elif scenario.alerts is not None:
            await watcher.until_enrolled()
    await course.run()


async def _monitor(settings: Settings, stage: Stage, alerts: ScenarioAlerts, watcher: Watcher) -> None:
    """Post alerts about the services, once the daemon knows what depends on what."""
    await watcher.until_enrolled()
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewToken(
        name="monitoring",
        scopes=(scope_of(ScopeKind.ALERTS, SOURCE),),
        digest=digest_of(secret),
        created_at=datetime.now(UTC),
        created_by="the rehearsal",
    )
    store = open_store(settings.places.database_url)
    try:
        made = await store.tokens.create(new)
    finally:
        await store.close()
    url = f"http://127.0.0.1:{settings.listener.port}"
    token = written(made.id, secret)
    await Monitoring(environment=stage.environment, alerts=alerts, url=url, token=token).run()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def _until_over(
    watcher: Watcher, course: Course, scenario: Scenario, shutdown: Shutdown, chat: PlayedChat | None
) -> bool:
    """Wait until every chain has ended and nothing more is to come; return whether a stop was requested before that.

    What is expected and missing then is waited for, but not for ever: a probe may yet see that a repair has helped.
    """
    calm_since = good_since = math.inf
    while not shutdown.requested.is_set():
        with suppress(StoreError):  # the daemon logs it; the next poll may work
            record = await _so_far(watcher, scenario, chat)
            sessions = record.sessions
            began = bool(sessions) or not scenario.scheduled
            calm = began and course.is_over and all(session.status is Status.ENDED for session in sessions)
            good = calm and not may_still_come(record, scenario.expect)
            now = anyio.current_time()
            calm_since = min(calm_since, now) if calm else math.inf
            good_since = min(good_since, now) if good else math.inf
            if now - good_since >= scenario.expect.quiet_seconds or now - calm_since >= _patience(scenario, record):
                return False
        with anyio.move_on_after(_LOOK_SECONDS):
            await shutdown.requested.wait()
    return True


async def _so_far(watcher: Watcher, scenario: Scenario, chat: PlayedChat | None) -> Record:
    sessions, account = await sessions_of(watcher.store)
    record = Record(
        sessions=sessions, account=account, turns=watcher.turns, own_events=watcher.own_events, **_said_in(chat)
    )
    if scenario.alerts is None:
        return record
    return replace(record, decided=await decided_of(watcher.store))


def _said_in(chat: PlayedChat | None) -> _Said:
    if chat is None:
        return _Said(answers=(), shown=(), asking=False)
    return _Said(answers=tuple(chat.answers), shown=chat.texts, asking=chat.is_asking)


def _patience(scenario: Scenario, record: Record) -> float:
    if scenario.probes is None and scenario.alerts is None:
        return 0.0 if scenario.chat is None else _RECOVERY_SECONDS
    return scenario.expect.quiet_seconds + (_RECOVERY_SECONDS if record.sessions else _ALARM_SECONDS)


async def sessions_of(store: Store) -> tuple[Sequence[Session], ChainRecord]:
    """Return the sessions of all chains, and what is on record of them; raises `StoreError`."""
    roots = dict.fromkeys(position.chain for position in await store.records.under_way(0))
    chains = [await store.records.chain(root) for root in roots]
    records = [await store.records.chain_record(root) for root in roots]
    return tuple(session for chain in chains for session in chain), ChainRecord(
        calls=tuple(call for each in records for call in each.calls),
        actions=tuple(action for each in records for action in each.actions),
        events=tuple(event for each in records for event in each.events),
    )


async def decided_of(store: Store) -> Mapping[str, int]:
    """Return how many alerts were decided how at last; raises `StoreError`."""
    known = await store.silences.alerts(datetime.min.replace(tzinfo=UTC))
    return Counter(state.decision.value for state in known if state.decision is not None)


async def _record(settings: Settings, stage: Stage, watcher: Watcher, course: Course, said: _Said) -> Record:
    store = open_store(settings.places.database_url)
    try:
        sessions, account = await sessions_of(store)
        decided = await decided_of(store)
    finally:
        await store.close()
    return Record(
        sessions=sessions,
        account=account,
        struck=course.struck,
        turns=watcher.turns,
        own_events=watcher.own_events,
        states=await stage.environment.states(),
        decided=decided,
        problems=stage.api.problems,
        **said,
    )


def _is_proxy(name: str) -> bool:
    """Tell whether a variable names a proxy: nothing of a rehearsal leaves this machine."""
    return name.lower().endswith("_proxy")
