"""Our own frames: what a caller sends to ``exec-command`` on its stdin, read strictly, and what it prints.

The form is caliban's. Out: one init frame first, then messages and calls as they come, one result frame last, whatever
happened. In: user frames, each of which is run on its own, and interrupts. A frame with an unknown type or key is a
fault, because a caller who is misunderstood should learn so before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.domain.sessions import DecisionReason, Outcome, Session
from claudeops.domain.stream.events import ApiRetried, AssistantText, CliWarned, StreamEvent, ToolEnded, ToolStarted
from claudeops.domain.stream.transcript import Transcript
from claudeops.structs import replace

INPUT_BYTES: Final = 10 * 1024 * 1024
"""The most that is read from stdin, in either format."""

NO_USER_FRAME: Final = "no user frame found in stream-json stdin input"

_OK: Final = 0
_FAILED: Final = 1
_NO_REPORT: Final = 2
_BAD_FRAME: Final = 64
_NO_INPUT: Final = 66
_TRY_LATER: Final = 75
_TOO_LONG: Final = 78
_CANCELLED: Final = 124
_BUDGET: Final = 137

_PERMISSION_MODE: Final = "dontAsk"  # the gate answers every call
_SUBTYPES: Final[Mapping[Outcome, tuple[str, int]]] = {
    Outcome.SUCCESS: ("success", _OK),
    Outcome.MAX_TURNS: ("max_turns", _TRY_LATER),
    Outcome.BUDGET_EXCEEDED: ("budget_exceeded", _BUDGET),
    Outcome.CANCELLED: ("cancelled", _CANCELLED),
    Outcome.MAX_TOKENS: ("max_tokens", _FAILED),
    # A session that we end for its clock is cancelled by us; the key ``outcome`` says why.
    Outcome.TIMEOUT: ("cancelled", _CANCELLED),
    Outcome.STARTUP_TIMEOUT: ("cancelled", _CANCELLED),
    Outcome.STALLED: ("cancelled", _CANCELLED),
}
"""By outcome: subtype of the result frame, and exit status. Every other outcome is an error."""


# --- in -----------------------------------------------------------------------------------------------


class UserTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be done."""

    text: str


class Interrupt(msgspec.Struct, frozen=True):
    """What runs is to be stopped; what follows in the input is still done."""


class InputFault(msgspec.Struct, frozen=True, kw_only=True):
    """The input cannot be used from here on; what came before it was done."""

    says: str  # one sentence
    exit_status: int


InputFrame = UserTurn | Interrupt | InputFault


class InputReader:
    """Reads a ``stream-json`` input: bytes in, requests out. After a fault nothing comes any more."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []  # of the line that has not ended yet
        self._lines = 0
        self._bytes = 0
        self._users = 0
        self._is_over = False

    def push(self, chunk: bytes) -> list[InputFrame]:
        """Return what the lines ask for that ``chunk`` completes."""
        self._bytes += len(chunk)
        if self._bytes > INPUT_BYTES:
            return self._of([too_long()])
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pending, lines[0]))
            self._pending.clear()
        self._pending.append(rest)
        return self._of(map(self._line, lines))

    def close(self) -> list[InputFrame]:
        """Return what is left when the input has ended; a fault if there was no request at all."""
        found = self._of([self._line(b"".join(self._pending))])
        if not self._users:
            found += self._of([InputFault(says=NO_USER_FRAME, exit_status=_NO_INPUT)])
        return found

    def _of(self, frames: Iterable[InputFrame | None]) -> list[InputFrame]:
        found: list[InputFrame] = []
        for frame in frames:
            if frame is not None and not self._is_over:
                found.append(frame)
                self._users += isinstance(frame, UserTurn)
                self._is_over = isinstance(frame, InputFault)
        return found

    def _line(self, line: bytes) -> InputFrame | None:
        self._lines += 1
        return self._frame(line) if line.strip() else None

    def _frame(self, line: bytes) -> InputFrame:
        try:
            frame = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._fault("is no JSON")
        match frame:
            case {"type": "user", "content": content} if len(frame) == 2:  # noqa: PLR2004 - these two keys
                text = _text(content)
                return self._fault("has no text in its content") if text is None else UserTurn(text=text)
            case {"type": "control", "subtype": "interrupt"} if len(frame) == 2:  # noqa: PLR2004 - these two keys
                return Interrupt()
            case _:
                return self._fault(
                    'is neither {"type": "user", "content": …} nor {"type": "control", "subtype": "interrupt"}'
                )

    def _fault(self, what: str) -> InputFault:
        return InputFault(says=f"line {self._lines} of the input {what}", exit_status=_BAD_FRAME)


def too_long() -> InputFault:
    """Return the fault of an input that is too long."""
    return InputFault(says=f"the input is longer than {INPUT_BYTES} bytes", exit_status=_TOO_LONG)


def prompt_of(data: bytes) -> UserTurn | InputFault:
    """Return a whole input of the format ``text`` as what is to be done."""
    if len(data) > INPUT_BYTES:
        return too_long()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return InputFault(says="the input is not UTF-8", exit_status=_BAD_FRAME)
    if not text.strip():
        return InputFault(says="the input is empty", exit_status=_NO_INPUT)
    return UserTurn(text=text.strip())


def _text(content: object) -> str | None:
    if isinstance(content, str):
        return content.strip() or None
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "text": str(text)} if len(block) == 2:  # noqa: PLR2004 - these two keys
                texts.append(text)
            case _:
                return None
    return "\n".join(texts).strip() or None


# --- out ----------------------------------------------------------------------------------------------


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What all passes together have used."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    cost_usd: float | None = None  # None: nothing is known of it
    last_text: str | None = None

    def with_session(self, session: Session, transcript: Transcript | None) -> Totals:
        """Return the totals with one more session; ``transcript`` is what its log says, if it has one."""
        costs = [cost for cost in (self.cost_usd, session.cost_usd) if cost is not None]
        more = replace(
            self, turns=self.turns + (session.num_turns or 0), cost_usd=round(sum(costs), 10) if costs else None
        )
        if transcript is None:
            return more
        return replace(
            more,
            input_tokens=self.input_tokens + transcript.input_tokens,
            output_tokens=self.output_tokens + transcript.output_tokens,
            tool_calls=self.tool_calls + transcript.tool_calls_seen,
            last_text=transcript.last_assistant_text or transcript.text or self.last_text,
        )


class ExchangeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: what the result frame says, and the exit status."""

    subtype: str
    exit_status: int
    text: str | None = None  # of a success: the last words
    error: str | None = None  # of the subtype ``error``
    session: Session | None = None  # the last one that ran

    @classmethod
    def of(cls, session: Session, text: str | None) -> ExchangeVerdict:
        """Return how a pass ended whose last session is ``session``; ``text`` is its last statement."""
        subtype, exit_status = ("error", _FAILED)
        if session.outcome is not None:
            subtype, exit_status = _SUBTYPES.get(session.outcome, (subtype, exit_status))
        if session.outcome is Outcome.SUCCESS and session.decision_reason is DecisionReason.NO_REPORT:
            subtype, exit_status = "error", _NO_REPORT
        error = None
        if subtype == "error":
            error = session.error or ("no report was delivered" if exit_status == _NO_REPORT else "it did not succeed")
        last = (text or session.summary or "") if subtype == "success" else None
        return cls(subtype=subtype, exit_status=exit_status, text=last, error=error, session=session)

    @classmethod
    def cancelled(cls) -> ExchangeVerdict:
        """Return the end of what was interrupted before it began."""
        return cls(subtype="cancelled", exit_status=_CANCELLED)

    @classmethod
    def refused(cls, error: str, exit_status: int) -> ExchangeVerdict:
        """Return the end of what was not run, or not to its end."""
        return cls(subtype="error", exit_status=exit_status, error=error)


def init_frame(*, session_id: int | None, model: str, tools: Sequence[str], cwd: str, tier: int) -> dict[str, object]:
    """Return the first frame; ``session_id`` is that of the first session, ``None`` where none was queued."""
    return {
        "type": "system",
        "subtype": "init",
        "session_id": "" if session_id is None else str(session_id),
        "model": model,
        "tools": list(tools),
        "plugins": [],
        "settingSources": [],
        "mcp_servers": [],
        "bare_mode": False,
        "cwd": cwd,
        "permission_mode": _PERMISSION_MODE,
        "tier": tier,
    }


def frames_of(event: StreamEvent, *, session_id: int) -> Iterator[dict[str, object]]:
    """Yield what is printed of an event of a session's stream; subagents' own events are left out."""
    own = {"session_id": str(session_id)}
    match event:
        case AssistantText(from_subagent=False):
            content = [{"type": "text", "text": event.text}]
            yield {"type": "message", "role": "assistant", "content": content, **own}
        case ToolStarted(from_subagent=False):
            given = {} if event.input is None else dict(event.input)
            yield {"type": "tool_use", "id": event.tool_use_id, "name": event.name, "input": given, **own}
        case ToolEnded(from_subagent=False):
            content = [] if event.text is None else [{"type": "text", "text": event.text}]
            yield {
                "type": "tool_result",
                "tool_use_id": event.tool_use_id,
                "is_error": event.is_error,
                "content": content,
                **own,
            }
        case ApiRetried():
            retry = {"attempt": event.attempt, "error_status": event.status, "error_category": event.error or "other"}
            yield {"type": "system", "subtype": "api_retry", **retry, **own}
        case CliWarned():
            yield {"type": "warning", "subtype": event.subtype, "message": event.message, **own}
        case _:
            return


def result_frame(verdict: ExchangeVerdict, totals: Totals, *, duration_ms: int) -> dict[str, object]:
    """Return the last frame."""
    session = verdict.session
    frame: dict[str, object] = {
        "type": "result",
        "subtype": verdict.subtype,
        "session_id": "" if session is None else str(session.id),
        "total_cost_usd": totals.cost_usd,
        "turns": totals.turns,
        "num_turns": totals.turns,
        "total_input_tokens": totals.input_tokens,
        "total_output_tokens": totals.output_tokens,
        "usage": {"input_tokens": totals.input_tokens, "output_tokens": totals.output_tokens},
        "is_error": verdict.subtype != "success",
        "duration_ms": duration_ms,
        "turns_without_edit": 0,  # sessions repair services, not files: there is no count
        "no_edit_nudge_emitted": False,
        "exit_status": verdict.exit_status,
        "outcome": None if session is None else session.outcome,
        "decision": None if session is None else session.decision_reason,
    }
    if verdict.subtype == "success":
        return {**frame, "result": verdict.text or ""}
    if verdict.error is not None:
        frame["error"] = verdict.error
    if totals.last_text:
        frame["last_assistant_text"] = totals.last_text
    return {**frame, "tool_calls_seen": totals.tool_calls}
