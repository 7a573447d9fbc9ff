"""What may be printed of a cluster's objects: anything but the environment of what runs in them.

``kubectl get -o yaml`` prints a whole workload, and ``describe`` its environment; a template prints what it selects,
and a selected field with everything below it. So only objects of kinds that hold no environment are printed whole, and
a template may end only in fields that hold none.
"""

from __future__ import annotations

from typing import Final

from claudeops.policy.places import is_secret_name
from claudeops.text import regex

_BELOW: Final = frozenset({"status", "labels"})
"""Fields that are harmless with everything below them."""

_HINT: Final = "print single fields such as {.status} or {.metadata.name}; describe and -o yaml show the environment"
_SECRET: Final = regex.Pattern(r"(?i)secret|token|credential|passw|kubeconfig")  # as the filter refuses them
_STEP: Final = regex.Pattern(r"\.?([A-Za-z][\w-]*)|\[(?:'([^'\"]+)'|\"([^'\"]+)\"|-?\d*(?::-?\d*)?|\*)\]|\.\[")
_FILTER: Final = regex.Pattern(
    r"\?\(@((?:\.[A-Za-z][\w-]*)+)\s*(?:==|!=|<=?|>=?)\s*(?:\"[^\"()]*\"|'[^'()]*'|\d+|true|false)\)"
)
_TEXT: Final = regex.Pattern(r"\"[^\"]*\"|'[^']*'")
_WORD: Final = regex.Pattern(
    r"\s+|\"(?:[^\"\\]|\\[nt\"])*\"|\d+|-|\(|\)|(?:json|println|print|printf|len|if|else|end|eq|ne|lt|gt|le|ge|and|or|not)\b|\|"
)
_CHAIN: Final = regex.Pattern(r"((?:\.[A-Za-z]\w*)+)")
_RANGE: Final = regex.Pattern(r"\s*-?\s*range\s+((?:\.[A-Za-z]\w*)+)\s*-?\s*")


def refuse_output(resources: list[str], output: str) -> str | None:
    """Return why objects may not be printed as ``kubectl get -o`` asks, or None; ``resources`` are its arguments."""
    form, _, template = output.partition("=")
    if form in {"yaml", "json"}:
        return refuse_whole(resources)
    if form.startswith("jsonpath"):
        return _refuse_jsonpath(template)
    if form == "go-template":
        return _refuse_template(template)
    return _refuse_columns(template) if form == "custom-columns" else None


def refuse_whole(resources: list[str]) -> str | None:
    """Return why objects may not be printed whole, because their kind may hold an environment, or None."""
    if (reason := _refuse_names(resources)) is not None:
        return reason
    kinds = _kinds(resources)
    for kind in kinds:
        plain, _, group = kind.lower().partition(".")
        if plain not in _WHOLE or not (group in _GROUPS or group.endswith(".k8s.io")):
            return f"{kind} can hold an environment, which is never shown: {_HINT}"
    return None if kinds else f"name the kind of object: {_HINT}"


def refuse_secrets(resources: list[str]) -> str | None:
    """Return why objects are not shown although the filter before the API server masks values, or None."""
    kind = next((kind for kind in _kinds(resources) if _SECRET.search(kind)), None)
    return f"{kind}: secrets of the cluster are never read" if kind is not None else _refuse_names(resources)


def refuse_order(expression: str) -> str | None:
    """Return why objects may not be sorted by a field, or None: the order reveals something about the values."""
    return _refuse_path(expression.strip("{} "))


def _kinds(resources: list[str]) -> list[str]:
    """Return the kinds in ``KIND,KIND NAME…`` or ``KIND/NAME…``."""
    kinds = [part.partition("/")[0] for part in resources[0].split(",")] if resources else []
    return kinds + [resource.partition("/")[0] for resource in resources[1:] if "/" in resource]


def _refuse_names(resources: list[str]) -> str | None:
    for name in (name for resource in resources for part in resource.split(",") for name in part.split("/")):
        if is_secret_name(name):
            return f"{name} looks like a secret, which is never shown"
    return None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WHOLE: Final = _words(
    "nodes node no services service svc ingresses ingress ing ingressclasses ingressclass endpoints ep"
    " endpointslices endpointslice persistentvolumes persistentvolume pv persistentvolumeclaims"
    " persistentvolumeclaim pvc namespaces namespace ns events event ev horizontalpodautoscalers"
    " horizontalpodautoscaler hpa poddisruptionbudgets poddisruptionbudget pdb networkpolicies networkpolicy netpol"
    " resourcequotas resourcequota quota limitranges limitrange limits storageclasses storageclass sc leases lease"
    " componentstatuses componentstatus cs priorityclasses priorityclass pc runtimeclasses runtimeclass"
    " volumeattachments volumeattachment csinodes csinode csidrivers csidriver configmaps configmap cm"
    " serviceaccounts serviceaccount sa roles role rolebindings rolebinding clusterroles clusterrole"
    " clusterrolebindings clusterrolebinding certificates certificate cert gateways gateway gtw httproutes httproute"
)
"""Kinds of objects that hold no environment, in the groups of Kubernetes itself."""

_GROUPS: Final = frozenset({"", "autoscaling", "policy", "cert-manager.io"})
"""``services.serving.knative.dev`` holds an environment."""

_ANYWHERE: Final = _words(
    "name namespace labels uid generation creationTimestamp deletionTimestamp ownerReferences resourceVersion"
    " finalizers kind apiVersion status phase ready restartCount reason message type count lastTimestamp"
    " firstTimestamp eventTime involvedObject image imageID imagePullPolicy replicas readyReplicas availableReplicas"
    " updatedReplicas unavailableReplicas nodeName hostIP podIP podIPs hostNetwork ports containerPort hostPort port"
    " targetPort nodePort protocol resources limits requests cpu memory storage restartPolicy clusterIP clusterIPs"
    " externalIPs loadBalancerIP host hosts path pathType service number selector matchLabels strategy"
    " revisionHistoryLimit schedule suspend parallelism completions backoffLimit minReplicas maxReplicas"
    " scaleTargetRef accessModes storageClassName volumeName volumeMode capacity claimRef unschedulable taints"
    " tolerations nodeSelector serviceName serviceAccountName dnsPolicy priorityClassName mountPath readOnly"
    " terminationGracePeriodSeconds minAvailable maxUnavailable podCIDR podCIDRs providerID ingressClassName"
    " secretName startTime conditions containerStatuses initContainerStatuses state lastState nodeInfo addresses"
    " allocatable loadBalancer currentReplicas desiredReplicas currentMetrics observedGeneration exitCode"
)
"""Fields that hold no environment, wherever they are."""


def _refuse_jsonpath(template: str) -> str | None:
    """Judge the expressions in braces; the rest is printed as it is."""
    rest = template
    while "{" in rest:
        inner, closed, rest = rest.partition("{")[2].partition("}")
        action = inner.strip()
        if not closed or "{" in inner:
            return f"this template is not plain: {_HINT}"
        if action == "end" or _TEXT.fullmatch(action):
            continue
        reason = _refuse_path(action.removeprefix("range ").strip(), printed=not action.startswith("range "))
        if reason:
            return reason
    return None


def _refuse_columns(columns: str) -> str | None:
    for column in columns.split(","):
        _, _, path = column.partition(":")
        if (reason := _refuse_path(path.strip("{}"))) is not None:
            return reason
    return None


def _refuse_path(path: str, *, printed: bool = True) -> str | None:
    """Judge one JSONPath; the path of a range is not printed itself."""
    names: list[str] = []
    rest = path.removeprefix("$").removeprefix("@")
    while rest:
        if rest.startswith("[?("):
            found = _FILTER.match(rest[1:])
            if found is None or rest[1 + found.end() : 2 + found.end()] != "]":
                return f"{path[:80]}: this filter is not plain: {_HINT}"
            if not _harmless(found[1].split(".")[1:]):
                return f"{path[:80]}: {_HINT}"
            rest = rest[2 + found.end() :]
            continue
        step = _STEP.match(rest)
        if step is None:
            return f"{path[:80]}: {_HINT}"
        names += [name for name in (step[1], step[2], step[3]) if name]
        rest = rest[step.end() - (step[0] == ".[") :]
    return None if not printed or _harmless(names) else f"{path[:80] or '{}'}: {_HINT}"


def _harmless(names: list[str]) -> bool:
    if not names or any(name.lower().startswith("env") for name in names):
        return False
    return names[-1] in _ANYWHERE or any(name in _BELOW for name in names)


def _refuse_template(template: str) -> str | None:
    rest = template
    while "{{" in rest:
        action, closed, rest = rest.partition("{{")[2].partition("}}")
        if not closed or "{{" in action:
            return f"this template is not plain: {_HINT}"
        if _RANGE.fullmatch(action):
            continue
        while action:
            chain = _CHAIN.match(action)
            word = chain or _WORD.match(action)
            if word is None or not word.end() or (chain and not _harmless(chain[1].split(".")[1:])):
                return f"{{{{{action[:80]}}}}}: {_HINT}"
            action = action[word.end() :]
    return None
