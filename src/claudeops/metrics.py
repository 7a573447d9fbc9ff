"""What the daemon counts of itself, for Prometheus. Labels are closed sets: never ids, never what others wrote.

Each node has its own registry. What happens is counted when it happens, at the cost of a microsecond, on the event loop
or in the writer's thread; what stands is read at a scrape. What is not known then is left out.

What is declared here is in docs/reference/metrics.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from claudeops.domain.alerts.alert import PROBES, AlertDecision
from claudeops.domain.calls import VerdictKind
from claudeops.domain.figures import Figures
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.notices.channels import PERSON_KEYS
from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.domain.sessions import Ending, Finished, Session
from claudeops.domain.spending import prices
from claudeops.domain.spending.budget import Budgets, BudgetScope
from claudeops.domain.spending.tokens import CallState
from claudeops.structs import replace

M = TypeVar("M", bound=MetricWrapperBase)

OTHER: Final = "other"
"""Stands for what is in no closed set: others may have chosen it."""

NONE: Final = "none"
"""Stands for what there is none of: an answer, a route, a person."""

_QUICK: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_LATE: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
_PATIENT: Final = (5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_SESSIONS: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
_REQUESTS: Final = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATUSES: Final = range(100, 600)
_CHANNELS: Final = frozenset({*PERSON_KEYS, "web"})
"""How answers of people begin that did not come from the shell."""


class MetricKind(StrEnum):
    """What Prometheus calls the type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class DeclaredMetric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric."""

    name: str  # as it is scraped
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper ends


def _counter(name: str, meaning: str, *labels: str) -> DeclaredMetric:
    return DeclaredMetric(name=f"claudeops_{name}_total", kind=MetricKind.COUNTER, meaning=meaning, labels=labels)


def _gauge(name: str, meaning: str, *labels: str) -> DeclaredMetric:
    return DeclaredMetric(name=f"claudeops_{name}", kind=MetricKind.GAUGE, meaning=meaning, labels=labels)


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> DeclaredMetric:
    name = f"claudeops_{name}_seconds"
    return DeclaredMetric(name=name, kind=MetricKind.HISTOGRAM, meaning=meaning, labels=labels, buckets=buckets)


# --- what stands, read at a scrape --------------------------------------------------------------------------

BUILD_INFO: Final = _gauge("build_info", "What runs; always 1.", "version", "cli_version", "revision")
SSE_CLIENTS: Final = _gauge("sse_clients", "Readers of what sessions do, as it happens.")
SSE_DROPPED: Final = _counter("sse_facts_dropped", "Facts that readers lost because they were too slow.")
BUDGET_LIMIT: Final = _gauge("budget_limit_usd", "What may be spent, in US dollars.", "scope")

QUEUED: Final = _gauge("sessions_queued", "Sessions that wait for their start.")
QUEUE_AGE: Final = _gauge(
    "queue_oldest_age_seconds", "For how long the session has waited that was due first; 0: none."
)
HEALTHY_AT: Final = _gauge(
    "last_healthy_cycle_timestamp_seconds", "When a usual round last ended healthy; 0: not in the last seven days."
)
APPROVALS_PENDING: Final = _gauge("approvals_pending", "Questions that wait for a person.")
BUDGET_SPENT: Final = _gauge("budget_spent_usd", "What has been spent of the day's budget, in US dollars.", "scope")
MEMORIES: Final = _gauge("memories_active", "Memories that are not forgotten.")
INCIDENTS: Final = _gauge("incidents_open", "Incidents that are not over.", "severity")
OUTBOX: Final = _gauge("outbox_pending", "Notices that are not delivered yet.")
OUTBOX_AGE: Final = _gauge("outbox_oldest_age_seconds", "How late the notice is that was due first; 0: none is late.")
PAUSED: Final = _gauge("paused", "1 while an operator has paused the daemon, else 0.")
PARKED_UNTIL: Final = _gauge(
    "parked_until_timestamp_seconds", "Until when the model API serves no session; 0: it serves them."
)

STANDING: Final = (BUILD_INFO, SSE_CLIENTS, SSE_DROPPED, BUDGET_LIMIT)
"""Read of the daemon's own memory."""

ON_RECORD: Final = (
    *(QUEUED, QUEUE_AGE, HEALTHY_AT, APPROVALS_PENDING, BUDGET_SPENT, MEMORIES, INCIDENTS, OUTBOX, OUTBOX_AGE),
    *(PAUSED, PARKED_UNTIL),
)
"""Read of the database, and left out while it is away."""

# --- what happens -------------------------------------------------------------------------------------------

RUNNING: Final = _gauge("sessions_running", "Sessions that run.", "tier")
SESSIONS: Final = _counter("sessions", "Sessions that ended.", "tier", "trigger", "outcome")
SESSION_SECONDS: Final = _histogram("session_duration", "How long sessions took.", _SESSIONS, "tier")
DECISIONS: Final = _counter("decisions", "What was concluded when sessions ended.", "tier", "reason")
LATENESS: Final = _histogram("schedule_lateness", "By how much fires of schedules came late.", _LATE)
CALLS: Final = _counter("tool_calls", "The gate's answers; a call that waits for people has two.", "tier", "verdict")
GATE_SECONDS: Final = _histogram(
    "gate_decision_duration", "How long calls waited for the gate, without people.", _QUICK
)
APPROVALS: Final = _counter("approvals", "Questions to people that are over.", "status", "channel")
APPROVAL_WAIT: Final = _histogram("approval_wait", "How long calls waited for people.", _PATIENT)
MODEL_CALLS: Final = _counter("model_calls", "Calls to the model API, by its answer.", "tier", "model", "status")
TOKENS: Final = _counter("model_tokens", "Tokens of calls to the model API.", "model", "kind")
SPEND: Final = _counter("spend_usd", "What budgets count for calls to the model API, in US dollars.", "tier", "model")
ACTIONS: Final = _counter("actions", "Actions that sessions tried.", "action", "success")
ALERTS: Final = _counter("alerts_received", "Alerts as they came, repetitions too.", "source", "status")
ALERTS_DECIDED: Final = _counter("alerts_decided", "What became of alerts.", "source", "decision")
ALERT_SECONDS: Final = _histogram("alert_store_duration", "How long senders of alerts waited to be stored.", _QUICK)
NOTIFICATIONS: Final = _counter("notifications", "Messages to people, by what came of them.", "channel", "result")
WRITE_SECONDS: Final = _histogram("db_write_duration", "How long transactions took.", _QUICK)
WRITES_FAILED: Final = _counter("db_writes_failed", "Writes that the database did not take, or not in time.")
HTTP_SECONDS: Final = _histogram(
    "http_request_duration", "How long requests waited for their answer.", _REQUESTS, "route", "method", "status"
)
CONNECTIONS: Final = _counter("connections", "Connections of sessions on networks of their own.", "result")
RELAYED: Final = _counter(
    "header_requests", "Requests of sessions to hosts for which the daemon adds a header.", "result"
)
STRAYS: Final = _counter("strays_killed", "Processes that outlived their session and were killed.")

HAPPENS: Final = (
    *(RUNNING, SESSIONS, SESSION_SECONDS, DECISIONS, LATENESS, CALLS, GATE_SECONDS, APPROVALS, APPROVAL_WAIT),
    *(MODEL_CALLS, TOKENS, SPEND, ACTIONS, ALERTS, ALERTS_DECIDED, ALERT_SECONDS, NOTIFICATIONS, WRITE_SECONDS),
    *(WRITES_FAILED, HTTP_SECONDS, CONNECTIONS, RELAYED, STRAYS),
)

DECLARED: Final = (*STANDING, *ON_RECORD, *HAPPENS)
"""Every metric of ours; ``process_*`` and ``python_gc_*`` come on top."""


class KnownSets(msgspec.Struct, frozen=True, kw_only=True):
    """The closed sets that the operator's settings decide."""

    version: str  # our own
    revision: str = ""  # of the tables; empty: not known
    tiers: Collection[int] = ()
    models: Collection[str] = ()  # of the tiers, besides those that have a price
    actions: Collection[str] = ()  # kinds
    budgets: Budgets | None = None


class LiveMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of the daemon's memory."""

    cli_version: Callable[[], str] = str
    readers: Callable[[], int] = int  # of the live facts
    dropped: Callable[[], int] = int  # facts, because a reader was too slow


_NOT_LIVE: Final = LiveMetrics()


class _Children(Generic[M]):
    """The children of a metric by their labels, each looked up once."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._found: dict[tuple[str, ...], M] = {}

    def of(self, *labels: str) -> M:
        found = self._found.get(labels)
        if found is None:
            found = self._found[labels] = self._metric.labels(*labels) if labels else self._metric
        return found


@dataclass(kw_only=True, slots=True, eq=False)
class _Standing(Collector):
    """What stands at the moment of a scrape."""

    known: KnownSets
    live: LiveMetrics
    figures: Figures | None = None  # None: the database is away

    def collect(self) -> Iterator[Metric]:
        """Yield what is known."""
        own = self.known
        about = (own.version, self.live.cli_version() or "unknown", own.revision or "unknown")
        yield _family(BUILD_INFO, {about: 1})
        yield _family(SSE_CLIENTS, {(): self.live.readers()})
        yield _family(SSE_DROPPED, {(): self.live.dropped()})
        if own.budgets is not None:
            limits = {BudgetScope.CHAIN: own.budgets.chain_usd, BudgetScope.DAY: own.budgets.day_usd}
            yield _family(BUDGET_LIMIT, {(scope.value,): usd for scope, usd in limits.items()})
        if self.figures is not None:
            yield from _on_record(self.figures)

    def describe(self) -> Iterable[Metric]:
        """Return every name, whatever is known at the moment."""
        return [_family(declared, {}) for declared in (*STANDING, *ON_RECORD)]


def _on_record(now: Figures) -> Iterator[Metric]:
    plain = {
        QUEUED: now.queued,
        QUEUE_AGE: 0.0 if now.queued_since is None else max(0.0, (now.at - now.queued_since).total_seconds()),
        HEALTHY_AT: 0.0 if now.healthy_at is None else now.healthy_at.timestamp(),
        APPROVALS_PENDING: now.approvals,
        MEMORIES: now.memories,
        OUTBOX: now.outbox,
        OUTBOX_AGE: 0.0 if now.outbox_since is None else max(0.0, (now.at - now.outbox_since).total_seconds()),
        PAUSED: int(now.is_paused),
        PARKED_UNTIL: 0.0 if now.parked_until is None else now.parked_until.timestamp(),
    }
    for declared, value in plain.items():
        yield _family(declared, {(): value})
    yield _family(INCIDENTS, {(level.value,): count for level, count in now.incidents.items()})
    if now.spent_usd is not None:
        yield _family(BUDGET_SPENT, {(BudgetScope.DAY.value,): now.spent_usd})


def _family(declared: DeclaredMetric, values: Mapping[tuple[str, ...], float]) -> Metric:
    made = CounterMetricFamily if declared.kind is MetricKind.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = made(declared.name, declared.meaning, labels=declared.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


class Metrics:
    """The registry of one node, and what is counted in it; `claudeops.engine.ports.Counting` among others."""

    def __init__(
        self, known: KnownSets, live: LiveMetrics = _NOT_LIVE, *, sources: Callable[[], Collection[str]] = tuple
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # of the whole process: half of what is scraped
        self.registry = CollectorRegistry()
        self.sources = sources  # of alerts, by the operator's file as it is now
        self._tiers = frozenset(map(str, known.tiers))
        self._models = frozenset((*prices.PRICES, *known.models))
        self._actions = frozenset(known.actions)
        self._standing = _Standing(known=known, live=live)
        self.registry.register(self._standing)
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._running = _Children(self._made_gauge(RUNNING))
        self._sessions, self._decisions = self._counted(SESSIONS), self._counted(DECISIONS)
        self._session_seconds, self._lateness = self._timed(SESSION_SECONDS), self._timed(LATENESS)
        self._calls, self._gate_seconds = self._counted(CALLS), self._timed(GATE_SECONDS)
        self._approvals, self._approval_wait = self._counted(APPROVALS), self._timed(APPROVAL_WAIT)
        self._model_calls, self._tokens, self._spend = map(self._counted, (MODEL_CALLS, TOKENS, SPEND))
        self._action_counts, self._strays = self._counted(ACTIONS), self._counted(STRAYS)
        self._alerts, self._alerts_decided = self._counted(ALERTS), self._counted(ALERTS_DECIDED)
        self._alert_seconds, self._http_seconds = self._timed(ALERT_SECONDS), self._timed(HTTP_SECONDS)
        self._notifications, self._writes_failed = self._counted(NOTIFICATIONS), self._counted(WRITES_FAILED)
        self._connections, self._relayed = self._counted(CONNECTIONS), self._counted(RELAYED)
        self._write_seconds = self._timed(WRITE_SECONDS)
        for tier in sorted(self._tiers):
            self._running.of(tier).set(0)

    def render(self, figures: Figures | None) -> bytes:
        """Return all as text for Prometheus, with what the database knew; takes milliseconds, on any thread."""
        self._standing.figures = figures
        return generate_latest(self.registry)

    # --- sessions ---------------------------------------------------------------------------------------

    def started(self, session: Session) -> None:
        """Take the start of a session."""
        self._running.of(self._tier(session)).inc()

    def left(self, session: Session) -> None:
        """Take it that a session no longer runs."""
        self._running.of(self._tier(session)).dec()

    def ended(self, session: Session, ending: Ending, finished: Finished) -> None:
        """Take an end that the database has taken."""
        tier = self._tier(session)
        self._sessions.of(tier, session.trigger.value, ending.outcome.value).inc()
        self._session_seconds.of(tier).observe(ending.duration_ms / 1000)
        self._decisions.of(tier, finished.decision.reason.value).inc()
        for kind, is_success in finished.actions:
            self._action_counts.of(kind if kind in self._actions else OTHER, str(is_success).lower()).inc()

    def lost(self, session: Session) -> None:
        """Take a session that ended with its daemon; the row as it is since."""
        if session.outcome is None:
            return
        self._sessions.of(self._tier(session), session.trigger.value, session.outcome.value).inc()
        if session.decision_reason is not None:
            self._decisions.of(self._tier(session), session.decision_reason.value).inc()

    def strays_killed(self, count: int) -> None:
        """Take how many processes had outlived their session."""
        self._strays.of().inc(count)

    def connected(self, count: int, *, failed: int) -> None:
        """Take how many connections of a session led outside, and how many found nothing there."""
        self._connections.of("connected").inc(count)
        self._connections.of("failed").inc(failed)

    def relayed(self, added: int, *, refused: int, failed: int) -> None:
        """Take how many requests of a session had a header added, were refused it, or failed for want of TLS."""
        self._relayed.of("added").inc(added)
        self._relayed.of("refused").inc(refused)
        self._relayed.of("failed").inc(failed)

    def fired(self, late_seconds: float) -> None:
        """Take by how much a fire of a schedule came late."""
        self._lateness.of().observe(max(0.0, late_seconds))

    # --- calls ------------------------------------------------------------------------------------------

    def call_judged(self, session: Session, verdict: VerdictKind) -> None:
        """Take the gate's answer to a call."""
        self._calls.of(self._tier(session), verdict.value).inc()

    def call_decided(self, seconds: float) -> None:
        """Take how long a call waited for its answer, people's time not included."""
        self._gate_seconds.of().observe(seconds)

    def approval_over(self, status: ApprovalStatus, decided_by: str | None, seconds: float) -> None:
        """Take how a question to people ended, and after how long."""
        kind = (decided_by or "").partition(":")[0]
        shell = "shell" if decided_by else NONE
        self._approvals.of(status.value, kind if kind in _CHANNELS else shell).inc()
        self._approval_wait.of().observe(seconds)

    def model_call_over(self, session: Session, model: str, state: CallState) -> None:
        """Take a call to the model API."""
        tier, name = self._tier(session), prices.canonical(model)
        name = next((known for known in (name, model) if known in self._models), OTHER)
        status = NONE if state.http_status is None else _status(state.http_status)
        self._model_calls.of(tier, name, status).inc()
        self._spend.of(tier, name).inc(max(0.0, state.charged_usd))
        if (usage := state.usage) is not None:
            self._tokens.of(name, "input").inc(usage.input_tokens)
            self._tokens.of(name, "output").inc(usage.output_tokens)
            self._tokens.of(name, "cache_read").inc(usage.cache_read_tokens)
            self._tokens.of(name, "cache_write").inc(usage.cache_write_tokens)

    # --- others -----------------------------------------------------------------------------------------

    def alert_received(self, source: str, status: str) -> None:
        """Take an alert, or a body that could not be read, as it came."""
        self._alerts.of(self._source(source), status).inc()

    def body_stored(self, seconds: float) -> None:
        """Take how long a sender of alerts waited until his body was on record."""
        self._alert_seconds.of().observe(seconds)

    def alert_decided(self, source: str, decision: AlertDecision) -> None:
        """Take what became of an alert."""
        self._alerts_decided.of(self._source(source), decision.value).inc()

    def message_sent(self, channel: str, result: DeliveryOutcome) -> None:
        """Take what came of a message to people; the channel is a kind of target."""
        self._notifications.of(channel, result.value).inc()

    def wrote(self, seconds: float | None) -> None:
        """Take how long a transaction took; ``None``: the database did not take it. On any thread."""
        if seconds is None:
            self._writes_failed.of().inc()
        else:
            self._write_seconds.of().observe(seconds)

    def watch_streams(self, readers: Callable[[], int], dropped: Callable[[], int]) -> None:
        """Count the streams of the listener from now on, as it has them."""
        self._standing.live = replace(self._standing.live, readers=readers, dropped=dropped)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Take an answer to a request; the route is that of the table, or empty where the table has none."""
        known = method if method in _METHODS else OTHER
        self._http_seconds.of(route or NONE, known, _status(status)).observe(seconds)

    def _tier(self, session: Session) -> str:
        return tier if (tier := str(session.tier)) in self._tiers else OTHER

    def _source(self, name: str) -> str:
        return name if name == PROBES or name in self.sources() else OTHER

    def _counted(self, declared: DeclaredMetric) -> _Children[Counter]:
        made = Counter(declared.name, declared.meaning, declared.labels, registry=self.registry)
        return _Children(made)

    def _timed(self, declared: DeclaredMetric) -> _Children[Histogram]:
        made = Histogram(
            declared.name, declared.meaning, declared.labels, registry=self.registry, buckets=declared.buckets
        )
        return _Children(made)

    def _made_gauge(self, declared: DeclaredMetric) -> Gauge:
        return Gauge(declared.name, declared.meaning, declared.labels, registry=self.registry)


def _status(status: int) -> str:
    return str(status) if status in _STATUSES else OTHER
