"""Every answer of a reading can be described to programs: pages and API follow from the Structs."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Final

import msgspec

from claudeops.store import glance, reading

PARTS: Final = frozenset({"QueryPart", "WholeSession", "_Details", "ChainCallsMade"})
"""Values of pages, commands and readings themselves, of which no document is made."""


def answers() -> Iterator[type[msgspec.Struct]]:
    names = [f"{reading.__name__}.{found.name}" for found in pkgutil.iter_modules(reading.__path__)]
    for name in (*names, glance.__name__):
        for value in vars(import_module(name)).values():
            is_struct = isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == name
            if is_struct and value.__name__ not in PARTS:
                yield value


def test_every_answer_has_a_schema_under_a_name_of_its_own() -> None:
    found = list(answers())
    schemas, components = msgspec.json.schema_components(found)
    assert len(schemas) == len(found) > 30
    assert {kind.__name__ for kind in found} <= components.keys()
    assert [name for name, count in Counter(kind.__name__ for kind in found).items() if count > 1] == []


def test_every_answer_is_frozen() -> None:
    assert [kind.__name__ for kind in answers() if not kind.__struct_config__.frozen] == []
