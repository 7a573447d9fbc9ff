"""A module that is deferred is there for whoever needs it after all, and is imported for nobody else."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudeops.cli.main import DeferredModule, cleandoc

SAMPLE = "VALUE = 7\ndef double(number):\n    return 2 * number\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a package with a module ``inner``, which nobody has imported."""
    (tmp_path / "sample_package").mkdir()
    for name in ("__init__", "inner"):
        (tmp_path / "sample_package" / f"{name}.py").write_text(SAMPLE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "sample_package"
    for name in [name for name in sys.modules if name.partition(".")[0] == "sample_package"]:
        del sys.modules[name]


def is_imported(name: str) -> bool:
    return name in sys.modules and not isinstance(sys.modules[name], DeferredModule)


def test_a_function_is_named_without_an_import_and_called_with_one(package: str) -> None:
    DeferredModule(package, ["double"]).stand_in()
    double = importlib.import_module(package).double
    assert not is_imported(package)
    assert double(3) == 6
    assert is_imported(package)


def test_a_function_of_our_own_stands_for_one_of_the_module_and_imports_nothing(package: str) -> None:
    def double(number: int) -> int:
        return number + number

    DeferredModule(package, own=[double]).stand_in()
    assert importlib.import_module(package).double(3) == 6
    assert not is_imported(package)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "one line",
        "  one line, indented  ",
        "\n    after a line break\n    and another\n    ",
        "first\n\n      deeper\n    margin\n\ttab\n   \n",
        "first\n  \n\n",
        "no margin\nhere\n    there",
        "\n\n  \n    late\n\n\n",
    ],
)
def test_a_text_of_help_is_cleaned_as_by_inspect(text: str) -> None:
    assert cleandoc(text) == inspect.cleandoc(text)


def test_the_first_use_imports_the_module_and_leaves_it_to_all_others(package: str) -> None:
    DeferredModule(package).stand_in()
    early = importlib.import_module(package)
    assert not is_imported(package)
    assert early.VALUE == 7
    assert importlib.import_module(package).__file__
    assert is_imported(package)
    assert early.VALUE == 7


def test_a_module_below_one_that_is_deferred_is_found(package: str) -> None:
    DeferredModule(package).stand_in()
    assert importlib.import_module(f"{package}.inner").VALUE == 7
    assert is_imported(package)


def test_a_module_of_a_package_is_found_by_every_way_of_naming_it(package: str) -> None:
    outer = importlib.import_module(package)
    DeferredModule(f"{package}.inner").stand_in()
    assert outer.inner.double(4) == 8
    assert is_imported(f"{package}.inner")
    assert not isinstance(outer.inner, DeferredModule)


def test_a_module_that_is_imported_already_stays(package: str) -> None:
    found = importlib.import_module(package)
    DeferredModule(package).stand_in()
    assert sys.modules[package] is found


def test_what_a_module_does_not_have_is_missing_as_it_always_is(package: str) -> None:
    DeferredModule(package).stand_in()
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = importlib.import_module(package).other
