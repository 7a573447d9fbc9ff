"""Manifests as people write them, and what must be understood of each: all of it, and what could not be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.checkout import ROOT, TESTS
from support.understood import estate_of, understood

FOLDER = TESTS / "data" / "manifests"
WRITTEN = sorted(FOLDER.glob("*.md"))
PAGES = ("watch-your-first-estate.md", "describe-your-estate.md")


def test_there_are_twenty_and_ten_of_them_hold_mistakes() -> None:
    assert len(WRITTEN) >= 20
    assert len([path for path in WRITTEN if path.stem.startswith("mistake-")]) >= 10


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_all_of_a_manifest_is_understood_as_its_file_says(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert understood(path.read_text(encoding="utf-8")) == expected


@pytest.mark.parametrize(
    "path", [path for path in WRITTEN if path.stem.startswith("mistake-")], ids=lambda path: path.stem
)
def test_a_mistake_is_told_with_its_line_and_a_remedy(path: Path) -> None:
    faults = understood(path.read_text(encoding="utf-8"))["faults"]
    assert isinstance(faults, list)
    assert faults
    for fault in faults:
        assert re.fullmatch(r"r/CLAUDE-OPS\.md:\d+: .+: .+", fault), fault


@pytest.mark.parametrize("page", PAGES)
def test_what_the_pages_tell_somebody_to_write_is_understood_without_a_fault(page: str) -> None:
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
    written = re.findall(r"```markdown\n(.*?)\n```\n", text, flags=re.DOTALL)
    assert written
    for manifest in written:
        found = understood(manifest.replace("~~~", "```"))
        assert "faults" not in found
        assert found["services"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_ends_of_lines_change_no_line(end: str) -> None:
    path = FOLDER / "full-table.md"
    text = path.read_text(encoding="utf-8")
    assert understood("\ufeff" + text.replace("\n", end)) == understood(text)


def test_a_secret_in_an_address_is_told_and_not_kept() -> None:
    (service,) = estate_of("# Services\n- shop: https://ops:hunter2@shop.example.org/\n").services
    assert "hunter2" not in f"{service.address} {service.check}"
    (fault,) = estate_of("# Services\n- shop: https://ops:hunter2@shop.example.org/\n").faults
    assert "hunter2" not in str(fault)


def test_a_service_of_a_table_and_of_a_section_is_one() -> None:
    text = """
| service | host |
| --- | --- |
| shop | web1 |

## shop

- Needs: db
- Restart: `systemctl restart shop`
"""
    (service,) = understood(text)["services"].values()  # type: ignore[attr-defined]
    assert service["host"] == "web1"
    assert service["restart"] == "systemctl restart shop"


def test_chapters_of_a_manual_are_no_services() -> None:
    chapters = (
        "# Shop",
        "## Installation",
        "- URL: https://get.example.org/",
        "## Usage",
        "Run it.",
        "## Licence",
        "- Kind: no",
    )
    assert understood("\n\n".join(chapters)) == {}


def test_a_chapter_about_backups_is_a_service_only_when_it_tells_of_one() -> None:
    told = "# Services of ours\n\n## backup\n\n- Check: https://backup.example.org/\n- Host: nas\n"
    assert list(understood(told)["services"]) == ["backup"]  # type: ignore[call-overload]
    assert understood("# Services of ours\n\n## Backups\n\nThey run at night.\n") == {}
    assert list(understood("# Services\n- backup: https://backup.example.org/\n")["services"]) == ["backup"]  # type: ignore[call-overload]
