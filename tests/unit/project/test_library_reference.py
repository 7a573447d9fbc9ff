"""What is written about the library is true, and the example of the how-to works."""

from __future__ import annotations

import re

from claudeops.domain.calls import VerdictKind
from claudeops.domain.estate.estate import Estate
from claudeops.engine.library import MOST_FILES
from claudeops.formats.library import HEADINGS, LOWEST_TIER, MOST_BYTES, LibraryKind, choose, parse
from claudeops.policy.tiers import JudgeScope
from support.checkout import ROOT
from support.library_texts import service, shipped
from support.policy_cases import judged

REFERENCE = (ROOT / "docs" / "reference" / "library.md").read_text(encoding="utf-8")
HOW_TO = (ROOT / "docs" / "how-to" / "write-a-check.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```markdown\n(.*?)```", HOW_TO, flags=re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    section = REFERENCE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_built_in_text_is_listed_with_its_tier_and_words() -> None:
    assert rows("The built-in texts") == [
        [
            f"`{text.kind}`",
            f"[{text.name}](../../prompts/library/{text.kind}/{text.name}.md)",
            str(text.tier),
            ", ".join(f"`{word}`" for word in text.about),
        ]
        for kind in LibraryKind
        for text in sorted(shipped().texts, key=lambda text: text.name)
        if text.kind is kind
    ]


def test_the_kinds_are_those_of_the_code() -> None:
    listed = [(row[0].strip("`"), tuple(row[2].split(", ")), int(row[3])) for row in rows("Kinds")]
    assert listed == [(kind.value, HEADINGS[kind], LOWEST_TIER[kind]) for kind in LibraryKind]


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"at most {MOST_BYTES} bytes" in REFERENCE
    assert f"{MOST_FILES} files of each kind" in REFERENCE


def test_the_example_of_the_how_to_is_taken_and_given_to_its_service() -> None:
    assert EXAMPLE is not None
    found = parse(EXAMPLE[1], kind=LibraryKind.CHECK, origin="shop", path="orders.md")
    assert found.faults == ()
    (text,) = choose(found, tier=1, services=[service("shop")], budget_tokens=1_000)
    assert text.name == "shop/orders"


def test_the_commands_of_the_example_are_allowed() -> None:
    assert EXAMPLE is not None
    commands = re.findall(r"^- `([^`]+)`$", EXAMPLE[1], flags=re.MULTILINE)
    scope = JudgeScope(
        repos_dir="/repos", workdir="/w", tmpdir="/t", home="/h", estate=Estate(hosts=("web1", "shop.example.org"))
    )
    assert [judged(command, 1, scope).kind for command in commands] == [VerdictKind.ALLOW] * 2
