"""Where a cluster's API server answers through the filter: what may be shown then, and what stays as it was."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.policy.tiers import TierPolicy, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, POLICY, SCOPE, judged, sections

FILTERED = replace(SCOPE, filters=frozenset({"kubernetes"}))
ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
OUTCOMES = {
    "a look with the filter, refused without it": (ALLOW, DENY),
    "a look with the filter and without it": (ALLOW, ALLOW),
    "refused with the filter and without it": (DENY, DENY),
}
ROWS = sections("filtered-clusters.txt")

OWN_GROUP = """
extends = "default"

[[groups]]
name = "kubectl"
options = "--namespace|-n=name --context=name --kubeconfig=text --server|-s=text --token=text --as=text \
--as-group=text --insecure-skip-tls-verify --certificate-authority=text --client-certificate=text --client-key=text \
--user=text --cluster=text --tls-server-name=text"
shared = true
"""


def filtered(command: str, tier: int | TierPolicy = 1) -> Verdict:
    return judged(command, tier, FILTERED)


def test_the_table_has_every_outcome() -> None:
    assert set(ROWS) == set(OUTCOMES)
    assert sum(map(len, ROWS.values())) > 200
    assert len({row for rows in ROWS.values() for row in rows}) == sum(map(len, ROWS.values())), "a row stands twice"


@pytest.mark.parametrize("heading", OUTCOMES)
def test_the_filter_makes_looks_of_what_it_masks_and_of_nothing_else(heading: str) -> None:
    found = {row: (filtered(row).kind, judged(row, 1).kind) for row in ROWS[heading]}
    assert {row: kinds for row, kinds in found.items() if kinds != OUTCOMES[heading]} == {}


def test_a_look_runs_the_same_with_the_filter_and_without_it() -> None:
    for row in ROWS["a look with the filter and without it"]:
        assert filtered(row).ran == judged(row, 1).ran, row


def test_no_look_is_an_action_and_none_grants_anything() -> None:
    for row in ROWS["a look with the filter, refused without it"]:
        verdict = filtered(row)
        assert (verdict.actions, verdict.grants) == ((), ()), row


def test_what_runs_is_judged_the_same_again() -> None:
    for row in ROWS["a look with the filter, refused without it"]:
        ran = dict(filtered(row).ran or {}).get("command", row)
        again = filtered(str(ran))
        assert (again.kind, dict(again.ran or {}).get("command", ran)) == (ALLOW, ran), row


@pytest.mark.parametrize("filters", [set(), {"docker"}])
def test_without_this_filter_its_rules_do_not_hold(filters: set[str]) -> None:
    scope = replace(SCOPE, filters=frozenset(filters))
    assert judged("kubectl describe pod web-1", 1, scope).kind is DENY


def test_the_cluster_filter_opens_nothing_of_docker() -> None:
    assert filtered("docker inspect web").kind is DENY


@pytest.mark.parametrize(
    "option",
    [
        *("--kubeconfig=/work/s1/other", "--server=https://10.0.0.1:6443", "-s https://10.0.0.1:6443", "--token=x"),
        *("--as=admin", "--as-group=system:masters", "--insecure-skip-tls-verify", "--certificate-authority=/x"),
        *("--client-certificate=/x", "--client-key=/x", "--user=admin", "--cluster=other", "--tls-server-name=x"),
    ],
)
@pytest.mark.parametrize(
    "command", ["get pods {} -o yaml", "{} get pods -o yaml", "describe {} pod web-1", "{} describe pod web-1"]
)
def test_an_operators_own_option_that_leads_past_the_filter_is_judged_as_without_one(option: str, command: str) -> None:
    tier = tier_policy(parse_policy(OWN_GROUP, default=DEFAULT_TEXT), 1)
    assert filtered(f"kubectl {command.format('')}", tier).kind is ALLOW
    assert filtered(f"kubectl get pods {option}", tier).kind is ALLOW, "the operator's own rule allows the option"
    assert filtered(f"kubectl {command.format(option)}", tier).kind is DENY


def test_so_is_one_that_leads_past_the_filter_of_docker() -> None:
    group = 'extends = "default"\n[[groups]]\nname = "docker"\noptions = "--host|-H=text --context=name"\n'
    tier = tier_policy(parse_policy(group, default=DEFAULT_TEXT), 1)
    scope = replace(SCOPE, filters=frozenset({"docker"}))
    assert judged("docker inspect web", tier, scope).kind is ALLOW
    assert judged("docker -H tcp://10.0.0.1:2375 inspect web", tier, scope).kind is DENY
    assert judged("docker --context prod inspect web", tier, scope).kind is DENY


@pytest.mark.parametrize("sudo", ["sudo", "sudo -u admin", "doas"])
def test_another_user_has_other_settings_and_so_no_filter(sudo: str) -> None:
    scope = replace(SCOPE, filters=frozenset({"docker", "kubernetes"}))
    for command in ("docker inspect web", "docker history web", "kubectl describe pod web-1"):
        assert judged(command, 1, scope).kind is ALLOW
        assert judged(f"{sudo} {command}", 1, scope).kind is DENY


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("kubectl get pods -w", "-o is wide, name, yaml, json"),
        ("kubectl get pods -o jsonpath-file=/x", "files of templates"),
        ("kubectl get tokens -o yaml", "tokens: secrets of the cluster are never read"),
        ("kubectl describe externalsecrets", "secrets of the cluster are never read"),
        ("kubectl describe -f /x", "-f and secrets are not allowed"),
    ],
)
def test_a_refusal_says_what_is_allowed_with_the_filter(command: str, said: str) -> None:
    assert said in filtered(command).reason


def test_changes_need_what_they_needed() -> None:
    for change in ("rollout restart deploy/web", "scale deploy/web --replicas=2", "apply -f /x", "delete pod web-1"):
        command = f"kubectl {change}"
        for tier in (1, 2, 3):
            with_it, without = filtered(command, tier), judged(command, tier)
            assert (with_it.kind, with_it.actions, with_it.reason) == (without.kind, without.actions, without.reason)


def test_the_policy_has_rules_for_this_filter() -> None:
    names = {name for name, rules in POLICY.book.rules.items() if any(rule.filter == "kubernetes" for rule in rules)}
    assert names == {"kubectl get", "kubectl describe", "kubectl rollout history"}
