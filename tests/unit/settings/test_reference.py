"""What is written about the settings is true."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import fields
from functools import reduce
from types import ModuleType

import pytest

from claudeops.settings import Settings, TierSettings
from claudeops.settings.environ import INHERITED
from claudeops.settings.model import GENERAL, KNOWN
from claudeops.settings.variables import WITHOUT_EFFECT, Variable, declared_by
from support.checkout import ROOT
from support.settings_world import World

REFERENCE = ROOT / "docs" / "reference" / "settings.md"
DECLARED = [*declared_by(Settings, ("settings",)), *declared_by(TierSettings, ("tier",))]


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_settings", ROOT / "scripts" / "make_settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_is_what_the_code_does(made: ModuleType) -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert made.page(text) == text, "run `make reference`"
    assert len(re.findall(r"^\| `[A-Z].*\|$", text, flags=re.MULTILINE)) == len(DECLARED)


def test_example_is_what_the_code_does(made: ModuleType) -> None:
    assert made.EXAMPLE.read_text(encoding="utf-8") == made.example(), "run `make reference`"


def test_example_uncommented_as_it_stands_changes_nothing(made: ModuleType, world: World) -> None:
    given = dict(line[1:].split("=", 1) for line in made.example().splitlines() if re.match("#[A-Z]", line))
    del given["CLAUDEOPS_OIDC_CLAIM"]  # which is refused without an issuer

    assert world.load(given) == world.load()
    assert len(given) > len(GENERAL)


def test_every_variable_that_sessions_inherit_is_told() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [name for name in (*INHERITED, "LC_*") if f"`{name}`" not in text] == []


def test_every_name_without_effect_is_told() -> None:
    text = REFERENCE.read_text(encoding="utf-8")

    assert [name for name in WITHOUT_EFFECT if f"`{name}`" not in text] == []


def test_value_of_every_setting_has_the_type_of_its_field(world: World) -> None:
    settings = world.settings()  # by what a kind of variable is read, no type checker sees

    for (_, *path, last), variable in declared_by(Settings, ("settings",)):
        holder = reduce(getattr, path, settings)
        (declared,) = (str(each.type) for each in fields(holder) if each.name == last)
        value = getattr(holder, last)
        if declared in {"int", "float", "str", "bool"}:
            assert type(value).__name__ == declared, variable.name


@pytest.mark.parametrize(("path", "variable"), DECLARED, ids=[variable.name for _, variable in DECLARED])
def test_used_says_whether_the_code_outside_the_settings_reads_it(
    path: tuple[str, ...], variable: Variable[object]
) -> None:
    sources = (file for file in (ROOT / "src" / "claudeops").rglob("*.py") if file.parent.name != "settings")
    field = re.compile(rf"\b{re.escape('.'.join(path[-2:]))}\b")
    read = any(field.search(file.read_text(encoding="utf-8")) for file in sources)

    assert variable.used is read, f"set 'used' of {variable.name} to {read} where it is declared"


def test_default_of_every_variable_lies_within_its_own_bounds() -> None:
    for variable in KNOWN.values():
        default = variable.default
        if default is None:
            continue
        if variable.choices:
            assert default in variable.choices
        if variable.low is not None and variable.high is not None:
            assert variable.low <= float(default) <= variable.high


def test_settings_start_fast_without_the_slow_libraries() -> None:
    slow = "{'jsonschema', 'structlog', 'rich', 'sqlalchemy', 'claude_agent_sdk', 'asyncio', 'cronsim'}"
    program = f"import sys, claudeops.settings, claudeops.logs; sys.exit(', '.join({slow} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)

    assert done.stderr.strip() == ""
