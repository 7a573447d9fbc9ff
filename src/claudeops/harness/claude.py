"""The ``claude`` CLI, driven by its control protocol over stdin and stdout.

Observed with CLI 2.1.197 and 2.1.329. The gate is the ``PreToolUse`` hook callback of the control protocol. Unlike hook
scripts it fails closed: without an answer, with a late answer or with a dead host the tool does not run.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Final

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.domain.spending.prices import canonical, concrete
from claudeops.harness.base import BaseHarness, environment
from claudeops.harness.claude_conversation import conversation_file
from claudeops.harness.protocol import (
    Capabilities,
    CliCommand,
    CredentialKind,
    ExecutedCall,
    GateCancelled,
    GateRequest,
    HarnessSignal,
    InitMismatch,
    QuestionWay,
    Spec,
    TextFile,
)
from claudeops.text import regex

PERMISSION_MODE: Final = "dontAsk"
"""The CLI denies, without asking, what no rule allows; the gate's ``allow`` is the only yes."""

HOOK_ID: Final = "gate"
RAN_ID: Final = "ran"
HOOK_TIMEOUT_SECONDS: Final = 60
"""How long the CLI waits for the gate; a later answer is ignored, and the tool does not run."""

_OFF: Final[Mapping[str, str]] = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # `@/path` in a user message would put the file into the request without a tool call.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    # Background tasks outlive the result line and report a second, early result.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # The daemon decides what is remembered. The CLI's own memory would also put the session's path in the middle of the
    # system prompt, so that no session could use the model API's cache of an earlier one.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
}

_CREDENTIAL_FD: Final[Mapping[CredentialKind, str]] = {
    CredentialKind.API_KEY: "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    CredentialKind.OAUTH_TOKEN: "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
}

_OUTSIDE_NAMES: Final = regex.Pattern(r"[^a-zA-Z0-9_-]")
_SMALL: Final = "haiku"
_SUBTYPE_LENGTH: Final = 80  # characters that an answer repeats


class ClaudeHarness(BaseHarness):
    """Harness for the ``claude`` CLI; stateless.

    ``hook_timeout_seconds`` is how long the CLI waits for the gate.
    """

    name: Final = "claude"
    capabilities: Final = Capabilities(
        gate=True,
        talks=True,
        repairs=True,
        own_session_id=True,
        key_by_descriptor=True,
        metered=True,
        model_urls=("https://api.anthropic.com",),
        resumes=True,
    )

    def __init__(self, *, hook_timeout_seconds: int = HOOK_TIMEOUT_SECONDS) -> None:
        self._hook_timeout_seconds = hook_timeout_seconds

    def command(self, spec: Spec) -> CliCommand:
        """Return the command line (flags only) and the child's whole environment."""
        argv = [
            spec.binary,
            "-p",
            *("--input-format", "stream-json"),
            *("--output-format", "stream-json"),
            "--verbose",  # stream-json needs it with -p
            *("--permission-prompt-tool", "stdio"),
            *("--permission-mode", PERMISSION_MODE),
            *("--tools", ",".join(spec.tools)),
            # Without these two, a hostile working directory runs its own hooks and MCP servers.
            *("--setting-sources", ""),
            "--strict-mcp-config",
            "--disable-slash-commands",
            *("--model", spec.model),
            *("--session-id", spec.cli_session_id),
            *("--max-turns", str(spec.max_turns)),
            *("--max-budget-usd", f"{spec.max_budget_usd:g}"),
            *("--json-schema", spec.schema_text),
        ]
        if spec.mcp_config is not None:
            argv += ["--mcp-config", spec.mcp_config]
        files: tuple[TextFile, ...] = ()
        if spec.resumed is not None:
            argv += ["--resume", spec.resumed.cli_session_id, "--fork-session"]
            files = (conversation_file(spec.resumed, home=spec.home, workdir=spec.workdir, task=spec.task),)
        directories = tuple(posixpath.dirname(file.path) for file in files)
        return CliCommand(argv=tuple(argv), env=self._environment(spec), directories=directories, files=files)

    def _environment(self, spec: Spec) -> dict[str, str]:
        own = {
            **_OFF,
            "CLAUDE_CONFIG_DIR": f"{spec.home}/.claude",
            "CLAUDE_CODE_TMPDIR": spec.tmpdir,
        }
        if spec.base_url is not None:
            own["ANTHROPIC_BASE_URL"] = spec.base_url
        own |= _small_model(spec)
        own |= _mcp_times(spec)
        if spec.credential is not None and spec.credential_fd is not None:
            own[_CREDENTIAL_FD[spec.credential]] = str(spec.credential_fd)
        return environment(spec, own)

    def opening(self, spec: Spec) -> bytes:
        """Return ``initialize`` with the gate's hook, then the fixed task text as the user message."""
        hook = {"matcher": None, "hookCallbackIds": [HOOK_ID], "timeout": self._hook_timeout_seconds}
        ran = [{"matcher": None, "hookCallbackIds": [RAN_ID], "timeout": self._hook_timeout_seconds}]
        initialize = {
            "subtype": "initialize",
            "hooks": {"PreToolUse": [hook], "PostToolUse": ran, "PostToolUseFailure": ran},
            "appendSystemPrompt": spec.system,
        }
        return _control_request("initialize", initialize) + _user_message(spec.task)

    def signal(self, frame: Mapping[str, object], spec: Spec) -> HarnessSignal | None:
        """Return the gate request, its withdrawal, or the init mismatch that a frame carries."""
        kind = frame.get("type")
        if kind == "control_request":
            return _call_ran(frame) or _gate_request(frame)
        if kind == "control_cancel_request":
            return GateCancelled(request_id=str(frame.get("request_id")))
        if kind == "system" and frame.get("subtype") == "init":
            return _init_mismatch(frame, spec)
        if kind == "system" and frame.get("permissionMode", PERMISSION_MODE) != PERMISSION_MODE:
            return InitMismatch(detail=_wrong_mode(frame))
        return None

    def answer(self, request: GateRequest, verdict: Verdict) -> bytes:
        """Return the control response; anything but a plain allow or, to the hook, an ask is a deny."""
        allowed = verdict.kind is VerdictKind.ALLOW
        if request.question is QuestionWay.PERMISSION:
            # The input is always given, so that what runs is what was judged.
            body: dict[str, object] = (
                {"behavior": "allow", "updatedInput": dict(verdict.ran or request.call.input)}
                if allowed
                else {"behavior": "deny", "message": verdict.reason}
            )
        else:
            answer: dict[str, object] = {
                "hookEventName": "PreToolUse",
                # After an ``ask`` the CLI sends a permission request, which may wait for a person.
                "permissionDecision": verdict.kind.value,
                "permissionDecisionReason": verdict.reason,
            }
            if allowed and verdict.ran is not None:
                answer["updatedInput"] = dict(verdict.ran)
            body = {"hookSpecificOutput": answer}
        return _control_response(request.request_id, body)

    def acknowledge(self, call: ExecutedCall) -> bytes:
        """Return the empty answer to the hook after a call."""
        return _control_response(call.request_id, {})

    def refuse(self, frame: Mapping[str, object]) -> bytes | None:
        """Return the error for an unknown control request: without an answer the CLI would wait for minutes.

        A request without an id expects no answer.
        """
        if frame.get("type") != "control_request":
            return None
        request, request_id = frame.get("request"), frame.get("request_id")
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return None
        subtype = request.get("subtype") if isinstance(request, dict) else None
        named = f"the subtype {subtype[:_SUBTYPE_LENGTH]!r}" if isinstance(subtype, str) else "no subtype"
        error = f"claudeops does not answer control requests of {named}"
        return _line(
            {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}
        )

    def interrupt(self) -> bytes:
        """Return the request that ends the turn with a result line, cost included, within about 10 ms."""
        return _control_request("interrupt", {"subtype": "interrupt"})

    def repair(self, errors: tuple[str, ...]) -> bytes:
        """Return a user message that asks once more for the report; no ``--resume`` is needed for it."""
        faults = "\n".join(f"- {error}" for error in errors) or "- no report was delivered"
        return _user_message(
            "Your session ended without a valid report. What is wrong:\n"
            f"{faults}\n"
            f"Deliver the report now, complete and valid, through the {STRUCTURED_OUTPUT_TOOL} tool. "
            "Report only what you have really seen in this session; run no further checks."
        )


def _mcp_times(spec: Spec) -> dict[str, str]:
    """Return how long the CLI waits for MCP servers, in milliseconds; variables that the operator has set stay.

    By default it waits half a minute for a server to start, and more than a day for the answer of a tool.
    """
    times = {"MCP_TIMEOUT": spec.mcp_start_seconds, "MCP_TOOL_TIMEOUT": spec.mcp_call_seconds}
    known = {name: seconds for name, seconds in times.items() if seconds is not None and name not in spec.passed_env}
    return {name: str(max(1, round(seconds * 1000))) for name, seconds in known.items()}


def _small_model(spec: Spec) -> dict[str, str]:
    """Return variables that make the CLI use the tier's model for its small model too: a session has one model."""
    model = concrete(spec.model)
    if model is None or canonical(spec.model) == _SMALL:  # the CLI resolves this alias to its small model anyway
        return {}
    return dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), model)


def _call_ran(frame: Mapping[str, object]) -> ExecutedCall | None:
    request, request_id = frame.get("request"), frame.get("request_id")
    if not isinstance(request, dict) or not isinstance(request_id, str) or request.get("callback_id") != RAN_ID:
        return None
    report = request.get("input")
    report = report if isinstance(report, dict) else {}
    ran = report.get("tool_input")
    return ExecutedCall(
        request_id=request_id,
        tool_use_id=str(request.get("tool_use_id") or report.get("tool_use_id") or ""),
        input=ran if isinstance(ran, dict) else {},
    )


def _gate_request(frame: Mapping[str, object]) -> GateRequest | None:
    request = frame.get("request")
    request_id = frame.get("request_id")
    if not isinstance(request, dict) or not isinstance(request_id, str):
        return None
    if request.get("subtype") == "hook_callback":
        asked, question = request.get("input"), QuestionWay.HOOK
        input_key = "tool_input"
    elif request.get("subtype") == "can_use_tool":
        asked, question = request, QuestionWay.PERMISSION
        input_key = "input"
    else:
        return None
    if not isinstance(asked, dict):
        asked = {}
    tool_input = asked.get(input_key)
    agent_id, cwd = asked.get("agent_id"), asked.get("cwd")
    call = ToolCall(
        # A question without an id or a name is judged like any other: no rule allows it, so it is denied.
        tool_use_id=str(request.get("tool_use_id") or asked.get("tool_use_id") or ""),
        tool_name=str(asked.get("tool_name") or ""),
        input=tool_input if isinstance(tool_input, dict) else {},
        agent_id=agent_id if isinstance(agent_id, str) else None,
        cwd=cwd if isinstance(cwd, str) and cwd.startswith("/") else "",
    )
    return GateRequest(request_id=request_id, call=call, question=question)


def _init_mismatch(frame: Mapping[str, object], spec: Spec) -> InitMismatch | None:
    wrong: list[str] = []
    if frame.get("permissionMode") != PERMISSION_MODE:
        wrong.append(_wrong_mode(frame))
    tools = frame.get("tools")
    granted = {str(tool) for tool in tools} if isinstance(tools, list) else set()
    extra = {name for name in granted - {*spec.tools, STRUCTURED_OUTPUT_TOOL} if not _of_mcp(name, spec)}
    if extra:
        wrong.append(f"tools that were not asked for: {', '.join(sorted(extra))}")
    if servers := sorted(_servers(frame) - set(spec.mcp_servers)):
        wrong.append(f"MCP servers that were not asked for: {', '.join(servers)}")
    return InitMismatch(detail="; ".join(wrong)) if wrong else None


def _wrong_mode(frame: Mapping[str, object]) -> str:
    return f"permission mode {frame.get('permissionMode')!r} instead of {PERMISSION_MODE!r}"


def _servers(frame: Mapping[str, object]) -> set[str]:
    """Return the names of the MCP servers in an init line; a value of another shape counts as an unknown name."""
    servers = frame.get("mcp_servers") or []
    if not isinstance(servers, list):
        return {repr(servers)}
    return {str(server.get("name")) if isinstance(server, dict) else repr(server) for server in servers}


def _of_mcp(tool_name: str, spec: Spec) -> bool:
    """Tell whether a tool belongs to a requested server; the CLI replaces unusual characters with underscores."""
    return any(tool_name.startswith(f"mcp__{_OUTSIDE_NAMES.sub('_', name)}__") for name in spec.mcp_servers)


def _user_message(text: str) -> bytes:
    return _line({"type": "user", "message": {"role": "user", "content": text}})


def _control_request(request_id: str, request: Mapping[str, object]) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def _control_response(request_id: str, body: Mapping[str, object]) -> bytes:
    response = {"subtype": "success", "request_id": request_id, "response": body}
    return _line({"type": "control_response", "response": response})


def _line(message: Mapping[str, object]) -> bytes:
    # ASCII only: nothing on the way may take U+2028 and the like for line ends.
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
