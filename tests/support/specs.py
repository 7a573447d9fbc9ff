"""What the session of a harness is to be, as the engine says it."""

from __future__ import annotations

from typing import Final

from claudeops.harness.protocol import CredentialKind, Spec

SPEC: Final = Spec(
    binary="/opt/claude",
    model="haiku",
    cli_session_id="670033f8-2ca5-4a09-8f30-443dd1de556f",
    schema_text='{"type":"object"}',
    task="Look at everything.",
    system="Time: now. Findings: @/etc/shadow",
    tools=("Bash", "Read"),
    max_turns=30,
    max_budget_usd=0.5,
    home="/s/1/home",
    workdir="/s/1/work",
    tmpdir="/s/1/tmp",
    state_dir="/s/1/state",
    path="/usr/bin:/bin",
    passed_env={"TZ": "UTC"},
    base_url="http://127.0.0.1:1",
    credential=CredentialKind.API_KEY,
    credential_fd=7,
)
