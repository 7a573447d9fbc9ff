"""The kind `kubernetes`: has a workload the replicas that it wants, asked of the cluster's API.

The way to a cluster is a kubeconfig file or the service account of the pod that the daemon runs in. Programs that a
kubeconfig names for logging in are not run. A cluster that does not answer says nothing about the workload.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent

from claudeops.domain.probes.probe import KubernetesLook, Saw
from claudeops.engine.probes.exchange import ExchangeAnswer, ProbeQuestion, Url, exchange, url_of
from claudeops.engine.probes.results import Attempt, LookResult, blind, quote
from claudeops.engine.probes.stream import Means
from claudeops.tasks import Threads

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST_BYTES: Final = 1 << 20  # of a kubeconfig, and of each file that it names
_CLUSTERS: Final = 32  # whose contexts for TLS are kept: making one takes longer than a look
_FILES: Final = Threads(most=4)
_FOUND, _FORBIDDEN, _UNKNOWN = 200, (401, 403), 404
_PLURAL: Final[Mapping[str, str]] = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), "deployments"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "statefulsets"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), "daemonsets"),
    **dict.fromkeys(("replicaset", "replicasets", "rs"), "replicasets"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The way to a cluster's API."""

    url: Url
    context: ssl.SSLContext
    server_name: str
    token: str = field(default="", repr=False)


async def look_kubernetes(look: KubernetesLook, means: Means, attempt: Attempt) -> LookResult:
    """Ask the cluster for one workload; raises `LookFailedError`."""
    attempt.asks_other = True
    kind, _, name = look.workload.partition("/")
    plural = _PLURAL.get(kind.lower())
    if plural is None or not name:
        raise blind(f"{quote(look.workload)} is no workload: write deployment/NAME, statefulset/NAME or daemonset/NAME")
    attempt.begin("reading the way to the cluster", ours=True)
    try:
        cluster = await _FILES.run(
            lambda: cluster_of(look, means.environment), seconds=attempt.timeout, what="reading a kubeconfig"
        )
    except OSError as error:
        raise blind(f"the way to the cluster cannot be read: {error.strerror or type(error).__name__}") from None
    namespace = percent(look.namespace, safe="")
    target = f"{cluster.url.target.rstrip('/')}/apis/apps/v1/namespaces/{namespace}/{plural}/{percent(name, safe='')}"
    answer = await _asked(cluster, target, means, attempt)
    if answer.status == _UNKNOWN:
        return LookResult(Saw.DOWN, f"there is no {quote(look.workload)} in the namespace {quote(look.namespace)}")
    if answer.status in _FORBIDDEN:
        raise blind(f"the cluster answers {answer.status}: the account may not get {plural}")
    if answer.status != _FOUND:
        raise blind(f"the cluster answers {answer.status}")
    return _judged(answer.json(attempt, quotes=False))


async def _asked(cluster: Cluster, target: str, means: Means, attempt: Attempt) -> ExchangeAnswer:
    headers = {"accept": "application/json"}
    if cluster.token:
        headers["authorization"] = f"Bearer {cluster.token}"
    question = ProbeQuestion(target=target, authority=cluster.url.authority, headers=headers)
    async with means.connection(cluster.url.host, cluster.url.port, attempt) as stream:
        await stream.start_tls(cluster.context, cluster.server_name)
        return await exchange(stream, question, attempt)


def _judged(document: object) -> LookResult:
    """Hold what is ready against what is wanted."""
    match document:
        case {"kind": "DaemonSet", "status": dict(status)}:
            wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        case {"spec": dict(spec), "status": dict(status)}:
            wanted, ready = spec.get("replicas", 1), status.get("readyReplicas", 0)
        case _:
            wanted = ready = None
    if not isinstance(wanted, int) or not isinstance(ready, int):
        raise blind("the cluster answers with something that is not a workload")
    if wanted == 0:
        return LookResult(Saw.UP, "no replica is wanted")
    told = f"{ready} of {wanted} replicas are ready"
    if ready >= wanted:
        return LookResult(Saw.UP, told)
    return LookResult(Saw.DEGRADED if ready > 0 else Saw.DOWN, told)


# --- the way to a cluster -----------------------------------------------------------------------------------


def cluster_of(look: KubernetesLook, environment: Mapping[str, str], account: Path = _ACCOUNT) -> Cluster:
    """Return the way to the cluster; blocks. Raises `OSError` and `LookFailedError`."""
    if look.kubeconfig:
        return _configured(Path(look.kubeconfig), look.context)
    if (account / "token").exists():
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
        url = url_of(f"https://{f'[{host}]' if host and ':' in host else host}:{port}")
        if not host or url is None:
            raise blind("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not say where the cluster's API is")
        context = _context(_read(account / "ca.crt"), b"")
        return Cluster(url=url, context=context, server_name=host, token=_token(_read(account / "token")))
    home = environment.get("HOME")
    if not home:
        raise blind("there is neither a service account nor a kubeconfig: name one with 'kubeconfig'")
    return _configured(Path(home, ".kube", "config"), look.context)


def _configured(path: Path, wanted: str) -> Cluster:
    import yaml  # noqa: PLC0415 - slow to import, and one kind needs it; this runs in a thread

    try:
        document = yaml.safe_load(_read(path))
    except (yaml.YAMLError, RecursionError, ValueError):
        raise blind("the kubeconfig is not YAML that can be read") from None
    if not isinstance(document, dict):
        raise blind("the kubeconfig is no mapping")
    name = wanted or str(document.get("current-context") or "")
    context = _named(document, "contexts", "context", name)
    cluster = _named(document, "clusters", "cluster", str(context.get("cluster")))
    user = _named(document, "users", "user", str(context.get("user"))) if context.get("user") else {}
    url = url_of(str(cluster.get("server")))
    if url is None or url.scheme != "https":
        raise blind(f"the kubeconfig's cluster of the context {quote(name)} has no https address")
    return Cluster(
        url=url,
        context=_trust(cluster, user, path.parent),
        server_name=str(cluster.get("tls-server-name") or url.host),
        token=_user_token(user, path.parent),
    )


def _named(document: Mapping[str, object], plural: str, singular: str, name: str) -> Mapping[str, object]:
    entries = document.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(found := entry.get(singular), dict):
            return found
    raise blind(f"the kubeconfig has no {singular} {quote(name)}")


def _trust(cluster: Mapping[str, object], user: Mapping[str, object], directory: Path) -> ssl.SSLContext:
    authority = _content(cluster, "certificate-authority", directory)
    certificate, key = (_content(user, f"client-{part}", directory) for part in ("certificate", "key"))
    client = certificate + b"\n" + key if certificate and key else b""
    try:
        return _context(authority, client, verify=cluster.get("insecure-skip-tls-verify") is not True)
    except (ssl.SSLError, OSError):
        raise blind("the kubeconfig's certificates cannot be used") from None


@lru_cache(maxsize=_CLUSTERS)
def _context(authority: bytes, client: bytes, *, verify: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode("ascii", "replace") if authority else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client:
        _present(context, client)
    return context


def _present(context: ssl.SSLContext, client: bytes) -> None:
    """Take a certificate with its key, which the standard library reads from files only: this one is in memory."""
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, client)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)


def _user_token(user: Mapping[str, object], directory: Path) -> str:
    if isinstance(token := user.get("token"), str):
        return _token(token.encode())
    if isinstance(file := user.get("tokenFile"), str):
        return _token(_read(directory / file))
    if "exec" in user or "auth-provider" in user:
        raise blind("the kubeconfig logs in with a program, which is not run: use a service account's token")
    return ""


def _token(content: bytes) -> str:
    token = content.decode("ascii", "replace").strip()
    if not token.isascii() or not token.isprintable():
        raise blind("the token for the cluster is none that a header can carry")
    return token


def _content(section: Mapping[str, object], name: str, directory: Path) -> bytes:
    """Return what stands in ``NAME-data``, or in the file that ``NAME`` names; empty without either."""
    if isinstance(data := section.get(f"{name}-data"), str):
        try:
            return base64.b64decode(data)
        except (binascii.Error, ValueError):
            raise blind(f"the kubeconfig's {name}-data is not base64") from None
    return _read(directory / file) if isinstance(file := section.get(name), str) else b""


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise blind(f"{path.name} is longer than {_MOST_BYTES // 1024} KiB")
    return content
