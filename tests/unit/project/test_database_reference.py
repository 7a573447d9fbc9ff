"""The pages of tables and closed sets say what the code says."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest
from sqlalchemy import Column

from claudeops.closed_set import ClosedSet
from claudeops.domain import actions, calls, events, sessions
from claudeops.domain.probes.probe import ProbeLook
from claudeops.domain.report import report
from claudeops.logs import LogEvent
from claudeops.store.tables.all_tables import metadata
from support.checkout import ROOT

SCRIPT = ROOT / "scripts" / "make_database.py"
COLUMNS = {f"{column.table.name}.{column.name}": column for table in metadata.tables.values() for column in table.c}


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_database", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["database", "values"])
def test_page_is_not_stale(made: ModuleType, page: str) -> None:
    path = {"database": made.DATABASE, "values": made.VALUES}[page]

    assert path.read_text(encoding="utf-8") == getattr(made, page)(), "run `make reference`"


def test_every_table_has_a_meaning_and_is_on_the_page(made: ModuleType) -> None:
    assert [name for name, table in metadata.tables.items() if not table.comment] == []
    headings = re.findall(r"^## (\w+)$", made.database(), flags=re.MULTILINE)
    assert sorted(headings) == sorted(metadata.tables)
    assert set(made.NOTES) <= set(headings)


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_every_column_says_what_it_holds_and_what_null_means(column: Column[object]) -> None:
    assert column.comment
    assert ("null" in column.comment) == bool(column.nullable)


def test_every_type_is_explained(made: ModuleType) -> None:
    explained = set(re.findall(r"^\| ([a-z]+) \| .* \| .* \| .*\|$", made.DATABASE_HEAD, flags=re.MULTILINE))
    kinds = {made._type(column).removesuffix("?") for column in COLUMNS.values()}

    assert kinds == explained - {"type"}


def test_every_closed_set_but_the_log_events_is_on_the_page(made: ModuleType) -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    declared = set(re.findall(r"^class (\w+)\(ClosedSet\):", sources, flags=re.MULTILINE))

    assert {members.__name__ for members in made.SETS} == declared - {LogEvent.__name__}


def test_enums_of_sessions_reports_events_and_calls_are_closed_sets(made: ModuleType) -> None:
    enums = {
        value
        for module in (sessions, report, events, calls, actions)
        for value in vars(module).values()
        if isinstance(value, type) and hasattr(value, "__members__") and value.__module__ == module.__name__
    }

    assert enums
    assert enums <= set(made.SETS)


def test_every_member_has_a_meaning(made: ModuleType) -> None:
    every: list[ClosedSet] = [member for members in made.SETS for member in members]

    assert [member for member in every if not member.meaning.strip()] == []


def test_what_the_script_says_of_columns_is_about_columns_that_exist(made: ModuleType) -> None:
    links = {path for path in made.LINKS if path[0].islower()}

    assert {*made.UNCHECKED, *made.INSIDE, *links} <= set(COLUMNS)


def test_every_kind_of_probe_is_named() -> None:
    kinds = {look.__struct_config__.tag for look in ProbeLook.__subclasses__()}

    assert set(re.findall(r"`(\w+)`", COLUMNS["probes.kind"].comment or "")) == kinds
