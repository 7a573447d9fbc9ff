"""Which services a call in question changes: None wherever a yes would be for anything else as well."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.tiers import Policy, judge, parse_policy, tier_policy
from support.policy_cases import DEFAULT_TEXT, SCOPE, bash

ASKS = """extends = "default"
[tiers.3.ask]
actions = ["restart", "redeployment"]
commands = ["docker logs", "systemctl restart", "df"]
tools = ["mcp__*"]
[[tools]]
name = "mcp__grafana__annotate"
tier = 3
"""
POLICY = parse_policy(ASKS, default=DEFAULT_TEXT)


def asked(call: ToolCall | str, policy: Policy = POLICY) -> Verdict:
    call = bash(call) if isinstance(call, str) else call
    verdict = judge(call, tier=tier_policy(policy, 3), scope=SCOPE)
    assert verdict.kind is VerdictKind.ASK, verdict.reason
    return verdict


@pytest.mark.parametrize(
    ("command", "services"),
    [
        ("docker restart web", ("web",)),
        ("docker restart web db", ("web", "db")),
        ("docker restart web; docker restart web", ("web",)),
        ("docker ps && docker restart web", ("web",)),
        ("sh -c 'docker restart web'", ("web",)),
        ("systemctl restart nginx", ("nginx",)),
        ("docker restart web; systemctl restart nginx | cat", ("web", "nginx")),
    ],
)
def test_what_is_understood_names_its_services(command: str, services: tuple[str, ...]) -> None:
    assert asked(command).services == services


@pytest.mark.parametrize(
    "command",
    [
        "docker restart web; python3 -c 'print(1)'",
        "python3 -c 'print(1)'; docker restart web",
        'docker restart web && sh -c "$X"',
        "docker restart web; $CMD",
        'docker restart web; sh -c "$(cat x)"',
        "docker restart web | xargs -I{} sh -c '{}'",
        "sh -c 'docker restart web; perl -e 1'",
    ],
)
def test_a_part_that_is_not_understood_leaves_no_services(command: str) -> None:
    verdict = asked(command)

    assert verdict.services is None


@pytest.mark.parametrize(
    "command",
    [
        "docker restart web; curl http://stranger.example.net/",
        "curl http://stranger.example.net/ && docker restart web",
        "docker restart web; dig stranger.example.net",
    ],
)
def test_a_stranger_leaves_no_services(command: str) -> None:
    assert asked(command).services is None


@pytest.mark.parametrize("command", ["docker logs web; docker restart web", "docker restart web && df -h", "df"])
def test_what_is_asked_about_and_changes_no_service_leaves_none(command: str) -> None:
    assert asked(command).services in (None, ())
    assert asked(command).services is None


def test_a_rule_that_wants_a_yes_for_no_action_leaves_no_services() -> None:
    policy = parse_policy(f'{ASKS}\n[[commands]]\nname = "mytool"\ntier = 3\napprovals = 1\n', default=DEFAULT_TEXT)

    assert asked("docker restart web; mytool", policy).services is None
    assert asked("docker restart web", policy).services == ("web",)


def test_a_tool_that_names_no_service_has_none() -> None:
    call = ToolCall(tool_use_id="t", tool_name="mcp__grafana__annotate", input={"text": "x"})

    assert asked(call).services in (None, ())


def test_what_nobody_is_asked_about_names_no_services() -> None:
    verdict = judge(bash("docker ps"), tier=tier_policy(POLICY, 3), scope=SCOPE)

    assert (verdict.kind, verdict.services) == (VerdictKind.ALLOW, None)
