"""The ``caliban`` CLI: Claude-like frames, exit codes of its own, no gate.

Flags, frames and exit codes are from its own documents and source (github.com/caliban-ai/caliban, ADR 0025 and 0029).
It reads its stdin to the end before it starts, so nothing can be said to it later; SIGINT is the only signal that it
handles. In headless mode a tool that no rule allows is denied.
"""

from __future__ import annotations

import json
from typing import Final

from claudeops.harness.base import REPORT_REQUEST, BaseHarness, environment, one_message
from claudeops.harness.protocol import Capabilities, CliCommand, Spec

_PROVIDERS: Final = frozenset({"anthropic", "openai", "google"})


class CalibanHarness(BaseHarness):
    """Harness for the ``caliban`` CLI; stateless."""

    name: Final = "caliban"
    capabilities: Final = Capabilities(
        gate=False,
        talks=False,
        repairs=False,
        own_session_id=False,
        key_by_descriptor=False,
        metered=False,
        model_urls=("https://api.anthropic.com", "https://api.openai.com", "https://generativelanguage.googleapis.com"),
    )

    def command(self, spec: Spec) -> CliCommand:
        """Return the command line (flags only) and the child's whole environment.

        The tier's tools are allowed by name. Single calls are not judged: that is what running without a gate means.
        """
        argv = [
            spec.binary,
            "-p",
            *("--input-format", "stream-json"),
            *("--output-format", "stream-json"),
            *_model(spec.model),
            *("--max-turns", str(spec.max_turns)),
            *("--max-budget-usd", f"{spec.max_budget_usd:g}"),
            # Inline: an argument that begins with a brace is not taken for a path.
            *("--json-schema", spec.schema_text),
            # The operator's own settings in the session's home, never those of a hostile working directory.
            *("--setting-sources", "user"),
        ]
        for tool in spec.tools:
            argv += ["--allow", tool]
        return CliCommand(argv=tuple(argv), env=environment(spec, {}))

    def opening(self, spec: Spec) -> bytes:
        """Return one user frame; with any further key, or in Claude's envelope, it is refused with exit code 64."""
        text = one_message(spec, REPORT_REQUEST)
        return json.dumps({"type": "user", "content": text}, separators=(",", ":")).encode() + b"\n"


def _model(model: str) -> tuple[str, ...]:
    """Return the flags for ``model``, or for ``provider/model`` as in the CLI's own frames."""
    provider, _, name = model.partition("/")
    return ("--provider", provider, "--model", name) if provider in _PROVIDERS and name else ("--model", model)
