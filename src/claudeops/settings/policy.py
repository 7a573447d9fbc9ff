"""The policy file: the operator's, or the one that ships."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from claudeops.domain.policy import Policy, PolicyFault, parse_policy, read_document
from claudeops.errors import ConfigurationError
from claudeops.resources import default_policy_path, policy_fragments
from claudeops.settings.files import read_text
from claudeops.settings.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from claudeops.domain.policy import Document

POLICY_VARIABLE: Final = "CLAUDEOPS_POLICY_PATH"
_MOST_BYTES: Final = 4 * 1024 * 1024


def load_policy(named: Path | None) -> Policy:
    """Return the policy of the named file, else the default; raises `ConfigurationError` with line and remedy."""
    if named is None:
        return _default()
    text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
    try:
        return parse_policy(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        raise ConfigurationError(f"{POLICY_VARIABLE}: {named}, line {fault.line}: {fault}.") from None


def policy_document(environ: Mapping[str, str], *, cwd: Path, file: Path | None) -> tuple[Path, Document]:
    """Return the policy that is in force as its file has it, and where that is; ``file`` stands before the variable."""
    named = file or Reader(environ, cwd=cwd).path(POLICY_VARIABLE)
    if named is None:
        return default_policy_path(), read_document(default_text())
    text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
    try:
        return named, read_document(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        raise ConfigurationError(f"{POLICY_VARIABLE}: {named}, line {fault.line}: {fault}.") from None


def default_text() -> str:
    """Return the text of the policy that ships."""
    path = default_policy_path()
    return read_text(path, origin=f"The default of {POLICY_VARIABLE}", what="policy", limit=_MOST_BYTES)


def fragment_texts() -> dict[str, str]:
    """Return the texts of the fragments that ship, by their names."""
    return {
        name: read_text(path, origin=f"The fragment {name}", what="policy", limit=_MOST_BYTES)
        for name, path in policy_fragments().items()
    }


@cache
def _default() -> Policy:
    return parse_policy(default_text())
