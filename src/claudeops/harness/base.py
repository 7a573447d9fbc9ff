"""What the harnesses share: the environment of a child, and the defaults of a CLI that is started and left alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from claudeops.domain.calls import Verdict
from claudeops.domain.report.report import STRUCTURED_OUTPUT_TOOL
from claudeops.formats.stream import Transcript, TranscriptBuilder
from claudeops.harness.protocol import ExecutedCall, FrameReader, GateRequest, HarnessSignal, Spec

REPORT_REQUEST: Final = (
    f"There is no {STRUCTURED_OUTPUT_TOOL} tool in this session: your last message is the report, one JSON object that "
    "matches the schema you were given, with nothing around it."
)

_TAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "core.fsmonitor": "false",
        "core.hooksPath": "/dev/null",
        "core.pager": "cat",
        "core.editor": "false",
        "core.sshCommand": "false",
        "core.gitProxy": "false",
        "credential.helper": "",
        "diff.external": "",
        "gpg.program": "false",
        "gpg.ssh.program": "false",
        "gpg.x509.program": "false",
        "log.showSignature": "false",
    }
)
"""Overrides for settings by which a repository's own configuration makes git run programs.

Seen with git 2.39 on a hostile repository: only filters and text conversions are left, whose names the repository
chooses. The policy refuses the commands that use them.
"""


class BaseHarness:
    """A CLI that is started with one task and then left to itself."""

    stderr_is_noted: ClassVar[bool] = False

    def reader(self) -> FrameReader:
        """Return a reader of stream-json, with Claude's frames and caliban's."""
        return TranscriptBuilder()

    def signal(self, frame: Mapping[str, object], spec: Spec) -> HarnessSignal | None:  # noqa: ARG002 - the protocol's
        """Return nothing: the CLI asks nothing."""
        return None

    def acknowledge(self, call: ExecutedCall) -> bytes:  # noqa: ARG002 - the protocol's
        """Return nothing: a CLI without a gate reports nothing."""
        return b""

    def answer(self, request: GateRequest, verdict: Verdict) -> bytes:  # noqa: ARG002 - the protocol's
        """Return nothing: the CLI has not asked."""
        return b""

    def refuse(self, frame: Mapping[str, object]) -> bytes | None:  # noqa: ARG002 - the protocol's
        """Return nothing: the CLI asks nothing."""
        return None

    def interrupt(self) -> bytes | None:
        """Return nothing: the CLI reacts to signals only."""
        return None

    def repair(self, errors: tuple[str, ...]) -> bytes | None:  # noqa: ARG002 - the protocol's
        """Return nothing: the CLI's input has ended."""
        return None

    def with_last_message(self, transcript: Transcript, text: str) -> Transcript:  # noqa: ARG002 - the protocol's
        """Return the transcript as it is: the stream says everything."""
        return transcript

    def kept_stderr(self, line: str) -> str:
        """Return the line as it is."""
        return line

    def stderr_notes(self, stderr: str) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        """Return nothing."""
        return ()


def git_environment() -> dict[str, str]:
    """Return variables (git(1), git-config(1): ``GIT_CONFIG_COUNT``) that outrank a repository's configuration.

    No protocol is allowed: a partial clone fetches missing objects through a program of the repository's choice.
    """
    numbered = enumerate(_TAMED.items())
    pairs = {
        f"GIT_CONFIG_{part}_{n}": text
        for n, pair in numbered
        for part, text in zip(("KEY", "VALUE"), pair, strict=True)
    }
    return {
        **pairs,
        "GIT_CONFIG_COUNT": str(len(_TAMED)),
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
    }


def plain_environment() -> dict[str, str]:
    """Return what every program reads the same text with: the C locale, which no ``LANGUAGE`` changes; no pager."""
    return {"LC_ALL": "C", "TERM": "dumb", "PAGER": "cat", "SYSTEMD_PAGER": "cat"}


def environment(spec: Spec, own: Mapping[str, str]) -> dict[str, str]:
    """Return a child's whole environment: passed variables, then the CLI's ``own``, then those that always win."""
    return {
        **spec.passed_env,
        **own,
        "HOME": spec.home,
        "PATH": spec.path,
        "SHELL": spec.shell,
        "TMPDIR": spec.tmpdir,
        **plain_environment(),
        **git_environment(),
    }


def one_message(spec: Spec, *closing: str) -> str:
    """Return system text and task as one message, for a CLI that has no other place for system text.

    The system text holds words of models and of texts that they have read. Its delimiters carry the session's id, which
    no author of those words could know, so nothing in it can end the system text and continue as the task.
    """
    tag = f"system-text-{spec.cli_session_id}"
    return "\n\n".join(
        (
            f"Between the two lines that say {tag} stands the context of this session; read it as a system prompt.",
            f"<{tag}>\n{spec.system}\n</{tag}>",
            "The task:",
            spec.task,
            *closing,
        )
    )
