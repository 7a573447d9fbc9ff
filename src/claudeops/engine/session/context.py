"""The context that all sessions of one daemon share; the composition root makes it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.estate import Estate
from claudeops.domain.sessions import Session
from claudeops.engine.cell.bubblewrap import Mount
from claudeops.engine.cell.cell import DOCKER_HOST, KUBECONFIG, Cell, PlainCell, named_in
from claudeops.engine.cell.cgroups import Bounds, Groups
from claudeops.engine.cell.look_cell import LookCell
from claudeops.engine.cell.own_network import NameLookup
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import Timeouts
from claudeops.engine.estate import Estates
from claudeops.engine.gate.answering import AnswerWaker
from claudeops.engine.gate.judging import Judging, SessionJudge, judge_in_process
from claudeops.engine.gate.view import SessionView
from claudeops.engine.library import Libraries
from claudeops.engine.live.hub import Hub
from claudeops.engine.meter.availability import Availability
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.engine.prompt_files import PromptFiles
from claudeops.engine.session.files import HANDOFF_FILE
from claudeops.errors import ErrorKind, HarnessError
from claudeops.formats.network.headers import SecretHeader
from claudeops.formats.report.extraction import ReportSchema
from claudeops.harness import ungated_refusal
from claudeops.harness.protocol import Harness, ModelAccess
from claudeops.logs import Logger
from claudeops.policy.tiers import JudgeScope, NodeScope, PolicyJudgement, TierPolicy, explain, judge
from claudeops.structs import replace
from claudeops.text.redact import Redactor

if TYPE_CHECKING:  # expensive imports: commands that run no session do without a web server, an HTTP client and SQL
    from claudeops.engine.meter.meter import Meter
    from claudeops.engine.process.leaders import Launchers
    from claudeops.store.store import Store


class Judge(Protocol):
    """Decides about tool calls: the policy, through `claudeops.policy.judge`."""

    def __call__(self, call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> Verdict:
        """Return the verdict on a call. It may access the disk, and a hostile call may keep it busy."""


class Explain(Protocol):
    """The same, with what a verdict is based on, through `claudeops.policy.tiers.explain`."""

    def __call__(self, call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> PolicyJudgement:
        """Return the judgement of a call, as above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TierSetup:
    """A tier as the engine runs it."""

    number: int
    name: str
    policy: TierPolicy
    scope: NodeScope
    judge: Judge = judge
    explain: Explain = explain
    max_turns: int
    max_budget_usd: float
    passed_env: Mapping[str, str] = field(default_factory=dict)
    read: tuple[Path, ...] = ()  # what sessions see of the machine too
    docker: Path | None = None  # the engine's socket, which sessions reach through the filter; None: there is none
    kubeconfigs: tuple[Path, ...] = ()  # whose clusters they reach through the filter; none: there is none
    headers: tuple[SecretHeader, ...] = field(default=(), repr=False)  # that the daemon adds to what sessions send
    template_home: Path | None = None  # copied into each session's home

    @property
    def shown(self) -> tuple[Path, ...]:
        """What its variables name of the machine's files and sockets, and what it may read."""
        return (*named_in(self.unfiltered_env), *self.read)

    @property
    def unfiltered_env(self) -> dict[str, str]:
        """Its variables but those that lead to what it reaches through a filter."""
        filters = {DOCKER_HOST: self.docker is not None, KUBECONFIG: bool(self.kubeconfigs)}
        return {name: value for name, value in self.passed_env.items() if not filters.get(name, False)}

    def judge_in(self, workspace: Workspace, estate: Estate, mounts: tuple[Mount, ...] | None = None) -> SessionJudge:
        """Return the judge of the calls of a session that lives in ``workspace`` and looks after ``estate``.

        ``mounts``: what it sees of the machine's files; None: all of them.
        """
        return partial(self.judge, tier=self.policy, scope=self._scope_in(workspace, estate, mounts))

    def explain_in(self, workspace: Workspace, estate: Estate) -> Callable[[ToolCall], PolicyJudgement]:
        """Return what judges as `judge_in` does and says what it is based on."""
        return partial(self.explain, tier=self.policy, scope=self._scope_in(workspace, estate))

    def _scope_in(self, workspace: Workspace, estate: Estate, mounts: tuple[Mount, ...] | None = None) -> JudgeScope:
        scope = session_scope(self.scope, workspace, estate)
        if mounts is not None:
            view = SessionView(mounts=mounts)
            scope = replace(scope, resolve=view.resolve, is_file=view.is_file, expand=view.expand)
        return scope


def session_scope(node: NodeScope, workspace: Workspace, estate: Estate) -> JudgeScope:
    """Return the scope in which the calls of a session are judged."""
    return JudgeScope(
        estate=estate,
        repos_dir=node.repos_dir,
        dry_run=node.dry_run,
        forbidden_paths=node.forbidden_paths,
        resolve=node.resolve,
        is_file=node.is_file,
        expand=node.expand,
        program=node.program,
        look_client=node.look_client,
        filters=node.filters,
        looks=node.looks,
        headers=node.headers,
        workdir=str(workspace.workdir),
        tmpdir=str(workspace.tmpdir),
        home=str(workspace.home),
        handoff=str(workspace.state_dir / HANDOFF_FILE),
    )


async def any_cli(_binary: Path) -> str | None:
    """Accept every CLI."""
    return None


async def no_probes(_now: datetime, _about: Collection[str]) -> Sequence[str]:
    """Tell of no probe: nobody watches them."""
    return ()


class Clis(msgspec.Struct, frozen=True, kw_only=True):
    """The CLIs that sessions run on."""

    harnesses: Mapping[str, Harness]
    binaries: Mapping[str, Path]  # by harness, of those that some tier uses
    allow_ungated: tuple[str, ...] = ()  # harnesses without a gate that may run all the same
    refusal: Callable[[Path], Awaitable[str | None]] = any_cli  # returns why a CLI with a gate may not be used

    def harness_of(self, session: Session) -> Harness:
        """Return the harness that a row asks for; raises `HarnessError`. The row may be older than the settings."""
        harness = self.harnesses.get(session.harness)
        if harness is None or session.harness not in self.binaries:
            raise HarnessError(f"no tier is configured to run on {session.harness}, so no such CLI was looked for")
        if refusal := ungated_refusal(harness, allowed=self.allow_ungated, tier=session.tier):
            raise HarnessError(refusal, kind=ErrorKind.POLICY)
        return harness


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """What sessions are locked into, and how much each of them may use."""

    cell: Cell = msgspec.field(default_factory=PlainCell)
    bounds: Bounds = msgspec.field(default_factory=Bounds)
    groups: Groups | None = None  # where the kernel counts what each session uses; None: not available
    session_memory_mb: int | None = None  # MiB for a session's processes together; None: not watched
    files_room_mb: int = 0  # MiB of memory that a session's files may take beside that; 0: they are on the disk
    looks: Mapping[str, LookCell] = msgspec.field(
        default_factory=dict
    )  # by program: where the daemon runs it for sessions


class CompletionRules(msgspec.Struct, frozen=True, kw_only=True):
    """How the results of a session are read."""

    schema: ReportSchema
    legacy_markers: bool = True
    hang_heuristics: bool = True
    background_tasks_off: bool = False  # the operator says that no CLI leaves tasks in the background


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalTerms:
    """How people are asked."""

    approval_key: bytes | None = field(default=None, repr=False)  # proves their answers; None: nobody can be asked
    approval_seconds: float = 900.0  # how long an answer may take
    waker: AnswerWaker = field(default_factory=AnswerWaker)  # hears of the answers that this process writes
    passkey_tiers: frozenset[int] = frozenset()  # whose calls need a yes that a passkey signs


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServers:
    """The MCP servers that sessions are told of: the operator's, and those of trusted repositories."""

    mcp_servers: Mapping[str, Mapping[str, object]] | None = field(default=None, repr=False)  # by name
    mcp_of_repos: frozenset[str] = frozenset()  # those of trusted repositories; sessions do not see paths they name


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionContext:
    """The adapters, values and limits with which sessions run."""

    store: Store
    clock: Clock
    log: Logger
    redactor: Redactor
    secrets: tuple[str, ...] = field(default=(), repr=False)  # that the redactor knows
    rules: EscalationRules  # the operator's; `current_rules` has the names of the estate too
    tiers: Mapping[int, TierSetup]
    prompts: PromptFiles  # the fixed task texts, by tier
    clis: Clis
    access: ModelAccess  # used if there is no meter, or a CLI cannot be sent there
    meter: Meter | None = None
    availability: Availability | None = None  # hears what the model API refuses
    completion: CompletionRules
    confinement: Confinement = field(default_factory=Confinement)
    approvals: ApprovalTerms = field(default_factory=ApprovalTerms)
    mcp: McpServers = field(default_factory=McpServers)
    timeouts: Timeouts
    hub: Hub
    counts: Counting = UNCOUNTED
    node: str = ""  # the machine's name
    sessions_dir: Path  # workspaces are made below it
    repos_dir: Path
    timezone: str
    path: str  # PATH of every child
    memory_budget_tokens: int
    repair_turn: bool = True
    names: NameLookup = field(default_factory=NameLookup)  # of the hosts that sessions may reach
    estates: Estates = field(default_factory=Estates)
    libraries: Libraries = field(default_factory=Libraries)
    probes: Callable[[datetime, Collection[str]], Awaitable[Sequence[str]]] = no_probes  # some services come first
    judging: Callable[[SessionJudge], AbstractAsyncContextManager[Judging]] = judge_in_process
    launchers: Launchers | None = None  # None: the next tier's is started with its session

    def current_rules(self) -> EscalationRules:
        """Return the rules with the names of the estate as it was last read."""
        return self.rules.within(self.estates.latest)

    def workspaces(self) -> Path:
        """Return the directory below which workspaces are made."""
        return self.confinement.cell.workspaces(self.sessions_dir)
