"""Kubeconfigs: which of their contexts a filter can serve, and the one that a session gets instead.

A filter sends what a context's user has: a token, a file with a token, a client certificate. A user whose credentials a
program prints (``exec``, as on EKS, GKE and AKS, and the older ``auth-provider``) cannot be served, since that program
would run outside of every cell; nor can one that acts for another user, or a cluster behind a proxy of its own.

The session's kubeconfig has the same contexts with the same namespaces. All lead to one port of the filter on loopback,
with a certificate of the filter's own authority; which is meant says a token of the session's own for each, which means
nothing anywhere else.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from claudeops.formats.estate import trees
from claudeops.formats.estate.trees import Node, NodeList, NodeTable, Scalar, UnreadableError

_MOST_CONTEXTS: Final = 64
_FILES: Final = ("tokenFile", "client-certificate", "client-key")
_BY_PROGRAM: Final = "its credentials come from a program ({key}), which a filter does not run; give the user a token"
_UNSERVED: Final = {
    "exec": _BY_PROGRAM.format(key="exec"),
    "auth-provider": _BY_PROGRAM.format(key="auth-provider"),
    "as": "its user acts for another one (as); give the context a user of its own",
    "username": "its user has a password, which API servers take no more; give the user a token",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeconfigText:
    """A text that stands in the kubeconfig, or in a file."""

    text: str = field(default="", repr=False)  # may be a key or a token
    file: str = ""  # as it is written, below the kubeconfig's directory

    def __bool__(self) -> bool:
        return bool(self.text or self.file)


class ClusterUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """A context that can be served: where its API server is, and what proves who asks."""

    context: str
    namespace: str  # empty: default
    server: str  # an http or https URL, perhaps with a path
    tls_name: str = ""  # that the certificate must have; empty: the host
    verifies: bool = True  # False: any certificate will do
    authority: KubeconfigText = KubeconfigText()  # PEM; nothing: the machine's authorities
    token: KubeconfigText = KubeconfigText()
    certificate: KubeconfigText = KubeconfigText()  # PEM, as is the key
    key: KubeconfigText = KubeconfigText()


class UnservedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context that cannot be served."""

    context: str
    reason: str  # the rest of a sentence about the context


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubeconfig says."""

    current: str  # a context, perhaps one that is not there; empty: none is chosen
    served: tuple[ClusterUpstream, ...]
    unserved: tuple[UnservedContext, ...]
    files: tuple[str, ...] = ()  # that hold keys and tokens of users, also of those whom no context serves


class FilteredContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context that a filter serves."""

    context: str
    namespace: str  # empty: default
    token: str


def read_kubeconfig(*files: tuple[str, str]) -> Kubeconfig:
    """Return the contexts of kubeconfigs that are one to kubectl, each a directory and a text.

    The first of a name counts. Raises `UnreadableError` where one is not YAML, or not within bounds.
    """
    roots = [(directory, _root(text)) for directory, text in files]
    clusters, users = _named(roots, "clusters", "cluster"), _named(roots, "users", "user")
    contexts = _named(roots, "contexts", "context")
    read = [
        _context(name, context.node, clusters, users)
        for name, context in list(contexts.items())[:_MOST_CONTEXTS]
        if name
    ]
    return Kubeconfig(
        current=next(filter(None, (_text(root, "current-context") for _, root in roots)), ""),
        served=tuple(one for one in read if isinstance(one, ClusterUpstream)),
        unserved=tuple(one for one in read if isinstance(one, UnservedContext)),
        files=tuple(
            dict.fromkeys(source.file for user in users.values() for key in _FILES if (source := user.source(key)))
        ),
    )


def filtered(contexts: Iterable[FilteredContext], *, current: str, port: int, authority: str) -> str:
    """Return the kubeconfig of a session; ``authority`` is the PEM certificate of the filter's own authority."""
    listed = list(contexts)
    trusted = base64.b64encode(authority.encode()).decode()
    clusters = [
        {
            "name": one.context,
            "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": trusted},
        }
        for one in listed
    ]
    named = [
        {
            "name": one.context,
            "context": {"cluster": one.context, "user": one.context}
            | ({"namespace": one.namespace} if one.namespace else {}),
        }
        for one in listed
    ]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current if current in {one.context for one in listed} else "",
        "clusters": clusters,
        "users": [{"name": one.context, "user": {"token": one.token}} for one in listed],
        "contexts": named,
    }
    import yaml  # noqa: PLC0415 - slow to import, and a machine without clusters does without it

    written: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=float("inf"))
    return written


class _Entry(msgspec.Struct, frozen=True):
    """What stands in a list under a name."""

    directory: str = ""
    node: Node | None = None

    def source(self, key: str) -> KubeconfigText:
        """Return the file that a key names."""
        name = _text(self.node, key)
        return KubeconfigText(file=posixpath.join(self.directory, name)) if name else KubeconfigText()

    def pem(self, key: str) -> KubeconfigText:
        """Return what ``KEY-data`` holds in base64, else the file that ``KEY`` names. Raises `ValueError`."""
        inline = "".join(_text(self.node, f"{key}-data").split())
        if inline:
            return KubeconfigText(text=base64.b64decode(inline, validate=True).decode("ascii"))
        return self.source(key)


_NO_ENTRY: Final = _Entry()


def _root(text: str) -> NodeTable:
    root = trees.read_yaml(text)
    if not isinstance(root, NodeTable):
        raise UnreadableError("it is no mapping", root.line)
    return root


def _context(
    name: str, context: Node | None, clusters: dict[str, _Entry], users: dict[str, _Entry]
) -> ClusterUpstream | UnservedContext:
    of_cluster = clusters.get(_text(context, "cluster"), _NO_ENTRY)
    of_user = users.get(_text(context, "user"), _NO_ENTRY)
    cluster, user = of_cluster.node, of_user.node
    server = _text(cluster, "server")
    reason = _refuse_cluster(cluster, server) or _refuse_user(user)
    if reason:
        return UnservedContext(context=name, reason=reason)
    token = KubeconfigText(text=_text(user, "token")) or of_user.source("tokenFile")
    try:
        return ClusterUpstream(
            context=name,
            namespace=_text(context, "namespace"),
            server=server,
            tls_name=_text(cluster, "tls-server-name"),
            verifies=_text(cluster, "insecure-skip-tls-verify").lower() != "true",
            authority=of_cluster.pem("certificate-authority"),
            token=token,
            certificate=of_user.pem("client-certificate"),
            key=of_user.pem("client-key"),
        )
    except ValueError:
        return UnservedContext(context=name, reason="a certificate or key in it is not base64; write it again")


def _refuse_cluster(cluster: Node | None, server: str) -> str:
    if cluster is None or not server:
        return "its cluster is not there, or has no server; name one that the file lists"
    if _text(cluster, "proxy-url"):
        return "its cluster is reached through a proxy of its own (proxy-url), which a filter does not use"
    try:
        parts = urlsplit(server)
        plain = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        plain = False
    if not plain or "@" in server or "?" in server or "#" in server:
        return "its server is no plain http or https URL; write scheme://host:port"
    return ""


def _refuse_user(user: Node | None) -> str:
    """Return why a user cannot be served; a context without one asks as it is."""
    if not isinstance(user, NodeTable):
        return ""
    keys = [entry.key for entry in user.entries]
    reason = next((sentence for key, sentence in _UNSERVED.items() if key in keys), "")
    if not reason and len(set(keys)) < len(keys):
        return "its user names one thing twice; write it once"
    return reason


def _named(roots: Iterable[tuple[str, NodeTable]], key: str, inner: str) -> dict[str, _Entry]:
    """Return what lists hold, by name; the first of a name counts, as for kubectl."""
    found: dict[str, _Entry] = {}
    for directory, root in roots:
        listed = root.get(key)
        for one in _tables(listed.nodes if isinstance(listed, NodeList) else ()):
            node = one.get(inner)
            if node is not None:
                found.setdefault(_text(one, "name"), _Entry(directory, node))
    return found


def _tables(nodes: Sequence[Node]) -> Iterable[NodeTable]:
    return (node for node in nodes if isinstance(node, NodeTable))


def _text(node: Node | None, key: str) -> str:
    value = node.get(key) if isinstance(node, NodeTable) else None
    return value.text if isinstance(value, Scalar) else ""
