"""Where docker's engine answers through the filter: what may be shown then, and what the daemon runs itself."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.tiers import PolicyFault, judge, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE

FILTERED = replace(SCOPE, filters=frozenset({"docker"}), looks={**SCOPE.looks, "docker": ""})
UP = "docker compose -f /repos/media/docker-compose.yml up -d web"


def judged(command: str, *, filtered: bool, tier: int = 1) -> Verdict:
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": command}, cwd="/work/s1")
    return judge(call, tier=tier_policy(POLICY, tier), scope=FILTERED if filtered else SCOPE)


@pytest.mark.parametrize(
    "command",
    [
        "docker inspect web",
        "docker inspect --format '{{json .Config.Env}}' web db",
        "docker history --no-trunc web",
        "docker image inspect web",
    ],
)
def test_what_is_masked_may_be_shown_in_any_form_and_what_is_not_may_not(command: str) -> None:
    assert judged(command, filtered=True).kind is VerdictKind.ALLOW
    assert judged(command, filtered=False).kind is VerdictKind.DENY


def test_the_filter_of_this_machine_masks_nothing_on_another_host() -> None:
    assert judged("ssh db1 docker inspect web", filtered=True).kind is VerdictKind.DENY
    assert judged("docker exec web docker inspect web", filtered=True).kind is VerdictKind.DENY


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (UP, ("compose", "--file=/repos/media/docker-compose.yml", "up", "-d", "web")),
        (
            "cd /repos/media && docker compose pull web",
            ("compose", "--project-directory=/repos/media", "pull", "web"),
        ),
    ],
)
def test_what_writes_whole_containers_is_run_by_the_daemon_and_still_counted(
    command: str, arguments: tuple[str, ...]
) -> None:
    verdict = judged(command, filtered=True, tier=3)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    assert [action.kind for action in verdict.actions] == ["redeployment"]
    (look,) = verdict.looks_run
    assert (look.program, look.arguments) == ("docker", arguments)
    ran = dict(verdict.ran or {})["command"]
    assert "docker" not in str(ran), "the session itself runs no client"
    assert f"'{look.id}'" in str(ran)


def test_without_a_filter_it_runs_where_it_stands() -> None:
    verdict = judged(UP, filtered=False, tier=3)
    assert (verdict.kind, verdict.looks_run) == (VerdictKind.ALLOW, ())


def test_where_no_cell_runs_it_the_refusal_says_why() -> None:
    scope = replace(FILTERED, looks={**SCOPE.looks, "docker": "it takes bubblewrap"})
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": UP})
    verdict = judge(call, tier=tier_policy(POLICY, 3), scope=scope)
    assert (verdict.kind, "it takes bubblewrap" in verdict.reason) == (VerdictKind.DENY, True)


@pytest.mark.parametrize(
    ("key", "value", "why"), [("filter", "podman", "known are docker, kubernetes"), ("look", "docker", "no crictl ps")]
)
def test_a_rule_that_no_filter_serves_is_refused_with_its_reason(key: str, value: str, why: str) -> None:
    rule = f'[tiers.1]\nhosts = []\nurls = []\n[[commands]]\nname = "crictl ps"\n{key} = "{value}"\n'
    with pytest.raises(PolicyFault, match=why):
        parse_policy(rule)
