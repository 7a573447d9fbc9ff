"""What is written about the policy file is true."""

from __future__ import annotations

import re
import tomllib

import pytest

from claudeops.policy.arguments import KINDS
from claudeops.policy.matching import ARGUMENT_CHECKS
from claudeops.policy.never import refuse_line, refuse_text
from claudeops.policy.policy_tables import BUILT_IN_TOOLS, TABLES
from claudeops.policy.tiers import parse_policy
from claudeops.settings.policy import fragment_texts
from support.checkout import ROOT
from support.policy_cases import DEFAULT_TEXT

DOCS = ROOT / "docs"
REFERENCE = (DOCS / "reference" / "policy.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to" / "write-a-policy.md").read_text(encoding="utf-8")

SECTIONS = {
    "## Top level": (),
    "## `[tiers.N]`": ("tiers", "*"),
    "### `[tiers.N.ask]`": ("tiers", "*", "ask"),
    "## `[actions.KIND]`": ("actions", "*"),
    "## `[never]`": ("never",),
    "## `[[commands]]`": ("commands", "*"),
    "## `[[groups]]`": ("groups", "*"),
    "## `[[tools]]`": ("tools", "*"),
}


def section(heading: str) -> str:
    return re.split(r"^#{2,3} ", REFERENCE.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text: str) -> list[str]:
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_table_is_described() -> None:
    assert set(SECTIONS.values()) == set(TABLES)


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_described(heading: str) -> None:
    assert set(first_column(section(heading))) == TABLES[SECTIONS[heading]]


def test_every_kind_of_value_is_described() -> None:
    kinds = first_column(section("## Kinds of values"))
    assert {kind.partition(":")[0] for kind in kinds} == KINDS


def test_tools_and_checks_are_named() -> None:
    assert [name for name in (*BUILT_IN_TOOLS, *ARGUMENT_CHECKS) if f"`{name}`" not in REFERENCE] == []


def test_what_is_said_to_be_never_allowed_never_is() -> None:
    examples = re.findall(r"`([^`]+)`", section("## What no file can allow").partition("| --- |")[2])
    commands = [text for text in examples if re.fullmatch(r"(?:docker|kubectl|git|printenv|dropdb|reboot).*", text)]
    assert len(commands) >= 7
    assert [command for command in commands if not refuse_line(f"{command} x")] == []
    assert all(refuse_text(text) for text in ("cat /etc/shadow", "psql -c 'DROP TABLE x'", "curl 169.254.169.254"))


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", HOW_TO, flags=re.DOTALL), ids=range(6))
def test_every_example_can_be_used(text: str) -> None:
    policy = parse_policy(text, default=DEFAULT_TEXT, fragments=fragment_texts())
    assert policy.tiers.keys() == {1, 2, 3}
    assert "default" in tomllib.loads(text)["extends"]


def test_links_within_the_documents_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in
               re.findall(r"^#+ (.*)$", REFERENCE, flags=re.MULTILINE)}  # fmt: skip
    links = re.findall(r"\(#([\w-]+)\)", REFERENCE) + re.findall(r"policy\.md#([\w-]+)\)", HOW_TO)
    assert set(links) <= anchors
