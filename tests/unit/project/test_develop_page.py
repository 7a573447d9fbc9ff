"""What a new developer reads is true: folders, layers, bounds of the house, files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from support.checkout import ROOT

PAGE: Final = (ROOT / "docs" / "how-to" / "develop.md").read_text(encoding="utf-8")
PACKAGE: Final = ROOT / "src" / "claudeops"
PLACES: Final = PAGE.partition("## Where things are")[2].partition("\n## ")[0]
HOUSE: Final = PAGE.partition("## The house")[2].partition("\n## ")[0]
TESTS: Final = PAGE.partition("## Tests")[2].partition("\n## ")[0]


def packages(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}


def row(place: str) -> str:
    """Return the line of the table about a place."""
    found = re.search(rf"^\| `{re.escape(place)}`.*$", PLACES, flags=re.MULTILINE)
    assert found is not None
    return found[0]


def layers(name: str) -> list[list[str]]:
    """Return the layers of an import contract, each with its modules."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (found,) = [one["layers"] for one in contracts if one["name"].startswith(name)]
    return [sorted(re.split(r" [|:] ", layer)) for layer in found]


def test_every_room_of_the_package_has_its_line_and_no_line_is_about_what_is_gone() -> None:
    named = set(re.findall(r"`src/claudeops/(\w+)", PLACES))

    assert named - {"default"} == packages(PACKAGE)


@pytest.mark.parametrize("room", ["engine", "store"])
def test_the_rooms_of_the_engine_and_the_store_are_named(room: str) -> None:
    assert {name for name in packages(PACKAGE / room) if f"`{name}`" not in row(f"src/claudeops/{room}")} == set()


def test_modules_at_the_top_are_named() -> None:
    top = {path.stem for path in PACKAGE.glob("[a-z]*.py")}

    assert {name for name in top if f"`{name}`" not in row("src/claudeops/*.py")} == set()


def test_every_folder_of_tests_is_described() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and not path.name.startswith("_")}

    assert set(re.findall(r"^\| `(\w+)/` \|", TESTS, flags=re.MULTILINE)) == folders - {"support", "data"}


@pytest.mark.parametrize(
    ("block", "contract"), [(0, "Imports run one way"), (1, "Inside the engine")], ids=["package", "engine"]
)
def test_the_layers_are_those_that_imports_are_held_to(block: int, contract: str) -> None:
    shown = re.findall(r"^```\n(.*?)^```$", PLACES, flags=re.MULTILINE | re.DOTALL)[block]

    assert [sorted(re.split(r" [|:] ", layer)) for layer in " ".join(shown.split()).split(" → ")] == layers(contract)


def test_the_bounds_of_the_house_are_tests_that_there_are() -> None:
    written = (ROOT / "tests" / "unit" / "project" / "test_house.py").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)` \|$", HOUSE, flags=re.MULTILINE)

    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in written] == []
    assert re.search(r"\d{2}", HOUSE.replace("test_house", "")) is None, "figures are what `make figures` prints"


def test_files_that_the_page_names_are_there() -> None:
    folders = ("src", "tests", "docs", "prompts", "schemas", "scripts", "migrations", "deploy", "requirements")
    named = set(re.findall(rf"`((?:{'|'.join(folders)})[\w/.-]*\.\w+)`", PAGE))
    within = set(
        re.findall(r"`((?:settings|domain|formats|store|web|harness|policy|engine|app|cli)/[\w/]+\.py)`", PAGE)
    )

    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert [name for name in within if not (PACKAGE / name).is_file()] == []
