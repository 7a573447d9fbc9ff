"""What is counted is counted once, in the registry of its own node, and no one else chooses a label."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from claudeops.domain.alerts.alert import AlertDecision
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.figures import Figures
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.sessions import Decision, DecisionReason, Finished, Outcome
from claudeops.domain.spending.budget import Budgets
from claudeops.domain.spending.tokens import CallState, TokenUsage
from claudeops.engine.ports import Counting, SessionListener
from claudeops.metrics import DECLARED, ON_RECORD, KnownSets, LiveMetrics, Metrics
from claudeops.structs import replace
from support.store_values import ending, running

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
KNOWN: Final = KnownSets(
    version="1.2.3",
    tiers=(1, 2),
    models=("house-model",),
    actions=("restart",),
    budgets=Budgets(chain_usd=3, day_usd=20),
)
FIGURES: Final = Figures(
    at=NOON,
    queued=2,
    queued_since=NOON - timedelta(seconds=90),
    approvals=1,
    incidents={EventLevel.INFO: 0, EventLevel.WARNING: 0, EventLevel.CRITICAL: 4},
    outbox=3,
    outbox_since=NOON + timedelta(seconds=5),
    memories=7,
    spent_usd=1.25,
    is_paused=True,
    parked_until=NOON,
    healthy_at=None,
)
STRANGE: Final = 'x"\n} claudeops_paused 1'


def scraped(metrics: Metrics, figures: Figures | None = None) -> dict[tuple[str, ...], float]:
    """Return every sample of ours by its name and the values of its labels, in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render(figures).decode())
        for sample in family.samples
        if sample.name.startswith("claudeops_")
    }


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(KNOWN, sources=lambda: ["prometheus"])


def everything(counts: Counting) -> None:
    """Have each of a daemon's rooms count one thing that others have named as they liked."""
    one = running(tier=7)
    counts.started(one)
    counts.ended(
        one, ending(one), Finished(decision=Decision(reason=DecisionReason.HEALTHY), actions=((STRANGE, True),))
    )
    counts.lost(replace(one, outcome=Outcome.LOST, decision_reason=DecisionReason.SESSION_FAILED))
    counts.left(one)
    counts.call_judged(one, VerdictKind.ASK)
    counts.call_decided(0.002)
    counts.approval_over(ApprovalStatus.APPROVED, f"{STRANGE}:ada", 5.0)
    counts.model_call_over(one, STRANGE, CallState(id=1, http_status=9_999, charged_usd=0.5))
    counts.strays_killed(2)
    counts.connected(3, failed=1)
    counts.relayed(2, refused=1, failed=1)
    counts.fired(-3.0)
    counts.alert_received(STRANGE, "firing")
    counts.body_stored(0.1)
    counts.alert_decided(STRANGE, AlertDecision.STARTED)


def test_it_is_what_the_engine_counts_by(metrics: Metrics) -> None:
    counts: Counting = metrics
    listener: SessionListener = metrics
    assert counts is listener


def test_nothing_that_others_wrote_becomes_a_label(metrics: Metrics) -> None:
    everything(metrics)
    metrics.answered("", STRANGE, 9_999, 0.1)
    metrics.message_sent("telegram", DeliveryOutcome.FAILED)
    found = scraped(metrics, FIGURES)
    assert not [name for name in found if any("\n" in part or "9999" in part or part == "7" for part in name)]
    assert found["claudeops_actions_total", "other", "true"] == 1
    assert found["claudeops_alerts_received_total", "other", "firing"] == 1
    assert found["claudeops_alerts_decided_total", "started", "other"] == 1
    assert found["claudeops_model_calls_total", "other", "other", "other"] == 1
    assert found["claudeops_http_request_duration_seconds_count", "other", "none", "other"] == 1
    assert found["claudeops_approvals_total", "shell", "approved"] == 1
    assert found["claudeops_sessions_running", "other"] == 0


def test_every_declared_metric_is_scraped_once_something_has_happened(metrics: Metrics) -> None:
    everything(metrics)
    metrics.answered("/healthz", "GET", 200, 0.1)
    metrics.message_sent("telegram", DeliveryOutcome.DELIVERED)
    metrics.model_call_over(running(), "haiku", CallState(id=1, usage=TokenUsage(), charged_usd=0))
    metrics.wrote(0.1)
    metrics.wrote(None)
    there = {name for name, *_ in scraped(metrics, FIGURES)}
    assert {each.name for each in DECLARED if not {each.name, f"{each.name}_count"} & there} == set()


def test_two_nodes_of_one_process_do_not_count_for_each_other() -> None:
    one, other = Metrics(KNOWN), Metrics(KNOWN)
    everything(one)
    assert ("claudeops_tool_calls_total", "other", "ask") not in scraped(other)


def test_an_end_is_counted_with_its_length_its_decision_and_its_actions(metrics: Metrics) -> None:
    for is_success in (True, False, False):
        done = Finished(decision=Decision(reason=DecisionReason.ESCALATED), actions=(("restart", is_success),))
        metrics.ended(running(), ending(running()), done)
    found = scraped(metrics)
    assert found["claudeops_sessions_total", "success", "1", "manual"] == 3
    assert found["claudeops_decisions_total", "escalated", "1"] == 3
    assert found["claudeops_actions_total", "restart", "false"] == 2
    assert found["claudeops_session_duration_seconds_sum", "1"] == 180


def test_a_model_is_called_by_its_own_name_whatever_its_date(metrics: Metrics) -> None:
    usage = TokenUsage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4)
    state = CallState(id=1, http_status=200, usage=usage, cost_usd=0.25, charged_usd=0.25)
    for model in ("claude-haiku-4-5-20251001", "claude-haiku-4-5", "house-model"):
        metrics.model_call_over(running(), model, state)
    found = scraped(metrics)
    assert found["claudeops_model_calls_total", "claude-haiku-4-5", "200", "1"] == 2
    assert found["claudeops_spend_usd_total", "house-model", "1"] == 0.25
    kinds = ("input", "output", "cache_read", "cache_write")
    assert [found["claudeops_model_tokens_total", kind, "claude-haiku-4-5"] for kind in kinds] == [2, 4, 6, 8]


def test_what_stands_is_what_the_database_said_and_no_figure_of_an_hour_ago(metrics: Metrics) -> None:
    found = scraped(metrics, FIGURES)
    assert found["claudeops_sessions_queued",] == 2
    assert found["claudeops_queue_oldest_age_seconds",] == 90
    assert found["claudeops_outbox_oldest_age_seconds",] == 0  # it is due later
    assert found["claudeops_incidents_open", "critical"] == 4
    assert found["claudeops_incidents_open", "warning"] == 0
    assert (found["claudeops_budget_spent_usd", "day"], found["claudeops_budget_limit_usd", "day"]) == (1.25, 20)
    assert found["claudeops_parked_until_timestamp_seconds",] == NOON.timestamp()
    assert found["claudeops_last_healthy_cycle_timestamp_seconds",] == 0
    there = {name for name, *_ in scraped(metrics, None)}
    assert there & {each.name for each in ON_RECORD} == set()


def test_a_scrape_says_which_cli_runs_now() -> None:
    versions = ["2.1.300"]
    metrics = Metrics(KNOWN, LiveMetrics(cli_version=lambda: versions[-1], readers=lambda: 4, dropped=lambda: 9))
    assert scraped(metrics)["claudeops_build_info", "2.1.300", "unknown", "1.2.3"] == 1
    versions.append("2.1.329")
    found = scraped(metrics)
    assert found["claudeops_build_info", "2.1.329", "unknown", "1.2.3"] == 1
    assert (found["claudeops_sse_clients",], found["claudeops_sse_facts_dropped_total",]) == (4, 9)
