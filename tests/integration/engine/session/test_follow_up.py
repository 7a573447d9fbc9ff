"""A repair and the look whether it holds: policy, gate, stream, ledger, queue and decision together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from claudeops.cli.tail import ChainTail, Collected
from claudeops.domain.actions import Recheck
from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.live import ActionFollowedUp
from claudeops.domain.sessions import Session
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.policy.tiers import JudgeScope, judge, tier_policy
from claudeops.structs import replace
from support.estate import Estate, deliver, report
from support.policy_cases import POLICY

pytestmark = pytest.mark.anyio

DELAY_SECONDS = 900.0


def as_shipped(call: ToolCall, scope: JudgeScope) -> Verdict:
    return judge(call, tier=tier_policy(POLICY, 2), scope=replace(scope, repos_dir="/repos"))


def bash(name: str, command: str) -> Mapping[str, object]:
    return {"tool": {"id": name, "name": "Bash", "input": {"command": command}}}


def seeing(name: str) -> Mapping[str, object]:
    return bash(name, "docker inspect --format '{{.State.Status}}' web")


async def played(estate: Estate, session: Session, *steps: Mapping[str, object]) -> dict[str, object]:
    """Run a claimed session to its end, and return its row."""
    estate.script(*steps)
    ending = await SessionRunner(context=estate.context).run(session, StopControl())
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    return estate.row(session.id)


async def repaired(estate: Estate) -> Session:
    """Have tier 2 restart a service, and claim the look that follows as if its delay were over."""
    estate.with_judge(as_shipped)
    estate.with_context(rules=replace(estate.context.rules, follow_up_seconds=DELAY_SECONDS))
    first = await estate.claim((await estate.queue(2, "web is down")).id)
    row = await played(estate, first, bash("act", "docker restart web"), seeing("see"), deliver(report()))
    assert row["decision_reason"] == "healthy"
    (planned,) = estate.rows("SELECT * FROM sessions WHERE status = 'queued'")
    assert planned["trigger"] == "follow_up"
    return await _claimed_later(estate)


async def _claimed_later(estate: Estate) -> Session:
    (session,) = await estate.store.claims.claim(
        estate.owner,
        rules=estate.context.rules,
        now=estate.context.clock.now() + timedelta(seconds=DELAY_SECONDS),
        cli_session_id=lambda: "5e0b1bd8-0000-4000-8000-000000000009",
        log_path=estate.log_path,
    )
    return session


async def test_a_repair_that_holds_is_written_beside_its_action(estate: Estate) -> None:
    look = await repaired(estate)
    row = await played(estate, look, seeing("again"), deliver(report()))

    assert row["decision_reason"] == "healthy"
    (action,) = estate.rows("SELECT * FROM cooldown_actions")
    assert action["held"] == "held"
    assert estate.rows("SELECT * FROM sessions WHERE status = 'queued'") == []


async def test_a_repair_that_does_not_hold_is_handed_to_the_tier_above_at_once(estate: Estate) -> None:
    look = await repaired(estate)
    row = await played(estate, look, seeing("again"), deliver(report(status="down")))

    assert row["decision_reason"] == "escalated"
    assert estate.rows("SELECT held FROM cooldown_actions") == [{"held": "relapsed"}]
    third = await estate.claim(look.id)
    assert (third.tier, third.context is not None) == (3, True)
    handed_over = await played(estate, third, seeing("third"), deliver(report()))
    assert "the restart did not hold: web (restart at " in str(handed_over["context"])


async def test_who_reads_the_chain_is_told_when_somebody_looks_again_and_what_was_found(estate: Estate) -> None:
    look = await repaired(estate)
    assert [(fact.action, fact.service, fact.held) for fact in await told_of(estate, 1)] == [("restart", "web", None)]

    await played(estate, look, seeing("again"), deliver(report(status="down")))

    (fact,) = await told_of(estate, 1)
    assert (fact.held, fact.session_id, fact.tier) == (Recheck.RELAPSED, 1, 2)
    assert await told_of(estate, look.id) == [], "it has done nothing itself"


async def told_of(estate: Estate, session_id: int) -> list[ActionFollowedUp]:
    """Return what the log viewer says of the actions of a session."""
    session, seen = await estate.store.records.session(session_id), Collected()
    assert session is not None
    await ChainTail(records=estate.store.records, sink=seen, redact=str, follow=False).run(session)
    return [fact for fact in seen.facts if isinstance(fact, ActionFollowedUp)]


async def test_a_look_that_says_all_is_well_without_looking_is_no_answer(estate: Estate) -> None:
    look = await repaired(estate)
    row = await played(estate, look, deliver(report()))

    assert row["decision_reason"] == "no_evidence"
    assert estate.rows("SELECT held FROM cooldown_actions") == [{"held": "unknown"}]
