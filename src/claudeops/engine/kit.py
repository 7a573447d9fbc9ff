"""What all sessions of one daemon share, handed in whole by the composition root."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from claudeops.engine.bounds import Bounds
from claudeops.engine.cell import PlainCell
from claudeops.engine.gate import MOST_JUDGED
from claudeops.tasks import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from claudeops.domain.model import EscalationRules, ToolCall, Verdict
    from claudeops.domain.redact import Redactor
    from claudeops.domain.report.extraction import ReportSchema
    from claudeops.engine.cell import Cell
    from claudeops.engine.cgroups import Groups
    from claudeops.engine.control import Timeouts
    from claudeops.engine.hub import Hub
    from claudeops.engine.limits import Limits
    from claudeops.engine.meter import Meter
    from claudeops.engine.ports import Clock, Store
    from claudeops.engine.workspace import Workspace
    from claudeops.harness.protocol import CredentialKind, Harness
    from claudeops.logs import Logger


@dataclass(frozen=True, kw_only=True, slots=True)
class TierSetup:
    """A tier as the engine runs it."""

    number: int
    name: str
    template: str  # the fixed task text
    tools: tuple[str, ...]  # the tools that exist in its sessions
    judge: Callable[[ToolCall, Workspace], Verdict]
    needs_gate: bool = True  # its policy judges single calls: a harness without a gate needs the operator's word
    read_only: bool = True  # its policy lets it change nothing
    max_turns: int
    max_budget_usd: float
    action_kinds: tuple[str, ...] = ()
    passed_env: Mapping[str, str] = field(default_factory=dict)
    template_home: Path | None = None  # copied into each session's home


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAccess:
    """How sessions reach the model API. The secret goes to the CLI through a descriptor, never by environment."""

    base_url: str | None = None
    credential: CredentialKind | None = None
    secret: str | None = field(default=None, repr=False)


async def any_cli(_binary: Path) -> str | None:
    """Refuse no CLI."""
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kit:
    """The adapters, values and limits that a session is run with."""

    store: Store
    clock: Clock
    log: Logger
    redactor: Redactor
    schema: ReportSchema
    harnesses: Mapping[str, Harness]
    binaries: Mapping[str, Path]  # by harness, of those that some tier uses
    tiers: Mapping[int, TierSetup]
    rules: EscalationRules
    access: ModelAccess  # where there is no meter, or a CLI cannot be sent there
    timeouts: Timeouts
    hub: Hub
    sessions_dir: Path  # workspaces are made below it
    repos_dir: Path
    timezone: str
    path: str  # PATH of every child
    memory_budget_tokens: int
    meter: Meter | None = None
    legacy_markers: bool = True
    hang_heuristics: bool = True
    repair_turn: bool = True
    mcp_servers: Mapping[str, Mapping[str, object]] | None = field(default=None, repr=False)  # by name
    mcp_of_repos: frozenset[str] = frozenset()  # those of trusted repositories: no path that they name is shown
    cell: Cell = field(default_factory=PlainCell)  # what each session is locked into
    bounds: Bounds = field(default_factory=Bounds)  # what each session may use
    groups: Groups | None = None  # where the kernel counts what each session uses; None: it cannot be had
    session_memory_mb: int | None = None  # MiB for a session's processes together; None: not watched
    approval_key: bytes | None = field(default=None, repr=False)  # proves people's answers; None: nobody can be asked
    approval_seconds: float = 900.0  # how long people are waited for
    allow_ungated: tuple[str, ...] = ()  # harnesses without a gate that may run all the same
    cli_refusal: Callable[[Path], Awaitable[str | None]] = any_cli  # why a CLI with a gate may not be used
    judging: Threads = field(default_factory=lambda: Threads(most=MOST_JUDGED))  # of all sessions
    limits: Limits | None = None  # told what the model API refuses
    background_tasks_off: bool = False  # the operator says that no CLI leaves tasks in the background
