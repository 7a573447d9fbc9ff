"""The gate of a session: judges every tool call, records the verdict, then answers; and watches what really runs.

The order is always judge, record, answer: an answer never goes out before its record.

`CallWatch` compares the stream with what the gate answered, because the gate only counts as long as the CLI asks. So
every call that the stream shows to have run must be among those that got a yes; calls that the CLI refused itself are
recorded; a result line that comes while allowed calls are open is not the CLI's. The input that runs is the one that
the gate answered with, not the one in the stream: the CLI reports it in the hook after a call, and it is compared with
the answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.domain.calls import CliRefusal, ToolCall, ToolEnd, Verdict, VerdictKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.gate.approval import Approval
from claudeops.domain.gate.granted import Grants
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.sessions import Session
from claudeops.domain.stream.events import INPUT_LEFT_OUT
from claudeops.engine.gate.approvals import STALE, ApprovalDenied, ApprovalService
from claudeops.engine.gate.judging import Judging, NotJudgedError
from claudeops.engine.process.channel import Channel
from claudeops.engine.process.looks import SessionLooks
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError, StoreError
from claudeops.formats.stream import ResultRead, ToolDenied, ToolEnded, ToolStarted
from claudeops.formats.stream.tallies import HELD_INPUT_BYTES, MOST_CALLS
from claudeops.harness.protocol import ExecutedCall, GateRequest, Harness, QuestionWay
from claudeops.logs import LogEvent, Logger
from claudeops.policy.repetition import Repetition
from claudeops.store.calls import Calls
from claudeops.structs import replace

RECORD_SECONDS: Final = 5.0
"""How long recording a verdict may take; one that is not recorded by then is a deny."""

ANSWER_SECONDS: Final = 10.0
"""How old a yes may be when it is given, counted from before its record. It is older where the daemon was stopped or
the machine slept in between; another daemon may have the session by then."""

TOO_OLD: Final = "the verdict was too old when it could be given, because the daemon stood still: call it again"
UNAVAILABLE: Final = "database unavailable: a call that cannot be recorded does not run; try again later"
NOT_ASKED: Final = "nobody put this call to a person: only what the policy wants to be asked about can be approved"
REPORTED: Final = "the report is delivered: nothing runs after it"
ASKED_TWICE: Final = "another request had this one's number, and the answer to it could be taken for the answer to this"
STOPPING: Final = "this session is being stopped: nothing new runs"
TOO_LONG: Final = "the input of this call is too long to be judged (4 MiB): make several smaller calls of it"
NO_APPROVER: Final = "needs approval, and nobody can be asked"

_CLI_ERROR: Final = "<tool_use_error>"
"""How the CLI begins the result of a call that it refuses before it asks the gate (unknown tool, invalid input).
A failed command's result begins with ``Exit code``, so no tool can imitate it. Seen with 2.1.329."""

_REASON_CHARACTERS: Final = 500


def _nobody(_call: ToolCall, _verdict: Verdict) -> None:
    return


def _untimed(_seconds: float) -> None:
    return


def _never() -> bool:
    return False


def _no_report(_call: ToolCall) -> bool:
    return False


class _Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that is on record, or a no that could not be written."""

    verdict: Verdict
    requested_at: datetime
    since: float  # from when on it ages, in seconds since boot


class Gate(msgspec.Struct, kw_only=True):
    """The gate of one session.

    Fail-closed at every step: if an answer is late, lost or never given, the tool does not run.
    """

    session: Session
    judge: Judging
    rules: EscalationRules
    calls: Calls
    clock: Clock
    display_input: Callable[[ToolCall], str]  # redacted JSON of a call's input
    log: Logger
    looks: SessionLooks | None = None  # runs what the daemon runs for allowed calls
    grants: Grants = msgspec.field(default_factory=Grants)  # what the session's filters let through
    approvals: ApprovalService | None = None  # asks people; None: calls that need approval are denied
    on_verdict: Callable[[ToolCall, Verdict], None] = _nobody  # called with every verdict, to publish it live
    on_decided: Callable[[float], None] = _untimed  # called with how long a call waited for its answer, in seconds
    is_report: Callable[[ToolCall], bool] = _no_report  # whether a StructuredOutput call holds a valid report
    stopping: Callable[[], bool] = _never  # whether the session was asked to stop
    repetition: Repetition = msgspec.field(default_factory=Repetition)
    record_seconds: float = RECORD_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    asked: set[str] = msgspec.field(default_factory=set)  # tool_use_ids that the CLI asked about
    allowed: set[str] = msgspec.field(default_factory=set)  # tool_use_ids that were allowed
    ran: dict[str, Mapping[str, object]] = msgspec.field(
        default_factory=dict
    )  # the input with which each of these may run
    _to_ask: dict[str, tuple[ToolCall, Verdict]] = msgspec.field(
        default_factory=dict
    )  # answered ``ask``, by tool_use_id
    _reports: set[str] = msgspec.field(default_factory=set)  # valid reports on their way, or delivered
    _open: list[tuple[str, anyio.CancelScope]] = msgspec.field(default_factory=list)  # requests without an answer yet
    _first: dict[str, bytes] = msgspec.field(default_factory=dict)  # digests of the first request of each request_id

    async def answer(self, request: GateRequest, *, harness: Harness, channel: Channel) -> None:
        """Judge, record and answer one request.

        Bounded by the judge's bound, ``record_seconds`` and the channel's own bound; if people are asked, also by the
        approval timeout.
        """
        self.asked.add(request.call.tool_use_id)
        with anyio.CancelScope() as scope:
            self._open.append(entry := (request.request_id, scope))
            try:
                if self._first.setdefault(request.request_id, digest := _digest(request)) != digest:
                    # The CLI matches answers by request_id alone, so one id must stand for one call.
                    now = self.clock.now()
                    recorded = await self._record(request.call, _deny(ASKED_TWICE), requested_at=now)
                elif request.question is QuestionWay.PERMISSION:
                    recorded = await self._permit(request.call)
                else:
                    recorded = await self._decide(request.call)
                verdict = recorded.verdict
                if verdict.kind is VerdictKind.ALLOW and self.clock.since_boot() - recorded.since > self.answer_seconds:
                    verdict = await self._take_back(request.call, recorded)
                await channel.send(harness.answer(request, verdict))
            finally:
                self._open.remove(entry)

    def withdraw(self, request_id: str) -> None:
        """Forget a request that the CLI no longer waits for."""
        for number, scope in self._open:
            if number == request_id:
                scope.cancel()

    def ended(self, tool_use_id: str, *, is_error: bool) -> None:
        """Take a call's result: its looks and grants end, and a report that the CLI rejected is none."""
        if is_error:
            self._reports.discard(tool_use_id)
        if self.looks is not None:
            self.looks.forget(tool_use_id)
        self.grants.forget(tool_use_id)

    async def _decide(self, call: ToolCall) -> _Recorded:
        """Answer the hook, which cannot wait: people are asked later, in the permission request."""
        requested_at, began = self.clock.now(), self.clock.monotonic()
        judged = await self._judge(call)
        recorded = await self._record(call, judged, requested_at=requested_at)
        verdict = recorded.verdict
        self.on_decided(self.clock.monotonic() - began)
        if verdict.kind is VerdictKind.ASK:
            # People are asked about this call with all its actions; the record carries no actions yet.
            self._to_ask[call.tool_use_id] = (call, replace(judged, reason=verdict.reason))
        if verdict.kind is VerdictKind.ALLOW and call.tool_name == STRUCTURED_OUTPUT_TOOL and self.is_report(call):
            self._reports.add(call.tool_use_id)
        return recorded

    async def _judge(self, call: ToolCall) -> Verdict:
        if call.tool_name == STRUCTURED_OUTPUT_TOOL:
            return await self._judged(call)
        if (closed := self._closed(call)) is not None:
            return _deny(closed)
        verdict = await self._judged(call)
        if (closed := self._closed(call)) is not None:  # since judging began
            return _deny(closed)
        changes = bool(verdict.actions) or verdict.kind is VerdictKind.ASK
        if self.rules.dry_run and changes and verdict.kind is not VerdictKind.DENY:
            # The policy says so itself; this catches a policy that forgets.
            return _deny(f"dry run: would {verdict.reason}")
        if verdict.kind is VerdictKind.ASK and self.approvals is None:
            return _deny(f"{NO_APPROVER}: {verdict.reason}")
        return verdict

    async def _judged(self, call: ToolCall) -> Verdict:
        """Return the policy's verdict; a call that has none is denied."""
        try:
            return await self.judge(call)
        except NotJudgedError as error:
            self.log.error(
                LogEvent.TOOL_CALL_NOT_JUDGED, tool=call.tool_name, tool_use_id=call.tool_use_id, error=str(error)
            )
            return _deny(error.answer)

    def _closed(self, call: ToolCall) -> str | None:
        """Return why a call does not run whatever the policy says about it, if there is a reason."""
        if self.stopping():
            # A call may arrive while the session is being stopped. Reports do not come here: they are still useful.
            return STOPPING
        if INPUT_LEFT_OUT in call.input:
            return TOO_LONG
        return REPORTED if self._reports else self.repetition.refusal(call)

    async def _permit(self, call: ToolCall) -> _Recorded:
        """Answer a permission request: wait for people, and allow exactly the call that they approved, once."""
        requested_at = self.clock.now()
        pending_call = self._to_ask.pop(call.tool_use_id, None)
        if pending_call is None or self.approvals is None:
            return await self._record(call, _deny(NOT_ASKED), requested_at=requested_at)
        asked, judged = pending_call
        if (call.tool_name, call.input) != (asked.tool_name, asked.input):
            return await self._record(call, _deny(NOT_ASKED), requested_at=requested_at)
        runs = asked if judged.ran is None else replace(asked, input=judged.ran)
        answer = await self.approvals.ask(
            runs,
            redacted_input=self.display_input(runs),
            reason=judged.reason,
            services=judged.services,
            needed=judged.needed,
        )
        if isinstance(answer, ApprovalDenied):
            return await self._record(asked, _deny(answer.reason), requested_at=requested_at)
        if self.stopping():
            return await self._record(asked, _deny(STOPPING), requested_at=requested_at)
        reason = f"approved by {answer.decided_by} (approval {answer.id}): {judged.reason}"
        allow = replace(judged, kind=VerdictKind.ALLOW, reason=reason)
        return await self._record(asked, allow, requested_at=requested_at, approval=answer)

    async def _take_back(self, call: ToolCall, recorded: _Recorded) -> Verdict:
        """Turn a yes that is on record, and too old to be given, into a no."""
        self.allowed.discard(call.tool_use_id)
        self.ran.pop(call.tool_use_id, None)
        self.ended(call.tool_use_id, is_error=True)
        verdict, redacted = _deny(TOO_OLD), self.display_input(call)
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(self.record_seconds):
                await self.calls.take_back(
                    self.session,
                    call,
                    redacted_input=redacted,
                    requested_at=recorded.requested_at,
                    now=self.clock.now(),
                )
        except (StoreError, TimeoutError):
            self.log.error(LogEvent.TOOL_CALL_UNRECORDED, tool=call.tool_name, tool_use_id=call.tool_use_id)
        self._announce(call, verdict)
        return verdict

    async def _record(
        self, call: ToolCall, verdict: Verdict, *, requested_at: datetime, approval: Approval | None = None
    ) -> _Recorded:
        """Record the verdict, and return the one that counts, which the record may have turned into a deny."""
        since = self.clock.since_boot()
        redacted_ran = None if verdict.ran is None else self.display_input(replace(call, input=verdict.ran))
        try:
            with anyio.fail_after(self.record_seconds):
                verdict = await self.calls.record_call(
                    self.session,
                    call,
                    verdict,
                    redacted_input=self.display_input(call),
                    rules=self.rules,
                    requested_at=requested_at,
                    now=self.clock.now(),
                    redacted_ran=redacted_ran,
                    approval=approval,
                )
        except (DatabaseUnavailableError, TimeoutError):
            verdict = _deny(UNAVAILABLE)
            self.log.error(LogEvent.TOOL_CALL_UNRECORDED, tool=call.tool_name, tool_use_id=call.tool_use_id)
        except StaleAttemptError as error:
            verdict = _deny(STALE)
            self.log.error(LogEvent.STALE_ATTEMPT, error=str(error))
        if verdict.kind is VerdictKind.ALLOW:
            # Before the answer goes out, because the result of the call may be in the stream a moment later.
            self.allowed.add(call.tool_use_id)
            self.ran[call.tool_use_id] = call.input if verdict.ran is None else verdict.ran
            if self.looks is not None:
                self.looks.admit(verdict.looks_run)
            self.grants.admit(verdict.grants)
        self._announce(call, verdict)
        return _Recorded(verdict=verdict, requested_at=requested_at, since=since)

    def _announce(self, call: ToolCall, verdict: Verdict) -> None:
        if call.tool_name != STRUCTURED_OUTPUT_TOOL:
            self.log.info(
                LogEvent.TOOL_CALL_JUDGED,
                tool=call.tool_name,
                tool_use_id=call.tool_use_id,
                verdict=verdict.kind.value,
                reason=verdict.reason,
                actions=[f"{action.kind}:{action.service}" for action in verdict.actions],
            )
        self.on_verdict(call, verdict)


class CallWatch(msgspec.Struct, kw_only=True):
    """The calls of one session as its stream shows them, compared with the gate's answers."""

    gate: Gate
    ends: list[ToolEnd] = msgspec.field(default_factory=list)
    refusals: list[CliRefusal] = msgspec.field(default_factory=list)
    _started: dict[str, ToolStarted] = msgspec.field(default_factory=dict)
    _inputs: dict[str, int] = msgspec.field(default_factory=dict)  # bytes of those that are held, the oldest first
    _held: int = 0  # all of them
    _refused: set[str] = msgspec.field(default_factory=set)  # by the CLI itself
    _ended: set[str] = msgspec.field(default_factory=set)

    @property
    def ran(self) -> frozenset[str]:
        """The ids of calls that the gate allowed and that the CLI did not refuse itself."""
        return frozenset(self.gate.allowed - self._refused)

    def started(self, fact: ToolStarted) -> None:
        """Take the start of a call."""
        self._hold(fact)
        self.gate.repetition.started(fact.tool_use_id, fact.name, fact.input)

    def denied(self, fact: ToolDenied, now: datetime) -> None:
        """Take the CLI's notice that its own rules refuse a call; denials by the gate are known already."""
        if fact.tool_use_id in self.gate.allowed:
            self._refuse(fact.tool_use_id, fact.message, now)

    def ended(self, fact: ToolEnded, now: datetime, *, stopping: bool) -> str | None:
        """Take the result of a call; return why the CLI is no longer to be trusted, or ``None``.

        ``stopping``: the session was asked to stop, and the CLI then ends open calls with errors of its own.
        """
        name = fact.tool_use_id
        if name in self.gate.allowed or len(self.ends) < MOST_CALLS:  # of others a CLI may invent any number
            self._ended.add(name)
            self.ends.append(ToolEnd(tool_use_id=name, ended_at=now, is_error=fact.is_error))
        self.gate.ended(name, is_error=fact.is_error)
        self.gate.repetition.ended(name, is_error=fact.is_error, text=fact.text)
        if name in self.gate.allowed:
            return None
        if not fact.is_error:
            return f"a tool call ran without the gate's yes ({name})"
        if name in self.gate.asked or stopping:
            return None
        if (fact.text or "").startswith(_CLI_ERROR):
            self._refuse(name, fact.text or "", now)
            return None
        return f"a tool call failed that the gate was never asked about ({name})"

    def ran_with(self, fact: ExecutedCall) -> str | None:
        """Take the input with which a call has run; return why the CLI is no longer to be trusted, or ``None``."""
        wanted = self.gate.ran.get(fact.tool_use_id, {})
        # The CLI may add to the input of a tool, but not of one that runs a command.
        added = {name for name, value in fact.input.items() if value and "command" in wanted} - set(wanted)
        others = sorted({*added, *(name for name, value in wanted.items() if fact.input.get(name) != value)})
        if not others:
            return None
        return f"a tool call ran with another {others[0]} than the gate's yes was for ({fact.tool_use_id})"

    def result(self, fact: ResultRead) -> str | None:
        """Take a result line; return why it is not to be believed, or ``None``.

        Only result lines that claim success are doubted: the CLI's own limits (turns, budget) may end a turn while a
        call is open.
        """
        still_open = self.gate.allowed - self._ended
        if fact.is_error or fact.subtype != "success" or not still_open:
            return None
        return f"a result line came while {len(still_open)} allowed calls were open ({', '.join(sorted(still_open))})"

    def _hold(self, fact: ToolStarted) -> None:
        """Hold a call for the case that the CLI refuses it, and let go of the oldest inputs if there are too many."""
        self._started[fact.tool_use_id] = fact
        size = len(msgspec.json.encode(fact.input, enc_hook=str))
        self._held += size - self._inputs.pop(fact.tool_use_id, 0)
        self._inputs[fact.tool_use_id] = size
        while self._held > HELD_INPUT_BYTES:
            oldest = next(iter(self._inputs))
            self._held -= self._inputs.pop(oldest)
            self._started[oldest] = replace(self._started[oldest], input={})

    def _refuse(self, tool_use_id: str, words: str, now: datetime) -> None:
        if tool_use_id in self._refused:
            return
        self._refused.add(tool_use_id)
        started = self._started.get(tool_use_id)
        given = dict(started.input or {}) if started else {}
        message = " ".join(words.removeprefix(_CLI_ERROR).removesuffix("</tool_use_error>").split())
        self.refusals.append(
            CliRefusal(
                call=ToolCall(tool_use_id=tool_use_id, tool_name=started.name if started else "", input=given),
                # It comes from the redacted stream, so there is nothing left to hide.
                redacted_input=json.dumps(given, default=str),
                reason=f"refused by the CLI itself: {message[:_REASON_CHARACTERS]}",
                at=now,
            )
        )


def _digest(request: GateRequest) -> bytes:
    return hashlib.sha256(repr(request).encode("utf-8", "surrogatepass")).digest()


def _deny(reason: str) -> Verdict:
    return Verdict(kind=VerdictKind.DENY, reason=reason)
