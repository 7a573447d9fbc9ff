"""The policy file: the operator's, or the one that ships."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from claudeops.domain.policy import Policy, PolicyFault, parse_policy
from claudeops.errors import ConfigurationError
from claudeops.resources import default_policy_path
from claudeops.settings.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

POLICY_VARIABLE: Final = "CLAUDEOPS_POLICY_PATH"
_MOST_BYTES: Final = 4 * 1024 * 1024


def load_policy(named: Path | None) -> Policy:
    """Return the policy of the named file, else the default; raises `ConfigurationError` with line and remedy."""
    if named is None:
        return _default()
    text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
    try:
        return parse_policy(text, default=default_text())
    except PolicyFault as fault:
        raise ConfigurationError(f"{POLICY_VARIABLE}: {named}, line {fault.line}: {fault}.") from None


def default_text() -> str:
    """Return the text of the policy that ships."""
    path = default_policy_path()
    return read_text(path, origin=f"The default of {POLICY_VARIABLE}", what="policy", limit=_MOST_BYTES)


@cache
def _default() -> Policy:
    return parse_policy(default_text())
