"""The wiring: from the operator's settings to the values that the engine works with. Part of the composition root."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from claudeops.app.limits import policy_of_tier, tier_policies
from claudeops.app.start.checks import binaries, check_prompt, forbidden_paths
from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.estate.estate import NO_ESTATE, Estate, ProbedPlaces
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.schedules import Cadence, Cron, Interval, Schedule
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.sessions import NewSession, Trigger
from claudeops.engine.cell.cgroups import Bounds
from claudeops.engine.control import Timeouts
from claudeops.engine.estate import EstateReader, Estates, read_estate
from claudeops.engine.gate.view import SessionView
from claudeops.engine.library import Libraries
from claudeops.engine.live.hub import Hub
from claudeops.engine.meter.availability import Availability
from claudeops.engine.ports import UNCOUNTED, Counting
from claudeops.engine.probes.declared import DeclaredReader, read_file
from claudeops.engine.probes.hosts import ProbedHosts
from claudeops.engine.prompt_files import PromptFiles, Template
from claudeops.engine.session.context import (
    ApprovalTerms,
    Clis,
    CompletionRules,
    Confinement,
    McpServers,
    SessionContext,
    TierSetup,
)
from claudeops.errors import ConfigurationError, ErrorKind, MissingInputError
from claudeops.files import is_there
from claudeops.formats.network.headers import of_tier
from claudeops.formats.report.extraction import ReportSchema
from claudeops.harness import HARNESSES
from claudeops.harness.protocol import CredentialKind, ModelAccess
from claudeops.logs import Logger
from claudeops.policy.tiers import JudgeScope, NodeScope, TierPolicy, judge
from claudeops.settings import Settings, TierSettings
from claudeops.settings.files import library_dir, read_prompt
from claudeops.text.redact import Redactor

if TYPE_CHECKING:  # SQL: commands that only read the wiring do without
    from claudeops.store.store import Store

SCHEDULE: Final = "default"
SESSIONS: Final = "sessions"
"""The name of the directory below the state directory in which running sessions have their workspaces."""

PROBES_VARIABLE: Final = "CLAUDEOPS_PROBES_PATH"
_NOWHERE: Final = "/nonexistent"
_NO_KEY: Final = "no-key-needed"
"""The key for an endpoint for which the operator gave no credentials; the CLI refuses to start without one."""


def build_context(
    settings: Settings,
    *,
    store: Store,
    rules: EscalationRules,
    clock: Clock,
    hub: Hub,
    log: Logger,
    counts: Counting = UNCOUNTED,
) -> SessionContext:
    """Return the context that all sessions of this node share."""
    return SessionContext(
        store=store,
        clock=clock,
        log=log,
        redactor=Redactor(settings.secrets),
        rules=rules,
        tiers=tier_setups(settings),
        prompts=prompt_files(settings, log),
        clis=Clis(harnesses=HARNESSES, binaries=binaries(settings), allow_ungated=settings.sessions.allow_ungated),
        access=model_access(settings),
        availability=Availability(holds=store.holds, clock=clock, log=log),
        completion=CompletionRules(
            schema=ReportSchema.load(settings.report.schema_text),
            legacy_markers=settings.completion.legacy_markers,
            hang_heuristics=settings.completion.hang_heuristics,
            background_tasks_off=settings.completion.background_tasks_off,
        ),
        confinement=Confinement(bounds=bounds(settings), session_memory_mb=settings.bounds.memory_mb),
        approvals=ApprovalTerms(
            approval_seconds=settings.approvals.timeout_seconds, passkey_tiers=settings.approvals.passkey_tiers
        ),
        mcp=McpServers(mcp_servers=_mcp_servers(settings), mcp_of_repos=frozenset(settings.mcp.trusted_repos)),
        timeouts=Timeouts(
            session=settings.timeouts.session_seconds,
            startup=settings.timeouts.startup_seconds,
            silence=settings.timeouts.silence_seconds,
            result_grace=settings.timeouts.result_grace_seconds,
            stop_grace=settings.timeouts.stop_grace_seconds,
        ),
        hub=hub,
        counts=counts,
        libraries=Libraries(library_dir(), settings.places.repos_dir, node=settings.node.name),
        estates=estates(settings),
        node=settings.node.name,
        sessions_dir=settings.places.state_dir / SESSIONS,
        repos_dir=settings.places.repos_dir,
        timezone=settings.schedule.timezone,
        path=settings.environment.path,
        memory_budget_tokens=settings.upkeep.memory_budget_tokens,
        repair_turn=settings.completion.repair_turn,
    )


def model_access(settings: Settings) -> ModelAccess:
    """Return how sessions reach the model API."""
    if settings.access.oauth_token is not None:
        return ModelAccess(
            base_url=settings.access.base_url, credential=CredentialKind.OAUTH_TOKEN, secret=settings.access.oauth_token
        )
    key = settings.access.api_key or _NO_KEY
    return ModelAccess(base_url=settings.access.base_url, credential=CredentialKind.API_KEY, secret=key)


def bounds(settings: Settings) -> Bounds:
    """Return what each session may use, apart from memory."""
    return Bounds(processes=settings.bounds.processes, file_mb=settings.bounds.file_mb, disk_mb=settings.bounds.disk_mb)


def tier_setups(settings: Settings) -> dict[int, TierSetup]:
    """Return each tier as the engine runs it."""
    return {tier.number: _tier_setup(tier, settings) for tier in settings.tiers}


def node_scope(settings: Settings, *, dry_run: bool) -> NodeScope:
    """Return the facts about this node by which calls are judged."""
    view = SessionView()
    return NodeScope(
        repos_dir=str(settings.places.repos_dir),
        dry_run=dry_run,
        forbidden_paths=forbidden_paths(settings),
        resolve=view.resolve,
        is_file=view.is_file,
        expand=view.expand,
        program=partial(shutil.which, path=settings.environment.path),
    )


def root_session(
    settings: Settings, tier: int, trigger: Trigger, prompt_text: str | None = None, *, by: str | None = None
) -> NewSession:
    """Return the first session of a chain that begins at ``tier``, as the queue takes it.

    ``by`` is the person at whose wish it is. The store refuses a tier above the highest, with an event, so the model of
    such a tier does not matter.
    """
    chosen = next(((known.model, known.harness) for known in settings.tiers if known.number == tier), None)
    model, harness = chosen or ("", settings.sessions.harness)
    return NewSession(tier=tier, trigger=trigger, model=model, harness=harness, prompt_text=prompt_text, started_by=by)


def schedule(settings: Settings) -> Schedule:
    """Return the one schedule that the environment describes."""
    cadence: Cadence = (
        Interval(seconds=settings.schedule.interval_seconds)
        if settings.schedule.cron is None
        else Cron(expr=settings.schedule.cron, timezone=settings.schedule.timezone)
    )
    return Schedule(
        name=SCHEDULE,
        cadence=cadence,
        jitter_seconds=settings.schedule.jitter_seconds,
        site=settings.node.jitter_site,
    )


def plans(settings: Settings) -> tuple[SchedulePlan, ...]:
    """Return the schedules of the operator's file; without one the one that the environment describes."""
    only = SchedulePlan(schedule=schedule(settings), timezone=settings.schedule.timezone, origin="the environment")
    return settings.schedule.plans or (only,)


def estates(settings: Settings) -> Estates:
    """Return what reads the manifests, and the hosts of the operator's probes."""
    return Estates(settings.places.repos_dir, read=EstateReader().read, probed=_probed_hosts(settings).read)


def estate_now(settings: Settings) -> Estate:
    """Return the estate as a daemon would read it now; blocks. Raises `OSError` where there are no repositories."""
    return read_estate(settings.places.repos_dir).with_probes(probed_hosts(settings))


def probed_hosts(settings: Settings) -> ProbedPlaces:
    """Return the hosts of the operator's probes with their ports, none where their file cannot be used; blocks."""
    try:
        return _probed_hosts(settings).read()
    except OSError:
        return ProbedPlaces()


def probe_reading(settings: Settings, estate: Callable[[], Estate]) -> DeclaredReader:
    """Return what reads the declared probes, and notices their changes."""
    return DeclaredReader(file=settings.probes.path, estate=estate, refuse_command=refuse_command(settings))


def prompt_files(settings: Settings, log: Logger) -> PromptFiles:
    """Return the tiers' prompts, each read anew from the file that it was found in at the start."""
    tiers = {tier.number: tier for tier in settings.tiers}

    def read(number: int) -> str:
        text = read_prompt(number, tiers[number].prompt_path)
        check_prompt(tiers[number], text)
        return text

    first = {number: Template.of(tier.prompt_text, str(tier.prompt_path)) for number, tier in tiers.items()}
    return PromptFiles(first, read=read, log=log, node=settings.node.name)


def check_probes(settings: Settings) -> None:
    """Raise `ConfigurationError` for a probes file that cannot be used, or was named and is not there; blocks."""
    path = settings.probes.path
    if not is_there(path):
        if settings.probes.named:
            raise MissingInputError(
                f"{PROBES_VARIABLE} leads to {path}, which does not exist: correct the path, or put the file there."
            )
        return
    try:
        read_file(path, refuse_command=refuse_command(settings))
    except ConfigurationError as fault:
        origin = PROBES_VARIABLE if settings.probes.named else f"The default of {PROBES_VARIABLE}"
        raise ConfigurationError(
            f"{origin}: {fault}.", kind=ErrorKind.PARSE, operation="read", target=str(path)
        ) from None


def refuse_command(settings: Settings, estate: Estate | None = None) -> Callable[[str], str | None]:
    """Return what says why a command of a probe would not be run.

    Without the estate only what no estate could change is refused.
    """
    policy = tier_policies(settings)[min(tier.number for tier in settings.tiers)]
    return partial(_command_refusal, policy=policy, node=node_scope(settings, dry_run=False), estate=estate)


def _probed_hosts(settings: Settings) -> ProbedHosts:
    return ProbedHosts(file=settings.probes.path, refuse_command=refuse_command(settings))


def _mcp_servers(settings: Settings) -> Mapping[str, Mapping[str, object]] | None:
    """Return the MCP servers of the operator and of trusted repositories; their names were checked not to clash."""
    if settings.mcp.config is None and not settings.mcp.trusted_repos:
        return None
    return {**(settings.mcp.config or {}), **settings.mcp.trusted_repos}


def _tier_setup(tier: TierSettings, settings: Settings) -> TierSetup:
    return TierSetup(
        number=tier.number,
        name=tier.name,
        policy=policy_of_tier(tier, settings),
        scope=node_scope(settings, dry_run=settings.ladder.dry_run),
        max_turns=tier.max_turns,
        max_budget_usd=tier.max_budget_usd,
        passed_env={**settings.environment.inherited, **tier.env},
        read=tier.read,
        headers=of_tier(settings.headers, tier.number),
        template_home=tier.home,
    )


def _command_refusal(command: str, *, policy: TierPolicy, node: NodeScope, estate: Estate | None) -> str | None:
    scope = JudgeScope(
        estate=estate or NO_ESTATE,
        repos_dir=node.repos_dir,
        forbidden_paths=node.forbidden_paths,
        resolve=node.resolve,
        is_file=node.is_file,
        expand=node.expand,
        program=node.program,
        workdir=f"{_NOWHERE}/work",
        tmpdir=f"{_NOWHERE}/temporary",
        home=f"{_NOWHERE}/home",
    )
    call = ToolCall(tool_use_id="probe", tool_name="Bash", input={"command": command})
    verdict = judge(call, tier=policy, scope=scope)
    if estate is None and isinstance(verdict.reason, Stranger):
        return None  # it is judged again when it is run
    return None if verdict.kind is VerdictKind.ALLOW and not verdict.actions else verdict.reason
