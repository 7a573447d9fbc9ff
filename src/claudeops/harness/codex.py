"""The ``codex`` CLI, driven by ``codex exec --json``: a sandbox instead of a gate.

It reads its stdin to the end before it starts, has no place for system text, takes the schema as a file, and delivers
the report as the text of its last message. Launch, frames and rules follow clauditor's findings.
"""

from __future__ import annotations

from typing import ClassVar, Final

from claudeops.formats.stream import Transcript
from claudeops.harness.base import REPORT_REQUEST, BaseHarness, environment, one_message
from claudeops.harness.codex_frames import CodexReader, with_last_message
from claudeops.harness.codex_schema import strict_schema
from claudeops.harness.protocol import Capabilities, CliCommand, FrameReader, Spec, TextFile
from claudeops.text import regex

SANDBOX_READING: Final = "read-only"
SANDBOX_WRITING: Final = "workspace-write"
"""The widest sandbox in use: ``danger-full-access`` is not a sandbox, and is never requested."""

LINE_REDACTED: Final = "<line redacted: matched auth-leak pattern>"
_LEAK_WORDS: Final = ("api_key", "authorization", "openai_api_key=", "codex_api_key=", "codex_home=")
_LEAK_SHAPES: Final = regex.Pattern(r"sk-(proj-)?[A-Za-z0-9_-]{20}|Bearer \S{20}")
_DEPRECATION: Final = "codex-deprecation: the CLI says that something it was given is deprecated"


class CodexHarness(BaseHarness):
    """Harness for the ``codex`` CLI; stateless."""

    name: Final = "codex"
    capabilities: Final = Capabilities(
        gate=False,
        talks=False,
        repairs=False,
        own_session_id=False,
        key_by_descriptor=False,
        metered=False,
        model_urls=("https://api.openai.com", "https://auth.openai.com", "https://chatgpt.com"),
    )
    stderr_is_noted: ClassVar[bool] = True

    def command(self, spec: Spec) -> CliCommand:
        """Return the command line (flags only), the child's whole environment and its files.

        Access to the model API is what the operator gives to the tier: variables by name, or the ``.codex``
        directory of the tier's home.
        """
        last, codex_home = f"{spec.state_dir}/codex-last-message.txt", f"{spec.home}/.codex"
        schema = _schema_file(spec)
        argv = (
            spec.binary,
            "exec",
            "--json",
            *("--output-last-message", last),
            "--skip-git-repo-check",
            *("-s", SANDBOX_READING if spec.read_only else SANDBOX_WRITING),
            *("-m", spec.model),
            *(("--output-schema", schema.path) if schema else ()),
            "-",
        )
        return CliCommand(
            argv=argv,
            env=environment(spec, {"CODEX_HOME": codex_home}),
            directories=(codex_home,),  # without it the CLI refuses to start
            files=(schema,) if schema else (),
            last_message=last,
        )

    def opening(self, spec: Spec) -> bytes:
        """Return the whole prompt: system text, task, and how to deliver the report."""
        closing = [REPORT_REQUEST]
        if _schema_file(spec) is None:
            closing.append(f"The schema:\n{spec.schema_text}")
        return one_message(spec, *closing).encode("utf-8", "replace")

    def reader(self) -> FrameReader:
        """Return a reader of Codex's events."""
        return CodexReader()

    def with_last_message(self, transcript: Transcript, text: str) -> Transcript:
        """Return the transcript, with the file's text where the stream had none."""
        return with_last_message(transcript, text)

    def kept_stderr(self, line: str) -> str:
        """Return the line, or a placeholder for a line that may hold credentials."""
        lowered = line.lower()
        leaks = any(word in lowered for word in _LEAK_WORDS) or _LEAK_SHAPES.search(line) is not None
        return LINE_REDACTED if leaks else line

    def stderr_notes(self, stderr: str) -> tuple[str, ...]:
        """Return one warning if any line is a deprecation notice."""
        lines = (line.lower() for line in stderr.splitlines())
        return (_DEPRECATION,) if any("warning:" in line and "deprecated" in line for line in lines) else ()


def _schema_file(spec: Spec) -> TextFile | None:
    """Return the schema's file; ``None`` for a schema that the model's API would refuse, which goes into the prompt."""
    text = strict_schema(spec.schema_text)
    return None if text is None else TextFile(path=f"{spec.state_dir}/codex-schema.json", text=text)
