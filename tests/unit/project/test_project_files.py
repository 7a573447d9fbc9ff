"""The project's own files agree with each other: pyproject.toml, the locks, the import rules."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RUNTIME = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
EXTRAS = [Requirement(line) for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
DEV = [Requirement(line) for line in PROJECT["dependency-groups"]["dev"]]
BUILDING_PROGRAMS = [Requirement(line) for line in PROJECT["dependency-groups"]["programs"]]
DOMAIN_MAY_USE = {
    "cronsim",
    "google-re2",
    "jsonschema",
    "markdown-it-py",
    "msgspec",
    "orjson",
    "pyyaml",
    "tree-sitter",
    "tree-sitter-bash",
}


def pins(lock: str) -> dict[str, str]:
    """Return name → version of every line of a lock that pins something."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+) ", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        pytest.param("requirements.lock", [*RUNTIME, *EXTRAS], id="runtime"),  # in the image nothing can be installed
        pytest.param("requirements-dev.lock", [*RUNTIME, *EXTRAS, *DEV], id="development"),
        pytest.param("deploy/programs/requirements.lock", BUILDING_PROGRAMS, id="programs"),
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


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "deploy/programs/requirements.lock"])
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

    for requirement in (*RUNTIME, *EXTRAS):
        name = canonicalize_name(requirement.name)
        importable = {module for module in modules_of[name] if module.isidentifier()} - set(sys.stdlib_module_names)
        if name in DOMAIN_MAY_USE:
            assert not importable & forbidden, f"the domain may use {name}"
        else:
            assert importable & forbidden, f"{name} is missing from the domain's import contract"


def test_an_extra_is_no_dependency_of_everybody() -> None:
    needed, extra = ({one.name for one in given} for given in (RUNTIME, EXTRAS))

    assert extra == {"authlib", "joserfc", "webauthn"}
    assert not needed & extra


# --- where tests stand ------------------------------------------------------------------------------------

MIRRORED = [ROOT / "tests" / suite for suite in ("unit", "contract", "integration")]


def test_folders_of_tests_are_those_of_the_package() -> None:
    folders = {path.parent.relative_to(suite) for suite in MIRRORED for path in suite.glob("**/test_*.py")}
    folders.remove(Path("project"))  # what is about the repository's own files

    package = ROOT / "src" / "claudeops"  # where a folder that is gone may lie about, with what Python compiled
    assert [folder for folder in folders if not any((package / folder).glob("*.py"))] == []
    assert len(folders) > 20


def test_only_what_is_about_a_module_at_the_top_stands_in_no_folder() -> None:
    loose = {path.stem.removeprefix("test_") for suite in MIRRORED for path in suite.glob("test_*.py")}

    assert [name for name in loose if not (ROOT / "src" / "claudeops" / f"{name}.py").is_file()] == []


# --- what lies at the root --------------------------------------------------------------------------------

READABLE_BYTES = 1_000_000  # the locks have 150 000


def strangers(root: Path) -> list[str]:
    """Return the files at a repository's root that nobody reads: built, packed, downloaded, or left by a program.

    What git ignores does not count, and neither do directories.
    """
    listed = subprocess.run(
        [
            "git",
            "-c",
            "safe.directory=*",
            "-C",
            str(root),
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        capture_output=True,
        check=True,
    ).stdout.decode()
    names = {name for name in listed.split("\0") if name and "/" not in name}
    return sorted(name for name in names if (root / name).is_file() and not _is_text(root / name))


def _is_text(file: Path) -> bool:
    content = file.read_bytes()
    if len(content) > READABLE_BYTES or b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_no_binary_lies_at_the_root() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone, or git is not here: nobody knows which files belong to it")

    assert strangers(ROOT) == [], "a build left something at the root: remove it, and do not commit it"


def test_a_binary_at_the_root_would_be_noticed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*.pyc\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("größe\n", encoding="utf-8")
    (tmp_path / "left.pyc").write_bytes(b"\0")
    (tmp_path / "claudeops-0.1.0-py3-none-any.whl").write_bytes(b"PK\3\4\0")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "dump.sql").write_text("x" * (READABLE_BYTES + 1), encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.bin").write_bytes(b"\0")

    assert strangers(tmp_path) == ["claudeops-0.1.0-py3-none-any.whl", "dump.sql", "photo.jpg"]
