"""What a policy may extend beside the default: each fragment opens what it says, and nothing else."""

from __future__ import annotations

import re

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.programs.statements import refuse_sql
from claudeops.policy.tiers import Policy, PolicyFault, parse_policy, tier_policy
from claudeops.settings.files import policy_fragments
from claudeops.settings.policy import fragment_texts
from support.checkout import ROOT
from support.doses import drawn
from support.policy_cases import DEFAULT_TEXT, POLICY, TIERS, judged, rows, sections

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
LETTERS = {"a": ALLOW, "d": DENY}
FRAGMENTS = fragment_texts()
DOCS = ROOT / "docs"


def extended(*names: str, text: str = "") -> Policy:
    listed = ", ".join(f'"{name}"' for name in ("default", *names))
    return parse_policy(f"extends = [{listed}]\n{text}", default=DEFAULT_TEXT, fragments=FRAGMENTS)


def verdict(policy: Policy, command: str, tier: int) -> VerdictKind:
    return judged(command, tier_policy(policy, tier)).kind


@pytest.mark.parametrize("name", sections("fragments.txt"))
def test_a_fragment_opens_what_its_table_says(name: str) -> None:
    policy = extended(name)
    wrong = []
    for row in sections("fragments.txt")[name]:
        expected, _, command = row.partition("\t")
        found = [verdict(policy, command, tier) for tier in TIERS]
        if found != [LETTERS[letter] for letter in expected.split()]:
            wrong.append((row, [judged(command, tier_policy(policy, tier)).reason for tier in TIERS]))
    assert wrong == []


@pytest.mark.parametrize("name", sections("fragments.txt"))
def test_nothing_of_it_is_open_without_the_fragment(name: str) -> None:
    opened = [row.partition("\t")[2] for row in sections("fragments.txt")[name] if "a" in row.partition("\t")[0]]
    assert len(opened) >= 4
    assert [command for command in opened for tier in TIERS if judged(command, tier).kind is ALLOW] == []


def test_every_fragment_has_its_table_and_its_sentence() -> None:
    assert set(policy_fragments()) == set(FRAGMENTS) == set(sections("fragments.txt"))
    reference = (DOCS / "reference" / "policy.md").read_text(encoding="utf-8")
    for name, text in FRAGMENTS.items():
        assert text.startswith("# Opens: ")
        assert f"| `{name}` |" in reference


@pytest.mark.parametrize("name", drawn(FRAGMENTS, count=2))
def test_a_fragment_takes_nothing_of_the_default_away(name: str) -> None:
    policy = extended(name)
    assert {c for c in rows("harmless.txt") if verdict(policy, c, 1) is not judged(c, 1).kind} == set()
    assert policy.limits == POLICY.limits
    assert policy.never == POLICY.never


@pytest.mark.parametrize("name", FRAGMENTS)
def test_what_is_never_allowed_stays_so_beside_a_fragment(name: str) -> None:
    policy = tier_policy(extended(name), 3)
    denied = [row.partition("\t")[2] for row in rows("tiers.txt") if row.startswith("d d d\t")]
    assert [command for command in denied if judged(command, policy).kind is ALLOW] == []


def test_fragments_add_up_and_the_file_stands_before_them() -> None:
    policy = extended(
        *FRAGMENTS,
        text='without = ["redis-cli"]\n[[commands]]\nname = "psql"\noptions = "--version"\nrequired = "--version"',
    )
    assert verdict(policy, "psql --version", 1) is ALLOW
    assert verdict(policy, "psql -X -w -U web_ro -d web -c 'SELECT 1'", 1) is ALLOW
    assert verdict(policy, "redis-cli --user web_ro GET x", 1) is DENY
    assert verdict(policy, "aws ec2 describe-instances", 1) is ALLOW


@pytest.mark.parametrize(
    ("extends", "said"),
    [
        ('"cloud-read"', 'write extends = ["default", "cloud-read"]'),
        ('["cloud-read"]', 'write extends = ["default", "cloud-read"]'),
        ('["cloud-read", "default"]', 'write extends = ["default", "cloud-read"]'),
        ('["default", "cloud-raed"]', "did you mean 'cloud-read'?"),
        ('"mine"', "known are default, cloud-read, databases-read, terraform-plan, web-redirects"),
        ('["default", "cloud-read", "cloud-read"]', 'write extends = ["default", "cloud-read"]'),
        ("[]", 'write extends = ["default"]'),
    ],
)
def test_a_wrong_name_to_extend_is_told_with_the_remedy(extends: str, said: str) -> None:
    with pytest.raises(PolicyFault, match=re.escape(said)):
        parse_policy(f"extends = {extends}", default=DEFAULT_TEXT, fragments=FRAGMENTS)


@pytest.mark.parametrize("count", [10_000, 4_000])
def test_a_long_statement_gets_an_answer_at_once(count: int) -> None:
    for piece in ("(", "a(", "'", '"', "select ", "x'y'", "-"):
        refuse_sql(("select " + piece * count)[:count])
