"""What the engine asks of a harness: one kind of CLI, described by values.

A harness is pure. What it wants written before the start and read after the end it names by path; the engine does
the writing and the reading. What a CLI cannot do is a declared capability, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from claudeops.domain.model import ToolCall, Verdict
from claudeops.domain.stream import Frame, Malformed, StreamEvent, Transcript


class CredentialKind(StrEnum):
    """What opens the model API."""

    API_KEY = "api_key"
    OAUTH_TOKEN = "oauth_token"  # noqa: S105 - the kind's name, no secret


class Question(StrEnum):
    """In which of its two ways the CLI asks."""

    HOOK = "hook"  # before every call; must be answered soon
    PERMISSION = "permission"  # where no rule decides; may wait for people


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What a CLI can do; each ``False`` is something that the daemon does without, or refuses to do without."""

    gate: bool  # every tool call is answered before it runs
    talks: bool  # reads its stdin while it runs; else its input ends with the opening
    repairs: bool  # asked once more, in the same process, for a missing report
    own_session_id: bool  # takes the session id that we chose; else it chooses one and says it
    key_by_descriptor: bool  # reads the daemon's credential from a descriptor, so that no tool inherits it
    metered: bool  # its model calls can be sent through the daemon, which counts and limits them


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """One session as a harness needs to know it."""

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
    read_only: bool = True  # nothing may be changed: a tier that only observes, and every one in a dry run
    passed_env: Mapping[str, str] = field(default_factory=dict)  # variables of ours and of the operator's
    base_url: str | None = None  # the model API; None = the CLI's own default
    credential: CredentialKind | None = None
    credential_fd: int | None = None  # the child reads the credential here, so that no tool inherits it
    mcp_config: str | None = None  # path of the operator's own MCP file
    mcp_servers: tuple[str, ...] = ()  # the names of the servers in it
    mcp_start_seconds: float | None = None  # how long a server may take to start; None = the CLI's own default
    mcp_call_seconds: float | None = None  # how long a call of one of their tools may take; None = the same


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFile:
    """A file that the CLI reads."""

    path: str  # absolute, in a directory of the session
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What to start. ``argv`` holds flags only: no prompt, no secret."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    directories: tuple[str, ...] = ()  # to be there before the start
    files: tuple[TextFile, ...] = ()  # to be written before the start
    last_message: str | None = None  # path of the file in which the CLI leaves its last words


@dataclass(frozen=True, kw_only=True, slots=True)
class GateRequest:
    """The CLI asks whether a tool call may run."""

    request_id: str
    call: ToolCall
    question: Question = Question.HOOK


@dataclass(frozen=True, kw_only=True, slots=True)
class GateCancelled:
    """The CLI no longer waits for an answer; the call does not run."""

    request_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InitMismatch:
    """The CLI's init line grants other tools, permission mode or MCP servers than were asked for."""

    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRan:
    """The CLI tells with which input a tool call has run, and waits for a word that it was acknowledge."""

    request_id: str
    tool_use_id: str
    input: Mapping[str, object]


HarnessSignal = GateRequest | GateCancelled | InitMismatch | CallRan


class Reader(Protocol):
    """Makes facts and a transcript of one session's frames. Nothing that arrives raises."""

    def feed(self, item: Frame | Malformed | None) -> tuple[StreamEvent, ...]:
        """Take one line as `decode` gave it and return the new facts; every line is fed, blank ones too."""

    def close(self) -> Transcript:
        """Return the transcript so far. More may follow: a later call returns a later snapshot."""


class Harness(Protocol):
    """One kind of CLI; stateless."""

    @property
    def name(self) -> str:
        """Return the name that settings and rows know it by."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what this CLI can do."""

    def command(self, spec: Spec) -> Command:
        """Return the command line, the whole environment of the child, and what must be on disk for it."""

    def opening(self, spec: Spec) -> bytes:
        """Return the bytes that start the conversation, to be written to the child's stdin."""

    @property
    def stderr_is_noted(self) -> bool:
        """Say whether words on stderr are a warning after a success too, or only noise."""

    def reader(self) -> Reader:
        """Return a new reader for one session's output."""

    def signal(self, frame: Mapping[str, object], spec: Spec) -> HarnessSignal | None:
        """Return what a frame asks of the engine, if anything. Never raises, whatever the frame holds."""

    def answer(self, request: GateRequest, verdict: Verdict) -> bytes:
        """Return the bytes that answer a gate request. Without a gate nobody asks, and nothing is answered."""

    def acknowledge(self, told: CallRan) -> bytes:
        """Return the bytes that let the CLI go on after it has told what ran."""

    def interrupt(self) -> bytes | None:
        """Return the bytes that ask the CLI to stop its turn and print a result line, if it heeds any."""

    def repair(self, errors: tuple[str, ...]) -> bytes | None:
        """Return the bytes of one more user message that asks for a valid report, if the CLI takes any."""

    def with_last_message(self, transcript: Transcript, text: str) -> Transcript:
        """Return a whole transcript with what the file of the last message adds to it."""

    def kept_stderr(self, line: str) -> str:
        """Return a line of stderr as it may be kept; known secrets are hidden beside this."""

    def stderr_notes(self, stderr: str) -> tuple[str, ...]:
        """Return the warnings that stand in what the CLI wrote to stderr."""
