"""The bodies of requests that change something: read strictly, and written anew for the one object that was meant.

A body passes only if every field in it is one that kubectl sends for this action; a key that stands there twice, which
two readers may take for two things, makes it unreadable. What is sent is not the body that came but one built of what
was read, with the object's uid in it: the API server refuses it (409 or 422) for an object that was made anew under the
same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeGuard

import msgspec

from claudeops.policy.kubernetes_api.masks import holds_mask
from claudeops.policy.kubernetes_api.requests import ClusterRefusal, DeletePod, ObjectName, Restart, Scale
from claudeops.text import regex

LONGEST_BODY: Final = 65_536  # bytes

_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_TIME: Final = regex.Pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_MOST_REPLICAS: Final = 2**31 - 1
_LONGEST_GRACE: Final = 86_400  # seconds
_PROPAGATION: Final = frozenset({"Background", "Foreground", "Orphan"})
_SCALE_METADATA: Final = frozenset({"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
_SCALES: Final = frozenset({"", "autoscaling/v1", "apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"})
"""Versions of Scale objects that kubectl sends; only the number is read of them."""


class Restarted(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a workload are replaced one after another."""

    at: str  # as the client says it
    content_type: str
    method: Literal["PATCH"] = "PATCH"

    def document(self, uid: str) -> dict[str, object]:
        """Return the patch that is sent."""
        template = {"metadata": {"annotations": {_RESTARTED_AT: self.at}}}
        return {"metadata": {"uid": uid}, "spec": {"template": template}}


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """A workload gets another number of pods; a whole Scale object is sent as a patch of that number."""

    replicas: int
    uid: str = ""  # the object's, if the client says it
    resource_version: str = ""  # the object must have it still; empty: any
    content_type: str = _MERGE
    method: Literal["PATCH"] = "PATCH"

    def document(self, uid: str) -> dict[str, object]:
        """Return the patch that is sent."""
        version = {"resourceVersion": self.resource_version} if self.resource_version else {}
        return {"metadata": {"uid": uid, **version}, "spec": {"replicas": self.replicas}}


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A pod is ended and removed."""

    grace_seconds: int | None  # None: as long as the pod says
    propagation: str  # empty: the server's default
    content_type: str = _JSON
    method: Literal["DELETE"] = "DELETE"

    def document(self, uid: str) -> dict[str, object]:
        """Return the options that are sent."""
        grace = {} if self.grace_seconds is None else {"gracePeriodSeconds": self.grace_seconds}
        propagation = {"propagationPolicy": self.propagation} if self.propagation else {}
        named = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
        return {**named, **grace, **propagation}


Change = Restarted | Scaled | Deleted


def read_body(act: Restart | Scale | DeletePod, body: bytes, content_type: str) -> ClusterRefusal | Change:
    """Return what a body changes, or why it is not sent."""
    media = content_type.partition(";")[0].strip().lower()
    if isinstance(act, DeletePod):
        return _read_delete(body, media)
    if isinstance(act, Scale):
        return _read_scale(act, body, media)
    return _read_restart(body, media)


def _read_restart(body: bytes, media: str) -> ClusterRefusal | Restarted:
    """Read the patch of a rollout restart."""
    if media not in {_MERGE, _STRATEGIC}:
        return _unsupported(media)
    document = _object(body)
    if isinstance(document, ClusterRefusal):
        return document
    at: object = document
    for key in ("spec", "template", "metadata", "annotations", _RESTARTED_AT):
        if not isinstance(at, dict) or set(at) != {key}:
            return _refused(f"this patch changes more than {_RESTARTED_AT}; of patches only a restart is passed on")
        at = at[key]
    if not isinstance(at, str) or not _TIME.fullmatch(at):
        return _refused(f"{_RESTARTED_AT} is no time; use kubectl rollout restart")
    return Restarted(at=at, content_type=media)


def _read_scale(act: Scale, body: bytes, media: str) -> ClusterRefusal | Scaled:
    """Read a patch of the number of pods, or the whole Scale object that kubectl sends with --current-replicas."""
    if media not in ({_JSON, ""} if act.whole else {_MERGE, _STRATEGIC}):  # kubectl names none beside a whole Scale
        return _unsupported(media)
    document = _object(body)
    if isinstance(document, ClusterRefusal):
        return document
    spec, metadata = document.get("spec"), document.get("metadata", {})
    if act.whole:
        fits = set(document) <= {"kind", "apiVersion", "metadata", "spec", "status"} and _is_scale(document, act.object)
    else:
        fits = set(document) == {"spec"}
    if not fits or not isinstance(metadata, dict) or not isinstance(spec, dict) or set(spec) != {"replicas"}:
        return _refused("this changes more than spec.replicas of the object that is named; use kubectl scale")
    replicas = spec["replicas"]
    if not _is_number(replicas, 0, _MOST_REPLICAS):
        return _refused("spec.replicas is no number of pods; write a whole number from 0 on")
    return Scaled(
        replicas=replicas,
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
    )


def _read_delete(body: bytes, media: str) -> ClusterRefusal | Deleted:
    """Read the options of a deletion; an empty body has none."""
    if not body:
        return Deleted(grace_seconds=None, propagation="")
    document = _object(body) if media in {_JSON, ""} else _unsupported(media)
    if isinstance(document, ClusterRefusal):
        return document
    named = (document.get("kind", "DeleteOptions"), document.get("apiVersion", "v1"))
    known = {"kind", "apiVersion", "gracePeriodSeconds", "propagationPolicy"}
    if not set(document) <= known or named != ("DeleteOptions", "v1"):
        return _refused("of the options of a deletion only gracePeriodSeconds and propagationPolicy are passed on")
    grace, propagation = document.get("gracePeriodSeconds"), document.get("propagationPolicy", "")
    if not (grace is None or _is_number(grace, 1, _LONGEST_GRACE)):
        return _refused("a pod is not deleted by force: leave --force, --now and --grace-period=0 out")
    if not isinstance(propagation, str) or (propagation and propagation not in _PROPAGATION):
        return _refused(f"propagationPolicy is one of {', '.join(sorted(_PROPAGATION))}")
    return Deleted(grace_seconds=grace, propagation=propagation)


def bound_body(change: Change, uid: str) -> bytes | ClusterRefusal:
    """Return the body that is sent: it changes only the object with this uid, as the API server has just shown it.

    Raises `ValueError` for an empty uid, which would mean any object.
    """
    if not uid:
        raise ValueError("a change needs the uid of the object that is meant")
    if isinstance(change, Scaled) and change.uid not in {"", uid}:
        return ClusterRefusal(status=409, sentence="this object was made anew since it was read; look at it again")
    return msgspec.json.encode(change.document(uid))


def refuse_review(body: bytes, content_type: str) -> ClusterRefusal | None:
    """Return why the body of a review (a `Read` with POST) is not sent as it came, or None.

    kubectl sends protobuf, which stays unread: the server takes nothing but the review of this path, which changes
    nothing and is answered to the account that asks.
    """
    if len(body) > LONGEST_BODY:
        return _long()
    media = content_type.partition(";")[0].strip().lower()
    return None if media in {_JSON, _PROTOBUF} else _unsupported(media)


def _is_scale(document: Mapping[str, object], meant: ObjectName) -> bool:
    """Whether a whole Scale object is that of an object, as it was read."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not set(metadata) <= _SCALE_METADATA:
        return False
    texts = all(isinstance(value, str) for key, value in metadata.items() if key != "creationTimestamp")
    named = (metadata.get("name"), metadata.get("namespace", meant.namespace)) == (meant.name, meant.namespace)
    version = document.get("apiVersion", "")
    known = isinstance(version, str) and version in _SCALES
    return texts and named and known and document.get("kind", "Scale") == "Scale"


def _object(body: bytes) -> dict[str, object] | ClusterRefusal:
    """Return the object that a body is, or why it is none."""
    if len(body) > LONGEST_BODY:
        return _long()
    if holds_mask(body):
        return _refused("this body holds [redacted], which stands for what was not shown; it would destroy the value")
    try:
        document = json.loads(body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return ClusterRefusal(status=400, sentence="this body is no plain JSON: UTF-8, and each key once")
    return (
        document if isinstance(document, dict) else ClusterRefusal(status=400, sentence="this body is no JSON object")
    )


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _is_number(value: object, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _refused(sentence: str) -> ClusterRefusal:
    return ClusterRefusal(status=403, sentence=sentence)


def _long() -> ClusterRefusal:
    return ClusterRefusal(status=413, sentence=f"this body is longer than {LONGEST_BODY} bytes; send less")


def _unsupported(media: str) -> ClusterRefusal:
    return ClusterRefusal(
        status=415, sentence=f"a body of the type {media[:80]!r} is not passed on here; send it as kubectl does"
    )
