"""Each session walks through its own steps, whatever the others do."""

from __future__ import annotations

import pytest

from claudeops.scripted_api.player import ChosenStep, Cursors, Exhausted
from claudeops.scripted_api.script import Script


def cursors(**tiers: object) -> Cursors:
    return Cursors(Script.from_mapping({"tiers": tiers}))


def said(texts: list[str]) -> list[dict[str, object]]:
    return [{"text": text} for text in texts]


def take(walk: Cursors, session: str = "s", *, tier: str = "haiku", last_result: str = "") -> str:
    """Take a step and return its text, or the problem."""
    match walk.take(tier=tier, session=session, last_result=last_result):
        case ChosenStep(step=step):
            return str(step.text)
        case Exhausted(problem=problem):
            return problem


def test_two_sessions_at_once_do_not_take_each_others_steps() -> None:
    walk = cursors(haiku={"sessions": [{"steps": said(["a1", "a2"])}, {"steps": said(["b1", "b2"])}]})
    assert [take(walk, session) for session in ("x", "y", "y", "x")] == ["a1", "b1", "b2", "a2"]


def test_one_session_has_a_cursor_in_each_tier() -> None:
    walk = cursors(haiku={"steps": said(["h1", "h2"])}, opus={"steps": said(["o1"])})
    assert [take(walk), take(walk, tier="opus"), take(walk)] == ["h1", "o1", "h2"]


def test_running_out_of_steps_names_the_step_that_is_missing() -> None:
    walk = cursors(haiku={"sessions": [{"steps": said(["a"])}]})
    take(walk)
    problem = "tiers.haiku.sessions[0].steps[1]: the script ends here, but another request came"
    assert [take(walk), take(walk)] == [problem, problem]


def test_a_session_too_many_is_refused_every_time_it_asks() -> None:
    walk = cursors(haiku={"steps": said(["a"])})
    take(walk, "x")
    problem = "tiers.haiku: session number 2 began, but the script ends at number 1; script it or say repeat_last"
    assert [take(walk, "y"), take(walk, "y")] == [problem, problem]


def test_repeat_last_gives_every_further_session_the_last_script() -> None:
    walk = cursors(haiku={"sessions": [{"steps": said(["a"])}, {"steps": said(["b"])}], "repeat_last": True})
    assert [take(walk, session) for session in "wxyz"] == ["a", "b", "b", "b"]


def test_a_step_answers_as_many_requests_as_it_says() -> None:
    walk = cursors(haiku={"steps": [{"text": "again", "times": 3}, {"text": "on"}]})
    assert [take(walk) for _ in range(4)] == ["again", "again", "again", "on"]


@pytest.mark.parametrize(
    ("printed", "text"),
    [pytest.param("disk 100% full", "full", id="holds"), pytest.param("disk 3% full", "well", id="does_not_hold")],
)
def test_a_condition_picks_the_branch_from_what_the_tool_printed(printed: str, text: str) -> None:
    walk = cursors(
        haiku={"steps": [{"text": "look"}, {"text": "full", "when": {"contains": "100%"}}, {"text": "well"}]}
    )
    take(walk)
    assert take(walk, last_result=printed) == text


def test_a_step_passed_over_does_not_come_back() -> None:
    walk = cursors(haiku={"steps": [{"text": "full", "when": {"contains": "100%"}}, {"text": "well", "times": 2}]})
    assert [take(walk, last_result="3%"), take(walk, last_result="100%")] == ["well", "well"]


def test_a_repeated_step_ends_when_its_condition_does_not_hold_any_more() -> None:
    walk = cursors(haiku={"steps": [{"text": "wait", "when": {"contains": "busy"}, "times": 9}, {"text": "go"}]})
    assert [take(walk, last_result=text) for text in ("busy", "busy", "idle")] == ["wait", "wait", "go"]


def test_the_place_is_the_one_that_the_script_says() -> None:
    short = cursors(haiku={"steps": said(["a"])}).take(tier="haiku", session="s", last_result="")
    long = cursors(haiku={"sessions": [{"steps": said(["a"])}]}).take(tier="haiku", session="s", last_result="")
    assert isinstance(short, ChosenStep)
    assert isinstance(long, ChosenStep)
    assert (short.place, long.place) == ("tiers.haiku.steps[0]", "tiers.haiku.sessions[0].steps[0]")


def test_a_step_takes_what_it_captured_from_its_own_results_and_later_steps_know_it() -> None:
    look = {"name": "Bash", "input": {"command": "kubectl get pods"}}
    steps = [{"tool": look, "capture": {"pod": r"^(web-\S+)", "none": "(nothing)"}}, {"text": "on"}, {"text": "more"}]
    walk = cursors(haiku={"steps": steps})
    taken = [walk.take(tier="haiku", session="s", last_result=result) for result in ("", "NAME\nweb-7f Running", "x")]
    assert [chosen.captured for chosen in taken if isinstance(chosen, ChosenStep)] == [
        {},
        {"pod": "web-7f"},
        {"pod": "web-7f"},
    ]


def test_conditions_ask_the_last_results_by_pattern_and_all_results_by_text() -> None:
    steps = [
        {"text": "first"},
        {"text": "no", "when": {"matches": "^web 2"}},
        {"text": "pattern", "when": {"matches": "^web 5"}},
        {"text": "no", "when": {"contains": "web 500"}},
        {"text": "seen", "when": {"seen": "web 500"}},
    ]
    walk = cursors(haiku={"steps": steps})
    assert [take(walk), take(walk, last_result="x\nweb 500"), take(walk, last_result="other")] == [
        "first",
        "pattern",
        "seen",
    ]
