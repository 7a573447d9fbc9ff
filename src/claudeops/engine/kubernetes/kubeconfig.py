"""The kubeconfigs of a tier: which files they are, what they and the files that they name hold. Accesses the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.engine.cell.cell import KUBECONFIG, Cell, IsolationLevel
from claudeops.files import read_text
from claudeops.formats.estate.trees import UnreadableError
from claudeops.formats.kubeconfig import ClusterUpstream, Kubeconfig, KubeconfigText, UnservedContext, read_kubeconfig

if TYPE_CHECKING:  # HTTP: a tier without clusters does without
    from claudeops.engine.kubernetes.upstream import Context

OF_HOME: Final = Path(".kube") / "config"
_MOST_FILES: Final = 16


class TierClusters(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier's kubeconfigs say."""

    current: str = ""
    contexts: tuple[Context, ...] = ()
    unserved: tuple[UnservedContext, ...] = ()
    files: frozenset[Path] = frozenset()  # themselves, and the keys and tokens that they name
    authorities: frozenset[Path] = frozenset()  # which servers they trust: no secrets


def kubeconfig_files(environment: Mapping[str, str], home: Path | None) -> tuple[Path, ...]:
    """Return the kubeconfigs that kubectl would read: those that a variable names, else the home's."""
    named = [Path(name) for name in environment.get(KUBECONFIG, "").split(os.pathsep) if name.startswith("/")]
    return tuple(named[:_MOST_FILES]) or (() if home is None else (home / OF_HOME,))


def filtered_clusters(environment: Mapping[str, str], home: Path | None, cell: Cell) -> tuple[Path, ...]:
    """Return the kubeconfigs of a tier whose sessions reach clusters through the filter alone; none: it has no filter.

    There is one where it can serve some context, and where a session cannot go around it.
    """
    if cell.level is IsolationLevel.NONE:
        return ()
    files = kubeconfig_files(environment, home)
    return files if read_clusters(files).contexts else ()


def read_clusters(files: tuple[Path, ...]) -> TierClusters:
    """Return what kubeconfigs say: no context where one of them cannot be read."""
    there = [file for file in files if _is_file(file)]
    try:
        said = read_kubeconfig(*((str(file.parent), read_text(file)) for file in there))
    except UnreadableError as error:
        reason = f"a kubeconfig cannot be read: {error}"
        return TierClusters(unserved=(UnservedContext(context="", reason=reason),), files=frozenset(there))
    found = [(upstream, _context(upstream, said)) for upstream in said.served]
    named = {Path(os.path.normpath(file)) for file in said.files}
    return TierClusters(
        current=said.current,
        contexts=tuple(context for _, context in found if not isinstance(context, UnservedContext)),
        unserved=(*said.unserved, *(context for _, context in found if isinstance(context, UnservedContext))),
        files=frozenset(there) | named,
        authorities=frozenset(Path(upstream.authority.file) for upstream in said.served if upstream.authority.file),
    )


def _context(upstream: ClusterUpstream, said: Kubeconfig) -> Context | UnservedContext:
    from claudeops.engine.kubernetes.upstream import Context  # noqa: PLC0415 - see above

    texts = [_text(source) for source in (upstream.authority, upstream.certificate, upstream.key)]
    missing = next((text for text in texts if isinstance(text, Path)), None)
    if missing is not None:
        return UnservedContext(
            context=upstream.context, reason=f"{missing} is not there, or the daemon may not read it"
        )
    authority, certificate, key = map(str, texts)
    return Context(
        name=upstream.context,
        server=upstream.server,
        namespace=upstream.namespace,
        is_current=upstream.context == said.current,
        tls_name=upstream.tls_name,
        verifies=upstream.verifies,
        authority=authority,
        certificate=f"{certificate}\n{key}" if certificate and key else "",
        token=upstream.token.text,
        token_file=upstream.token.file,
    )


def _text(source: KubeconfigText) -> str | Path:
    """Return what a source holds, or its file where that cannot be read."""
    if source.text or not source.file:
        return source.text
    return read_text(Path(source.file)) or Path(source.file)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def below(files: frozenset[Path], home: Path | None) -> frozenset[Path]:
    """Return what of a tier's home leads past the filter, by its path below it: also under other names by links."""
    if home is None:
        return frozenset()
    real = home.resolve()
    found = {file.relative_to(top) for file in files for top in (home, real) if file.is_relative_to(top)}
    resolved = {file.resolve() for file in files}
    found |= {file.relative_to(real) for file in resolved if file.is_relative_to(real)}
    return frozenset(found | {OF_HOME.parent})
