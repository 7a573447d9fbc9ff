"""The protocol between engine and harness: one kind of CLI, described by values.

A harness is pure. It only names the files that must be written before the start and read after the end; the engine
writes and reads them. What a CLI cannot do is a declared capability, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.formats.stream import Malformed, StreamEvent, StreamFrame, Transcript


class CredentialKind(StrEnum):
    """What gives access to the model API."""

    API_KEY = "api_key"
    OAUTH_TOKEN = "oauth_token"  # noqa: S105 - the kind's name, no secret


class QuestionWay(StrEnum):
    """The two ways in which the CLI asks."""

    HOOK = "hook"  # before every call; must be answered soon
    PERMISSION = "permission"  # where no rule decides; may wait for people


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAccess:
    """How sessions reach the model API. The secret goes to the CLI through a descriptor, never by environment."""

    base_url: str | None = None
    credential: CredentialKind | None = None
    secret: str | None = field(default=None, repr=False)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a CLI can do; the daemon either does without a capability that is ``False``, or refuses to."""

    gate: bool  # every tool call is answered before it runs
    talks: bool  # reads its stdin while it runs; otherwise its input ends with the opening
    repairs: bool  # can be asked for a missing report once more, in the same process
    own_session_id: bool  # takes the session id that we chose; otherwise it chooses one and reports it
    key_by_descriptor: bool  # reads the daemon's credential from a descriptor, so that no tool inherits it
    metered: bool  # its model calls can be sent through the daemon, which counts and limits them
    model_urls: tuple[str, ...] = ()  # where it finds models, unless it is sent to another address
    resumes: bool = False  # can go on with the conversation of an earlier session


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """An earlier session with whose conversation a new one goes on."""

    cli_session_id: str
    log: bytes = field(repr=False)  # its log, after those of the sessions that it went on with itself


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a harness needs to know about one session."""

    binary: str  # path of the CLI
    model: str
    cli_session_id: str  # UUID chosen by us
    schema_text: str  # the response schema, minified
    task: str  # fixed text: the user message
    system: str  # everything variable: appended to the system prompt
    tools: tuple[str, ...]  # the tools that exist at all
    max_turns: int
    max_budget_usd: float
    home: str  # the session's own home directory
    workdir: str
    tmpdir: str
    state_dir: str  # the session's own; no tool of a sandboxed CLI writes here
    path: str  # PATH of the child
    shell: str = "/bin/bash"  # with which it starts tools
    read_only: bool = True  # nothing may be changed: a tier that only observes, and every tier in a dry run
    passed_env: Mapping[str, str] = msgspec.field(default_factory=dict)  # variables of ours and of the operator
    base_url: str | None = None  # the model API; None = the CLI's own default
    credential: CredentialKind | None = None
    credential_fd: int | None = None  # the child reads the credential here, so that no tool inherits it
    resumed: Resumed | None = None
    mcp_config: str | None = None  # path of the operator's own MCP file
    mcp_servers: tuple[str, ...] = ()  # the names of the servers in it
    mcp_start_seconds: float | None = None  # how long a server may take to start; None = the CLI's own default
    mcp_call_seconds: float | None = None  # how long a call of one of their tools may take; None = the same


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the CLI reads."""

    path: str  # absolute, in a directory of the session
    text: str


class CliCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. ``argv`` holds flags only: no prompt, no secret."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    directories: tuple[str, ...] = ()  # that must exist before the start
    files: tuple[TextFile, ...] = ()  # that must be written before the start
    last_message: str | None = None  # path of the file in which the CLI leaves its last words


class GateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI asks whether a tool call may run."""

    request_id: str
    call: ToolCall
    question: QuestionWay = QuestionWay.HOOK


class GateCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI no longer waits for an answer; the call does not run."""

    request_id: str


class InitMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI's init line has other tools, another permission mode or other MCP servers than were asked for."""

    detail: str


class ExecutedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The CLI reports the input with which a tool call has run, and waits for an acknowledgement."""

    request_id: str
    tool_use_id: str
    input: Mapping[str, object]


HarnessSignal = GateRequest | GateCancelled | InitMismatch | ExecutedCall


class FrameReader(Protocol):
    """Turns one session's frames into events and a transcript. No input raises."""

    def feed(self, item: StreamFrame | Malformed | None) -> tuple[StreamEvent, ...]:
        """Take one line as `decode` returned it and return the new facts; every line is fed, blank ones too."""

    def close(self) -> Transcript:
        """Return the transcript so far. More lines may follow: a later call returns a later snapshot."""


class Harness(Protocol):
    """One kind of CLI; stateless."""

    @property
    def name(self) -> str:
        """Return its name in settings and rows."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what this CLI can do."""

    def command(self, spec: Spec) -> CliCommand:
        """Return the command line, the child's whole environment, and what must be on disk for it."""

    def opening(self, spec: Spec) -> bytes:
        """Return the bytes that start the conversation, to be written to the child's stdin."""

    @property
    def stderr_is_noted(self) -> bool:
        """Say whether stderr output is a warning after a success too, or only noise."""

    def reader(self) -> FrameReader:
        """Return a new reader for one session's output."""

    def signal(self, frame: Mapping[str, object], spec: Spec) -> HarnessSignal | None:
        """Return what a frame asks of the engine, if anything. Never raises, whatever the frame holds."""

    def answer(self, request: GateRequest, verdict: Verdict) -> bytes:
        """Return the bytes that answer a gate request. Without a gate there are no requests, and no answers."""

    def acknowledge(self, call: ExecutedCall) -> bytes:
        """Return the bytes that let the CLI continue after it has reported what ran."""

    def refuse(self, frame: Mapping[str, object]) -> bytes | None:
        """Return the error for a frame that asks what `signal` does not know; ``None`` if it asks nothing."""

    def interrupt(self) -> bytes | None:
        """Return the bytes that ask the CLI to stop its turn and print a result line; ``None`` if it reads none."""

    def repair(self, errors: tuple[str, ...]) -> bytes | None:
        """Return the bytes of one more user message that asks for a valid report; ``None`` if it reads none."""

    def with_last_message(self, transcript: Transcript, text: str) -> Transcript:
        """Return a whole transcript with what the file of the last message adds to it."""

    def kept_stderr(self, line: str) -> str:
        """Return a line of stderr in the form in which it may be kept; known secrets are redacted separately."""

    def stderr_notes(self, stderr: str) -> tuple[str, ...]:
        """Return the warnings in the CLI's stderr."""
