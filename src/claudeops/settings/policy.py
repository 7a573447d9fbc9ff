"""The policy in force: the one that ships, or the operator's file, which may extend that one and its fragments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError
from claudeops.policy.tiers import Policy, PolicyDocument, PolicyFault, parse_policy, read_document
from claudeops.settings.files import default_policy_parts, default_policy_path, policy_fragments, read_text
from claudeops.settings.reader import VariableReader
from claudeops.settings.where import POLICY

POLICY_VARIABLE: Final = POLICY.name

_PARTS: Final = default_policy_parts()
_MOST_BYTES: Final = 4 * 1024 * 1024
_KNOWN: Final = {POLICY_VARIABLE: POLICY}


def load_policy(named: Path | None, *, parts: tuple[Path, ...] = _PARTS) -> Policy:
    """Return the policy of the named file, else the default, which ``parts`` hold.

    Raises `ConfigurationError` with file, line and remedy.
    """
    if named is None:
        return _default(parts)
    text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
    try:
        return parse_policy(text, default=default_text(parts), fragments=fragment_texts())
    except PolicyFault as fault:
        raise _refusal(fault, named, parts) from None


def policy_of(text: str) -> Policy:
    """Return the policy of a file's text. Raises `ConfigurationError` with line and remedy."""
    try:
        return parse_policy(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        place = f"in what it extends, {fault.extended}, line" if fault.extended else "line"
        raise ConfigurationError(f"The policy file: {place} {fault.line}: {fault}.") from None


def policy_in_force(environ: Mapping[str, str], *, cwd: Path) -> Policy:
    """Return the policy as the settings have it."""
    return load_policy(VariableReader(environ, _KNOWN, cwd=cwd).path(POLICY_VARIABLE))


def policy_document(environ: Mapping[str, str], *, cwd: Path, file: Path | None) -> tuple[Path, PolicyDocument]:
    """Return the policy that is in force as its file has it, and where that is; ``file`` stands before the variable.

    The default is a directory. Raises `ConfigurationError` with file, line and remedy.
    """
    named = file or VariableReader(environ, _KNOWN, cwd=cwd).path(POLICY_VARIABLE)
    try:
        if named is None:
            return default_policy_path(), read_document(default_text())
        text = read_text(named, origin=POLICY_VARIABLE, what="policy", limit=_MOST_BYTES)
        return named, read_document(text, default=default_text(), fragments=fragment_texts())
    except PolicyFault as fault:
        raise _refusal(fault, named) from None


def default_text(parts: tuple[Path, ...] = _PARTS) -> str:
    """Return the text of the policy that ships: its parts, one after another."""
    origin = f"The default of {POLICY_VARIABLE}"
    return "\n".join(read_text(path, origin=origin, what="policy", limit=_MOST_BYTES) for path in parts)


def fragment_texts() -> dict[str, str]:
    """Return the texts of the shipped fragments, by name."""
    return {
        name: read_text(path, origin=f"The fragment {name}", what="policy", limit=_MOST_BYTES)
        for name, path in policy_fragments().items()
    }


@cache
def _default(parts: tuple[Path, ...]) -> Policy:
    try:
        return parse_policy(default_text(parts))
    except PolicyFault as fault:
        raise _refusal(fault, None, parts) from None


def _refusal(fault: PolicyFault, named: Path | None, parts: tuple[Path, ...] = _PARTS) -> ConfigurationError:
    """Return the sentence for a fault in the named file, or in what it extends; without a name, in the default."""
    origin, path, line = POLICY_VARIABLE, named, fault.line
    if fault.extended in policy_fragments():
        origin, path = f"The fragment {fault.extended}", policy_fragments()[fault.extended]
    elif fault.extended or path is None:
        origin = f"The default of {POLICY_VARIABLE}"
        path, line = _part_line(fault.line, parts)
    return ConfigurationError(f"{origin}: {path}, line {line}: {fault}.")


def _part_line(line: int, parts: tuple[Path, ...]) -> tuple[Path, int]:
    """Return the part that a line of the default's whole text is from, and the line's number in it."""
    for path in parts[:-1]:
        count = default_text((path,)).count("\n") + 1
        if line <= count:
            return path, line
        line -= count
    return parts[-1], line
