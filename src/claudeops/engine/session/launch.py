"""The launch of a session: from its row to a running process, by way of prompt, command and cell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from claudeops.domain.estate.estate import Estate
from claudeops.domain.network.destination import in_words
from claudeops.domain.sessions import Session, Trigger
from claudeops.engine.cell.bubblewrap import AGENT_SOCKET, BubblewrapCell, Mount
from claudeops.engine.cell.cell import SandboxedCommand, SandboxSpec
from claudeops.engine.cell.cgroups import ControlGroup
from claudeops.engine.cell.headers.trust import variables
from claudeops.engine.cell.own_files import MemoryFiles
from claudeops.engine.cell.reach import ReachedPlace
from claudeops.engine.cell.workspace import LOOK_SECONDS, MAKE_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.process import SESSION_MARK
from claudeops.engine.process.child import Child, spawn
from claudeops.engine.process.leaders import Ahead
from claudeops.engine.process.tree import session_mark
from claudeops.engine.session import files, mcp_servers
from claudeops.engine.session.access import access_of
from claudeops.engine.session.context import SessionContext, TierSetup
from claudeops.engine.session.filters import Filters
from claudeops.engine.session.keys import AGENT_VARIABLE, SessionKeys
from claudeops.engine.session.knowledge import Gathering
from claudeops.engine.session_log.reader import open_log
from claudeops.errors import DatabaseUnavailableError, HarnessError
from claudeops.formats.network.headers import added_in_words
from claudeops.harness.protocol import CliCommand, Harness, ModelAccess, Resumed, Spec
from claudeops.logs import Logger
from claudeops.structs import replace
from claudeops.tasks import log_unavailable, open_tasks
from claudeops.wording.prompt import RESUMED, Prompt, render
from claudeops.wording.prompt.knowledge import Facts
from claudeops.wording.prompt.trace import TRACEPARENT, TraceContext, trace_context

_MOST_EARLIER: Final = 20  # sessions, each of which went on with the one before
_LOG_BYTES: Final = 32 * 1024 * 1024  # of one log; the CLI shortens a conversation that is too long for the model
_SHARE_OF_SERVERS: Final = 1 / 3
"""The share of the startup timeout that MCP servers may take to start, because the CLI waits for them."""


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose process runs."""

    spec: Spec
    command: CliCommand
    child: Child
    place: TraceContext
    mounts: tuple[Mount, ...] | None  # what it sees of the machine's files, and where we do; None: all of them


class _Gathered(msgspec.Struct):
    """The prompt of a session, once it is put together, or why it cannot be."""

    prompt: Prompt = Prompt(task="", system="")
    error: OSError | HarnessError | None = None
    over: anyio.Event = msgspec.field(default_factory=anyio.Event)

    async def wait(self) -> None:
        """Return once it is there; raises `OSError` and `HarnessError`."""
        await self.over.wait()
        if self.error is not None:
            raise self.error

    async def then(self, before_go: Callable[[], Awaitable[None]] | None) -> None:
        """Wait for it, then do what is to be done before the CLI runs."""
        await self.wait()
        if before_go is not None:
            await before_go()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Starts one session."""

    context: SessionContext
    session: Session
    tier: TierSetup
    estate: Estate
    harness: Harness
    workspace: Workspace
    access: ModelAccess
    group: ControlGroup | None = None  # the control group that its processes join
    look_socket: Path | None = None  # where the daemon listens for its looks
    filters: Filters = msgspec.field(default_factory=Filters)
    reach: ReachedPlace | None = None  # on a network of its own
    keys: SessionKeys
    memory: MemoryFiles | None = None  # where its files are in memory
    ahead: Ahead | None = None  # what leads its command, where that was started ahead
    log: Logger

    async def start(self, before_go: Callable[[], Awaitable[None]] | None = None) -> Launched:
        """Start the CLI in its cell; raises `OSError` and `HarnessError`, and then leaves nothing running.

        ``before_go`` is called when files in memory are there, and before anything runs that could use them.
        """
        async with open_tasks() as tasks:
            return await self._start(tasks, before_go)

    async def _start(self, tasks: TaskGroup, before_go: Callable[[], Awaitable[None]] | None) -> Launched:
        """Start it; where its cell is made first, the prompt, which it reads once it runs, is put together meanwhile.

        Not earlier: both take the interpreter, and the cell takes longer.
        """
        context, session, workspace, gathered = self.context, self.session, self.workspace, _Gathered()
        if is_first := session.resumes is not None or not self.has_namespace:
            await self._gather(gathered, None)
            await gathered.wait()
        place, agent = await self._place(), await self.keys.socket()
        mark = session_mark(context.sessions_dir, session.id, session.attempt)
        # A CLI that cannot read the key from a descriptor does not get the daemon's own key at all.
        takes = self.harness.capabilities.key_by_descriptor
        shell = context.confinement.cell.shell(workspace)
        secret, servers = (self.access.secret, context.mcp.mcp_servers) if takes else (None, None)
        with _credential(secret) as descriptor, mcp_servers.handed(servers, shell=shell, uid=workspace.uid) as listing:
            spec = replace(
                self._spec(gathered.prompt, place, mark=mark, descriptor=descriptor, agent=agent),
                resumed=await self._resumed(),
            )
            if listing is not None:
                spec = self._with_servers(spec, listing, tuple(servers or ()))
            command = self.harness.command(spec)
            await files.prepare(command)
            sandboxed, mounts = await self._sandboxed(agent)
            if not is_first:
                tasks.start_soon(self._gather, gathered, mounts)
            child = await spawn(
                command,
                cwd=workspace.workdir,
                mark=mark,
                sandboxed=sandboxed,
                pass_fds=[given for given in (descriptor, listing) if given is not None],
                before_go=partial(gathered.then, before_go),
                ahead=self.ahead,
            )
        if self.memory is not None and mounts is not None:
            mounts = self.memory.seen(mounts)
        spec = replace(spec, task=gathered.prompt.task, system=gathered.prompt.system)
        return Launched(spec=spec, command=command, child=child, place=place, mounts=mounts)

    def _with_servers(self, spec: Spec, listing: int, names: tuple[str, ...]) -> Spec:
        return replace(
            spec,
            mcp_config=f"/dev/fd/{listing}",
            mcp_servers=names,
            mcp_start_seconds=self.context.timeouts.startup * _SHARE_OF_SERVERS,
            # After this time the CLI tells the model; the session's own clock ends a hung call a little later.
            mcp_call_seconds=self.context.timeouts.silence,
        )

    @property
    def has_namespace(self) -> bool:
        """Whether the CLI waits for a word before it runs."""
        return isinstance(self.context.confinement.cell, BubblewrapCell)

    async def _gather(self, gathered: _Gathered, mounts: tuple[Mount, ...] | None) -> None:
        try:
            gathered.prompt = await self._prompt(mounts)
        except (OSError, HarnessError) as error:  # raised where it is waited for
            gathered.error = error
        gathered.over.set()

    async def _prompt(self, mounts: tuple[Mount, ...] | None) -> Prompt:
        """Return it; ``mounts``: what the session sees, where that is known by now."""
        context, gathering, access = self.context, self._gathering(), tuple[str, ...]()
        repositories = tuple[str, ...]()

        async def look() -> None:
            nonlocal access, repositories
            repositories = await _repositories(context.repos_dir)
            seen = mounts if mounts is None or self.memory is None else self.memory.prepared(mounts)
            access = await access_of(
                context, self.tier, self.workspace, self.estate, mounts=seen, has_agent=self.keys.has_agent
            )

        async with open_tasks() as tasks:
            tasks.start_soon(look)  # while the database answers
            template = await context.prompts.template(self.tier.number)
            knowledge = await gathering.recorded(await gathering.knowledge(), template)
        if self.reach is not None:
            access += (in_words(self.reach.listed, self.reach.unknown),)
            access += (added_in_words(self.reach.headers),) if self.reach.headers else ()
        return render(
            template.text if self.session.resumes is None else RESUMED,
            facts=self._facts(repositories, access),
            knowledge=knowledge,
            request=self.session.prompt_text,
            handover=self.session.context,
            by_probes=self.session.trigger is Trigger.ALERT,
        )

    async def _resumed(self) -> Resumed | None:
        """Return the conversation that the session goes on with; raises `OSError` when its log is gone."""
        earlier: list[Session] = []
        wanted = self.session.resumes
        while wanted is not None and len(earlier) < _MOST_EARLIER:
            found = await self.context.store.records.session(wanted)
            if found is None:
                break
            earlier.insert(0, found)
            wanted = found.resumes
        if not earlier:
            return None
        if not self.harness.capabilities.resumes:
            raise HarnessError(f"the {self.session.harness} CLI goes on with no earlier conversation.")

        def read() -> bytes:
            with contextlib.ExitStack() as opened:
                logs = [opened.enter_context(open_log(Path(session.log_path or ""))) for session in earlier]
                return b"\n".join(log.read(_LOG_BYTES) for log in logs)

        log = await SESSION_FILES.run(read, seconds=LOOK_SECONDS, what="reading the log of the earlier session")
        return Resumed(cli_session_id=earlier[-1].cli_session_id or "", log=log)

    def _gathering(self) -> Gathering:
        return Gathering(context=self.context, session=self.session, tier=self.tier, estate=self.estate, log=self.log)

    async def _place(self) -> TraceContext:
        session = self.session
        root = None
        if session.root_session_id != session.id:
            try:
                root = await self.context.store.records.session(session.root_session_id)
            except DatabaseUnavailableError as error:
                # A session with a trace of its own is better than no session.
                log_unavailable(self.context.log, "trace", error)
        own = session.cli_session_id or ""
        return trace_context(own, root_cli_session_id=(root.cli_session_id if root is not None else None) or own)

    def _facts(self, repositories: tuple[str, ...], access: tuple[str, ...]) -> Facts:
        context, session, tier, workspace = self.context, self.session, self.tier, self.workspace
        return Facts(
            now=context.clock.now(),
            timezone=context.timezone,
            tier=tier.number,
            tier_name=tier.name,
            max_tier=context.rules.max_tier,
            dry_run=context.rules.dry_run,
            repos_dir=str(context.repos_dir),
            repositories=repositories,
            workdir=str(workspace.workdir),
            state_dir=str(workspace.state_dir),
            session_id=session.id,
            chain_id=session.root_session_id,
            actions=tier.policy.action_kinds,
            limits=context.rules.limits,
            max_turns=tier.max_turns,
            max_budget_usd=self._budget_usd(),
            time_limit_seconds=context.timeouts.session,
            access=access,
        )

    def _budget_usd(self) -> float:
        """Return what the session may spend: at most what was reserved for it, its own budget and its tier's."""
        bounds = (self.session.allowance_usd, self.session.budget_usd, self.tier.max_budget_usd)
        return min(bound for bound in bounds if bound is not None)

    def _is_metered(self) -> bool:
        return self.context.meter is not None and self.harness.capabilities.metered

    def _trusted(self) -> dict[str, str]:
        """Return the variables that name its authorities, where it has one of its own."""
        network = None if self.reach is None else self.reach.network
        return variables(network.relayed, self.tier.passed_env) if network is not None and network.authority else {}

    async def _sandboxed(self, agent: Path | None) -> tuple[SandboxedCommand, tuple[Mount, ...] | None]:
        context, workspace = self.context, self.workspace
        sandbox = SandboxSpec(
            workspace=workspace,
            binary=context.clis.binaries[self.session.harness],
            repos_dir=context.repos_dir,
            path=context.path,
            shown=(
                *self.tier.shown,
                *mcp_servers.named_paths(context.mcp.mcp_servers or {}, but=context.mcp.mcp_of_repos),
            ),
            projects=self.estate.directories,
            bounds=context.confinement.bounds,
            group=self.group,
            look_socket=self.look_socket,
            given=self.filters.given | ({} if agent is None else {AGENT_SOCKET: agent}),
            hidden=self.filters.hidden,
            network=None if self.reach is None else self.reach.network,
            trusted=self.tier.passed_env,
            files=None if self.memory is None else self.memory.sandboxed,
        )

        def enclose() -> tuple[SandboxedCommand, tuple[Mount, ...] | None]:
            cell = context.confinement.cell
            cell.hand_over(workspace)
            return cell.enclosed(sandbox) if isinstance(cell, BubblewrapCell) else (cell.enclose(sandbox), None)

        return await SESSION_FILES.run(enclose, seconds=MAKE_SECONDS, what="looking at what a session may see")

    def _spec(
        self, prompt: Prompt, place: TraceContext, *, mark: str, descriptor: int | None, agent: Path | None
    ) -> Spec:
        context, session, tier, workspace = self.context, self.session, self.tier, self.workspace
        ours = {
            SESSION_MARK: mark,
            "CLAUDEOPS_TIER": str(tier.number),
            "CLAUDEOPS_DRY_RUN": str(context.rules.dry_run).lower(),
            "CLAUDEOPS_STATE_DIR": str(workspace.state_dir),
            "CLAUDEOPS_REPOS_DIR": str(context.repos_dir),
            TRACEPARENT: place.header,
            **({} if agent is None else {AGENT_VARIABLE: str(AGENT_SOCKET)}),
        }
        ours |= self.filters.variables(in_namespaces=self.has_namespace)
        return Spec(
            binary=str(context.clis.binaries[session.harness]),
            model=session.model,
            cli_session_id=session.cli_session_id or "",
            schema_text=context.completion.schema.minified,
            task=prompt.task,
            system=prompt.system,
            tools=tier.policy.tools,
            max_turns=tier.max_turns,
            # With a meter the whole budget: the meter knows what was spent, and refuses before the CLI would notice.
            max_budget_usd=tier.max_budget_usd if self._is_metered() else self._budget_usd(),
            home=str(workspace.home),
            workdir=str(workspace.workdir),
            tmpdir=str(workspace.tmpdir),
            state_dir=str(workspace.state_dir),
            read_only=tier.policy.read_only or context.rules.dry_run,
            path=context.path,
            shell=context.confinement.cell.shell(workspace),
            passed_env={**tier.passed_env, **ours, **self._trusted()},
            base_url=self.access.base_url,
            credential=None if descriptor is None else self.access.credential,
            credential_fd=descriptor,
        )


async def _repositories(repos_dir: Path) -> tuple[str, ...]:
    def names() -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in repos_dir.iterdir() if not entry.name.startswith(".")))

    try:
        return await SESSION_FILES.run(names, seconds=LOOK_SECONDS, what=f"listing {repos_dir}")
    except OSError:
        return ()


@contextlib.contextmanager
def _credential(secret: str | None) -> Iterator[int | None]:
    """Yield the read end of a pipe that holds the secret: the CLI drains it at its start, and no tool inherits it."""
    if secret is None:
        yield None
        return
    reading, writing = os.pipe()
    try:
        try:
            os.write(writing, secret.encode())
        finally:
            os.close(writing)
        yield reading
    finally:
        os.close(reading)
