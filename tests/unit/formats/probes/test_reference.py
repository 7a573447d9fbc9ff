"""What is written about probes is true."""

from __future__ import annotations

import re

import msgspec
import pytest

from claudeops.domain.probes.news import SETTLING
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.state_machine import FLAPPING
from claudeops.formats.probes.declaration import MOST_PROBES, MOST_SITES, read_probes
from claudeops.formats.probes.from_manifests import MOST_OF_REPOSITORY, MOST_PORTS
from claudeops.formats.probes.keys import DAYS, KINDS, SECONDS, Defaults, ProbeKeys
from support.checkout import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "probes.md").read_text(encoding="utf-8")
TABLES: dict[str, type[msgspec.Struct]] = {
    "## `[defaults]`": Defaults,
    "## `[[probe]]`": ProbeKeys,
    **{f"### `{name}`": kind for name, kind in KINDS.items()},
}


def section(heading: str) -> str:
    return re.split(r"^#{2,3} ", REFERENCE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def described(heading: str) -> list[tuple[str, str]]:
    """Return the keys of a table with their defaults."""
    return re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", section(heading), flags=re.MULTILINE)


def written(field: msgspec.structs.FieldInfo) -> str:
    """Return a default as the reference has it."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if not value and not isinstance(value, bool | float):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    unit = "s" if field.name in SECONDS else "d" if field.name in DAYS else ""
    return f'`"{value:g}{unit}"`' if unit else f"`{value:g}`"


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_and_its_default_are_those_of_the_code(heading: str) -> None:
    fields = msgspec.structs.fields(TABLES[heading])

    assert described(heading) == [(field.name, written(field)) for field in fields]


def test_every_kind_is_described_and_no_other() -> None:
    kinds = re.findall(r"^### `(\w+)`$", REFERENCE, flags=re.MULTILINE)

    assert kinds == list(KINDS)


def test_every_state_is_described() -> None:
    assert re.findall(r"^\| `(\w+)` \|", section("## States"), flags=re.MULTILINE) == list(ProbeState)


def test_the_examples_can_be_used() -> None:
    example, several = re.findall(r"```toml\n(.*?)```", REFERENCE, flags=re.DOTALL)

    assert [probe.name for probe in read_probes(example, file="x").probes] == ["shop", "backup"]
    assert [len(probe.sites) for probe in read_probes(several, file="x").probes] == [3]
    assert f"the sites that look](#probes-of-several-sites), at most {MOST_SITES}" in REFERENCE


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"at most {MOST_PROBES} probes" in REFERENCE
    assert f"{MOST_OF_REPOSITORY} addresses, of one host {MOST_PORTS} ports" in REFERENCE
    assert (FLAPPING.changes, FLAPPING.window.total_seconds(), FLAPPING.quiet.total_seconds()) == (6, 3600, 900)
    assert (SETTLING.settling.total_seconds(), SETTLING.longest.total_seconds()) == (3, 20)


def test_links_within_the_document_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", REFERENCE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\(#([\w-]+)\)", REFERENCE)) <= anchors
