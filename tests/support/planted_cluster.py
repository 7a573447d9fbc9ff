"""Objects of a cluster with a secret in every place that can hold one; each has ``hunter2`` in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]
SECRET: Final = "hunter2"
NAMESPACE: Final = "default"
NOW: Final = "2026-11-26T21:47:13Z"


def metadata(name: str, *, namespaced: bool = True, annotations: Mapping[str, str] | None = None) -> Json:
    """Return the metadata of an object."""
    where = {"namespace": NAMESPACE} if namespaced else {}
    return {
        "name": name,
        **where,
        "uid": f"0b0b0b0b-1111-4444-8888-{abs(sum(map(ord, name))):012d}",
        "resourceVersion": "7",
        "creationTimestamp": NOW,
        "labels": {"app": "web", "env": "prod", "command": "kept"},
        "annotations": {
            "deployment.kubernetes.io/revision": "3",
            "kubernetes.io/change-cause": "kubectl set env deploy/web A=cause-hunter2",
            "kubectl.kubernetes.io/last-applied-configuration": '{"spec":{"env":"applied-hunter2"}}',
            "note": "api-token=ann-hunter2",
            **(annotations or {}),
        },
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"v:managed-hunter2": {}}}}],
    }


CONTAINER: Final[Json] = {
    "name": "app",
    "image": "registry.example/web:1.2",
    "command": ["/bin/sh", "-c", "run --password=cmd-hunter2"],
    "args": ["--token=arg-hunter2"],
    "env": [
        {"name": "DB_PASSWORD", "value": "env-hunter2"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "password"}}},
        {"name": "EMPTY", "value": ""},
    ],
    "envFrom": [{"secretRef": {"name": "s1"}}],
    "livenessProbe": {
        "httpGet": {
            "path": "/health?key=path-hunter2",
            "port": 8080,
            "scheme": "HTTP",
            "httpHeaders": [{"name": "X-Key", "value": "header-hunter2"}],
        },
        "periodSeconds": 10,
    },
    "readinessProbe": {"exec": {"command": ["check", "probe-hunter2"]}},
    "lifecycle": {"preStop": {"exec": {"command": ["stop", "hook-hunter2"]}}},
    "volumeMounts": [{"name": "s", "mountPath": "/etc/s"}],
    "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
}
POD_SPEC: Final[Json] = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER | {"name": "init"}],
    "volumes": [
        {"name": "s", "secret": {"secretName": "s1"}},
        {"name": "d", "csi": {"driver": "d.example", "volumeAttributes": {"apiKey": "csi-hunter2", "share": "a"}}},
    ],
    "nodeName": "n1",
    "serviceAccountName": "web",
}
ENDED: Final[Json] = {"exitCode": 1, "reason": "Error", "message": "ended-hunter2", "finishedAt": NOW}
POD: Final[Json] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": metadata("web-1"),
    "spec": POD_SPEC,
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": "False", "message": "containers with unready status: [app]"}],
        "containerStatuses": [
            {
                "name": "app",
                "ready": False,
                "restartCount": 4,
                "image": "registry.example/web:1.2",
                "imageID": "",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
                "lastState": {"terminated": ENDED},
            },
            {
                "name": "init",
                "ready": False,
                "restartCount": 0,
                "image": "registry.example/web:1.2",
                "imageID": "",
                "state": {"waiting": {"reason": "RunContainerError", "message": "exec: run start-hunter2"}},
                "lastState": {},
            },
        ],
    },
}
TEMPLATE: Final[Json] = {"metadata": metadata("template"), "spec": POD_SPEC}
DEPLOYMENT: Final[Json] = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": metadata("web"),
    "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "strategy": {}, "template": TEMPLATE},
    "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
}
CONFIG_MAP: Final[Json] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": metadata("cm1"),
    "data": {
        "LOG_LEVEL": "debug",
        "DB_PASSWORD": "key-hunter2",
        "tls.key": "file-hunter2",
        "app.conf": "dsn=postgres://u:cm-hunter2@db/x\nworkers = 4\napi_token: token-hunter2\n",
        "app.json": '{"workers": 4, "password": "json-hunter2", "host": "db"}',
        "redis.conf": "port 6379\nrequirepass redis-hunter2\n",
        "flags": "serve --port 80 --api-key flag-hunter2",
        "block.yaml": "password: |\n  block-hunter2\n",
        "list.yaml": "env:\n- name: DB_PASSWORD\n  value: list-hunter2\nworkers: 4\n",
        "open.yaml": "secret: 'a\n  open-hunter2'\n",
        "app.xml": "<a>\n<password>xml-hunter2</password>\n<workers>4</workers>\n</a>",
        "url": "http://user:url-hunter2@db.example/",
    },
    "binaryData": {"blob": "huntehunter2"},
}
CUSTOM: Final[Json] = {
    "kind": "Shop",
    "apiVersion": "example.org/v1",
    "metadata": metadata("shop"),
    "spec": {
        "replicas": 3,
        "hostname": "shop.example",
        "password": "custom-hunter2",
        "adminPasswordSecretRef": {"name": "s1", "key": "admin"},
        "pin": {"token": 1234567},
        "values": {"any": {"thing": "values-hunter2"}},
        "triggers": [{"type": "queue", "metadata": {"connectionString": "meta-hunter2", "queue": "orders"}}],
        "params": [{"name": "x", "value": "param-hunter2"}],
        "environment": {"A": "map-hunter2"},
        "note": "api_key: note-hunter2",
        "podTemplate": TEMPLATE,
        "state": {"inner": {"password": "state-hunter2"}},
    },
    "status": {"phase": "Ready", "conditions": [{"type": "Synced", "status": "True", "reason": "Done"}]},
}
NODE: Final[Json] = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": metadata("n1", namespaced=False),
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}],
        "nodeInfo": {"kubeletVersion": "v1.34.4", "osImage": "Debian"},
    },
}
HELM: Final[Json] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "demo.v1", "namespace": NAMESPACE, "labels": {"owner": "helm"}},
    "data": {"release": "H4sIhunter2"},
}
PLAIN_SECRET: Final[Json] = {
    "kind": "Secret",
    "apiVersion": "v1",
    "metadata": metadata("s1"),
    "data": {"password": "secret-hunter2"},
}


def planted() -> dict[tuple[str, str, str], Json]:
    """Return the objects as a cluster holds them; each call returns new ones."""
    listed = {
        "pods": POD,
        "deployments": DEPLOYMENT,
        "replicasets": DEPLOYMENT | {"kind": "ReplicaSet", "metadata": metadata("web-5")},
        "configmaps": CONFIG_MAP,
        "shops": CUSTOM,
        "nodes": NODE,
        "secrets": PLAIN_SECRET,
    }
    return {
        (resource, one["metadata"].get("namespace", ""), one["metadata"]["name"]): copy.deepcopy(one)
        for resource, one in listed.items()
    }
