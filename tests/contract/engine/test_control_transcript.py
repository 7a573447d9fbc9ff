"""Where the real CLI keeps its own transcript: the clocks of a session look there for signs of life."""

from __future__ import annotations

import uuid
from pathlib import Path

from claudeops.engine.control import CliTranscript
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import serve
from support.cli import run_cli


async def test_the_real_cli_keeps_a_transcript_where_it_is_looked_for(tmp_path: Path) -> None:
    steps = [{"tool": {"name": "Bash", "input": {"command": "echo seen"}}}, {"report": {"summary": "all is well"}}]
    ours = str(uuid.uuid4())
    transcript = CliTranscript(tmp_path, ours)
    assert await transcript.size() == 0

    async with serve(Script.from_mapping({"tiers": {"haiku": {"steps": steps}}})) as api:
        await run_cli(api.url, tmp_path, extra=["--session-id", ours])

    grown = await transcript.size()
    assert grown > 0
    assert await CliTranscript(tmp_path, str(uuid.uuid4())).size() == 0  # another session's
