"""A member of a closed set has a meaning, and is otherwise what any `StrEnum` makes of it."""

from __future__ import annotations

import copy
import json
import pickle

import msgspec
import orjson
import pytest

from claudeops.domain.sessions import ErrorCategory, Outcome

MEMBER = ErrorCategory.BACKGROUND_TASK
VALUE = "background-task"


class Document(msgspec.Struct):
    category: ErrorCategory


def test_member_is_its_value_and_not_its_meaning() -> None:
    assert (str(MEMBER), f"{MEMBER}", MEMBER.value, MEMBER.name) == (VALUE, VALUE, VALUE, "BACKGROUND_TASK")
    assert VALUE == MEMBER
    assert {MEMBER: 1}[VALUE] == 1  # type: ignore[index]
    assert ErrorCategory(VALUE) is MEMBER
    assert MEMBER.meaning == "the session ended while work that it had started in the background went on"


def test_meaning_names_no_member() -> None:
    with pytest.raises(ValueError, match="is not a valid Outcome"):
        Outcome(Outcome.SUCCESS.meaning)


def test_member_is_written_as_its_value() -> None:
    expected = {"category": VALUE}

    assert json.loads(json.dumps({"category": MEMBER})) == expected
    assert json.loads(orjson.dumps({"category": MEMBER})) == expected
    assert json.loads(msgspec.json.encode(Document(category=MEMBER))) == expected


def test_member_is_read_from_its_value() -> None:
    assert msgspec.json.decode(b'{"category": "background-task"}', type=Document).category is MEMBER
    assert msgspec.convert({"category": VALUE}, Document).category is MEMBER
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'nothing'"):
        msgspec.convert({"category": "nothing"}, Document)


def test_schema_lists_values_alone() -> None:
    _, components = msgspec.json.schema_components([Document])

    assert components["ErrorCategory"]["enum"] == sorted(member.value for member in ErrorCategory)


def test_copies_are_the_member_itself() -> None:
    assert pickle.loads(pickle.dumps(MEMBER)) is MEMBER  # noqa: S301 - our own
    assert copy.deepcopy(MEMBER) is MEMBER
