"""Two daemons are taken for different where they are alike, or for alike where they decide differently."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import pytest

from claudeops.engine.daemon.digests import Digests, DigestSource, decisive, digest_of
from support.checkout import ROOT
from support.settings_world import World, make_world

SAME_EVERYWHERE: Final = """
from claudeops.engine.daemon.digests import digest_of
from claudeops.settings.policy import load_policy

print(digest_of(load_policy(None)), digest_of({"b": frozenset("abcdefgh"), "a": {3, 1, 2}}))
"""


class Look(msgspec.Struct, frozen=True):
    name: str
    expression: re.Pattern[str]
    words: frozenset[str] = frozenset()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def test_two_processes_digest_the_same_policy_alike() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SAME_EVERYWHERE],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }

    assert len(found) == 1


@pytest.mark.parametrize(
    "other",
    [
        Look("web", re.compile("b")),
        Look("web", re.compile("a"), frozenset({"x"})),
        Look("nas", re.compile("a")),
        ("web", "a"),
        None,
    ],
)
def test_every_difference_shows(other: object) -> None:
    assert digest_of(other) != digest_of(Look("web", re.compile("a")))
    assert digest_of(Look("web", re.compile("a"))) == digest_of(Look("web", re.compile("a")))


def test_rule_that_another_policy_has_shows(world: World) -> None:
    text = 'extends = "default"\n\n[never]\nhosts = ["nas"]\n'
    plain = world.settings(CLAUDEOPS_POLICY_PATH=str(world.file("plain.toml", 'extends = "default"\n')))
    other = world.settings(CLAUDEOPS_POLICY_PATH=str(world.file("other.toml", text)))

    assert digest_of(plain.policy) != digest_of(other.policy)


def test_neither_secrets_nor_paths_are_digested(world: World) -> None:
    settings = world.settings(CLAUDEOPS_TIER2_ENV="NAS_PASSWORD", NAS_PASSWORD="a-password-of-the-nas")

    shown = repr([decisive(settings.budgets), *map(decisive, settings.tiers)])

    assert "daily_usd" in shown
    assert "a-password-of-the-nas" not in shown
    assert str(world.root) not in shown


def test_what_has_not_changed_is_digested_once() -> None:
    made: list[object] = []

    def content(value: Mapping[str, str]) -> object:
        made.append(value)
        return value

    held = [{"a": "1"}]
    digests = Digests({"file": DigestSource(lambda: held[0], content)})
    first = digests.now()
    held[0] = {"a": "1"}  # read anew
    again = digests.now()
    held[0] = {"a": "2"}
    edited = digests.now()

    assert len(made) == 2
    assert first == again != edited
