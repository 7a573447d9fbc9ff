"""The walk in docs/discussions/one-straight-line.md goes through functions that exist and that somebody calls."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.checkout import ROOT

SOURCE: Final = ROOT / "src/claudeops"
PAGE: Final = (ROOT / "docs/discussions/one-straight-line.md").read_text(encoding="utf-8")


class Step(NamedTuple):
    """One row of a walk."""

    walk: str
    file: str
    function: str


def _steps() -> list[Step]:
    parts = re.split(
        r"^### (.+)$", PAGE.partition("## The walk, file by file")[2].partition("\n## ")[0], flags=re.MULTILINE
    )
    rows = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
    return [Step(walk, *row) for walk, text in zip(parts[1::2], parts[2::2], strict=True) for row in rows.findall(text)]


STEPS: Final = _steps()


def _defined(file: Path, name: str) -> bool:
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
        ]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.fixture(scope="module")
def used() -> frozenset[str]:
    """Return every name that the package reads somewhere."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py"))
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names | {node.attr for node in nodes if isinstance(node, ast.Attribute)})


def test_the_three_walks_are_there() -> None:
    assert {step.walk: sum(one.walk == step.walk for one in STEPS) for step in STEPS} == {
        "One session": 27,
        "One verdict": 14,
        "One model call": 11,
    }


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.file}:{step.function}")
def test_no_step_of_the_walk_is_gone_or_passed_by(step: Step, used: frozenset[str]) -> None:
    file = SOURCE / step.file
    assert file.is_file(), f"{step.file} is gone"
    assert _defined(file, step.function), f"{step.file} has no {step.function}"
    last = step.function.rpartition(".")[2]
    assert last.startswith("__") or last in used, f"nobody calls {step.function}"
