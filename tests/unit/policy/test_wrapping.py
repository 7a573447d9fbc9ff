"""What is never allowed stays denied however it is wrapped; a text without sense gets an answer too."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.calls import VerdictKind
from claudeops.policy.identity import plain_name
from claudeops.policy.tiers import explain, tier_policy
from support.doses import drawn
from support.policy_cases import POLICY, SCOPE, bash, judged, rows
from support.wrapping import ALL, FORBIDDEN, OPAQUE, OUTSIDE, TRANSPARENT

UNSEEN = {"output substitution"}
"""What the parser's tree does not show; a person who is asked reads the text."""


def allowed(command: str) -> bool:
    return judged(command, 3).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("command", drawn(FORBIDDEN, count=len(FORBIDDEN) // 3))
def test_no_wrapping_lets_a_forbidden_command_through(command: str) -> None:
    texts = [wrap(command) for wrap in ALL.values()]
    assert [text for text in texts if allowed(text)] == []


@pytest.mark.long
def test_no_two_wrappings_let_a_forbidden_command_through() -> None:
    pairs = itertools.product(ALL.values(), TRANSPARENT.values())
    commands = itertools.cycle(FORBIDDEN)
    texts = [outer(inner(command)) for (outer, inner), command in zip(pairs, commands, strict=False)]
    assert len(texts) > 4_000
    assert [text for text in texts if allowed(text)] == []


@pytest.mark.parametrize("wrapping", OPAQUE)
def test_what_cannot_be_seen_through_is_denied_for_harmless_commands_too(wrapping: str) -> None:
    assert not allowed(OPAQUE[wrapping]("docker ps"))


@pytest.mark.parametrize("wrapping", TRANSPARENT)
def test_what_can_be_seen_through_lets_harmless_commands_pass(wrapping: str) -> None:
    assert judged(TRANSPARENT[wrapping]("docker ps"), 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("wrapping", OUTSIDE)
def test_what_is_not_in_the_language_runs_nothing_and_hides_nothing(wrapping: str) -> None:
    look, action = OUTSIDE[wrapping]("docker ps"), OUTSIDE[wrapping]("docker restart web")
    for command in (look, action):
        assert judged(command, 2).kind is VerdictKind.DENY
        judgement = explain(bash(command), tier=tier_policy(POLICY, 3), scope=SCOPE)
        assert (judgement.verdict.kind is VerdictKind.ALLOW, judgement.runs) == (False, "")
    asked = judged(action, 3)
    if asked.kind is VerdictKind.ASK and wrapping not in UNSEEN:
        assert [action.service for action in asked.actions] == ["web"]


@pytest.mark.parametrize(
    "repeated", ["echo web | xargs {}", "docker ps -q | xargs -n 1 {}", "ls /repos | xargs -I% {} %"]
)
def test_what_xargs_repeats_only_looks(repeated: str) -> None:
    assert judged(repeated.format("docker logs --tail 5"), 1).kind is VerdictKind.ALLOW
    for action in ("docker restart", "docker restart web", "systemctl restart", "docker rm -f", "cat", "curl"):
        assert judged(repeated.format(action), 3).kind is not VerdictKind.ALLOW, action


@pytest.mark.parametrize("wrapping", TRANSPARENT)
def test_an_action_is_counted_through_every_wrapping(wrapping: str) -> None:
    verdict = judged(TRANSPARENT[wrapping]("docker restart web"), 2)
    assert verdict.actions, verdict.reason
    # Another host or container is another service; its name begins with where it is.
    assert {plain_name(action.service) for action in verdict.actions} == {"web"}
    assert {"ssh", "exec"} & set(TRANSPARENT[wrapping]("x").split()) or {
        action.service for action in verdict.actions
    } == {"web"}
    assert judged(TRANSPARENT[wrapping]("docker restart web"), 1).kind is VerdictKind.DENY


@given(
    command=st.sampled_from(FORBIDDEN),
    wrappings=st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=4),
    around=st.sampled_from(["", "uptime; ", "docker ps | grep web && "]),
)
def test_no_stack_of_wrappings_lets_a_forbidden_command_through(
    command: str, wrappings: list[str], around: str
) -> None:
    text = command
    for wrapping in wrappings:
        text = ALL[wrapping](text)
    assert not allowed(around + text)


PIECES = (
    *"'\"\\`$(){}[]<>|&;#*?!~=\n\t ",
    *(
        "$(",
        "${",
        "$((",
        "<<E\n",
        "\nE\n",
        "2>&1",
        "<(",
        "do",
        "done",
        "if",
        "then",
        "fi",
        "case",
        "esac",
        "in",
        "[[",
        "]]",
    ),
    *(
        "docker",
        "restart",
        "web",
        "--format",
        "{{.Names}}",
        "/etc/shadow",
        "-f",
        "ssh host",
        "bash -c",
        "sudo",
        "x=1",
        "$x",
    ),
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_a_text_without_sense_gets_an_answer(text: str) -> None:
    assert judged(text, 3).reason


@given(st.sampled_from(rows("harmless.txt")), st.integers(min_value=0), st.sampled_from(PIECES))
def test_a_damaged_command_gets_an_answer(command: str, at: int, piece: str) -> None:
    cut = at % (len(command) + 1)
    assert judged(command[:cut] + piece + command[cut:], 3).reason


UNREADABLE = {"python3 -c 1", "perl -e 1"}


@pytest.mark.parametrize("wrapping", TRANSPARENT)
def test_nobody_is_asked_about_what_is_clearly_forbidden(wrapping: str) -> None:
    verdicts = {command: judged(TRANSPARENT[wrapping](command), 3).kind for command in FORBIDDEN}
    asked = {command for command, kind in verdicts.items() if kind is not VerdictKind.DENY}
    assert asked <= UNREADABLE


@pytest.mark.parametrize("command", FORBIDDEN)
def test_nothing_hides_behind_what_cannot_be_understood(command: str) -> None:
    """Beside an unclear part the rest is judged all the same, and the strictest part decides."""
    for text in (
        f"$TOOL ps; {command}",
        f"{command} $UNSET",
        f'echo "$UNSET" | {command}',
        f"x=$(( y + 1 )); {command}",
    ):
        assert judged(text, 3).kind is VerdictKind.DENY or command in UNREADABLE, text
