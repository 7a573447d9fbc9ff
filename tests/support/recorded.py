"""What the recorded streams of the real CLI hold, read from the files by eye, not from our output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from claudeops.domain.chains.outcome import ProcessExit, StopCause
from claudeops.domain.sessions import ErrorCategory, FailureKind, Outcome
from claudeops.formats.stream import ApiRetried

EMPTY_REPORT = {"summary": "ok", "events": [], "escalation": {"needed": False}, "services_checked": []}
EMPTY_REPORT_TEXT = '{"summary":"ok","events":[],"escalation":{"needed":false},"services_checked":[]}'
VIOLATION = {"summary": 1}
HAIKU_4 = "claude-haiku-4-5-20251001"
HAIKU_5 = "claude-haiku-5-5"
FAILED_AFTER_FIVE = "Failed to provide valid structured output after 5 attempts"
SAID_TWICE = "just text [EVENT:info] hi\njust text [EVENT:info] hi"


@dataclass(frozen=True, kw_only=True)
class Golden:
    """What one recording holds, and how its session ended."""

    name: str
    exited: ProcessExit = field(default_factory=lambda: ProcessExit(code=0))
    has_report: bool = False
    facts: dict[str, Any]
    calls: dict[str, tuple[str, bool, bool]] = field(default_factory=dict)  # id: name, ended, is_error
    outcome: Outcome
    category: ErrorCategory | None = None
    kind: FailureKind | None = None
    error: str | None = None
    clean: bool = False
    warnings: tuple[str, ...] = ()


GOLDEN = [
    Golden(
        name="2.1.197/api-400-credit",
        exited=ProcessExit(code=1),
        facts={
            "lines": 3,
            "frames": 3,
            "session_id": "99f27ac5-0a4a-47ce-a7c9-f643f3df500a",
            "api_key_source": "ANTHROPIC_API_KEY",
            "model": HAIKU_4,
            "cli_version": "2.1.197",
            "permission_mode": "default",
            "mcp_servers": (),
            "text": "Credit balance is too low",
            "last_assistant_text": "Credit balance is too low",
            "result_text": "Credit balance is too low",
            "subtype": "success",
            "is_error": True,
            "error_text": "Credit balance is too low",
            "error_label": "billing_error",
            "api_error_status": 400,
            "terminal_reason": "completed",
            "stop_reason": "stop_sequence",
            "num_turns": 1,
            "input_tokens": 0,
            "output_tokens": 0,
            "cost_usd": 0.0,
            "duration_ms": 153,
            "structured_outputs": (),
            "structured_calls": (),
            "permission_denials": (),
            "tool_calls_seen": 0,
            "unknown_frames": 0,
            "malformed_lines": 0,
        },
        outcome=Outcome.ERROR,
        category=ErrorCategory.API,
        kind=FailureKind.BILLING,
        error="Credit balance is too low",
    ),
    Golden(
        name="2.1.197/api-429-then-success",
        has_report=True,
        facts={
            "lines": 5,
            "session_id": "e5b10045-1a89-43a9-93ee-63d0821cbc4e",
            "text": "",
            "last_assistant_text": None,
            "result_text": EMPTY_REPORT_TEXT,
            "api_retries": 1,
            "last_retry": None,
            "stop_reason": "tool_use",
            "num_turns": 2,
            "input_tokens": 1000,
            "output_tokens": 50,
            "cached_input_tokens": 0,
            "reasoning_output_tokens": None,
            "cost_usd": 0.00125,
            "duration_ms": 1123,
            "structured_outputs": (EMPTY_REPORT,),
            "structured_calls": (EMPTY_REPORT,),
        },
        calls={"toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.197/budget-exceeded",
        exited=ProcessExit(code=1),
        facts={
            "lines": 7,
            "text": "t\nt",
            "result_text": None,
            "final_text": "t",
            "terminal_reason": None,
            "num_turns": 2,
            "input_tokens": 1000,
            "output_tokens": 50,
            "cost_usd": 0.0025,
            "open_tools": ("toolu_0002_1",),
        },
        calls={"toolu_0001_1": ("Bash", True, False), "toolu_0002_1": ("Bash", False, False)},
        outcome=Outcome.BUDGET_EXCEEDED,
        category=ErrorCategory.API,
        kind=FailureKind.OTHER,
        error="Reached maximum budget ($0.002)",
    ),
    Golden(
        name="2.1.197/lines-after-result",
        has_report=True,
        facts={
            "lines": 10,
            "unknown_frames": 0,
            "results": 1,
            "text": "t",
            "cost_usd": 0.0025,
            "background_launches": 0,  # a background command is no subagent
            "structured_outputs": (EMPTY_REPORT,),
        },
        calls={"toolu_0001_1": ("Bash", True, False), "toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.197/max-turns",
        exited=ProcessExit(code=1),
        facts={
            "lines": 8,
            "text": "t\nt",
            "terminal_reason": "max_turns",
            "num_turns": 3,
            "cost_usd": 0.0025,
            "open_tools": (),
        },
        calls={"toolu_0001_1": ("Bash", True, False), "toolu_0002_1": ("Bash", True, False)},
        outcome=Outcome.MAX_TURNS,
        category=ErrorCategory.API,
        kind=FailureKind.OTHER,
        error="Reached maximum number of turns (2)",
    ),
    Golden(
        name="2.1.197/not-logged-in",
        exited=ProcessExit(code=1),
        facts={
            "lines": 3,
            "api_key_source": "none",
            "error_label": "authentication_failed",
            "api_error_status": None,
            "cost_usd": 0.0,
        },
        outcome=Outcome.ERROR,
        category=ErrorCategory.AUTH,
        kind=FailureKind.AUTH,
        error="Not logged in · Please run /login",
    ),
    Golden(
        name="2.1.197/partial-messages",
        has_report=True,
        facts={
            "lines": 20,
            "unknown_frames": 0,
            "text": "hello world",
            "cost_usd": 0.0025,
            "structured_outputs": (EMPTY_REPORT,),
        },
        calls={"toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.197/resume-unknown-session",
        exited=ProcessExit(code=1),
        facts={
            "lines": 1,
            "session_id": "00000000-0000-4000-8000-000000000000",
            "api_key_source": None,
            "model": None,
            "tools": (),
            "num_turns": 0,
            "cost_usd": 0.0,
            "reasoning_output_tokens": 0,
        },
        outcome=Outcome.ERROR,
        category=ErrorCategory.API,
        kind=FailureKind.OTHER,
        error="No conversation found with session ID: 00000000-0000-4000-8000-000000000000",
    ),
    Golden(
        name="2.1.197/sigterm-no-result",
        exited=ProcessExit(code=143),
        facts={
            "lines": 3,
            "text": "t",
            "result_seen": False,
            "cost_usd": None,
            "open_tools": ("toolu_0001_1",),
        },
        calls={"toolu_0001_1": ("Bash", False, False)},
        outcome=Outcome.NO_RESULT,
        kind=FailureKind.OTHER,
        warnings=("stream-json ended without a 'result' message; token usage unavailable",),
    ),
    Golden(
        name="2.1.197/structured-retries-exhausted",
        exited=ProcessExit(code=1),
        facts={
            "lines": 12,
            "num_turns": 6,
            "input_tokens": 4000,
            "output_tokens": 200,
            "cost_usd": 0.005,
            "structured_outputs": (),
            "structured_calls": (VIOLATION,) * 5,
            "tool_errors": 5,
        },
        calls={f"toolu_000{n}_0": ("StructuredOutput", True, True) for n in range(1, 6)},
        outcome=Outcome.ERROR,
        category=ErrorCategory.API,
        kind=FailureKind.OTHER,
        error=FAILED_AFTER_FIVE,
    ),
    Golden(
        name="2.1.197/success-without-structured-output",
        facts={
            "lines": 5,
            "text": SAID_TWICE,
            "result_text": "just text [EVENT:info] hi",
            "stop_reason": "end_turn",
            "structured_calls": (),
        },
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.197/success",
        has_report=True,
        facts={"lines": 4, "text": "", "num_turns": 2, "cost_usd": 0.00125, "structured_outputs": (EMPTY_REPORT,)},
        calls={"toolu_0001_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.197/tool-denied-dontask",
        has_report=True,
        facts={
            "lines": 7,
            "permission_mode": "dontAsk",
            "tools": ("Bash", "Read", "StructuredOutput"),
            "tool_errors": 1,
        },
        calls={"toolu_0001_1": ("Bash", True, True), "toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.329/api-401-retrying-killed",
        exited=ProcessExit(code=-9, stop=StopCause.AUTH_REFUSED),
        facts={
            "lines": 6,
            "session_id": "ef0d8253-ccdb-4813-89f3-b95521bd6c36",
            "api_retries": 5,
            "last_retry": ApiRetried(attempt=5, status=401, error="authentication_failed"),
            "text": "",
            "cost_usd": None,
            "result_seen": False,
        },
        outcome=Outcome.ERROR,
        category=ErrorCategory.AUTH,
        kind=FailureKind.AUTH,
        error="ended: the model API refuses the credentials",
    ),
    Golden(
        name="2.1.329/structured-retries-exhausted",
        exited=ProcessExit(code=1),
        facts={
            "lines": 12,
            "num_turns": 6,
            "cost_usd": 0.000625,
            "terminal_reason": "structured_output_retry_exhausted",
            "structured_calls": (VIOLATION,) * 5,
            "tool_errors": 5,
        },
        calls={f"toolu_000{n}_0": ("StructuredOutput", True, True) for n in range(1, 6)},
        outcome=Outcome.ERROR,
        category=ErrorCategory.API,
        kind=FailureKind.OTHER,
        error=FAILED_AFTER_FIVE
        + " — last StructuredOutput error: Output does not match required schema: root: must have required property"
        " 'events', root: must have required property 'escalation', root: must have required property"
        " 'services_checked', /summary: must be string",
    ),
    Golden(
        name="2.1.329/success-without-structured-output",
        facts={"lines": 5, "text": "just text\njust text", "result_text": "just text", "cost_usd": 0.00025},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.329/success",
        has_report=True,
        facts={
            "lines": 7,
            "session_id": "670033f8-2ca5-4a09-8f30-443dd1de556f",
            "model": HAIKU_5,
            "cli_version": "2.1.329",
            "text": "t",
            "result_text": EMPTY_REPORT_TEXT,
            "num_turns": 3,
            "input_tokens": 2000,
            "output_tokens": 100,
            "reasoning_output_tokens": 0,
            "cost_usd": 0.00025,
            "duration_ms": 202,
            "structured_outputs": (EMPTY_REPORT,),
        },
        calls={"toolu_0001_1": ("Bash", True, False), "toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
    Golden(
        name="2.1.329/tool-denied-dontask",
        has_report=True,
        facts={"lines": 8, "unknown_frames": 0, "permission_mode": "dontAsk", "num_turns": 3, "tool_errors": 1},
        calls={"toolu_0001_1": ("Bash", True, True), "toolu_0002_0": ("StructuredOutput", True, False)},
        outcome=Outcome.SUCCESS,
        clean=True,
    ),
]
