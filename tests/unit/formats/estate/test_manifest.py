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


SERVICES = "# Services\n\n- postgres (db1)\n- redis (db1)\n\n"
FORMS = {
    "a sign before the words": ("# Services\n\n- postgres (db1) \u26a0\ufe0f do not restart\n- redis\n", "postgres"),
    "a sign and nothing else": ("# Services\n\n- postgres **never restart**\n- redis\n", "postgres"),
    "a line that goes on": ("# Services\n\n- postgres (db1)\n  never restart this one\n- redis\n", "postgres"),
    "a sentence that is wrapped": ("# Services\n\n- postgres (db1), do\n  not restart\n- redis\n", "postgres"),
    "a further paragraph of an item": ("# Services\n\n- postgres\n\n  Hands off.\n\n- redis\n", "postgres"),
    "an item below an item": ("# Services\n\n- postgres\n  - must not be restarted\n- redis\n", "postgres"),
    "a field below an item": ("# Services\n\n- postgres\n  - Comment: leave it alone\n- redis\n", "postgres"),
    "a list of tasks": ("# Services\n\n- [ ] postgres (never restart)\n- [x] redis\n", "postgres"),
    "a heading": (SERVICES + "## postgres \u2013 never restart\n\n- Host: db1\n", "postgres"),
    "a heading in brackets": ("## Services\n\n### postgres (ask first)\n\n### redis\n", "postgres"),
    "an item below a heading": (SERVICES + "## postgres\n\n- never restart\n", "postgres"),
    "a heading before the list": ("## postgres\n\n- never restart\n\n" + SERVICES, "postgres"),
    "a smaller heading": (SERVICES + "## postgres\n\n- Host: db1\n\n### Care\n\n- don't restart\n", "postgres"),
    "Never of a service": (SERVICES + "## postgres\n\n- Host: db1\n\n### Never\n\n- restart\n", "postgres"),
    "a field that is no item": (SERVICES + "## postgres\n\nHost: db1\nRestart: no\n", "postgres"),
    "a table of keys": (SERVICES + "## postgres\n\n| Restart | never |\n| --- | --- |\n| Host | db1 |\n", "postgres"),
    "a column of containers": (
        "# Containers\n\n| Container | Notes |\n|---|---|\n| postgres | never stop |\n",
        "postgres",
    ),
    "a bar in code": (
        "# Services\n\n| service | check | restart |\n|---|---|---|\n| postgres | `a | b` | no |\n",
        "postgres",
    ),
    "a cell too many": ("# Services\n\n| service | host |\n|---|---|\n| postgres | db1 | never |\n", "postgres"),
    "dashes for other columns": ("# Services\n\n| service | restart |\n|---|\n| postgres | never |\n", "postgres"),
    "a table below text": ("# Services\n\nAll:\n| service | restart |\n|---|---|\n| postgres | never |\n", "postgres"),
    "a table right below a list": (
        "# Services\n\n- redis\n| service | restart |\n|---|---|\n| postgres | no |\n",
        "postgres",
    ),
    "a key below Never": (SERVICES + "# Never\n\n- rules: never restart postgres\n", "postgres"),
    "a comment between rows": (
        "# Services\n\n| service | restart |\n|---|---|\n| redis | yes |\n<!-- old -->\n| postgres | never |\n",
        "postgres",
    ),
    "a name with more in its cell": ("# Services\n\n| service |\n|---|\n| postgres (do not restart) |\n", "postgres"),
    "a table of something else": (
        SERVICES + "# Misc\n\n| name | remarks |\n|---|---|\n| postgres | never stop |\n",
        "postgres",
    ),
    "an item elsewhere": (SERVICES + "# Notes\n\n- postgres: never restart\n", "postgres"),
    "a heading called after an action": (SERVICES + "# Restarts\n\n- postgres: never\n- redis: fine\n", "postgres"),
    "a quote with a list": ("> # Services\n>\n> - postgres: never restart\n> - redis\n", "postgres"),
    "bullets of a word processor": ("# Services\n\n\u2022 postgres \u2013 never restart\n\u2022 redis\n", "postgres"),
    "Never with a mark": (SERVICES + "# Never!\n\n- postgres\n", "postgres"),
    "Do not touch": (SERVICES + "# Do not touch\n\n* the postgres on db1\n", "postgres"),
    "Ask first": (SERVICES + "# Ask first\n\n1. postgres\n", "postgres"),
    "a line above a list": (SERVICES + "# Care\n\n**Never restart:**\n\n- postgres\n", "postgres"),
    "a command below Never": (SERVICES + "# Never\n\n- `docker restart postgres`\n", "postgres"),
    "a reason below Never": (SERVICES + "# Never\n\n- **postgres**: takes an hour\n", "postgres"),
    "rows below Never": (SERVICES + "# Never\n\n| what | why |\n|---|---|\n| postgres | slow |\n", "postgres"),
    "rules": (SERVICES + "# Rules\n\n- Never run `systemctl restart postgres`.\n", "postgres"),
    "front matter": ("---\nservices:\n  postgres: never restart\n  redis:\n---\n", "postgres"),
    "a key of front matter": ("---\nservices:\n  postgres: {host: db1, notes: ask first}\n---\n", "postgres"),
    "a key that says it": ("+++\n[services.postgres]\nno_restart = true\n+++\n", "postgres"),
    "no, in TOML": ("+++\n[services.postgres]\nrestart = false\n+++\n", "postgres"),
    "a table in a key": ("---\nservices:\n  postgres: {restart: {allowed: no}}\n---\n", "postgres"),
    "never, in front matter": ("---\nnever: {postgres: restart}\n---\n" + SERVICES, "postgres"),
    "a key of front matter that says it": ("---\ndo_not_restart: [postgres]\n---\n" + SERVICES, "postgres"),
    "a block of code below Never": (SERVICES + "# Never\n\n```\npostgres\n\n```\n", "postgres"),
    "a list in a block of code": (SERVICES + "# Do not touch\n\n~~~text\n- postgres\n~~~\n", "postgres"),
    "a command in a block of code": (SERVICES + "# Never\n\n```sh\nsystemctl restart postgres\n```\n", "postgres"),
    "a block of code below a line": (SERVICES + "# Care\n\nNever restart:\n\n```\npostgres\n```\n", "postgres"),
    "a list of YAML below Never": (SERVICES + "# Never\n\n```yaml\n- postgres\n```\n", "postgres"),
    "keys of YAML below Never": (SERVICES + "# Never\n\n```yml\npostgres: it is slow\n```\n", "postgres"),
    "a list of JSON below Never": (SERVICES + '# Never\n\n```json\n["postgres"]\n```\n', "postgres"),
    "a block with Never": (SERVICES + "# Care\n\n```yaml\nnever: [postgres]\n```\n", "postgres"),
    "JSON": ('# All\n\n```json\n{\n\t"services": {"postgres": {"restart": "never"}}\n}\n```\n', "postgres"),
    "an empty list of actions": ("---\nservices:\n  postgres: {actions: []}\n---\n", "postgres"),
    "underscores": ("# Services\n\n- postgres\n  - __Restart:__ __never__\n- redis\n", "postgres"),
    "a sign in front of a name": ("# Services\n\n- \U0001f6ab postgres (db1)\n- redis\n", "postgres"),
    "a sign in a name that is marked": ("# Services\n\n- **\u26d4\ufe0f postgres** (db1)\n- redis\n", "postgres"),
    "a sign behind a dash": ("# Services\n\n- postgres \u2014 \u26d4\n- redis\n", "postgres"),
    "a sign behind a host": ("# Services\n\n- postgres on db1 \U0001f6ab\n- redis on db1\n", "postgres"),
    "a sign before an action": ("# Services\n\n- postgres on db1: \U0001f6ab restart\n- redis (db1)\n", "postgres"),
    "what it needs": ("# Services\n\n- postgres: needs redis, never restart\n- redis\n", "postgres"),
    "a cross behind a name": ("# Services\n\n- postgres \u274c\n- redis\n", "postgres"),
    "a sign in a row": ("# Services\n\n| service | host |\n|---|---|\n| \u26d4 postgres | db1 |\n", "postgres"),
    "a sign in a heading": ("# Services\n\n## \U0001f6d1 postgres\n\n- Host: db1\n\n## redis\n", "postgres"),
    "a box that is empty": ("# Services\n\n| service | restart allowed |\n|---|---|\n| postgres | [ ] |\n", "postgres"),
}
UNBOUND = {
    "a paragraph": ("# Notes\n\nAll is well.\nNever restart\nthe NAS.\n", 9),
    "a quote": ("> **Warning**\n> do not restart redis\n", 7),
    "text below a service": ("## redis\n\n- Host: db1\n\nIt must not be restarted.\n", 10),
    "text below Never": ("## Never\n\nrestart redis\n", 8),
    "text below Rules": ("## Rules\n\nPlease do not restart redis on Sundays.\n", 8),
    "an item elsewhere": ("## Notes\n\n- Never restart redis\n", 8),
    "a heading": ("## Never restart redis\n\nIt is old.\n", 6),
    "a host": ("## Hosts\n\n- nas (10.0.0.9), never reboot it\n", 8),
    "a row of hosts": ("## Hosts\n\n| host | role |\n|---|---|\n| nas | never reboot |\n", 10),
    "a table of something else": ("## Runbooks\n\n| page | what |\n|---|---|\n| 7 | never restart mqtt |\n", 10),
    "a block of text": ("## Notes\n\n```\nnever restart redis\n```\n", 9),
    "what agents may do": ("## Capabilities\n\n- docker, but never restart redis\n", 8),
    "a table that is none": ("## Table\n\n| redis | never restart |\n", 8),
}


@pytest.mark.parametrize(("text", "expected"), FORMS.values(), ids=FORMS)
def test_every_form_of_one_service_forbids_and_only_that_service(text: str, expected: str) -> None:
    (manifest,) = estate_of(text).manifests
    assert {name for rule in manifest.prohibitions for name in rule.services} == {expected}
    assert not [fault for fault in manifest.faults if fault.unbound]


@pytest.mark.parametrize(("text", "line"), UNBOUND.values(), ids=UNBOUND)
def test_what_reads_like_a_prohibition_in_no_form_is_named_with_its_line_and_told(text: str, line: int) -> None:
    (manifest,) = estate_of(SERVICES + text).manifests
    assert manifest.prohibitions == ()
    (fault,) = [fault for fault in manifest.faults if fault.unbound]
    assert fault.source.line == line
    assert "below '## Never'" in fault.sentence
    assert any("estart" in rule or "reboot" in rule for rule in manifest.rules)


def test_json_that_cannot_be_read_is_named() -> None:
    (manifest,) = estate_of('# All\n\n```json\n{"services": {"postgres": }\n```\n').manifests
    assert "this JSON cannot be read" in manifest.faults[0].sentence


def test_columns_that_are_not_used_are_named_once() -> None:
    table = (
        "| service | host | Owner | SLA |\n|---|---|---|---|\n| {0} | w1 | Anna | gold |\n| {0}2 | w1 | Bob | - |\n\n"
    )
    (manifest,) = estate_of("# Services\n\n" + table.format("shop") + table.format("blog")).manifests
    assert [(column.source.line, column.sentence[:18]) for column in manifest.unused] == [
        (3, "the column 'Owner'"),
        (3, "the column 'SLA' i"),
    ]
    assert manifest.faults == ()
