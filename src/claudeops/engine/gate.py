"""Answers every tool call: judged by the policy, recorded, then answered. Never the other way round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, Verdict, VerdictKind
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError
from claudeops.logs import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudeops.domain.model import EscalationRules, Session, ToolCall
    from claudeops.engine.channel import Channel
    from claudeops.engine.ports import Clock, Store
    from claudeops.harness.protocol import GateRequest, Harness
    from claudeops.logs import Logger

RECORD_SECONDS: Final = 5.0
"""A verdict that is not recorded by then is a deny."""

UNAVAILABLE: Final = "database unavailable: a call that cannot be recorded does not run; try again later"


def _nobody(_call: ToolCall, _verdict: Verdict) -> None:
    return


@dataclass(kw_only=True, slots=True)
class Gate:
    """The gate of one session.

    Fail-closed at every step: an answer that is late, lost or never given means that the tool does not run.
    """

    session: Session
    judge: Callable[[ToolCall], Verdict]
    rules: EscalationRules
    store: Store
    clock: Clock
    show_input: Callable[[ToolCall], str]  # redacted JSON of a call's input
    log: Logger
    record_seconds: float = RECORD_SECONDS
    told: Callable[[ToolCall, Verdict], None] = _nobody  # hears of every verdict, to tell it live
    allowed: set[str] = field(default_factory=set)  # tool_use_ids that got our yes
    _withdrawn: dict[str, anyio.CancelScope] = field(default_factory=dict)

    async def answer(self, request: GateRequest, *, harness: Harness, channel: Channel) -> None:
        """Judge, record and answer one request; bounded by ``record_seconds`` and the channel's own bound."""
        with anyio.CancelScope() as scope:
            self._withdrawn[request.request_id] = scope
            try:
                verdict = await self._decide(request.call)
                await channel.send(harness.answer(request, verdict))
            finally:
                del self._withdrawn[request.request_id]

    def withdraw(self, request_id: str) -> None:
        """Forget a request that the CLI no longer waits for."""
        if (scope := self._withdrawn.get(request_id)) is not None:
            scope.cancel()

    def ran_ungated(self, tool_use_id: str, *, is_error: bool) -> bool:
        """Return whether a result came for a call that never got our yes. A refused call ends as an error."""
        return not is_error and tool_use_id not in self.allowed

    async def _decide(self, call: ToolCall) -> Verdict:
        requested_at = self.clock.now()
        verdict = _without_ask(self.judge(call))
        try:
            with anyio.fail_after(self.record_seconds):
                verdict = await self.store.record_call(
                    self.session,
                    call,
                    verdict,
                    shown_input=self.show_input(call),
                    rules=self.rules,
                    requested_at=requested_at,
                    now=self.clock.now(),
                )
        except (DatabaseUnavailableError, TimeoutError):
            verdict = Verdict(kind=VerdictKind.DENY, reason=UNAVAILABLE)
            self.log.error(LogEvent.TOOL_CALL_UNRECORDED, tool=call.tool_name, tool_use_id=call.tool_use_id)
        except StaleAttemptError as error:
            verdict = Verdict(kind=VerdictKind.DENY, reason="this session is no longer the current one")
            self.log.error(LogEvent.STALE_ATTEMPT, error=str(error))
        if verdict.kind is VerdictKind.ALLOW:
            # Before the answer goes out: the result of the call may be in the stream a moment later.
            self.allowed.add(call.tool_use_id)
        if call.tool_name != STRUCTURED_OUTPUT_TOOL:
            self.log.info(
                LogEvent.TOOL_CALL_JUDGED,
                tool=call.tool_name,
                tool_use_id=call.tool_use_id,
                verdict=verdict.kind.value,
                reason=verdict.reason,
                actions=[f"{action.kind}:{action.service}" for action in verdict.actions],
            )
        self.told(call, verdict)
        return verdict


def _without_ask(verdict: Verdict) -> Verdict:
    """Nobody can be asked yet: what needs approval is denied."""
    if verdict.kind is not VerdictKind.ASK:
        return verdict
    return Verdict(kind=VerdictKind.DENY, reason=f"needs approval, and nobody can be asked: {verdict.reason}")
