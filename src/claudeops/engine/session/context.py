"""What all sessions of one daemon share, handed in whole by the composition root."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from claudeops.domain.escalation import EscalationRules
from claudeops.domain.model import Session, ToolCall, Verdict
from claudeops.domain.outcome import StopCause
from claudeops.domain.redact import Redactor
from claudeops.domain.report.extraction import ReportSchema
from claudeops.domain.spending.tokens import CallState
from claudeops.engine.cell.cell import Cell, PlainCell
from claudeops.engine.cell.cgroups import Bounds, Groups
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.control import Control, Timeouts
from claudeops.engine.gate.approvals import ApprovalService
from claudeops.engine.gate.gate import MOST_JUDGED
from claudeops.engine.live.hub import Hub
from claudeops.engine.meter.account import MeterAccount
from claudeops.engine.meter.availability import Availability
from claudeops.engine.meter.meter import Meter, ModelAccess
from claudeops.engine.ports import Clock, Store
from claudeops.harness.protocol import Harness
from claudeops.logs import Logger
from claudeops.tasks import Threads

_SEARCH_TOOL: Final = "WebSearch"  # the CLI's, which has the API search


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


async def any_cli(_binary: Path) -> str | None:
    """Refuse no CLI."""
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionContext:
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
    availability: Availability | None = None  # told what the model API refuses
    background_tasks_off: bool = False  # the operator says that no CLI leaves tasks in the background


def approval_service(
    session: Session,
    context: SessionContext,
    workspace: Workspace,
    *,
    waiting: Callable[[], AbstractContextManager[None]],
    log: Logger,
) -> ApprovalService | None:
    """Return the desk of a session; ``None`` where nobody can prove to be an operator."""
    if context.approval_key is None:
        return None
    return ApprovalService(
        session=session,
        verdicts=context.store.verdicts,
        clock=context.clock,
        key=context.approval_key,
        timeout_seconds=context.approval_seconds,
        workdir=str(workspace.workdir),
        own=(str(workspace.root),),
        shown=context.redactor.text,
        waiting=waiting,
        log=log,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Metered:
    """What a session is run with, and what is left of it for the books when its process has gone."""

    context: SessionContext
    account: MeterAccount | None = None  # None: its model calls do not go through the meter

    @property
    def unbooked(self) -> tuple[CallState, ...]:
        """Return the calls whose end the database did not take; complete once the account is closed."""
        return self.account.unbooked if self.account else ()

    @property
    def refusal(self) -> str | None:
        """Return the sentence that refused a call for want of money."""
        return self.account.refusal if self.account else None


@asynccontextmanager
async def metered(
    context: SessionContext, session: Session, harness: Harness, control: Control
) -> AsyncIterator[Metered]:
    """Open a session's account for the length of the block, if there is a meter and its CLI can be sent there."""
    if context.meter is None or not harness.capabilities.metered:
        yield Metered(context=context)
        return

    def stop() -> None:
        control.stop(StopCause.BUDGET_EXCEEDED)

    searches = _SEARCH_TOOL in context.tiers[session.tier].tools
    async with context.meter.account(
        session, over_budget=stop, availability=context.availability, searches=searches
    ) as account:
        own = replace(context, access=context.meter.access_of(account), redactor=account.redactor)
        yield Metered(context=own, account=account)
