"""The project's own files agree with each other: pyproject.toml, the two locks, the import rules."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
DEV = [Requirement(line) for line in PROJECT["dependency-groups"]["dev"]]
DOMAIN_MAY_USE = {"cronsim", "google-re2", "jsonschema", "msgspec", "orjson", "tree-sitter", "tree-sitter-bash"}


def pins(lock: str) -> dict[str, str]:
    """Return name → version of every line of a lock that pins something."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+) ", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        pytest.param("requirements.lock", RUNTIME, id="runtime"),
        pytest.param("requirements-dev.lock", [*RUNTIME, *DEV], id="development"),
    ],
)
def test_lock_answers_what_the_project_asks_for(lock: str, required: list[Requirement]) -> None:
    locked = pins(lock)

    unmet = [
        str(requirement)
        for requirement in required
        if not requirement.specifier.contains(locked.get(canonicalize_name(requirement.name), "0"), prereleases=True)
    ]

    assert not unmet, f"{lock} does not hold {', '.join(unmet)}: run 'make lock'"


def test_what_is_tested_is_what_is_shipped() -> None:
    shipped, tested = pins("requirements.lock"), pins("requirements-dev.lock")

    assert shipped.items() <= tested.items()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_lock_names_no_index_and_hashes_everything(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")

    assert "://" not in text
    assert "--index-url" not in text
    assert len(re.findall(r"^[a-z0-9].*\\\n    --hash=sha256:[0-9a-f]{64}", text, flags=re.MULTILINE)) == len(
        pins(lock)
    )


def test_wheel_is_built_with_the_backend_that_the_project_names() -> None:
    (backend,) = map(Requirement, PROJECT["build-system"]["requires"])

    assert backend in DEV
    assert backend.specifier.contains(pins("requirements-dev.lock")["hatchling"])


def test_domain_is_forbidden_every_library_that_is_not_for_parsing() -> None:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (forbidden,) = [
        set(contract["forbidden_modules"])
        for contract in contracts
        if contract["name"] == "The domain needs no library but those for parsing"
    ]
    modules_of: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            modules_of.setdefault(canonicalize_name(distribution), set()).add(module)

    for requirement in RUNTIME:
        name = canonicalize_name(requirement.name)
        importable = {module for module in modules_of[name] if module.isidentifier()} - set(sys.stdlib_module_names)
        if name in DOMAIN_MAY_USE:
            assert not importable & forbidden, f"the domain may use {name}"
        else:
            assert importable & forbidden, f"{name} is missing from the domain's import contract"
