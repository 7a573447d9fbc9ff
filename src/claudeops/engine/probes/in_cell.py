"""Commands of probes as a session's Bash would run them: judged by tier 1's policy, in the cell, ended with their tree.

What runs is the text that the policy has rendered, never the one that was declared. A command that would change
anything, or that a person would be asked about, does not run: a probe only looks.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate import hosts
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import Cell, OwnNetwork, SandboxedCommand, SandboxSpec, named_in
from claudeops.engine.cell.cgroups import Bounds
from claudeops.engine.cell.headers.trust import variables
from claudeops.engine.cell.look_cell import LookCell
from claudeops.engine.cell.own_network import NameLookup
from claudeops.engine.cell.reach import Needs, open_reach
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.probes.programs import NotRun, ProgramRun, run_to_end
from claudeops.engine.process import SESSION_MARK
from claudeops.engine.process import child as process
from claudeops.engine.process.looks import open_looks
from claudeops.engine.process.tree import marks_below
from claudeops.errors import HarnessError
from claudeops.formats.network.headers import SecretHeader
from claudeops.harness.base import git_environment, plain_environment
from claudeops.harness.protocol import CliCommand
from claudeops.logs import Logger
from claudeops.policy.tiers import JudgeScope, NodeScope, TierPolicy, judge
from claudeops.structs import replace
from claudeops.tasks import Threads

BASH: Final = Path("/bin/bash")

_TOOL: Final = "Bash"
_AT_ONCE: Final = 4  # commands; each is a whole cell
_JUDGE_SECONDS: Final = 10.0
_REMOVE_SECONDS: Final = 30.0
_JUDGES: Final = Threads(most=4)
_NUMBERS: Final = itertools.count(1)


def _no_estate() -> Estate:
    return NO_ESTATE


@dataclass(kw_only=True, slots=True)
class CellCommands:
    """Runs commands of probes; its method `run` is a `RunCommand`."""

    cell: Cell
    root: Path  # the sessions' own: what a killed daemon leaves there is found and removed with theirs
    path: str  # their ``PATH``
    repos_dir: Path
    policy: TierPolicy  # of tier 1
    scope: NodeScope
    estate: Callable[[], Estate] = _no_estate  # as last understood
    env: Mapping[str, str] = field(default_factory=dict)  # that tier 1's sessions get as well
    headers: Sequence[SecretHeader] = field(default=(), repr=False)  # that are added to what they send
    template_home: Path | None = None  # copied into the home of each
    bounds: Bounds = field(default_factory=Bounds)
    names: NameLookup = field(default_factory=NameLookup)  # of the hosts that commands may reach
    log: Logger
    looks: Mapping[str, LookCell] = field(default_factory=dict)  # what the daemon runs for commands, by program
    slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(_AT_ONCE))

    async def run(self, command: str, timeout: float) -> ProgramRun | NotRun:  # noqa: ASYNC109 - a `RunCommand` is told
        """Run a command for at most ``timeout`` seconds, and return what it did, or why it was not run."""
        began = anyio.Event()
        with anyio.move_on_after(timeout):
            async with self.slots:
                try:
                    return await self._run(command, began)
                except (OSError, HarnessError) as error:
                    return NotRun(f"the command could not be run: {error}")
        if began.is_set():
            return ProgramRun(None, "", f"it did not end within {timeout:.3g} s")
        return NotRun(f"the command could not be started within {timeout:.3g} s")

    async def _run(self, command: str, began: anyio.Event) -> ProgramRun | NotRun:
        name = f"probe-{next(_NUMBERS)}"
        root = self.cell.workspaces(self.root) / name
        with contextlib.ExitStack() as held:
            uid = await workspaces.enter(held, self.cell.acquire_user())
            try:
                workspace = await workspaces.create(root, template_home=self.template_home, uid=uid)
                verdict = await self._judged(command, workspace)
                if (refusal := _refusal(verdict)) is not None:
                    return NotRun(f"tier 1's policy does not let it run: {refusal}")
                text = str((verdict.ran or {}).get("command", command))
                async with (
                    self._network(workspace, command) as network,
                    open_looks(self.looks, workspace, self.log) as looks,
                ):
                    if looks is not None:
                        looks.admit(verdict.looks_run)
                    sandbox = replace(
                        self._sandbox(workspace), network=network, look_socket=None if looks is None else looks.socket
                    )
                    child = await self._spawned(text, sandbox, name)
                    began.set()
                    return await run_to_end(child)
            finally:
                with anyio.CancelScope(shield=True):
                    await workspaces.remove(root, seconds=_REMOVE_SECONDS)

    async def _judged(self, command: str, workspace: Workspace) -> Verdict:
        node = self.scope
        scope = JudgeScope(
            estate=self.estate(),
            repos_dir=node.repos_dir,
            dry_run=node.dry_run,
            forbidden_paths=node.forbidden_paths,
            resolve=node.resolve,
            is_file=node.is_file,
            expand=node.expand,
            program=node.program,
            look_client=node.look_client,
            looks=node.looks,
            headers=node.headers,
            workdir=str(workspace.workdir),
            tmpdir=str(workspace.tmpdir),
            home=str(workspace.home),
        )
        call = ToolCall(tool_use_id="probe", tool_name=_TOOL, input={"command": command})
        return await _JUDGES.run(
            lambda: judge(call, tier=self.policy, scope=scope), seconds=_JUDGE_SECONDS, what="judging a command"
        )

    @contextlib.asynccontextmanager
    async def _network(self, workspace: Workspace, command: str) -> AsyncIterator[OwnNetwork | None]:
        """Hold a network with what tier 1 and the command itself name, where the cell has one; raises `OSError`."""
        if not self.cell.has_network:
            yield None
            return
        needs = Needs(
            tier=self.policy,
            estate=self.estate(),
            environment=self.env,
            home=workspace.home,
            endpoints=hosts.in_address(command).ports,
            headers=self.headers,
        )
        async with open_reach(needs, self.names, self.log) as reach:
            yield reach.network

    def _sandbox(self, workspace: Workspace) -> SandboxSpec:
        return SandboxSpec(
            workspace=workspace,
            binary=BASH,
            repos_dir=self.repos_dir,
            path=self.path,
            shown=self._shown(),
            bounds=self.bounds,
            trusted=self.env,
        )

    async def _spawned(self, text: str, sandbox: SandboxSpec, name: str) -> process.Child:
        mark, workspace = f"{marks_below(self.root)}{name};", sandbox.workspace
        network = sandbox.network

        def enclose() -> SandboxedCommand:
            self.cell.hand_over(workspace)
            return self.cell.enclose(sandbox)

        sandboxed = await workspaces.SESSION_FILES.run(
            enclose, seconds=workspaces.MAKE_SECONDS, what="looking at what a command may see"
        )
        env = {
            **self.env,
            "HOME": str(workspace.home),
            "PATH": self.path,
            "SHELL": str(BASH),
            "TMPDIR": str(workspace.tmpdir),
            **plain_environment(),
            **git_environment(),
            SESSION_MARK: mark,
            **(variables(network.relayed, self.env) if network is not None and network.authority else {}),
        }
        argv = (str(BASH), "--noprofile", "--norc", "-c", text)
        return await process.spawn(
            CliCommand(argv=argv, env=env), cwd=workspace.workdir, mark=mark, sandboxed=sandboxed
        )

    def _shown(self) -> Sequence[Path]:
        return named_in(self.env)


def _refusal(verdict: Verdict) -> str | None:
    """Return why a command of a probe does not run, or None."""
    if verdict.kind is not VerdictKind.ALLOW:
        return verdict.reason
    if verdict.actions:
        return f"it would {verdict.reason}, and a probe only looks"
    return None
