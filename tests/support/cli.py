"""The real CLI for tests, in an environment that holds nothing but what is written here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

SCHEMA: Final = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}
KEY: Final = "sk-ant-rehearsal"
SECONDS: Final = 30.0  # for a whole run; an ordinary one takes one


@dataclass(frozen=True, kw_only=True, slots=True)
class CliRun:
    """What a run of the CLI left behind."""

    exit_code: int
    stderr: str
    frames: Sequence[Mapping[str, object]] = field(repr=False)  # its stdout, a frame a line

    @property
    def result(self) -> Mapping[str, object]:
        """The last result line; empty when there was none."""
        results = [frame for frame in self.frames if frame.get("type") == "result"]
        return results[-1] if results else {}

    def of(self, kind: str, subtype: str | None = None) -> list[Mapping[str, object]]:
        """Return the frames of a type, and of a subtype where it is given."""
        typed = [frame for frame in self.frames if frame.get("type") == kind]
        return typed if subtype is None else [frame for frame in typed if frame.get("subtype") == subtype]


def binary() -> str:
    """Return the path of the CLI in the installed wheel, which is not imported: that takes most of a second."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    assert spec is not None, "claude-agent-sdk is not installed"
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "_bundled" / "claude")


def command(*, model: str, tools: str = "Bash", extra: Sequence[str] = ()) -> list[str]:
    """Return a command line for one headless session; the prompt goes to stdin."""
    return [
        *(binary(), "-p", "--output-format", "stream-json", "--verbose"),
        *("--model", model, "--tools", tools, "--allowedTools", tools, "--permission-mode", "dontAsk"),
        *("--setting-sources", "", "--strict-mcp-config", "--disable-slash-commands", "--max-turns", "20"),
        *("--json-schema", json.dumps(SCHEMA), *extra),
    ]


def environment(url: str, home: Path) -> dict[str, str]:
    """Return the whole environment of a CLI that talks to ``url`` and to nobody else."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "CLAUDE_CODE_TMPDIR": str(home / "tmp"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


async def run_cli(
    url: str,
    home: Path,
    *,
    model: str = "claude-haiku-4-5",
    prompt: str = "Look at the services.",
    tools: str = "Bash",
    extra: Sequence[str] = (),
) -> CliRun:
    """Run a session to its end; `TimeoutError` when that does not come, with the CLI killed."""
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            command(model=model, tools=tools, extra=extra),
            input=prompt.encode(),
            check=False,
            env=environment(url, home),
            cwd=home,
        )
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    return CliRun(exit_code=done.returncode, stderr=done.stderr.decode(), frames=frames)


async def start_cli(url: str, home: Path, *, model: str = "claude-haiku-4-5") -> Process:
    """Start a session with nothing on stdin but a prompt; the caller ends it and waits for it."""
    unread = subprocess.DEVNULL
    process = await anyio.open_process(
        command(model=model), stdout=unread, stderr=unread, env=environment(url, home), cwd=home
    )
    assert process.stdin is not None
    await process.stdin.send(b"Look at the services.")
    await process.stdin.aclose()
    return process
