"""The glossary's closed sets are those of the code."""

from __future__ import annotations

import re
from enum import StrEnum

import pytest

from claudeops.domain import actions, calls, events, sessions
from claudeops.domain.memories.memory import Trust
from claudeops.domain.report import report
from claudeops.domain.schedules.plan import SkipReason
from support.checkout import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
ENUMS: list[type[StrEnum]] = [
    *(
        value
        for module in (sessions, report, events, calls, actions)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, StrEnum) and value.__module__ == module.__name__
    ),
    SkipReason,
    Trust,
]


def sections() -> dict[str, list[tuple[str, str]]]:
    """Return the rows (value, meaning) of the table under each heading that is a code name."""
    _, *parts = re.split(r"^### `(\w+)`$", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        name: re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, flags=re.MULTILINE)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_closed_set_of_the_domain_is_explained_and_no_other() -> None:
    assert sorted(sections()) == sorted(enum.__name__ for enum in ENUMS)


def test_no_word_stands_in_the_dictionary_twice() -> None:
    words = re.findall(r"^\*\*([^*]+)\*\*:", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(words) > 80
    assert sorted(word.casefold() for word in words) == sorted({word.casefold() for word in words})


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_every_member_is_explained_in_the_order_of_the_code(enum: type[StrEnum]) -> None:
    rows = sections()[enum.__name__]

    assert [value for value, _ in rows] == [member.value for member in enum]
    assert all(meaning.strip() for _, meaning in rows)
