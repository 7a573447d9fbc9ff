"""A script says what its file said, and a wrong file gets one sentence that names the place."""

from __future__ import annotations

import tomllib

import pytest

from claudeops.errors import ConfigurationError
from claudeops.scripted_api.script import (
    Script,
    ScriptedError,
    ScriptedToolUse,
    ScriptStep,
    ScriptTier,
    SessionScript,
    Usage,
    When,
)

EVERY_KEY = """
side_text = "aside"

[tiers.haiku]
repeat_last = true

[[tiers.haiku.sessions]]
steps = [
  { text = "I look.", tool = { name = "Bash", input = { command = "df -h /" } } },
  { when = { contains = "100%", not_contains = "tmpfs" }, report = { summary = "full: {{last_result}}" } },
]

[[tiers.haiku.sessions]]
steps = [
  { error = { status = 429, message = "slow down", headers = { retry-after = "1" } }, times = 2 },
  { delay_seconds = 0.5, text = "done", stop_reason = "max_tokens", usage = { output_tokens = 7 } },
  { text = "I go", cut = true },
  { hang = true },
]

[tiers.strong]
model = "opus"
steps = [{ tools = [{ name = "Read", input = { file_path = "/a" } }, { name = "Read", input = { file_path = "/b" } }] }]
"""


def test_a_toml_file_maps_onto_the_values_one_to_one() -> None:
    looks = ScriptStep(text="I look.", tool=ScriptedToolUse(name="Bash", input={"command": "df -h /"}))
    when = When(contains="100%", not_contains="tmpfs")
    reports = ScriptStep(when=when, report={"summary": "full: {{last_result}}"})
    limited = ScriptStep(error=ScriptedError(status=429, message="slow down", headers={"retry-after": "1"}), times=2)
    slow = ScriptStep(delay_seconds=0.5, text="done", stop_reason="max_tokens", usage=Usage(output_tokens=7))
    broken = (ScriptStep(text="I go", cut=True), ScriptStep(hang=True))
    reads = tuple(ScriptedToolUse(name="Read", input={"file_path": path}) for path in ("/a", "/b"))
    assert Script.from_mapping(tomllib.loads(EVERY_KEY)) == Script(
        side_text="aside",
        tiers={
            "haiku": ScriptTier(
                repeat_last=True,
                sessions=(SessionScript(steps=(looks, reports)), SessionScript(steps=(limited, slow, *broken))),
            ),
            "strong": ScriptTier(model="opus", steps=(ScriptStep(tools=reads),)),
        },
    )


STEP_COMPLAINTS = {
    "unknown_key": ({"txt": "a"}, "tiers.haiku.steps[1]: unknown key 'txt', did you mean 'text'?"),
    "unknown_key_without_a_near_one": (
        {"when": {"regular": "a"}, "text": "a"},
        "tiers.haiku.steps[1].when: unknown key 'regular', known are contains, not_contains, matches, seen",
    ),
    "unknown_key_of_a_call": (
        {"tools": [{"name": "Bash", "inputs": {}}]},
        "tiers.haiku.steps[1].tools[0]: unknown key 'inputs', did you mean 'input'?",
    ),
    "unknown_key_of_an_error": (
        {"error": {"status": 429, "header": {}}},
        "tiers.haiku.steps[1].error: unknown key 'header', did you mean 'headers'?",
    ),
    "tool_as_text": ({"tool": "Bash"}, "tiers.haiku.steps[1].tool: Expected `object | null`, got `str`"),
    "tool_without_name": ({"tool": {}}, "tiers.haiku.steps[1].tool: Object missing required field `name`"),
    "nothing_said": (
        {"times": 2},
        "tiers.haiku.steps[1]: a step says text, tool, tools or report, or else error or hang",
    ),
    "tool_and_tools": (
        {"tool": {"name": "Bash"}, "tools": [{"name": "Bash"}]},
        "tiers.haiku.steps[1]: say tool for one call or tools for several, not both",
    ),
    "error_and_text": (
        {"error": {"status": 400}, "text": "a"},
        "tiers.haiku.steps[1]: error stands alone: it cannot be joined with a message or with hang",
    ),
    "cut_of_nothing": (
        {"hang": True, "cut": True},
        "tiers.haiku.steps[1]: cut breaks off a message: it needs text, tool, tools or report, and no hang",
    ),
    "stop_reason_of_nothing": (
        {"hang": True, "stop_reason": "end_turn"},
        "tiers.haiku.steps[1]: stop_reason belongs to a message: it needs text, tool, tools or report",
    ),
    "stop_reason_unknown": (
        {"text": "a", "stop_reason": "tired"},
        (
            "tiers.haiku.steps[1].stop_reason: must be one of end_turn, tool_use, max_tokens, stop_sequence, "
            "pause_turn, refusal"
        ),
    ),
    "delay_for_days": (
        {"text": "a", "delay_seconds": 90000},
        "tiers.haiku.steps[1].delay_seconds: Expected `float` <= 3600.0",
    ),
    "delay_that_is_no_number": (
        {"text": "a", "delay_seconds": float("nan")},
        "tiers.haiku.steps[1].delay_seconds: Expected `float` >= 0.0",
    ),
    "never": ({"text": "a", "times": 0}, "tiers.haiku.steps[1].times: Expected `int` >= 1"),
    "success_as_error": ({"error": {"status": 200}}, "tiers.haiku.steps[1].error.status: Expected `int` >= 400"),
    "header_of_two_lines": (
        {"error": {"status": 429, "headers": {"retry-after": "1\r\nx: y"}}},
        (
            "tiers.haiku.steps[1].error: header 'retry-after': '1\\r\\nx: y' is not an HTTP header: "
            "use printable ASCII on one line"
        ),
    ),
    "no_condition": (
        {"text": "a", "when": {}},
        "tiers.haiku.steps[1].when: say contains, not_contains, matches or seen",
    ),
    "negative_tokens": (
        {"text": "a", "usage": {"input_tokens": -1}},
        "tiers.haiku.steps[1].usage.input_tokens: Expected `int` >= 0",
    ),
}


@pytest.mark.parametrize(("step", "sentence"), STEP_COMPLAINTS.values(), ids=STEP_COMPLAINTS.keys())
def test_a_wrong_step_gets_one_sentence_that_names_its_place(step: object, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Script.from_mapping({"tiers": {"haiku": {"steps": [{"text": "fine"}, step]}}})
    assert str(raised.value) == sentence


STEPS = [{"text": "fine"}]
SCRIPT_COMPLAINTS = {
    "no_table": ([], "script: must be a table with tiers, not list"),
    "no_tiers": ({}, "tiers: must be a table of tiers by model name, such as haiku"),
    "empty_tiers": ({"tiers": {}}, "tiers: name at least one, such as haiku"),
    "unknown_key": ({"tiers": {"a": {"steps": STEPS}}, "tier": 1}, "unknown key 'tier', did you mean 'tiers'?"),
    "side_text": ({"tiers": {"a": {"steps": STEPS}}, "side_text": 1}, "side_text: Expected `str`, got `int`"),
    "tier_without_sessions": ({"tiers": {"a": {}}}, "tiers.a: say sessions, or steps for a single session"),
    "session_without_steps": (
        {"tiers": {"a": {"sessions": [{"steps": []}]}}},
        "tiers.a.sessions[0].steps: Expected `array` of length >= 1",
    ),
    "step_of_a_session": (
        {"tiers": {"a": {"sessions": [{"steps": STEPS}, {"steps": [{"text": 1}]}]}}},
        "tiers.a.sessions[1].steps[0].text: Expected `str | null`, got `int`",
    ),
    "two_tiers_for_a_model": (
        {"tiers": {"haiku": {"steps": STEPS}, "small": {"model": "haiku", "steps": STEPS}}},
        "tiers: two tiers claim the model 'haiku', give each its own",
    ),
}


@pytest.mark.parametrize(("script", "sentence"), SCRIPT_COMPLAINTS.values(), ids=SCRIPT_COMPLAINTS.keys())
def test_a_wrong_script_gets_one_sentence_that_names_its_place(script: object, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Script.from_mapping(script)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("model", "tier"),
    [
        pytest.param("claude-haiku-4-5-20251001", "haiku", id="part_of_the_name"),
        pytest.param("claude-opus-4-7", "opus", id="part_of_a_longer_name_of_another_tier"),
        pytest.param("claude-opus-4-8", "newest", id="longest_part_wins"),
        pytest.param("claude-sonnet-5", None, id="nobody"),
    ],
)
def test_a_model_belongs_to_the_tier_that_names_it_best(model: str, tier: str | None) -> None:
    newest = {"model": "opus-4-8", "steps": STEPS}
    script = Script.from_mapping({"tiers": {"haiku": {"steps": STEPS}, "opus": {"steps": STEPS}, "newest": newest}})
    assert script.tier_of(model) == tier


@pytest.mark.parametrize(
    ("when", "text", "holds"),
    [
        pytest.param(When(contains="b"), "abc", True, id="contains"),
        pytest.param(When(contains="x"), "abc", False, id="contains_not"),
        pytest.param(When(not_contains="x"), "abc", True, id="lacks"),
        pytest.param(When(not_contains="b"), "abc", False, id="lacks_not"),
        pytest.param(When(contains="a", not_contains="b"), "abc", False, id="both_have_to_hold"),
        pytest.param(When(contains="a"), "", False, id="no_result_contains_nothing"),
        pytest.param(When(not_contains="a"), "", True, id="no_result_lacks_everything"),
    ],
)
def test_a_condition_is_about_the_last_results(when: When, text: str, holds: bool) -> None:
    assert when.holds(text) is holds


def test_an_error_has_the_type_that_the_api_gives_its_status() -> None:
    assert ScriptedError(status=529).error_type == "overloaded_error"
    assert ScriptedError(status=502).error_type == "api_error"
    assert ScriptedError(status=429, type="custom").error_type == "custom"
