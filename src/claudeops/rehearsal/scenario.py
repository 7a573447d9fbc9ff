"""A scenario: services, their faults, what the model does, and what must come of it; and the script that it becomes.

The classes match the TOML document one to one; ``docs/how-to/write-a-scenario.md`` explains it. Texts may hold
placeholders: ``{{web.url}}`` is known once the services run, a captured ``{{pod}}`` later in the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from claudeops.domain.events import EventLevel
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.sessions import DecisionReason, Outcome, Trigger
from claudeops.errors import ConfigurationError
from claudeops.scripted_api import script
from claudeops.scripted_api.responses import PLACEHOLDER, fill
from claudeops.scripted_api.script import (
    LAST_RESULT,
    CaptureName,
    Name,
    ScriptedError,
    ScriptedToolUse,
)
from claudeops.text.toml_file import nearest

REPOS: Final = "repos"
OF_SERVICES: Final = ("url", "host", "port")
"""Placeholders of a service: ``http://127.0.0.1:8123/``, ``127.0.0.1:8123``, ``8123``."""

MOST_SERVICES: Final = 20
"""Each service is a process."""

ServiceName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,30}$")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=300)]
TierNumber = Annotated[str, msgspec.Meta(pattern="^[1-9]$")]
Texts = tuple[str, ...]
_OF_TEMPLATES: Final = frozenset({"end", "else"})  # of docker's and kubectl's own --format

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


# --- the scenario file -------------------------------------------------------------------------------


class RunsOn(StrEnum):
    """What a service runs on: the stand-in for its command really restarts the service."""

    DOCKER = "docker"
    KUBERNETES = "kubernetes"
    SYSTEMD = "systemd"


class Cure(StrEnum):
    """What cures a fault."""

    RESTART = "restart"
    REDEPLOYMENT = "redeployment"  # the version that ran before, or the one that the repository names
    NOTHING = "nothing"  # no action of a session


class ServiceState(StrEnum):
    """How a service answers an HTTP request."""

    UP = "up"  # a status below 400
    FAILING = "failing"  # another status
    DOWN = "down"  # no answer


class ScenarioService(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small HTTP service: a process on a free loopback port."""

    runs_on: RunsOn = RunsOn.DOCKER
    answers: str = "ok"  # the body of every healthy answer
    note: str = ""  # a sentence for the manifest
    tls: bool = False  # https, with a certificate of its own
    certificate_days: Annotated[float, msgspec.Meta(gt=0, le=3650)] = 90  # until that certificate expires
    disk_kib: Annotated[int, msgspec.Meta(ge=64, le=65536)] | None = None  # size of its data directory, in KiB
    log: Texts = ()  # lines in its log before anything happens
    needs: tuple[ServiceName, ...] = ()  # services without which it answers 503
    pings: Name | None = None  # the heartbeat that it sends for as long as it runs
    pings_every_seconds: Annotated[float, msgspec.Meta(ge=0.5, le=300)] = 1.5


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every fault has in common."""

    service: ServiceName
    # Seconds until it begins, from when every probe has looked; None: it is there before anybody looks.
    after_seconds: Seconds | None = None
    lasts_seconds: Seconds | None = None  # so long after a probe has noticed it, it goes away; None: it stays
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # it comes; each time after a probe has seen that it went


class Stopped(_Fault, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stopped", tag_field="kind"):
    """The process does not run; nothing answers."""

    cured_by: Cure = Cure.RESTART
    log: Texts = ()  # the last lines of its log


class Failing(_Fault, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="failing", tag_field="kind"):
    """Answers have an error status: all of them, or the first of every few."""

    cured_by: Cure = Cure.RESTART
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    every: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # one request in so many fails, beginning with the first
    log: Texts = ()  # what it logs with every such answer


class Silent(_Fault, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="silent", tag_field="kind"):
    """It runs and answers as ever, but sends its heartbeat no more."""

    cured_by: Cure = Cure.RESTART
    log: Texts = ()  # what it logs when that begins


class ExpiredCertificate(
    _Fault, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="expired", tag_field="kind"
):
    """It shows a certificate that expired yesterday."""

    cured_by: Cure = Cure.RESTART
    log: Texts = ()  # what it logs when that begins


class DiskFull(_Fault, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="disk-full", tag_field="kind"):
    """The data directory is full; requests end with status 507, because they cannot write."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")] = "upload-cache.bin"  # what fills it
    log: Texts = ()

    @property
    def cured_by(self) -> Cure:
        """Nothing that a session may do: people must make room."""
        return Cure.NOTHING


Fault = Stopped | Failing | DiskFull | Silent | ExpiredCertificate


class ScenarioProbes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a probes file says, with placeholders."""

    defaults: dict[str, object] = msgspec.field(default_factory=dict)
    probe: tuple[dict[str, object], ...] = ()


class ScenarioAlerts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A monitoring system that asks every service how it is, and posts alerts about those that do not answer well."""

    each_service: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # alerts about it
    severity: EventLevel = EventLevel.CRITICAL


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model does in one turn: everything in a step is one message.

    A step whose conditions do not hold is skipped for good.
    """

    say: str | None = None
    run: Name | None = None  # a Bash command
    run_all: tuple[Name, ...] = ()  # several Bash commands, as parallel calls
    read: Name | None = None  # a path for the Read tool
    tool: ScriptedToolUse | None = None  # any other tool
    report: dict[str, object] | None = None
    error: ScriptedError | None = None  # the API refuses the request
    hang: bool = False  # the API never answers
    when: Name | None = None  # the results of the step before contain this text
    unless: Name | None = None  # they do not contain this text
    when_matches: Name | None = None  # this regular expression matches in them
    when_seen: Name | None = None  # some result of the session contains this text
    capture: dict[CaptureName, Name] = msgspec.field(default_factory=dict)  # regular expressions with one group each
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # number of turns like this
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0  # before the model answers

    def __post_init__(self) -> None:
        calls = (self.run is not None) + bool(self.run_all) + (self.read is not None) + (self.tool is not None)
        if calls > 1:
            raise ValueError("say one of run, run_all, read or tool: several calls at once are run_all")


Steps = Annotated[tuple[ScenarioStep, ...], msgspec.Meta(min_length=1)]


class ScenarioTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model of a tier does in each of its sessions."""

    steps: Steps


class Button(StrEnum):
    """What is written on the buttons of a question."""

    YES = "Yes"
    NO = "No"


class ScenarioTap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody taps a button of the first message that asks."""

    by: Name  # a name among the approvers, or a stranger's
    button: Button = Button.YES


class Chat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat in which people are asked; they tap in this order, each after the one before was answered."""

    approvers: Annotated[tuple[ServiceName, ...], msgspec.Meta(min_length=1, max_length=20)]
    taps: tuple[ScenarioTap, ...] = ()


class ExpectedChat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must have been said in the chat."""

    answers: Texts = ()  # what whoever tapped was told, in order, each after a name: all of them, each by its beginning
    shows: Texts = ()  # each is part of what a message shows at the end, when none has buttons any more


class ExpectedEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that must have been written."""

    level: EventLevel
    contains: Name
    service: str | None = None


class Within(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most seconds from the beginning of the first fault that comes while the daemon runs."""

    noticed: Seconds | None = None  # by a probe
    session_started: Seconds | None = None  # the first one
    repaired: Seconds | None = None  # no probe sees anything unwell any more


class ExpectedOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must come of the rehearsal, or it has failed."""

    tiers: tuple[int, ...]  # of all sessions, in order; none: no chain is started
    decision: DecisionReason | None = None  # of the last session
    outcome: Outcome = Outcome.SUCCESS  # of the last session
    trigger: Trigger | None = None  # of the first session
    actions: Texts = ()  # all calls that changed something, in order: "restart web"
    allowed: Texts = ()  # each is part of a call that the gate allowed
    denied: Texts = ()  # each is part of a call that the gate denied, and no other call was denied
    events: tuple[ExpectedEvent, ...] = ()
    services: dict[ServiceName, ServiceState] = msgspec.field(default_factory=dict)  # how they answer at the end
    probes: dict[Name, ProbeState] = msgspec.field(default_factory=dict)  # how they stand at the end
    decided: int | None = None  # alerts that have a decision
    within_seconds: Within = msgspec.field(default_factory=Within)
    chat: ExpectedChat = msgspec.field(default_factory=ExpectedChat)
    quiet_seconds: Seconds = 0  # for so long everything must stay as expected before the rehearsal ends

    def __post_init__(self) -> None:
        if bool(self.tiers) is (self.decision is None):
            raise ValueError("a decision comes with sessions: give both, or no decision and tiers = []")


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    title: Name  # one line
    services: dict[ServiceName, ScenarioService]
    expect: ExpectedOutcome
    tiers: dict[TierNumber, ScenarioTier] = msgspec.field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    chat: Chat | None = None  # None: nobody is there to be asked
    probes: ScenarioProbes | None = None  # None: nothing but the sessions looks at the services
    alerts: ScenarioAlerts | None = None  # None: nobody posts any
    scheduled: bool = True  # a round is due as soon as the daemon runs

    def __post_init__(self) -> None:
        if not 1 <= len(self.services) <= MOST_SERVICES:
            raise ValueError(f"services: name 1 to {MOST_SERVICES} of them")
        if "1" not in self.tiers and (self.scheduled or self.expect.tiers):
            raise ValueError("tiers: say what tier 1 does, in [[tiers.1.steps]]")


# --- placeholders ------------------------------------------------------------------------------------


def check_placeholders(scenario: Scenario) -> None:
    """Raise `ConfigurationError` for a placeholder that nothing will replace."""
    of_services = tuple(f"{service}.{what}" for service in scenario.services for what in OF_SERVICES)
    for index, probe in enumerate(() if scenario.probes is None else scenario.probes.probe):
        _check_known(probe, of_services, f"probes.probe[{index}]")
    always = (REPOS, LAST_RESULT, *of_services)
    for number, tier in scenario.tiers.items():
        captured: list[str] = []
        for index, step in enumerate(tier.steps):
            _check_known(msgspec.to_builtins(step), (*always, *captured), f"tiers.{number}.steps[{index}]")
            captured += step.capture


def _check_known(value: object, known: tuple[str, ...], place: str) -> None:
    for name in _placeholders(value):
        if name not in known and name not in _OF_TEMPLATES:
            raise ConfigurationError(f"{place}: the placeholder {{{{{name}}}}} is unknown, {nearest(name, known)}")


def _placeholders(value: object) -> Iterator[str]:
    match value:
        case str():
            yield from PLACEHOLDER.findall(value)
        case dict():
            for item in value.values():
                yield from _placeholders(item)
        case list():
            for item in value:
                yield from _placeholders(item)


# --- the script --------------------------------------------------------------------------------------


def build_script(scenario: Scenario, values: Mapping[str, str] = _NOTHING, *, pace_seconds: float = 0) -> script.Script:
    """Return the script of the scenario, tier by tier; every session of a tier follows the same steps.

    ``values`` replace the placeholders that are known before anything runs. Each answer comes ``pace_seconds`` later
    than the scenario says, so that somebody can read along. Raises `ConfigurationError`, which names the step.
    """
    tiers = {}
    for number, tier in scenario.tiers.items():
        steps = tuple(
            _step(step, values, place=f"tiers.{number}.steps[{index}]", pace_seconds=pace_seconds)
            for index, step in enumerate(tier.steps)
        )
        tiers[number] = script.ScriptTier(steps=steps, repeat_last=True)
    if not tiers:  # then no session is expected, and one that comes all the same finds the script's end
        tiers["1"] = script.ScriptTier(steps=(script.ScriptStep(text="Nobody expected me."),), repeat_last=True)
    return script.Script(tiers=tiers, by_number=True)


def _step(step: ScenarioStep, values: Mapping[str, str], *, place: str, pace_seconds: float) -> script.ScriptStep:
    try:
        made = script.ScriptStep(
            text=step.say,
            tools=tuple(_calls(step)),
            report=step.report,
            error=step.error,
            hang=step.hang,
            when=_when(step),
            capture=step.capture,
            times=step.times,
            delay_seconds=step.delay_seconds + pace_seconds,
        )
    except ValueError as error:
        raise ConfigurationError(f"{place}: {_in_scenario_words(str(error))}") from None
    filled = fill(msgspec.to_builtins(made), values)
    return msgspec.convert(filled, script.ScriptStep)


def _calls(step: ScenarioStep) -> list[script.ScriptedToolUse]:
    commands = step.run_all if step.run is None else (step.run,)
    calls = [script.ScriptedToolUse(name="Bash", input={"command": command}) for command in commands]
    if step.read is not None:
        calls.append(script.ScriptedToolUse(name="Read", input={"file_path": step.read}))
    if step.tool is not None:
        calls.append(step.tool)
    return calls


def _when(step: ScenarioStep) -> script.When | None:
    if not (step.when or step.unless or step.when_matches or step.when_seen):
        return None
    return script.When(contains=step.when, not_contains=step.unless, matches=step.when_matches, seen=step.when_seen)


def _in_scenario_words(message: str) -> str:
    """Return a message about a script's step in the words of a scenario's step."""
    return message.replace("text, tool, tools or report", "say, run, run_all, read, tool or report").replace(
        "it needs tool or tools", "it needs run, run_all, read or tool"
    )
