"""Which workload of Kubernetes a pod or a claim belongs to, by the names that its controllers give.

A Deployment's pod is ``name-<hash>-<5 signs>``, a DaemonSet's or Job's ``name-<5 signs>``, a CronJob's
``name-<minutes>-<5 signs>``, a StatefulSet's ``name-<number>``, and one of a node itself ``name-<node>``.
"""

from __future__ import annotations

from typing import Final

_SAFE: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")  # of which Kubernetes makes its suffixes: no word comes of it
_SUFFIX: Final = 5
_HASHES: Final = range(6, 11)  # lengths of the hash of a template
_MINUTES: Final = range(8, 11)  # digits of the minutes or seconds since the epoch
_ORDINALS: Final = 4  # digits


def workload_of(pod: str, *, container: str = "", node: str = "") -> str:
    """Return the workload that a pod belongs to; "" where its name does not say so.

    Where the suffix may be a word of the name itself (``my-redis``), the name of the pod's container decides.
    """
    head, _, last = pod.rpartition("-")
    if node and pod.endswith(f"-{node}"):
        return pod.removesuffix(f"-{node}")
    if _is_ordinal(last):
        return head
    if len(last) != _SUFFIX or not _is_plain(last):
        return cron_job_of(pod)
    name, _, middle = head.rpartition("-")
    if name and (_is_minutes(middle) or _is_hash(middle, is_sure=_is_made(last))):
        return name
    return head if _is_made(last) or head == container else ""


def cron_job_of(job: str) -> str:
    """Return the CronJob that has made a Job; "" where none has."""
    name, _, last = job.rpartition("-")
    return name if _is_minutes(last) else ""


def set_of(replica_set: str) -> str:
    """Return the Deployment that a ReplicaSet belongs to, else the ReplicaSet itself."""
    name, _, last = replica_set.rpartition("-")
    return name if name and _is_hash(last, is_sure=True) else replica_set


def claimant_of(claim: str) -> str:
    """Return a volume's claim without the number of its replica: ``data-postgres-0`` is one of ``data-postgres``."""
    name, _, last = claim.rpartition("-")
    return name if "-" in name and _is_ordinal(last) else claim


def _is_ordinal(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= _ORDINALS


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalnum() and word == word.lower()


def _is_made(word: str) -> bool:
    """Return whether a word looks as if it was drawn by lot."""
    return set(word) <= _SAFE or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))


def _is_minutes(word: str) -> bool:
    return len(word) in _MINUTES and word.isascii() and word.isdecimal()


def _is_hash(word: str, *, is_sure: bool) -> bool:
    """Return whether a word is a template's hash; without a digit only where the rest is sure to be drawn by lot."""
    if len(word) not in _HASHES or not _is_plain(word):
        return False
    return any(map(str.isdigit, word)) or (is_sure and set(word) <= _SAFE)
