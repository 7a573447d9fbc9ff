"""A node on a real SQLite file whose CLI is the scriptable stand-in."""

from __future__ import annotations

import io
import json
import os
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import cast

import sqlalchemy as sa

from claudeops import logs
from claudeops.clock import Clock
from claudeops.dispatch.local import LocalDispatcher
from claudeops.domain.actions import ActionLimit
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.holds import HoldKind
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import Ending, NewSession, Session, Trigger
from claudeops.engine.cell.own_network import NameLookup
from claudeops.engine.control import StopControl, Timeouts
from claudeops.engine.gate.judging import Judging, SessionJudge
from claudeops.engine.live.hub import Hub
from claudeops.engine.owners import this_owner
from claudeops.engine.prompt_files import PromptFiles, Template
from claudeops.engine.recovery.recovery import SessionRecovery
from claudeops.engine.session.context import Clis, CompletionRules, SessionContext, TierSetup
from claudeops.engine.session.runner import SessionRunner
from claudeops.engine.session.supervisor import Supervisor
from claudeops.formats.report.extraction import ReportSchema
from claudeops.harness import HARNESSES
from claudeops.harness.protocol import ModelAccess
from claudeops.policy.tiers import JudgeScope, NodeScope, TierPolicy, tier_policy
from claudeops.settings.files import packaged
from claudeops.store.store import Store, open_store
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.migrated import write_migrated
from support.policy_cases import POLICY

STAND_IN = Path(__file__).with_name("stand_in_cli.py")
ONE_SHOT = Path(__file__).with_name("stand_in_one_shot.py")
MODELS = {1: "haiku", 2: "sonnet", 3: "opus"}


def report(*, needed: bool = False, status: str = "healthy", **overrides: object) -> dict[str, object]:
    """Return a report that the schema takes."""
    escalation: dict[str, object] = {"needed": needed}
    if needed:
        escalation |= {"reason": "web answers 502", "context": "nginx lost its upstream", "failed_checks": ["web http"]}
    return {
        "summary": "Looked at every service of the estate.",
        "events": [],
        "memories": [],
        "escalation": escalation,
        "services_checked": [{"name": "web", "status": status, "detail": "curl answered 200"}],
        **overrides,
    }


def look(tool_id: str = "toolu_1", command: str = "uptime") -> dict[str, object]:
    """Return a step: a Bash call that the gate is asked about."""
    return {"tool": {"id": tool_id, "name": "Bash", "input": {"command": command}}}


def deliver(document: dict[str, object]) -> dict[str, object]:
    """Return a step: the result line with a structured report."""
    return {"result": {"structured_output": document, "result": json.dumps(document)}}


def allow(call: ToolCall, _workspace: object) -> Verdict:
    """Allow everything, as a look around."""
    return Verdict(kind=VerdictKind.ALLOW, reason=f"{call.tool_name} is allowed in this test", look=EvidenceLook())


@dataclass
class Estate:
    """What a test can look at afterwards: rows, files, log lines."""

    root: Path
    store: Store
    context: SessionContext
    url: str
    logged: io.StringIO
    steps_file: Path
    owner: Owner
    dispatcher: LocalDispatcher = field(default_factory=LocalDispatcher)

    def script(self, *steps: Mapping[str, object]) -> None:
        """Set what the stand-in does in the sessions to come."""
        self.steps_file.write_text(json.dumps(steps), encoding="utf-8")

    def script_one_shot(self, **steps: object) -> None:
        """Set what the stand-in without a conversation does; its lines may be frames."""
        given = cast("list[object]", steps.pop("lines", []))
        lines = [line if isinstance(line, str) else json.dumps(line) for line in given]
        self.steps_file.write_text(json.dumps({**steps, "lines": lines}), encoding="utf-8")

    async def one_shot(self, harness: str, **steps: object) -> dict[str, object]:
        """Run one session of that stand-in to its end and return its row; the harness may run without a gate."""
        self.with_context(allow_ungated=("codex", "caliban"))
        self.script_one_shot(**steps)
        queued = await self.queue(harness=harness)
        ending = await SessionRunner(context=self.context).run(await self.claim(queued.id), StopControl())
        await self.store.queue.finish(ending, rules=self.context.rules)
        return self.row(ending.session_id)

    async def queue(self, tier: int = 1, prompt_text: str | None = None, harness: str = "claude") -> Session:
        new = NewSession(
            tier=tier, trigger=Trigger.MANUAL, model=MODELS[tier], harness=harness, prompt_text=prompt_text
        )
        session = await self.store.queue.enqueue(new, rules=self.context.rules, now=self.context.clock.now())
        assert isinstance(session, Session)
        return session

    async def claim(self, chain: int | None = None) -> Session:
        (session,) = await self.store.claims.claim(
            self.owner,
            rules=self.context.rules,
            now=self.context.clock.now(),
            cli_session_id=lambda: str(uuid.uuid4()),
            log_path=self.log_path,
            chain=chain,
        )
        return session

    async def run(self, *steps: Mapping[str, object], control: StopControl | None = None) -> Ending:
        """Queue, claim and run one session of the stand-in; its end is not written yet."""
        self.script(*steps)
        queued = await self.queue()
        session = await self.claim(queued.id)
        return await SessionRunner(context=self.context).run(session, control or StopControl())

    async def finished(self, *steps: Mapping[str, object]) -> dict[str, object]:
        """Run one session of the stand-in, write its end, and return its row."""
        ending = await self.run(*steps)
        await self.store.queue.finish(ending, rules=self.context.rules)
        return self.row(ending.session_id)

    async def release_holds(self) -> None:
        """Let sessions start although an earlier one of the test was refused by the model API."""
        for kind in HoldKind:
            await self.store.holds.release(kind, now=self.context.clock.now())

    def with_context(self, **changes: object) -> None:
        """Change fields of the context; those of its groups go by their own names."""
        for name in ("clis", "completion", "confinement", "approvals", "mcp"):
            group = getattr(self.context, name)
            own = {field: changes.pop(field) for field in type(group).__annotations__ if field in changes}
            changes |= {name: replace(group, **own)} if own else {}
        self.context = replace(self.context, **changes)  # type: ignore[arg-type]  # a test names its fields

    def with_judge(self, judge: Callable[[ToolCall, JudgeScope], Verdict]) -> None:
        def decide(call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> Verdict:  # noqa: ARG001 - as the port has it
            return judge(call, scope)

        self.with_context(tiers={number: replace(tier, judge=decide) for number, tier in self.context.tiers.items()})

    def supervisor(self, **changes: object) -> Supervisor:
        given: dict[str, object] = {
            "queue": self.store.queue,
            "claims": self.store.claims,
            "dispatcher": self.dispatcher,
            "clock": self.context.clock,
            "owner": self.owner,
            "rules": self.context.current_rules,
            "run_session": SessionRunner(context=self.context).running,
            "new_cli_session_id": lambda: str(uuid.uuid4()),
            "log_path": self.log_path,
            "give_up": SessionRecovery(context=self.context).give_up,
            "slots": 2,
            "stop_grace_seconds": self.context.timeouts.stop_grace,
            "hub": self.context.hub,
            "redact": self.context.redactor.text,
            "log": self.context.log,
            **changes,
        }
        return Supervisor(**given)  # type: ignore[arg-type]  # as above

    def log_path(self, session_id: int) -> str:
        return str(self.root / "results" / f"session-{session_id:06d}.ndjson")

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Open the database as anybody else would; what is written is committed."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    def rows(self, query: str) -> Sequence[dict[str, object]]:
        """Read the database."""
        with self.connect() as connection:
            return [dict(row) for row in connection.execute(sa.text(query)).mappings()]

    def execute(self, statement: str) -> None:
        """Write behind the store's back."""
        with self.connect() as connection:
            connection.execute(sa.text(statement))
            connection.commit()

    def row(self, session_id: int) -> dict[str, object]:
        return self.rows(f"SELECT * FROM sessions WHERE id = {int(session_id)}")[0]  # noqa: S608 - an integer

    def frames(self, session_id: int = 1) -> list[dict[str, object]]:
        text = Path(self.log_path(session_id)).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


@cache
def _schema() -> ReportSchema:
    return ReportSchema.load((packaged("schemas") / "agent-response.json").read_text(encoding="utf-8"))


def leaving_nothing(
    run: Callable[[Session, StopControl], Awaitable[Ending]],
) -> Callable[[Session, StopControl], AbstractAsyncContextManager[Ending]]:
    """Return what a supervisor runs sessions by, of what only runs them."""

    @asynccontextmanager
    async def running(session: Session, control: StopControl) -> AsyncIterator[Ending]:
        yield await run(session, control)

    return running


@asynccontextmanager
async def open_estate(root: Path, *, url: str | None = None) -> AsyncIterator[Estate]:
    """Build a node below ``root``; every wait in it is short enough for a test and long enough for a slow machine.

    Its database is a new SQLite file, or one that has been migrated, at ``url``.
    """
    for name in ("state", "results", "repos/web"):
        (root / name).mkdir(parents=True)
    steps_file = root / "steps.json"
    if url is None:
        url = f"sqlite:///{root / 'state' / 'claudeops.db'}"
        write_migrated(root / "state" / "claudeops.db")
    logged = io.StringIO()
    redactor = Redactor(["planted-secret-value"])
    logs.configure(level="debug", fmt="json", stream=logged, redact=redactor.text, redact_line=redactor.line)
    store = open_store(url)
    owner = this_owner()
    await store.recovery.reconcile(owner, now=Clock().now(), alive=lambda _: True)
    context = SessionContext(
        store=store,
        clock=Clock(),
        log=logs.get_logger(),
        redactor=redactor,
        completion=CompletionRules(schema=_schema()),
        clis=Clis(harnesses=HARNESSES, binaries={"claude": STAND_IN, "codex": ONE_SHOT, "caliban": ONE_SHOT}),
        tiers={number: _tier(number, root, steps_file) for number in MODELS},
        prompts=PromptFiles(dict.fromkeys(MODELS, Template.of("Look at everything.")), log=logs.get_logger()),
        rules=EscalationRules(
            max_tier=3,
            dry_run=False,
            tiers=tuple(
                TierChoice(number=number, model=model, action_kinds=("restart",) if number > 1 else ())
                for number, model in MODELS.items()
            ),
            limits={"restart": ActionLimit(count=2, window_seconds=4 * 3600)},
        ),
        access=ModelAccess(),
        timeouts=Timeouts(session=240, startup=120, silence=120, result_grace=5, stop_grace=4),
        hub=Hub(),
        sessions_dir=root / "state" / "sessions",
        repos_dir=root / "repos",
        timezone="UTC",
        path=os.environ["PATH"],
        memory_budget_tokens=2000,
        names=NameLookup(no_names),
        judging=judged_here,
    )
    estate = Estate(root=root, store=store, context=context, url=url, logged=logged, steps_file=steps_file, owner=owner)
    try:
        yield estate
    finally:
        await store.close()


def no_names(name: str) -> tuple[str, ...]:
    """Know no name: those that a list holds are of others' machines."""
    raise socket.gaierror(socket.EAI_NONAME, f"{name} is not known in tests")


def here(judge: SessionJudge) -> Judging:
    """Return what judges calls in this process, as a gate has it judge them."""

    async def judged(call: ToolCall) -> Verdict:
        return judge(call)

    return judged


@asynccontextmanager
async def judged_here(judge: SessionJudge) -> AsyncIterator[Judging]:
    """Judge a session's calls in this process, so that a test's own function can be the policy."""
    yield here(judge)


def _allow(call: ToolCall, *, tier: TierPolicy, scope: JudgeScope) -> Verdict:  # noqa: ARG001 - as the port has it
    return allow(call, scope)


def _tier(number: int, root: Path, steps_file: Path) -> TierSetup:
    policy = replace(tier_policy(POLICY, number), tools=("Bash", "Read"))
    return TierSetup(
        number=number,
        name=f"tier{number}",
        policy=policy,
        scope=NodeScope(repos_dir=str(root / "repos")),
        judge=_allow,
        max_turns=5,
        max_budget_usd=1.0,
        passed_env={"STAND_IN_STEPS": str(steps_file)},
    )
