"""A name that may mean two services counts as both, and one that may mean any is not acted on."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.estate.estate import Estate, Manifest, Prohibition, Service, StatementSource
from claudeops.policy.identity import pod_owners
from claudeops.policy.tiers import TierPolicy, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, SCOPE, judged

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
HERE = StatementSource(path="media/CLAUDE-OPS.md", line=3)
TASK = "k3v9q2m8x7w5t1r6p4n0b2c7d"  # as swarm names one


def named(*names: str, **aliases: str) -> Estate:
    services = tuple(Service(name=name, source=HERE) for name in names)
    return Estate(manifests=(Manifest(repository="media", services=services),), other_names=aliases)


def never(*names: str) -> Estate:
    rule = Prohibition(services=names, text="hands off", source=HERE)
    services = tuple(Service(name=name, source=HERE) for name in names)
    return Estate(manifests=(Manifest(repository="media", services=services, prohibitions=(rule,)),))


def within(estate: Estate, command: str, tier: int = 3) -> Verdict:
    return judged(command, tier, replace(SCOPE, estate=replace(estate, hosts=SCOPE.estate.hosts)))


def policy(text: str) -> TierPolicy:
    return tier_policy(parse_policy(f'extends = "default"\n{text}\n', default=DEFAULT_TEXT), 3)


def services(command: str, estate: Estate | None = None) -> list[str]:
    verdict = within(estate or Estate(), command)
    assert verdict.kind is ALLOW, verdict.reason
    return [action.service for action in verdict.actions]


# --- pods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "owners"),
    [
        ("web-7d4b9c8f6-x7k2p", ("web",)),
        ("my-redis-7d4b9c8f6f-x7k2p", ("my-redis",)),
        ("agent-x7k2p", ("agent",)),  # of a DaemonSet
        ("web-5-x7k2p", ("web-5", "web")),  # of a DaemonSet, or of a Job with an index
        ("web-6f9d-x7k2p", ("web-6f9d", "web")),  # of a DaemonSet, or a short hash
        ("backup-28374651-x7k2p", ("backup-28374651", "backup")),  # of a Job, which a CronJob made
        ("my-redis1-0", ("my-redis1",)),  # of a StatefulSet, which has no hash
        ("db-12", ("db",)),
        ("my-redis", ("my-redis",)),
        ("shop", ("shop",)),
        ("kube-apiserver-node", ("kube-apiserver-node",)),
    ],
)
def test_a_pod_belongs_to_what_made_it_or_to_either_of_two(pod: str, owners: tuple[str, ...]) -> None:
    assert pod_owners(pod) == owners
    assert services(f"kubectl delete pod {pod}") == list(owners)
    assert services(f"kubectl delete pod/{pod} -n media") == [f"namespace:media/{owner}" for owner in owners]


@pytest.mark.parametrize("forbidden", ["web", "web-5"])
def test_a_pod_of_two_owners_is_forbidden_as_either(forbidden: str) -> None:
    assert within(never("other"), "kubectl delete pod web-5-x7k2p").kind is ALLOW
    assert within(never(forbidden), "kubectl delete pod web-5-x7k2p").kind is DENY


def test_a_pod_whose_name_may_have_lost_its_end_is_not_deleted() -> None:
    long = "a" * 57
    assert services(f"kubectl delete pod {long}-x7k2") == [f"{long}-x7k2"]
    assert within(Estate(), f"kubectl delete pod {long}ax7k2p").kind is DENY


@pytest.mark.parametrize(
    ("given", "owner"),
    [
        ("deploy/my-redis", "my-redis"),  # a name behind a type is no pod's
        ("deployments.apps/my-redis-0", "my-redis-0"),
        ("sts/my-redis1", "my-redis1"),
        ("svc/web-x7k2p", "web-x7k2p"),
        ("rs/web-7d4b9c8f6", "web"),
        ("my-redis1-0", "my-redis1"),
        ("pod/web-7d4b9c8f6-x7k2p", "web"),
        ("po/agent-x7k2p", "agent"),
        ("web-7d4b9c8f6-x7k2p", "web"),
    ],
)
def test_a_command_in_a_pod_runs_in_what_made_the_pod(given: str, owner: str) -> None:
    assert services(f"kubectl exec {given} -- supervisorctl restart worker") == [f"container:{owner}/worker"]


def test_a_command_in_a_pod_of_two_owners_is_given_their_names() -> None:
    verdict = within(Estate(), "kubectl exec web-5-x7k2p -- supervisorctl restart worker")
    assert verdict.kind is DENY
    assert verdict.reason == "web-5-x7k2p could be a pod of web-5 or of web: write deployment/NAME"
    assert services("kubectl exec deployment/web -- supervisorctl restart worker") == ["container:web/worker"]


# --- ids of containers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["db", "a", "012e", "cafe", "3f4e5d6c7b8a", "f" * 64])
@pytest.mark.parametrize("action", ["restart", "stop", "container start"])
def test_what_could_begin_an_id_is_no_name_unless_the_estate_has_it(name: str, action: str) -> None:
    command = f"docker {action} {name}"
    verdict = within(named("web"), command)
    assert verdict.kind is DENY
    assert f"{name} could be the beginning of a container's id" in verdict.reason
    assert services(command, named(name.upper())) == [name]
    assert services(command, Estate(other_names={name: "web"})) == ["web"]
    assert services(command, Estate(other_names={"web": name})) == [name]


@pytest.mark.parametrize(
    "way",
    [
        "docker compose -p media restart db",
        "docker compose -p media exec db supervisorctl restart worker",
        "docker logs --tail 5 db",
        "docker exec db ls /",
        "docker restart web db1x",
        "systemctl restart db",
        "kubectl exec deploy/db -- supervisorctl restart worker",
    ],
)
def test_looks_and_other_ways_to_a_service_of_such_a_name_stay(way: str) -> None:
    assert within(Estate(), way).kind is ALLOW


def test_the_policys_own_names_are_names_too() -> None:
    verdict = judged("docker restart db", policy('services.web = ["db"]'))
    assert (verdict.kind, [action.service for action in verdict.actions]) == (ALLOW, ["web"])


@pytest.mark.parametrize("prefix", ["", "sudo ", "ssh web1 "])
def test_nothing_is_changed_in_a_container_that_an_id_may_mean(prefix: str) -> None:
    command = f"{prefix}docker exec 3f4e supervisorctl restart worker"
    assert "beginning of a container's id" in within(Estate(), command).reason
    assert within(Estate(), f"{prefix}docker exec 3f4e ls /").kind is ALLOW
    assert within(named("3f4e"), command).kind is ALLOW


def test_a_container_is_no_path_that_the_client_would_clean() -> None:
    assert within(Estate(), "docker exec x/../web supervisorctl restart worker").kind is DENY


@pytest.mark.parametrize("command", ["docker service update --force", "docker service rollback"])
def test_a_service_of_swarm_may_be_given_by_its_id_as_well(command: str) -> None:
    assert "beginning of a service's id" in within(Estate(), f"{command} web").reason
    assert services(f"{command} web", named("web")) == ["web"]
    assert services(f"{command} shop_web") == ["shop_web"]


@pytest.mark.parametrize("forbidden", ["shop_db", "SHOP_DB", "shop_db_1"])
def test_a_stack_is_every_service_in_it(forbidden: str) -> None:
    deploy = "docker stack deploy -c /repos/shop.yml"
    assert "the stack shop holds what is forbidden by" in within(never(forbidden), f"{deploy} shop").reason
    assert services(f"{deploy} sho", never(forbidden)) == ["sho"]
    assert services("docker restart shop", never(forbidden)) == ["shop"]


@pytest.mark.parametrize("excluded", ['never.services = ["*_db"]', 'tiers.3.services = ["*", "!shop_d?"]'])
def test_a_stack_with_a_service_that_the_policy_excludes_is_not_deployed(excluded: str) -> None:
    tier = policy(excluded)
    verdict = judged("docker stack deploy -c /repos/shop.yml shop", tier)
    assert verdict.reason.startswith("the stack shop could hold ")
    assert judged("docker restart shop", tier).kind is ALLOW


# --- other names of a container ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        f"docker restart shop_web.1.{TASK}",
        f"docker restart shop_web.{TASK}.{TASK}",
        "docker restart systemd-shop_web",
        "systemctl restart container-shop_web",
        "systemctl restart docker-shop_web.service",
        "systemctl restart docker.shop_web",
        "systemctl restart podman@shop_web",
    ],
)
def test_a_container_has_one_name_whoever_started_it(command: str) -> None:
    assert services(command) == ["shop_web"]
    assert services(f"ssh web1 {command}") == ["web1/shop_web"]
    assert services(command, Estate(other_names={"shop_web": "shop"})) == ["shop"]
    assert within(never("shop_web"), command).kind is DENY


@pytest.mark.parametrize("container", [f"shop_web.1.{TASK}", "systemd-shop_web"])
def test_what_is_in_a_forbidden_container_is_forbidden_by_each_of_its_names(container: str) -> None:
    command = f"docker exec {container} supervisorctl restart worker"
    assert within(never("other"), command).kind is ALLOW
    assert within(never("shop_web"), command).kind is DENY


def test_a_name_that_a_manifest_has_keeps_its_own_meaning() -> None:
    both = named("docker-registry", "registry")
    assert services("systemctl restart docker-registry", both) == ["docker-registry"]
    assert services("ssh web1 systemctl restart docker-registry", both) == ["web1/docker-registry"]
    assert services("systemctl restart docker-registry") == ["registry"]


@pytest.mark.parametrize(
    ("container", "forbidden"),
    [
        ("media-db-1", "project:media/db"),
        ("media_db_1", "project:media/db"),
        ("my-media-db-1", "project:my-media/db"),
        ("media-my-db-12", "project:media/my-db"),
        ("media-db-1", "db"),
    ],
)
def test_a_container_of_compose_is_excluded_as_the_service_of_each_project(container: str, forbidden: str) -> None:
    assert services(f"docker restart {container}") == [container]
    assert within(never(forbidden), f"docker restart {container}").kind is DENY
    assert judged(f"docker restart {container}", policy(f'never.services = ["{forbidden}"]')).kind is DENY


@pytest.mark.parametrize("pattern", ["project:media/*", "web", "project:media/web"])
def test_what_a_name_could_be_taken_for_grants_nothing(pattern: str) -> None:
    tier = policy(f'tiers.3.services = ["{pattern}"]')
    assert judged("docker restart media-web-1", tier).reason == "media-web-1 is not among the services of this tier"


# --- where it runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "service"),
    [
        ("nerdctl -n k8s.io restart web", "namespace:k8s.io/web"),
        ("nerdctl --namespace=k8s.io compose -p media restart web", "namespace:k8s.io/project:media/web"),
        ("lxc-attach -n web -- systemctl restart nginx", "container:web/nginx"),
        ("lxc-attach --name=web -- systemctl restart nginx", "container:web/nginx"),
    ],
)
def test_a_service_elsewhere_is_not_the_one_here(command: str, service: str) -> None:
    assert services(command) == [service]


def test_an_unnamed_container_is_none() -> None:
    assert "name the container" in within(Estate(), "lxc-attach -- systemctl restart nginx").reason
