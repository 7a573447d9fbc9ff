"""What is written about the harnesses is true."""

from __future__ import annotations

import re

import msgspec

from claudeops.harness import HARNESSES
from claudeops.harness.protocol import Capabilities
from claudeops.settings.variables import HARNESS_MODELS
from support.checkout import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "harnesses.md").read_text(encoding="utf-8")


def test_capabilities_are_those_that_the_code_declares() -> None:
    names = [field.name for field in msgspec.structs.fields(Capabilities) if field.type is bool]
    said = {can: {name: getattr(harness.capabilities, can) for name, harness in HARNESSES.items()} for can in names}
    header = re.findall(r"^\| capability \| (.+) \| meaning \|$", REFERENCE, flags=re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \| ((?:(?:yes|no) \| )+)(.+) \|$", REFERENCE, flags=re.MULTILINE)

    assert header == [" | ".join(f"`{name}`" for name in HARNESSES)]
    assert [(can, answers.split(" | ")[:-1]) for can, answers, _ in rows] == [
        (can, ["yes" if able else "no" for able in by_harness.values()]) for can, by_harness in said.items()
    ]


def test_where_each_finds_its_models_is_said() -> None:
    assert all(f"`{url}`" in REFERENCE for harness in HARNESSES.values() for url in harness.capabilities.model_urls)


def test_every_harness_has_its_section() -> None:
    assert re.findall(r"^## `(\w+)`$", REFERENCE, flags=re.MULTILINE) == list(HARNESSES)


def test_models_by_default_are_those_of_the_settings() -> None:
    assert all(f"`{model}`" in REFERENCE for model in HARNESS_MODELS.values())
