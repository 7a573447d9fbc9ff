"""The scripted API against its only real client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from claudeops.scripted_api.requests import RequestKind, ResponseEnding
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import serve
from support.cli import KEY, CliRun, run_cli, start_cli

pytestmark = pytest.mark.anyio

REPORT = {"report": {"summary": "all is well"}}


def bash(command: str) -> dict[str, object]:
    return {"name": "Bash", "input": {"command": command}}


def script(*steps: dict[str, Any]) -> Script:
    return Script.from_mapping({"tiers": {"haiku": {"steps": list(steps)}}})


def ended(run: CliRun) -> tuple[object, ...]:
    """Return how a run ended, as its result line and its exit status tell."""
    return run.exit_code, run.result["subtype"], run.result["is_error"], run.result.get("api_error_status")


SUCCESS = (0, "success", False, None)


async def test_a_session_looks_and_reports_what_it_saw(tmp_path: Path) -> None:
    steps = (
        {"text": "I look.", "tool": bash("echo disk 97%")},
        {"when": {"contains": "100%"}, "report": {"summary": "full"}},
        {"when": {"contains": "97%"}, "report": {"summary": "seen: {{last_result}}"}},
    )
    memory = "Remember: the database restarts on Mondays."
    async with serve(script(*steps), expected_key=KEY) as api:
        run = await run_cli(api.url, tmp_path, extra=["--append-system-prompt", memory])
    assert ended(run) == SUCCESS
    assert run.result["structured_output"] == {"summary": "seen: disk 97%"}
    assert api.problems == []
    first, second = api.traffic.main("haiku")
    assert memory in first.system_text
    assert "Look at the services." in first.user_texts
    assert [result.text for result in second.tool_results] == ["disk 97%"]
    assert api.traffic.sessions("haiku") == [run.result["session_id"]]
    assert api.traffic.mentioning(KEY) == []


async def test_the_cli_books_the_tokens_that_were_served(tmp_path: Path) -> None:
    steps = ({"tool": bash("true"), "usage": {"output_tokens": 7}}, {**REPORT, "usage": {"input_tokens": 100}})
    async with serve(script(*steps)) as api:
        run = await run_cli(api.url, tmp_path)
    served, usage = api.traffic.tokens(), run.result["usage"]
    assert isinstance(usage, dict)
    assert {name: usage[name] for name in served.__struct_fields__} == {
        "input_tokens": 112,
        "output_tokens": 67,
        "cache_creation_input_tokens": 1800,
        "cache_read_input_tokens": 10800,
    }
    assert served.output_tokens == 67


async def test_parallel_calls_of_one_message_all_run(tmp_path: Path) -> None:
    async with serve(script({"tools": [bash("echo one"), bash("echo two")]}, REPORT)) as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == SUCCESS
    assert sorted(result.text for result in api.requests[-1].tool_results) == ["one", "two"]


async def test_a_model_that_never_reports_ends_without_structured_output(tmp_path: Path) -> None:
    async with serve(script({"text": "I am done.", "times": 2})) as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == SUCCESS
    assert run.result.get("structured_output") is None
    assert api.problems == []


async def test_a_report_against_the_schema_is_tried_five_times(tmp_path: Path) -> None:
    async with serve(script({"report": {"wrong": 1}, "times": 5})) as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == (1, "error_max_structured_output_retries", True, None)
    assert [served.status for served in api.served] == [200] * 5


@pytest.mark.parametrize(
    ("error", "times", "steps", "end"),
    [
        pytest.param({"status": 400, "message": "odd"}, 3, [], (1, "success", True, 400), id="400"),
        pytest.param({"status": 529, "message": "busy"}, 2, [], (1, "success", True, 529), id="529"),
        pytest.param({"status": 429, "headers": {"retry-after": "1"}}, 1, [REPORT], SUCCESS, id="429_then_success"),
    ],
)
async def test_an_error_answers_as_many_requests_as_scripted(
    tmp_path: Path, error: Mapping[str, object], times: int, steps: list[dict[str, Any]], end: tuple[object, ...]
) -> None:
    async with serve(script({"error": error, "times": times}, *steps)) as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == end
    assert [served.status for served in api.served] == [error["status"]] * times + [200] * len(steps)
    assert api.problems == []
    if not steps:
        assert str(error["message"]) in str(run.result["result"])


async def test_a_key_that_is_not_expected_ends_the_session(tmp_path: Path) -> None:
    async with serve(script(REPORT), expected_key="another") as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == (1, "success", True, 401)
    assert {served.status for served in api.served} == {401}


async def test_a_broken_stream_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    async with serve(script({"report": {"summary": "broken"}, "cut": True}, REPORT)) as api:
        run = await run_cli(api.url, tmp_path)
    assert ended(run) == SUCCESS
    assert run.result["structured_output"] == REPORT["report"]
    assert [served.ending for served in api.served] == [ResponseEnding.CUT, ResponseEnding.COMPLETE]


async def test_a_script_that_runs_out_says_so_to_the_cli_and_to_us(tmp_path: Path) -> None:
    async with serve(script({"tool": bash("true")})) as api:
        run = await run_cli(api.url, tmp_path)
    session = run.result["session_id"]
    problem = f"tiers.haiku.steps[1]: the script ends here, but another request came (session {session})"
    assert ended(run) == (1, "success", True, 400)
    assert api.problems == [problem]
    assert problem in str(run.result["result"])


async def test_three_sessions_at_once_each_get_their_own_tier(tmp_path: Path) -> None:
    tiers = ("haiku", "sonnet", "opus")
    talk = {
        tier: {"steps": [{"tool": bash(f"echo {tier}")}, {"report": {"summary": "{{last_result}}"}}]} for tier in tiers
    }
    runs: dict[str, CliRun] = {}
    async with serve(Script.from_mapping({"tiers": talk})) as api, anyio.create_task_group() as tasks:

        async def run(tier: str) -> None:
            runs[tier] = await run_cli(api.url, tmp_path / tier, model=f"claude-{tier}-4-5")

        for tier in tiers:
            tasks.start_soon(run, tier)
    assert {tier: run.result["structured_output"] for tier, run in runs.items()} == {
        tier: {"summary": tier} for tier in tiers
    }
    assert {tier: api.traffic.sessions(tier) for tier in tiers} == {
        tier: [runs[tier].result["session_id"]] for tier in tiers
    }
    assert api.problems == []


async def test_a_subagent_takes_a_scripted_session_of_its_own(tmp_path: Path) -> None:
    task = {"description": "look", "prompt": "Look closer.", "subagent_type": "general-purpose"}
    parent = [{"tool": {"name": "Agent", "input": task}}, {"report": {"summary": "{{last_result}}"}}]
    sessions = [{"steps": parent}, {"steps": [{"text": "closer it is fine"}]}]
    async with serve(Script.from_mapping({"tiers": {"haiku": {"sessions": sessions}}})) as api:
        run = await run_cli(api.url, tmp_path, tools="Bash,Agent")
    assert ended(run) == SUCCESS
    assert "closer it is fine" in str(run.result["structured_output"])
    own, other = api.traffic.sessions("haiku")
    assert (own, other.partition("/")[0]) == (run.result["session_id"], own)


async def test_a_killed_cli_ends_its_pending_answer(tmp_path: Path) -> None:
    async with serve(script({"delay_seconds": 3600, **REPORT})) as api:
        process = await start_cli(api.url, tmp_path)
        await api.wait_for(lambda traffic: traffic.main())
        process.kill()
        await process.wait()
        await api.wait_for(lambda traffic: [served for served in traffic.served if served.kind is RequestKind.MAIN])
    assert [served.ending for served in api.served] == [ResponseEnding.GONE]


async def test_the_server_stops_though_a_cli_waits_for_it(tmp_path: Path) -> None:
    async with serve(script({"hang": True})) as api:
        process = await start_cli(api.url, tmp_path)
        await api.wait_for(lambda traffic: traffic.main())
    process.kill()
    await process.wait()
    assert [served.ending for served in api.served] == [ResponseEnding.CLOSED]
