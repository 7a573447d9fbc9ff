"""Where the files that come with claudeops lie: in the wheel, or in the repository it was installed from."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from claudeops.errors import MissingInputError

ResourceKind = Literal["schemas", "prompts", "migrations"]

_PACKAGE: Final = Path(__file__).resolve().parent


def packaged(kind: ResourceKind, *, package: Path = _PACKAGE) -> Path:
    """Return the directory that holds the packaged schemas, prompts or migrations.

    A wheel carries them in ``_packaged``; an editable installation finds them beside ``src``. ``package`` is
    the directory of the ``claudeops`` package. Raises `MissingInputError` when neither place has them.
    """
    wheel, checkout = package / "_packaged" / kind, package.parent.parent / kind
    if wheel.is_dir():
        return wheel
    # Only a checkout has the project file two levels up: a site-packages directory never stands in for one.
    if checkout.is_dir() and (package.parent.parent / "pyproject.toml").is_file():
        return checkout
    raise MissingInputError(f"The {kind} that belong to claudeops are not at {wheel}: reinstall the package.")


def policy_fragments(*, package: Path = _PACKAGE) -> dict[str, Path]:
    """Return the fragments that a policy may extend beside the default, by their names."""
    return {path.stem: path for path in sorted((package / "policy" / "fragments").glob("*.toml"))}


def default_policy_path(*, package: Path = _PACKAGE) -> Path:
    """Return the policy that is in force where the operator names none."""
    return package / "policy" / "default.toml"
