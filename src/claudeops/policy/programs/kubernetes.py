"""What an allowed command changes of a cluster: the grants for the filter before its API server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from claudeops.domain.gate.cluster_grants import DELETE, EXEC, RESTART, SCALE, ClusterGrant
from claudeops.policy.paths import PathContext
from claudeops.policy.rule_book import RuleMatch
from claudeops.policy.rules import Arguments, Given
from claudeops.policy.shell.language import Literal, Word
from claudeops.text import regex

_VERBS: Final = {
    "kubectl rollout restart": RESTART,
    "kubectl scale": SCALE,
    "kubectl delete": DELETE,
    "kubectl exec": EXEC,
}
_CORE, _APPS = frozenset({"", "v1."}), frozenset({"", "apps", "v1.apps"})
_TYPES: Final = {  # names of a type, its plural, and what may follow a name behind a dot
    **dict.fromkeys(("po", "pod", "pods"), ("pods", _CORE)),
    **dict.fromkeys(("rc", "replicationcontroller", "replicationcontrollers"), ("replicationcontrollers", _CORE)),
    **dict.fromkeys(("deploy", "deployment", "deployments"), ("deployments", _APPS)),
    **dict.fromkeys(("ds", "daemonset", "daemonsets"), ("daemonsets", _APPS)),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), ("statefulsets", _APPS)),
    **dict.fromkeys(("rs", "replicaset", "replicasets"), ("replicasets", _APPS)),
}
_CHANGED: Final = {
    RESTART: {"deployments", "daemonsets", "statefulsets"},
    SCALE: {"deployments", "statefulsets", "replicasets", "replicationcontrollers"},
    DELETE: {"pods"},
    EXEC: {"pods"},  # of a workload only kubectl picks the pod
}
_NAMESPACE, _CONTEXT, _CONTAINER, _REPLICAS = "--namespace", "--context", "--container", "--replicas"
_KNOWN: Final = frozenset(
    {_NAMESPACE, _CONTEXT, _CONTAINER, _REPLICAS, "--current-replicas", "--grace-period", "--ignore-not-found"}
    | {"--output", "--request-timeout", "--timeout", "--tty", "--wait"}  # --tty is left out of what runs
)
"""Options that name no further objects, lead nowhere else and pass no input on."""

_COUNT: Final = regex.Pattern(r"0|[1-9]\d{0,8}")  # kubectl reads 010 as eight


def grants_of(
    found: RuleMatch, arguments: Arguments, place: PathContext, inner: Sequence[Word] = ()
) -> tuple[ClusterGrant, ...]:
    """Return the grants of one command; ``arguments``: its own, ``inner``: what an exec runs in the container.

    What is not known before it runs is not granted.
    """
    verb = _VERBS.get(found.path)
    options = (*found.given, *arguments.options)
    if verb is None or not place.local or place.user or not all(_KNOWN & set(option.names) for option, _ in options):
        return ()
    context, namespace, container, count = (
        _value(options, name) for name in (_CONTEXT, _NAMESPACE, _CONTAINER, _REPLICAS)
    )
    command = _texts(inner) if verb == EXEC else ()
    replicas = int(count) if verb == SCALE and count and _COUNT.fullmatch(count) else None
    if context is None or namespace is None or container is None:
        return ()
    if (verb == SCALE and replicas is None) or (verb == EXEC and not command):
        return ()
    return tuple(
        ClusterGrant(
            call=place.call,
            verb=verb,
            resource=resource,
            name=name,
            context=context,
            namespace=namespace,
            replicas=replicas,
            container=container,
            command=command,
        )
        for resource, name in _objects(verb, _texts(arguments.positionals))
    )


def _objects(verb: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the plurals and names in ``TYPE NAME…`` or ``TYPE/NAME…``; none where one of them is no such object."""
    if verb == EXEC:
        pairs = [text.split("/") if "/" in text else ["pods", text] for text in texts]
    elif all("/" in text for text in texts):
        pairs = [text.split("/") for text in texts]
    else:
        pairs = [[texts[0], name] for name in texts[1:] if "/" not in name]
        pairs = pairs if len(pairs) == len(texts) - 1 else []
    objects = [(_plural(pair[0]), pair[1]) for pair in pairs if len(pair) == 2 and pair[1]]  # noqa: PLR2004 - TYPE/NAME
    known = len(objects) == len(pairs) and all(plural in _CHANGED[verb] for plural, _ in objects)
    return objects if known else []


def _plural(kind: str) -> str:
    """Return the plural of a type, as the API has it, or ""; kubectl reads types in small letters."""
    name, _, group = kind.lower().partition(".")
    plural, groups = _TYPES.get(name, ("", frozenset()))
    return plural if group in groups else ""


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    """Return words as texts; none where one of them is not known before it runs."""
    texts = tuple(word.text for word in words if isinstance(word, Literal))
    return texts if len(texts) == len(words) else ()


def _value(options: Given, name: str) -> str | None:
    """Return the value of an option, or ""; None where several differ."""
    values = {value or "" for option, value in options if name in option.names}
    return None if len(values) > 1 else next(iter(values), "")
