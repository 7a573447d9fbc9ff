"""The page about the ways in which CLI sessions fail names the tests that show them, and no others."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from support.checkout import ROOT

PAGE = (ROOT / "docs" / "reference" / "cli-failures.md").read_text(encoding="utf-8")
ROWS = range(1, 34)
NOT_REPRODUCED = "not reproduced: "


def written() -> dict[int, str]:
    """Return what the page has in its last column, by row."""
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
    return {int(number): shown for number, shown in rows}


def existing() -> dict[int, list[str]]:
    """Return the tests that there are, by row, in the order of files and lines."""
    tests = defaultdict(list)
    for path in sorted((ROOT / "tests" / "conformance").glob("test_cli_failures_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                row = re.match(r"test_row_(\d\d)_", node.name)
                assert row is not None, f"{path.name}: {node.name} names no row"
                tests[int(row[1])].append(node.name)
    return tests


def test_every_row_is_there_once_and_in_order() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)] == list(ROWS)
    assert list(written()) == list(ROWS)


def test_each_row_names_the_tests_that_show_it_or_says_why_there_is_none() -> None:
    tests = existing()
    for row, shown in written().items():
        if shown.startswith(NOT_REPRODUCED):
            assert len(shown) > len(NOT_REPRODUCED) + 20, f"row {row} gives no reason"
            assert row not in tests, f"row {row} has tests all the same"
        else:
            assert tests[row], f"row {row} has no test"
            assert re.findall(r"`(\w+)`", shown) == tests[row], f"row {row}"


def test_no_test_shows_a_row_that_is_not_written_down() -> None:
    assert set(existing()) <= set(ROWS)
