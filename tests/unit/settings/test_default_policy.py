"""The policy that ships stands in several files: all of them, in one order, and a fault is told with file and line."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.policy.tiers import read_document
from claudeops.settings.files import default_policy_parts, default_policy_path
from claudeops.settings.policy import default_text, load_policy

TIERS = '[tiers.1]\ntools = ["Bash"]\n'


def parts(directory: Path, *texts: str) -> tuple[Path, ...]:
    paths = tuple(directory / f"{number}-part.toml" for number in range(1, len(texts) + 1))
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def rule_names(text: str) -> list[str]:
    return [str(rule["name"]) for rule in tomllib.loads(text).get("commands", [])]


def test_every_file_of_the_folder_is_loaded_in_the_order_of_its_number() -> None:
    assert [path.name for path in default_policy_parts()] == [
        "1-tiers.toml", "2-machine.toml", "3-files.toml", "4-network.toml", "5-containers.toml", "6-clusters.toml",
        "7-git.toml",
    ]  # fmt: skip
    assert sorted(default_policy_path().iterdir()) == list(default_policy_parts())


def test_the_rules_stand_in_the_order_of_the_files() -> None:
    listed = [name for path in sorted(default_policy_path().iterdir()) for name in rule_names(path.read_text("utf-8"))]
    assert [rule.name for rule in read_document(default_text()).commands] == listed
    assert len(listed) > 250


def test_every_file_holds_tables_only_and_no_two_the_same() -> None:
    texts = [path.read_text("utf-8") for path in default_policy_parts()]
    # A key in front of the first table would fall into the last table of the file before.
    assert all(isinstance(value, dict | list) for text in texts for value in tomllib.loads(text).values())
    tables = Counter(key for text in texts for key, value in tomllib.loads(text).items() if isinstance(value, dict))
    assert set(tables.values()) == {1}


def test_all_rules_of_one_command_stand_in_one_file() -> None:
    homes = [
        {name for listed in rule_names(path.read_text("utf-8")) for name in listed.split("|")}
        for path in default_policy_parts()
    ]
    assert [name for name, count in Counter(name for names in homes for name in names).items() if count > 1] == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    present, missing = parts(tmp_path, TIERS, TIERS)
    missing.unlink()
    with pytest.raises(MissingInputError, match=r"The default of CLAUDEOPS_POLICY_PATH leads to .*/2-part\.toml"):
        load_policy(None, parts=(present, missing))


def test_a_table_that_two_files_define_is_a_fault_of_the_second(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"/2-part\.toml, line 2: this is not TOML: Cannot declare"):
        load_policy(None, parts=parts(tmp_path, TIERS, f"# again\n{TIERS}", "[aliases]\n"))


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_a_fault_is_told_with_the_line_of_its_own_file(tmp_path: Path, ending: str) -> None:
    first, second = f"{TIERS}{ending}", f'# rules\n[[commands]]\nname = "look"\nlien = ""{ending}'
    for texts, number in (((first, second, "[aliases]\n"), 2), (("[aliases]\n", first, second), 3)):
        with pytest.raises(
            ConfigurationError, match=rf"^The default of .*/{number}-part\.toml, line 4: the key 'lien'"
        ):
            load_policy(None, parts=parts(tmp_path, *texts))


def test_a_broken_default_is_no_fault_of_the_file_that_extends_it(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('extends = "default"\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"^The default of .*/2-part\.toml, line 1: this is not TOML"):
        load_policy(own, parts=parts(tmp_path, TIERS, "a ==\n"))
