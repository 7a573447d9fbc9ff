"""What the gate grants of a cluster: a change that an allowed command makes, once, and no other."""

from __future__ import annotations

import shlex

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.gate.cluster_grants import ClusterChange, ClusterGrant, fits
from claudeops.domain.gate.granted import Grants
from claudeops.policy.paths import PathContext
from claudeops.policy.programs.kubernetes import grants_of
from claudeops.policy.rules import Arguments
from claudeops.policy.shell.language import Glob, Literal, Text, Word
from claudeops.policy.tiers import TierPolicy, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, SCOPE, judged

OWN_RULES = """
extends = "default"

[[commands]]
name = "kubectl scale"
tier = 2
options = "--replicas=word --current-replicas=int --server|-s=text --selector|-l=text --all --filename|-f=text"
arguments = "re:[A-Za-z.1,]+(/[a-z0-9/-]+)? service*"
action = "restart"
service = "web"

[[commands]]
name = "kubectl rollout restart"
tier = 2
options = "--selector|-l=text --all --filename|-f=text --kubeconfig=text"
arguments = "re:[A-Za-z.1,]+(/[a-z0-9/-]+)? service*"
action = "restart"
service = "web"

[[commands]]
name = "kubectl delete"
tier = 2
options = "--selector|-l=text --all --force --filename|-f=text --field-selector=text"
arguments = "re:[A-Za-z.1,]+(/[a-z0-9/-]+)? service*"
action = "restart"
service = "web"
"""
"""Rules of an operator that allow what the default policy does not."""

OWN: TierPolicy = tier_policy(parse_policy(OWN_RULES, default=DEFAULT_TEXT), 3)


def grants(command: str, tier: int | TierPolicy = 3) -> list[ClusterGrant]:
    verdict = judged(command, tier=tier)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    granted = [grant for grant in verdict.grants if isinstance(grant, ClusterGrant)]
    assert {grant.call for grant in granted} <= {"toolu_1"}
    return [replace(grant, call="") for grant in granted]


def grant(verb: str, resource: str, name: str = "web", **given: object) -> ClusterGrant:
    return ClusterGrant(call="", verb=verb, resource=resource, name=name, **given)  # type: ignore[arg-type]


def restarted(resource: str = "deployments", name: str = "web", **given: object) -> ClusterGrant:
    return grant("restart", resource, name, **given)


def scaled(resource: str = "deployments", name: str = "web", replicas: int = 2, **given: object) -> ClusterGrant:
    return grant("scale", resource, name, replicas=replicas, **given)


def deleted(name: str, **given: object) -> ClusterGrant:
    return grant("delete", "pods", name, **given)


def executed(name: str, *command: str, **given: object) -> ClusterGrant:
    return grant("exec", "pods", name, command=command, **given)


@pytest.mark.parametrize(
    ("command", "granted"),
    [
        ("kubectl rollout restart deployment/web", [restarted()]),
        ("kubectl rollout restart deployments/web", [restarted()]),
        ("kubectl rollout restart deploy/web", [restarted()]),
        ("kubectl rollout restart deploy.apps/web", [restarted()]),
        ("kubectl rollout restart deployment.apps/web", [restarted()]),
        ("kubectl rollout restart deployment web", [restarted()]),
        ("kubectl rollout restart deploy web api", [restarted(), restarted(name="api")]),
        ("kubectl rollout restart deploy/web sts/db", [restarted(), restarted("statefulsets", "db")]),
        ("kubectl rollout restart statefulset db", [restarted("statefulsets", "db")]),
        ("kubectl rollout restart ds/agent", [restarted("daemonsets", "agent")]),
        ("kubectl rollout restart daemonsets.apps agent", [restarted("daemonsets", "agent")]),
        ("kubectl -n media rollout restart deploy/web", [restarted(namespace="media")]),
        ("kubectl rollout restart deploy/web -n media", [restarted(namespace="media")]),
        ("kubectl rollout -n=media restart deploy/web", [restarted(namespace="media")]),
        ("kubectl rollout restart -nmedia deploy web", [restarted(namespace="media")]),
        ("kubectl rollout restart --namespace media deploy web", [restarted(namespace="media")]),
        ("kubectl --namespace=media rollout restart deploy/web -n media", [restarted(namespace="media")]),
        ("kubectl --context prod rollout restart deploy/web", [restarted(context="prod")]),
        (
            "kubectl rollout restart deploy/web --context=prod --namespace=media --request-timeout=5s",
            [restarted(context="prod", namespace="media")],
        ),
        ("oc rollout restart deploy/web", [restarted()]),
        ("timeout 60 kubectl rollout restart deploy/web", [restarted()]),
        ("bash -c 'kubectl rollout restart deploy/web'", [restarted()]),
        (
            "kubectl rollout restart deploy/web && kubectl -n media rollout restart sts/db",
            [restarted(), restarted("statefulsets", "db", namespace="media")],
        ),
        ("kubectl scale deploy/web --replicas=2", [scaled()]),
        ("kubectl scale --replicas 3 deployment web", [scaled(replicas=3)]),
        ("kubectl scale --replicas=3 sts db", [scaled("statefulsets", "db", 3)]),
        (
            "kubectl -n media scale deploy web api --replicas=3",
            [scaled(replicas=3, namespace="media"), scaled(name="api", replicas=3, namespace="media")],
        ),
        ("kubectl scale deploy/web --replicas=2 --replicas=2 --timeout=30s", [scaled()]),
        ("kubectl delete pod web-1", [deleted("web-1")]),
        ("kubectl delete po web-1 web-2", [deleted("web-1"), deleted("web-2")]),
        ("kubectl delete pods/web-1 po/web-2 pod/web-3", [deleted(f"web-{number}") for number in (1, 2, 3)]),
        ("kubectl delete pod web-1 -n media --grace-period=20 --wait=false", [deleted("web-1", namespace="media")]),
        ("kubectl exec web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec pod/web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec pods/web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec po/web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec POD/web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec -t web-1 -- uptime", [executed("web-1", "uptime")]),
        ("kubectl exec web-1 -c app -- uptime", [executed("web-1", "uptime", container="app")]),
        ("kubectl exec -capp web-1 -- uptime", [executed("web-1", "uptime", container="app")]),
        ("kubectl exec --container app web-1 -- uptime", [executed("web-1", "uptime", container="app")]),
        (
            "kubectl -n media exec web-1 --container=app -- uptime",
            [executed("web-1", "uptime", container="app", namespace="media")],
        ),
        (
            "kubectl exec -n media --context prod web-1 -- uptime",
            [executed("web-1", "uptime", context="prod", namespace="media")],
        ),
        ("kubectl exec web-1 -- cat /etc/hosts", [executed("web-1", "cat", "--", "/etc/hosts")]),
        (
            "for p in web-1 web-2; do kubectl exec $p -- uptime; done",
            [executed("web-1", "uptime"), executed("web-2", "uptime")],
        ),
        ("kubectl get pods", []),
        ("kubectl logs web-1 --tail=5", []),
        ("kubectl rollout status deploy/web --timeout=5s", []),
        ("docker ps", []),
    ],
)
def test_an_allowed_command_grants_what_it_changes_and_nothing_else(command: str, granted: list[ClusterGrant]) -> None:
    assert grants(command) == granted


@pytest.mark.parametrize(
    "command",
    [
        "kubectl exec deploy/web -- uptime",  # only kubectl picks the pod
        "kubectl exec deployment.apps/web -- uptime",
        "kubectl exec svc/web -- uptime",
        "kubectl exec rs/web-7d9f8c6b5d -- uptime",
        "kubectl exec sts/db -- uptime",
        "kubectl exec -i web-1 -- uptime",  # the filter passes no input on
        "kubectl exec -it web-1 -- uptime",
        "kubectl exec -c a -c b web-1 -- uptime",
        'kubectl exec web-1 -- echo "$(date)"',
        "echo x | xargs kubectl exec web-1 -- docker logs",
        "ssh db1 kubectl exec web-1 -- uptime",
        "ssh db1 kubectl rollout restart deploy/web",
        "docker exec k3s kubectl rollout restart deploy/web",
        "sudo kubectl exec web-1 -- uptime",
        "sudo -u admin kubectl rollout restart deploy/web",
        "kubectl rollout undo deploy/web",
        "kubectl apply -f /repos/app/web.yaml",
    ],
)
def test_what_is_not_known_before_it_runs_or_goes_elsewhere_is_not_granted(command: str) -> None:
    assert grants(command) == []


@pytest.mark.parametrize(
    ("command", "granted"),
    [
        ("kubectl scale rs/web --replicas=2", [scaled("replicasets")]),
        ("kubectl scale rc web --replicas=2", [scaled("replicationcontrollers")]),
        ("kubectl scale replicationcontrollers.v1. web --replicas=2", [scaled("replicationcontrollers")]),
        ("kubectl scale replicaset.apps web --replicas=2", [scaled("replicasets")]),
        ("kubectl scale Deployments.v1.apps/web --replicas=2", [scaled()]),
        ("kubectl scale deploy.v1.apps web --replicas=0", [scaled(replicas=0)]),
        ("kubectl scale deploy web --replicas=2 --current-replicas=1", [scaled()]),
        ("kubectl rollout restart STS.v1.apps db", [restarted("statefulsets", "db")]),
        ("kubectl delete pods.v1. web-1", [deleted("web-1")]),
        ("kubectl scale deploy web --replicas=010", []),  # eight
        ("kubectl scale deploy web --replicas=0x2", []),
        ("kubectl scale deploy web --replicas=+2", []),
        ("kubectl scale deploy web --replicas=2 --replicas=3", []),
        ("kubectl scale deploy web --replicas=٢", []),
        ("kubectl scale deploy web", []),
        ("kubectl scale ds web --replicas=2", []),
        ("kubectl scale deploy.extensions web --replicas=2", []),
        ("kubectl scale deploy.v1.extensions web --replicas=2", []),
        ("kubectl scale rc.apps web --replicas=2", []),
        ("kubectl scale shops web --replicas=2", []),
        ("kubectl scale deploy,sts web --replicas=2", []),
        ("kubectl scale deploy web --replicas=2 --server=https://10.0.0.1", []),
        ("kubectl scale deploy web --replicas=2 -l app=web", []),
        ("kubectl scale deploy web --replicas=2 --all", []),
        ("kubectl scale deploy web --replicas=2 -f /repos/x.yaml", []),
        ("kubectl scale deploy/web api --replicas=2", []),
        ("kubectl scale deploy/web/scale --replicas=2", []),
        ("kubectl rollout restart deploy", []),
        ("kubectl rollout restart deploy -l app=web", []),
        ("kubectl rollout restart rs web", []),
        ("kubectl rollout restart deploy web --kubeconfig=/work/s1/other", []),
        ("kubectl delete pod -l app=web", []),
        ("kubectl delete pod web-1 --force", []),
        ("kubectl delete pod --field-selector=status.phase=Failed", []),
        ("kubectl delete deploy web", []),
        ("kubectl delete pod,deploy web", []),
        ("kubectl delete pods.apps web-1", []),
    ],
)
def test_an_operators_own_rules_grant_only_what_the_filter_can_tell(command: str, granted: list[ClusterGrant]) -> None:
    assert grants(command, OWN) == granted


@pytest.mark.parametrize("unknown", [Text(()), Glob("web-*")])
def test_a_word_that_is_not_known_leaves_the_others_without_a_grant(unknown: Word) -> None:
    place, uptime = PathContext(scope=SCOPE), (Literal("uptime"),)
    for line in ("rollout restart deploy web", "delete pod web-1", "exec web-1"):
        found = OWN.policy.book.find("kubectl", tuple(map(Literal, line.split(" "))))
        positionals = found.arguments
        assert grants_of(found, Arguments(positionals=positionals), place, uptime), line
        assert grants_of(found, Arguments(positionals=(*positionals, unknown)), place, uptime) == (), line
        if line.startswith("exec"):
            assert grants_of(found, Arguments(positionals=positionals), place, (*uptime, unknown)) == ()


def test_what_is_granted_to_run_is_what_runs() -> None:
    for command in (
        "kubectl exec web-1 -- cat /etc/hosts",
        "kubectl exec web-1 -- sh -c 'ps aux | grep web'",
        "kubectl exec -c app web-1 -- ls -la /srv",
    ):
        (granted,) = grants(command)
        ran = shlex.split(str(dict(judged(command, 1).ran or {"command": command})["command"]))
        assert granted.command == tuple(ran[ran.index("--") + 1 :])


def test_a_refused_command_grants_nothing() -> None:
    for command in ("kubectl delete deploy web", "kubectl delete pod web-1 && kubectl delete deploy web"):
        assert judged(command, 3).grants == ()


def change(verb: str = "restart", resource: str = "deployments", **given: object) -> ClusterChange:
    whole: dict[str, object] = {"name": "web", "context": "prod", "namespace": "media", "id": "1", **given}
    return ClusterChange(**{"verb": verb, "resource": resource, "is_current": True, "is_own": True, **whole})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("granted", "changed", "is_it"),
    [
        (restarted(), change(), True),
        (restarted(), change(id="2"), True),
        (restarted(), change("scale"), False),
        (restarted(), change(resource="statefulsets"), False),
        (restarted(), change(name="api"), False),
        (restarted(), change(is_current=False), False),
        (restarted(), change(is_own=False), False),
        (restarted(context="prod"), change(is_current=False), True),
        (restarted(context="test"), change(), False),
        (restarted(namespace="media"), change(is_own=False), True),
        (restarted(namespace="other"), change(), False),
        (restarted(context="prod", namespace="media"), change(is_current=False, is_own=False), True),
        (scaled(), change("scale", replicas=2), True),
        (scaled(), change("scale", replicas=3), False),
        (scaled(), change("scale"), False),
        (deleted("web-1"), change("delete", "pods", name="web-1"), True),
        (deleted("web-1"), change("delete", "pods", name="web-2"), False),
        (executed("web", "ls"), change("exec", "pods", command=("ls",)), True),
        (executed("web", "ls"), change("exec", "pods", command=("ls", "-l")), False),
        (executed("api", "ls"), change("exec", "pods", command=("ls",)), False),
        (executed("web", "ls", container="a"), change("exec", "pods", command=("ls",), container="b"), False),
        (executed("web", "ls", container="a"), change("exec", "pods", command=("ls",), container="a"), True),
    ],
)
def test_a_change_is_what_was_granted_in_every_part(granted: ClusterGrant, changed: ClusterChange, is_it: bool) -> None:
    assert fits(granted, changed) is is_it


def test_a_grant_is_used_once_also_for_an_object_that_was_made_anew() -> None:
    held = Grants()
    held.admit([restarted()])
    assert held.take(change()) is not None
    assert held.take(change()) is None
    assert held.take(change(id="2")) is None


def test_two_equal_commands_in_one_call_are_two_grants() -> None:
    held = Grants()
    held.admit(grants("kubectl exec web -- uptime; kubectl exec web -- uptime"))
    asked = change("exec", "pods", command=("uptime",))
    assert [held.take(asked) is not None for _ in range(3)] == [True, True, False]


def test_a_grant_ends_with_its_call() -> None:
    held = Grants()
    held.admit([replace(restarted(), call="1"), replace(deleted("web"), call="2")])
    held.forget("2")
    assert held.take(change("delete", "pods")) is None
    assert held.take(change()) is not None
