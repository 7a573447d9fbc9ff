"""What the daemon runs of kubectl where sessions reach clusters through its filter: what writes whole objects.

A filter cannot tell what ``kubectl apply`` makes, and what a session reads behind it is masked. So the daemon runs such
commands as they were judged (`claudeops.engine.kubernetes.cell`), with files of the operator's repositories alone. Of
what they print a session sees names: so only options are known with which they print nothing else, act on what is
named, and read nothing but the files that are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from claudeops.policy import paths
from claudeops.policy.paths import PathContext
from claudeops.policy.rules import Given
from claudeops.policy.shell.language import Word, shown

FILE, KUSTOMIZE, PATCH_FILE, CONTEXT = "--filename", "--kustomize", "--patch-file", "--context"
PAST: Final = frozenset(
    {"--kubeconfig", "--cluster", "--user", "--server", "-s", "--tls-server-name", "--token", "--as", "--as-group"}
    | {"--as-uid", "--username", "--password", "--client-certificate", "--client-key", "--certificate-authority"}
    | {"--insecure-skip-tls-verify"}
)
"""Options that lead elsewhere, or make another client."""

_PROGRAM: Final = "kubectl "
_PLACES: Final = frozenset({FILE, KUSTOMIZE, PATCH_FILE})
_ALWAYS: Final = frozenset({"--namespace", CONTEXT, "--request-timeout"})
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "apply": frozenset(
        {FILE, KUSTOMIZE, "--recursive", "--server-side", "--force-conflicts", "--field-manager", "--overwrite"}
        | {"--validate", "--wait", "--timeout"}
    ),
    "patch": frozenset({"--patch", PATCH_FILE, "--type", "--subresource"}),
    "rollout undo": frozenset({"--to-revision"}),
    "rollout pause": frozenset(),
    "rollout resume": frozenset(),
    "set image": frozenset(),
    "set env": frozenset({"--containers"}),
    "create job": frozenset({"--from"}),
    "label": frozenset({"--overwrite", "--resource-version"}),
    "annotate": frozenset({"--overwrite", "--resource-version"}),
    "cordon": frozenset(),
    "uncordon": frozenset(),
}
_PRINT: Final[Mapping[str, str]] = {
    "diff": "it prints whole objects, environments and secrets included, which no session sees: compare the file with "
    "what kubectl get -o yaml shows, masked",
}
"""Commands that are refused where there is a filter, each with the reason."""

RUN: Final = frozenset(f"{_PROGRAM}{verb}" for verb in (*_OPTIONS, *_PRINT))
"""The commands for which a rule may say ``look = "kubectl"``."""


def leads_past(*given: Given) -> bool:
    """Whether options lead past the filter: such a command is none of the daemon's."""
    return any(PAST & set(option.names) for options in given for option, _ in options)


def refuse_kubectl(path: str, words: tuple[Word, ...], place: PathContext) -> str | None:
    """Return why the daemon does not run a command, or None; ``words`` are its canonical form, behind the program."""
    verb = path.removeprefix(_PROGRAM)
    if verb not in _OPTIONS:
        return _PRINT.get(verb, "the daemon does not run it, and its filter cannot judge it")
    for name, value in options_of(map(shown, words)):
        if name not in _OPTIONS[verb] | _ALWAYS:
            return (
                f"{name}: the daemon runs it, and not with this option: it could print whole objects, or act on more "
                "than is named"
            )
        if name in _PLACES and (reason := paths.deployable(value, place)):
            return reason
    if any(shown(word) == "-" for word in words):
        return "nothing can be fed to it: name a file"
    return None


def options_of(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the options among a canonical form's words, each with its value or ""."""
    for word in words:
        if word == "--":
            return
        if word.startswith("-") and word != "-":
            name, _, value = word.partition("=")
            yield name, value
