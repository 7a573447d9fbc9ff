"""What decodes a struct is made when its module is loaded, by one thread.

msgspec notes on a class what it needs to decode it, at the first time, field by field. A thread that comes in between
finds half a note, and the process ends by SIGSEGV: the store's readers and its writer decode the same rows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[3] / "src" / "claudeops"
ROOMS: Final = ("domain", "engine", "store")
"""Where threads decode: those of the database, and those that read files."""

PLAIN: Final = {"dict", "list", "tuple", "str", "int", "float", "bool", "object", "datetime"}


def late(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that decode into something of ours by a decoder that is made there and then."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
            for keyword in node.keywords:
                names = {part.id for part in ast.walk(keyword.value) if isinstance(part, ast.Name)}
                if keyword.arg == "type" and names - PLAIN:
                    yield node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_no_thread_makes_a_decoder_of_a_struct(room: str) -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file in sorted((SOURCE / room).rglob("*.py"))
        for line in late(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == [], "make it when the module is loaded: _ROW: Final = msgspec.json.Decoder(Row)"


def test_decoder_that_is_made_there_and_then_is_seen() -> None:
    plain, ours = "msgspec.json.decode(text, type=dict[str, object])", "msgspec.json.decode(text, type=tuple[Run, ...])"
    assert [list(late(ast.parse(text))) for text in (plain, ours, "_RUNS.decode(text)")] == [[], [1], []]
