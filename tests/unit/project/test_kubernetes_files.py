"""The files for Kubernetes are what its schemas allow, and agree with the image and with claudeops."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from claudeops.engine.gate.approval_key import read_key
from support.checkout import ROOT
from support.deploy_files import DATABASE, STOPPING_SECONDS, node_settings
from support.settings_world import make_world

FILES = ROOT / "deploy" / "kubernetes"
KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [kubernetes/base]
components: [{components}]
"""


def built(directory: Path) -> list[dict[str, Any]]:
    """Return the documents that kubectl would apply."""
    command = [str(KUBECTL), "kustomize", str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    return list(yaml.safe_load_all(done.stdout))


def one(documents: list[dict[str, Any]], kind: str, name: str = "claudeops") -> dict[str, Any]:
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    return found


@pytest.fixture(scope="module")
def base() -> list[dict[str, Any]]:
    return built(FILES / "base")


def overlaid(directory: Path, *components: str) -> list[dict[str, Any]]:
    """Return the documents of an overlay of the base with components."""
    # kustomize follows no link out of a directory, and takes no absolute path.
    for file in FILES.rglob("*"):
        if file.is_file():
            copy = directory / "kubernetes" / file.relative_to(FILES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    wanted = ", ".join(f"kubernetes/{name}" for name in components)
    (directory / "kustomization.yaml").write_text(OVERLAY.format(components=wanted))
    return built(directory)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return an overlay whose sessions look at the cluster."""
    return overlaid(tmp_path_factory.mktemp("overlay"), "looks")


@pytest.fixture(scope="module")
def several() -> list[dict[str, Any]]:
    """Return several nodes, with their PostgreSQL."""
    return built(FILES / "postgresql")


@pytest.fixture(scope="module")
def several_looking(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return several nodes, on somebody's own PostgreSQL, whose sessions look at the cluster."""
    return overlaid(tmp_path_factory.mktemp("overlay"), "looks", "nodes")


@pytest.fixture(scope="module")
def pod(base: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = one(base, "Deployment")["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.mark.parametrize("version", ["1.33", "1.35", "1.37"])
def test_the_schemas_of_kubernetes_allow_every_document(
    version: str,
    base: list[dict[str, Any]],
    looking: list[dict[str, Any]],
    several: list[dict[str, Any]],
    several_looking: list[dict[str, Any]],
) -> None:
    for document in (*base, *looking, *several, *several_looking):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_name_is_one_that_the_schemas_refuse(base: list[dict[str, Any]]) -> None:
    wrong = one(base, "PodDisruptionBudget") | {"spec": {"maxUnavailible": 1}}

    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailible"):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_there_is_never_a_second_daemon_on_sqlite(base: list[dict[str, Any]]) -> None:
    spec = one(base, "Deployment")["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert {claim["spec"]["accessModes"][0] for claim in base if claim["kind"] == "PersistentVolumeClaim"} == {
        "ReadWriteOnce"
    }


def test_a_pod_has_more_time_than_the_daemon_takes_to_stop(pod: dict[str, Any]) -> None:
    assert pod["terminationGracePeriodSeconds"] > STOPPING_SECONDS


def test_the_daemon_has_no_rights_in_the_cluster(base: list[dict[str, Any]], pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert one(base, "ServiceAccount")["automountServiceAccountToken"] is False
    assert {document["kind"] for document in base} & {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    } == set()
    assert pod["enableServiceLinks"] is False


def test_sessions_that_look_see_one_namespace_and_no_secret(looking: list[dict[str, Any]]) -> None:
    roles = [each for each in looking if each["apiVersion"].startswith("rbac")]

    assert [(role["kind"], role["roleRef"]["name"]) for role in roles] == [("RoleBinding", "view")]
    assert {each["metadata"].get("namespace") for each in looking if each["kind"] != "Namespace"} == {"claudeops"}
    (settings,) = [each["data"] for each in looking if "CLAUDEOPS_INTERVAL" in each.get("data", {})]
    volumes = one(looking, "Deployment")["spec"]["template"]["spec"]["volumes"]
    (kubernetes,) = [volume for volume in volumes if volume["name"] == "kubernetes"]
    assert settings["KUBECONFIG"] == "/run/claudeops-kubernetes/kubeconfig"
    assert [next(iter(source)) for source in kubernetes["projected"]["sources"]] == [
        *("serviceAccountToken", "configMap", "configMap")
    ]


def test_the_pod_runs_as_the_user_of_the_image_with_nothing_to_spare(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (10001, 10001)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "procMount": "Unmasked",
        "readOnlyRootFilesystem": True,
    }
    # Kubernetes refuses an unmasked /proc to a pod in the node's own user namespace.
    assert pod["hostUsers"] is False


def test_every_volume_of_the_image_is_mounted(container: dict[str, Any]) -> None:
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}

    assert {"/state", "/results", "/repos/estate", "/tmp"} <= mounts  # noqa: S108 - in the container


def test_its_settings_are_some_that_the_daemon_takes(base: list[dict[str, Any]], tmp_path: Path) -> None:
    world = make_world(tmp_path)
    key = world.file("anthropic-api-key", "sk-ant-of-a-secret\n")
    (settings,) = [each["data"] for each in base if "CLAUDEOPS_INTERVAL" in each.get("data", {})]

    loaded = world.load({**settings, "ANTHROPIC_API_KEY_FILE": str(key)})

    assert loaded.settings.access.api_key == "sk-ant-of-a-secret"
    assert loaded.settings.ladder.dry_run


def test_only_a_daemon_that_hangs_is_restarted(container: dict[str, Any]) -> None:
    probes = [container[name] for name in ("startupProbe", "livenessProbe")]

    assert {tuple(probe["exec"]["command"]) for probe in probes} == {("claudeops", "health")}
    assert "readinessProbe" not in container


# --- several nodes --------------------------------------------------------------------------------------


def test_a_node_is_the_pod_of_the_one_daemon_with_volumes_of_its_own(
    several: list[dict[str, Any]], several_looking: list[dict[str, Any]], pod: dict[str, Any]
) -> None:
    for documents in (several, several_looking):
        assert {each["kind"] for each in documents} & {"Deployment", "PersistentVolumeClaim"} == set()
        spec = one(documents, "StatefulSet")["spec"]
        assert spec["replicas"] > 1
        assert [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]] == ["state", "results"]
        names = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
        assert names & {"state", "results"} == set()

    node = one(several, "StatefulSet")["spec"]["template"]["spec"]
    changed = {name for name in {*node, *pod} if node.get(name) != pod.get(name)}
    assert changed == {"containers", "initContainers", "topologySpreadConstraints", "volumes"}
    assert node["terminationGracePeriodSeconds"] > STOPPING_SECONDS


def test_a_node_is_told_from_the_others_by_a_name_that_stays(
    several: list[dict[str, Any]], container: dict[str, Any]
) -> None:
    (node,) = one(several, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    name, *others = node["env"]

    assert name == {"name": "CLAUDEOPS_NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert others == container["env"]
    changed = {key for key in {*node, *container} if node.get(key) != container.get(key)}
    assert changed == {"env", "envFrom"}  # the map's name, of what is in it


def test_nodes_share_a_database_whose_address_is_a_secret(
    several: list[dict[str, Any]], several_looking: list[dict[str, Any]], tmp_path: Path
) -> None:
    for number, documents in enumerate((several, several_looking)):
        (found,) = [each for each in documents if "CLAUDEOPS_INTERVAL" in each.get("data", {})]
        (container,) = one(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
        settings = node_settings(found["data"], tmp_path / str(number))

        assert container["envFrom"] == [{"configMapRef": {"name": found["metadata"]["name"]}}]
        assert settings.places.database_url == DATABASE.replace("postgresql:", "postgresql+psycopg:")
        assert found["data"]["CLAUDEOPS_DISPATCHER"] == "procrastinate"
        assert found["data"]["CLAUDEOPS_DATABASE_URL_FILE"] == "/run/secrets/claudeops/database-url"


def test_every_node_gets_the_key_of_answers_as_the_daemon_takes_it(
    several: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The command is run as it is, with directories of this test; a secret's file is readable for a group."""
    (copies,) = one(several, "StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    places = {mount["name"]: mount["mountPath"] for mount in copies["volumeMounts"]}
    for name in places:
        (tmp_path / name).mkdir()
    (tmp_path / "secrets" / "approval.key").write_bytes(bytes(range(32)))
    (tmp_path / "secrets" / "approval.key").chmod(0o440)
    words = copies["command"]
    for name, place in places.items():
        words = [re.sub(rf"^{place}(?=/)", str(tmp_path / name), word) for word in words]
    for _ in range(2):  # and at each further start
        subprocess.run(words, check=True, timeout=240)

    assert read_key(tmp_path / "state") == bytes(range(32))
    assert copies["image"] == one(several, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["image"]


def test_the_nodes_alone_reach_their_server_at_the_name_in_the_address(several: list[dict[str, Any]]) -> None:
    server = one(several, "StatefulSet", "postgresql")["spec"]
    policy = one(several, "NetworkPolicy", "postgresql")["spec"]
    labels = server["template"]["metadata"]["labels"]
    node = one(several, "StatefulSet")["spec"]["template"]["metadata"]["labels"]

    assert one(several, "Service", "postgresql")["spec"]["selector"] == labels == policy["podSelector"]["matchLabels"]
    assert [each["podSelector"]["matchLabels"] for each in policy["ingress"][0]["from"]] == [node]
    assert one(several, "Service")["spec"]["selector"] == node != labels
    (container,) = server["template"]["spec"]["containers"]
    assert [name for name in container["env"] if name["name"].endswith("PASSWORD")] == []
    assert "--host" in container["readinessProbe"]["exec"]["command"]


def test_a_volume_that_is_mounted_is_one_that_there_is(
    several: list[dict[str, Any]], several_looking: list[dict[str, Any]]
) -> None:
    for each in (*several, *several_looking):
        if each["kind"] == "StatefulSet":
            pod = each["spec"]["template"]["spec"]
            there = {volume["name"] for volume in pod["volumes"]}
            there |= {claim["metadata"]["name"] for claim in each["spec"]["volumeClaimTemplates"]}
            containers = (*pod["containers"], *pod.get("initContainers", ()))
            assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == there
