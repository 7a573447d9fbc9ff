"""Small complete values for tests of stores and decisions; each test says only what it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from claudeops.domain.actions import Action, ActionLimit
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.owner import Owner
from claudeops.domain.report.evidence import KnownServices, Proof
from claudeops.domain.report.report import Escalation, Extraction, ExtractionMethod, Report, ServiceCheck, ServiceStatus
from claudeops.domain.sessions import Ending, NewSession, Outcome, Session, Status, Trigger
from claudeops.store.store import Store

NOW: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OWNER: Final = Owner(
    name="node-1",
    pid=4711,
    process_started_at=1_772_000_000.5,
    boot_id="boot-1",
    pid_namespace="pid:[7]",
    isolation="user",
    node="attic",
    site="main",
    version="1.0",
)
OTHER_OWNER: Final = Owner(
    name="node-2",
    pid=4712,
    process_started_at=1_772_000_001.5,
    boot_id="boot-1",
    node="cellar",
    site="main",
    version="1.0",
)
TIERS: Final = (
    TierChoice(number=1, model="haiku"),
    TierChoice(number=2, model="sonnet", action_kinds=("restart",)),
    TierChoice(number=3, model="opus", harness="codex", action_kinds=("restart", "redeployment")),
)
PROVEN: Final = Proof(looked=True, names=KnownServices({}))
"""Nothing is wanting."""
LIMITS: Final = {
    "restart": ActionLimit(count=2, window_seconds=4 * 3600),
    "redeployment": ActionLimit(count=1, window_seconds=24 * 3600),
}


def after(*, minutes: float = 0, hours: float = 0, days: float = 0) -> datetime:
    """Return a moment some time after `NOW`."""
    return NOW + timedelta(minutes=minutes, hours=hours, days=days)


def rules(
    *, max_tier: int = 3, dry_run: bool = False, tiers: tuple[TierChoice, ...] = TIERS, limited: bool = True
) -> EscalationRules:
    return EscalationRules(max_tier=max_tier, dry_run=dry_run, tiers=tiers, limits=LIMITS if limited else {})


RULES: Final = rules()


def wanted(tier: int = 1, **changes: object) -> NewSession:
    # From tier 2 up a session acts only on what somebody named.
    request = "web and db do not answer" if tier > 1 else None
    named = {"prompt_text": request, **changes}
    values: dict[str, object] = {"tier": tier, "trigger": Trigger.MANUAL, "model": "haiku", **named}
    return NewSession(**values)  # type: ignore[arg-type]


def check(service: str, status: ServiceStatus = ServiceStatus.HEALTHY, detail: str | None = None) -> ServiceCheck:
    return ServiceCheck(service=service, status=status, detail=detail)


def report(*checks: ServiceCheck, **changes: object) -> Report:
    """Return a report that needs nobody, unless ``escalation`` says otherwise."""
    values: dict[str, object] = {
        "summary": "Looked at everything.",
        "escalation": Escalation(needed=False),
        "services_checked": checks,
        **changes,
    }
    return Report(**values)  # type: ignore[arg-type]


def alarm(service: str = "web", reason: str | None = "web answers 502") -> Report:
    """Return a report that asks for the next tier."""
    return report(
        check(service, ServiceStatus.DOWN, "502"),
        escalation=Escalation(needed=True, reason=reason, context="its upstream is gone"),
    )


def extraction(said: Report | None) -> Extraction:
    method = ExtractionMethod.NONE if said is None else ExtractionMethod.STRUCTURED
    return Extraction(method=method, report=said)


def ending(session: Session, said: Report | None = None, **changes: object) -> Ending:
    """Return a successful end with a look at every service of its report, a minute after the session was started."""
    looked = EvidenceLook(names=frozenset(check.service for check in said.services_checked) if said else frozenset())
    values: dict[str, object] = {
        "session_id": session.id,
        "attempt": session.attempt,
        "outcome": Outcome.SUCCESS,
        "extraction": extraction(said),
        "ended_at": (session.started_at or NOW) + timedelta(minutes=1),
        "duration_ms": 60_000,
        "calls_ran": 3,
        "looks": (looked,) if changes.get("calls_ran", 3) else (),
        **changes,
    }
    return Ending(**values)  # type: ignore[arg-type]


def running(tier: int = 1, **changes: object) -> Session:
    """Return a session as it is while it runs, without a store."""
    values: dict[str, object] = {
        "id": 7,
        "root_session_id": 7,
        "parent_session_id": None,
        "tier": tier,
        "ordinal": 0,
        "harness": "claude",
        "model": "haiku",
        "trigger": Trigger.MANUAL,
        "prompt_text": None,
        "context": None,
        "status": Status.RUNNING,
        "attempt": 1,
        "created_at": NOW,
        "started_at": NOW,
        **changes,
    }
    return Session(**values)  # type: ignore[arg-type]


def call(tool_use_id: str = "toolu_1", command: str = "docker restart web") -> ToolCall:
    return ToolCall(tool_use_id=tool_use_id, tool_name="Bash", input={"command": command})


def allow(*actions: Action) -> Verdict:
    return Verdict(kind=VerdictKind.ALLOW, reason="granted by the policy", actions=actions)


def restart(service: str = "web") -> Action:
    return Action(kind="restart", service=service)


async def queued(store: Store, new: NewSession | None = None, *, at: datetime = NOW) -> Session:
    """Queue a session that no rule forbids."""
    session = await store.queue.enqueue(new or wanted(), rules=rules(limited=False), now=at)
    assert isinstance(session, Session)
    return session


async def how_many_wait(store: Store) -> int:
    """Return the number of sessions that are queued."""
    return sum(place.status is Status.QUEUED for place in await store.records.under_way(0))


async def claimed(
    store: Store, *, at: datetime = NOW, owner: Owner = OWNER, with_rules: EscalationRules = RULES
) -> Session | None:
    """Claim the next session."""
    taken = await store.claims.claim(
        owner,
        rules=with_rules,
        now=at,
        cli_session_id=lambda: "5e0b1bd8-0000-4000-8000-000000000001",
        log_path=lambda session_id: f"/results/session-{session_id:06}.ndjson",
    )
    return taken[0] if taken else None


async def started(store: Store, new: NewSession | None = None, *, at: datetime = NOW) -> Session:
    """Queue a session and claim it."""
    session = await queued(store, new, at=at)
    claim = await claimed(store, at=at)
    assert claim is not None
    assert claim.id == session.id
    return claim


async def recorded(
    store: Store, session: Session, tool_use_id: str, verdict: Verdict, *, at: datetime = NOW
) -> Verdict:
    """Record a call with the usual rules."""
    return await store.calls.record_call(
        session, call(tool_use_id), verdict, redacted_input="{}", rules=RULES, requested_at=at, now=at
    )


async def one_session(
    store: Store,
    said: Report | None,
    *,
    at: datetime = NOW,
    trigger: Trigger = Trigger.MANUAL,
    **changes: object,
) -> Ending:
    """Run one session from its queueing to its end."""
    end = ending(await started(store, wanted(trigger=trigger), at=at), said, **changes)
    await store.queue.finish(end, rules=RULES)
    return end


async def gone(store: Store, *, at: datetime, owner: Owner = OTHER_OWNER) -> tuple[Session, ...]:
    """End what dead owners left as lost, as the next daemon does; return the rows."""
    orphans = (await store.recovery.reconcile(owner, now=at, alive=lambda _: False)).sessions
    return tuple([await store.recovery.mark_lost(orphan, rules=RULES, now=at) for orphan in orphans])
