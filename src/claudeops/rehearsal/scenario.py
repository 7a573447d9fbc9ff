"""The marks in a scenario's texts: ``{{web.url}}`` is known when the services run, a captured ``{{pod}}`` later.

What a scenario file says: services, what is wrong with them, what the model does, and what must come of it.

The shapes are those of the TOML document, one to one; ``docs/how-to/write-a-scenario.md`` explains them.

A scenario's tiers as the script that the Messages API plays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

import msgspec

from claudeops.domain.model import DecisionReason, Level, Outcome
from claudeops.errors import ConfigurationError
from claudeops.scripted_api import script
from claudeops.scripted_api.script import (
    LAST_RESULT,
    ApiError,
    CaptureName,
    Name,
    ToolUse,
    nearest,
)

MARK: Final = re.compile(r"\{\{([a-z][a-z0-9_.-]*)\}\}")
OF_SERVICES: Final = ("url", "host", "port")
"""What can be said of a service: ``http://127.0.0.1:8123/``, ``127.0.0.1:8123``, ``8123``."""

REPOS: Final = "repos"
_OF_TEMPLATES: Final = frozenset({"end", "else"})  # of docker's and kubectl's own --format


def check_placeholders(scenario: Scenario) -> None:
    """Raise `ConfigurationError` for a mark that nothing will replace."""
    always = (REPOS, LAST_RESULT, *(f"{name}.{what}" for name in scenario.services for what in OF_SERVICES))
    for number, tier in scenario.tiers.items():
        captured: list[str] = []
        for index, step in enumerate(tier.steps):
            known = (*always, *captured)
            for mark in _placeholders(msgspec.to_builtins(step)):
                if mark not in known and mark not in _OF_TEMPLATES:
                    raise ConfigurationError(
                        f"tiers.{number}.steps[{index}]: nothing is known by the name {{{{{mark}}}}}, "
                        f"{nearest(mark, known)}"
                    )
            captured += step.capture


def fill(value: object, values: Mapping[str, str]) -> object:
    """Return a value with every mark replaced that has a value, in every string but the keys."""
    match value:
        case str():
            return MARK.sub(lambda found: values.get(found[1], found[0]), value)
        case dict():
            return {key: fill(item, values) for key, item in value.items()}
        case list() | tuple():
            return [fill(item, values) for item in value]
        case _:
            return value


def _placeholders(value: object) -> Iterator[str]:
    match value:
        case str():
            yield from MARK.findall(value)
        case dict():
            for item in value.values():
                yield from _placeholders(item)
        case list():
            for item in value:
                yield from _placeholders(item)


MOST_SERVICES: Final = 20
"""Each of them is a process."""

ServiceName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,30}$")]
TierNumber = Annotated[str, msgspec.Meta(pattern="^[1-9]$")]
Texts = tuple[str, ...]


class RunsOn(StrEnum):
    """Whose command looks after a service: the stand-in of that name really restarts it."""

    DOCKER = "docker"
    KUBERNETES = "kubernetes"
    SYSTEMD = "systemd"


class Cure(StrEnum):
    """What makes a fault go away."""

    RESTART = "restart"
    REDEPLOYMENT = "redeployment"  # the version that ran before, or the one that the repository names
    NOTHING = "nothing"  # that a session may do


class State(StrEnum):
    """What a service answers when it is asked over HTTP."""

    UP = "up"  # a status below 400
    FAILING = "failing"  # another status
    DOWN = "down"  # nothing


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A small HTTP service: a process on a loopback port that is found free."""

    runs_on: RunsOn = RunsOn.DOCKER
    answers: str = "ok"  # the body of every healthy answer
    note: str = ""  # a sentence for the manifest
    tls: bool = False  # https, with a certificate of its own
    certificate_days: Annotated[float, msgspec.Meta(gt=0, le=3650)] = 90  # for which that certificate is still valid
    disk_kib: Annotated[int, msgspec.Meta(ge=64, le=65536)] | None = None  # size of its data directory, in KiB
    log: Texts = ()  # lines that stand in its log before anything happens


class Stopped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="stopped", tag_field="kind"):
    """The process is not there; nothing answers."""

    service: ServiceName
    cured_by: Cure = Cure.RESTART
    log: Texts = ()  # its last words


class Failing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="failing", tag_field="kind"):
    """Answers come with an error status: all of them, or the first of every few (flapping)."""

    service: ServiceName
    cured_by: Cure = Cure.RESTART
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    every: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # one request in so many fails, the first one first
    log: Texts = ()  # what it logs with every such answer


class DiskFull(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="disk-full", tag_field="kind"
):
    """The data directory holds as much as it may; requests end as 507, for they cannot write."""

    service: ServiceName
    file: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")] = "upload-cache.bin"  # what fills it
    log: Texts = ()

    @property
    def cured_by(self) -> Cure:
        """What makes room again: people."""
        return Cure.NOTHING


Fault = Stopped | Failing | DiskFull


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model does in one turn; all that is said together is one message.

    A step whose conditions do not hold is passed over for good.
    """

    say: str | None = None
    run: Name | None = None  # a Bash command
    run_all: tuple[Name, ...] = ()  # several at once, as parallel calls
    read: Name | None = None  # a path for the Read tool
    tool: ToolUse | None = None  # any other tool
    report: dict[str, object] | None = None
    error: ApiError | None = None  # the API refuses the request
    hang: bool = False  # the API never answers
    when: Name | None = None  # this text stands in the results of the step before
    unless: Name | None = None  # it does not
    when_matches: Name | None = None  # a regular expression is found there
    when_seen: Name | None = None  # this text stands in some result of the session
    capture: dict[CaptureName, Name] = msgspec.field(default_factory=dict)  # regular expressions with one group each
    times: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1  # turns that go like this
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0  # before the model answers

    def __post_init__(self) -> None:
        calls = (self.run is not None) + bool(self.run_all) + (self.read is not None) + (self.tool is not None)
        if calls > 1:
            raise ValueError("say one of run, run_all, read or tool: several calls at once are run_all")


Steps = Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model of a tier does in each of its sessions."""

    steps: Steps


class ExpectedEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event that must have been written."""

    level: Level
    contains: Name
    service: str | None = None


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must have come of it, or the rehearsal has failed."""

    decision: DecisionReason  # of the last session
    tiers: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]  # of the sessions, in order
    outcome: Outcome = Outcome.SUCCESS  # of the last session
    actions: Texts = ()  # all that changed something, in order: "restart web"
    allowed: Texts = ()  # each stands in a call that the gate allowed
    denied: Texts = ()  # each stands in a call that it denied, and no other call was denied
    events: tuple[ExpectedEvent, ...] = ()
    services: dict[ServiceName, State] = msgspec.field(default_factory=dict)  # as they answer in the end


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole scenario file."""

    title: Name  # one line
    services: dict[ServiceName, Service]
    tiers: dict[TierNumber, Tier]
    expect: Expected
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.services) <= MOST_SERVICES:
            raise ValueError(f"services: name 1 to {MOST_SERVICES} of them")
        if "1" not in self.tiers:
            raise ValueError("tiers: say what tier 1 does, in [[tiers.1.steps]]")


_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def build_script(scenario: Scenario, values: Mapping[str, str] = _NOTHING, *, pace_seconds: float = 0) -> script.Script:
    """Return what the model says, tier by tier; a tier's every session goes the same way.

    ``values`` replace the marks that are known before anything runs. Each answer comes ``pace_seconds`` later than
    the scenario says, for somebody who reads along. Raises `ConfigurationError` that names the step.
    """
    tiers = {}
    for number, tier in scenario.tiers.items():
        steps = tuple(
            _step(step, values, place=f"tiers.{number}.steps[{index}]", pace_seconds=pace_seconds)
            for index, step in enumerate(tier.steps)
        )
        tiers[number] = script.Tier(steps=steps, repeat_last=True)
    return script.Script(tiers=tiers, by_number=True)


def _step(step: Step, values: Mapping[str, str], *, place: str, pace_seconds: float) -> script.Step:
    try:
        made = script.Step(
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
        raise ConfigurationError(f"{place}: {_in_own_words(str(error))}") from None
    filled = fill(msgspec.to_builtins(made), values)
    return msgspec.convert(filled, script.Step)


def _calls(step: Step) -> list[script.ToolUse]:
    commands = step.run_all if step.run is None else (step.run,)
    calls = [script.ToolUse(name="Bash", input={"command": command}) for command in commands]
    if step.read is not None:
        calls.append(script.ToolUse(name="Read", input={"file_path": step.read}))
    if step.tool is not None:
        calls.append(step.tool)
    return calls


def _when(step: Step) -> script.When | None:
    if not (step.when or step.unless or step.when_matches or step.when_seen):
        return None
    return script.When(contains=step.when, not_contains=step.unless, matches=step.when_matches, seen=step.when_seen)


def _in_own_words(complaint: str) -> str:
    """Return a complaint about a script's step with the names that a scenario's step has."""
    return complaint.replace("text, tool, tools or report", "say, run, run_all, read, tool or report").replace(
        "it needs tool or tools", "it needs run, run_all, read or tool"
    )
