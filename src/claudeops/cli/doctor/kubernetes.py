"""The check of how the sessions of each tier reach clusters."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import h11
import msgspec

from claudeops.app.start.trial import surroundings
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, fine, skipped, together
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.levels import choose
from claudeops.engine.kubernetes.kubeconfig import TierClusters, kubeconfig_files, read_clusters
from claudeops.engine.kubernetes.upstream import Context
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings

_ASK_SECONDS: Final = 10.0  # for all contexts of a tier
_MOST_BYTES: Final = 64 * 1024
_REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WANTED: Final = {"verb": "list", "resource": "secrets"}
_BOUND: Final = (
    "Give the tier an account that is bound to the cluster role `view`, and to one for nodes and metrics "
    "(docs/how-to/let-sessions-use-kubernetes.md)."
)
_NO_KUBECTL: Final = "kubectl is not on the daemon's PATH: what the daemon runs itself, as kubectl apply, is refused."


async def kubernetes(_case: DoctorContext, settings: Settings) -> Finding:
    """Say which contexts are reached through the filter, and which are not; ask each server about secrets alone."""
    named: dict[tuple[Path, ...], list[str]] = {}
    for tier in settings.tiers:
        files = kubeconfig_files({**settings.environment.inherited, **tier.env}, tier.home)
        there = await anyio.to_thread.run_sync(lambda listed: tuple(filter(Path.is_file, listed)), files)
        if there:
            named.setdefault(there, []).append(str(tier.number))
    if not named:
        return fine("No tier's sessions reach a cluster: none has a kubeconfig.")
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")
    findings = [await _way(files, f"Tier {', '.join(tiers)}", chosen.cell.level) for files, tiers in named.items()]
    if (
        chosen.cell.level is IsolationLevel.BUBBLEWRAP
        and shutil.which("kubectl", path=settings.environment.path) is None
    ):
        return together(findings, _NO_KUBECTL)
    return together(findings)


async def _way(files: tuple[Path, ...], who: str, level: IsolationLevel) -> Finding:
    clusters = await anyio.to_thread.run_sync(read_clusters, files)
    listed = ", ".join(map(str, files))
    if level is IsolationLevel.NONE:
        return doubtful(
            f"{who} may use the credentials in {listed} themselves: at level none a session goes around the filter.",
            "Set CLAUDEOPS_ISOLATION to auto or bubblewrap.",
        )
    if not clusters.contexts:
        return doubtful(
            f"{who} reaches clusters without the filter, with the credentials in {listed}: it can serve no context."
            f"{_unserved(clusters)}",
            "Give the context a user with a token or a client certificate.",
        )
    found = {context.name: await _secrets(context) for context in clusters.contexts}
    open_ones = [name for name, answer in found.items() if answer is True]
    silent = [f"{name} could not be asked ({answer})." for name, answer in found.items() if isinstance(answer, str)]
    says = [f"{who} reaches {', '.join(found)} through the filter: masked, and changed only as the gate has allowed."]
    says += [f"The account of {', '.join(open_ones)} may read secrets, which the filter refuses."] if open_ones else []
    says += silent
    remedy = _BOUND if open_ones else ""
    if clusters.unserved:
        says.append(_unserved(clusters).strip())
        remedy = remedy or "Give those contexts users with a token or a client certificate, or take them out."
    return doubtful(" ".join(says), remedy) if remedy else fine(" ".join(says))


def _unserved(clusters: TierClusters) -> str:
    return "".join(f" Context {each.context!r} is not served: {each.reason}." for each in clusters.unserved)


async def _secrets(context: Context) -> bool | str:
    """Return whether an account may list all secrets, or why that is not known."""
    spec = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    body = msgspec.json.encode({**spec, "spec": {"resourceAttributes": _WANTED}})
    sent = [("Accept", "application/json"), ("Content-Type", "application/json")]
    try:
        with anyio.fail_after(_ASK_SECONDS):
            headers = await context.headers(sent)
            async with context.connected() as server:
                head = await server.ask("POST", context.url.path.rstrip("/") + _REVIEW, headers, body)
                raw = await server.whole(_MOST_BYTES) or b""
    except (OSError, h11.RemoteProtocolError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        return str(error) or "it does not answer"
    try:
        return bool(msgspec.json.decode(raw)["status"]["allowed"])
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return f"it answers {head.status}"
