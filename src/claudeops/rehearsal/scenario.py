"""What a scenario file says: services, what is wrong with them, what the model does, and what must come of it.

The shapes are those of the TOML document, one to one; ``docs/how-to/write-a-scenario.md`` explains them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from claudeops.domain.model import DecisionReason, Level, Outcome
from claudeops.rehearsal.script import ApiError, CaptureName, Name, ToolUse  # noqa: TC001 - msgspec reads annotations

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
