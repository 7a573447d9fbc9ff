"""What the prompts teach, the gate allows: a model that follows its prompt to the letter is never denied."""

from __future__ import annotations

import re

import pytest

from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.policy.programs.network import PROGRAMS
from claudeops.policy.tiers import JudgeScope, judge, tier_policy
from support.checkout import ROOT
from support.policy_cases import NAMED, POLICY

PROMPTS = ROOT / "prompts"
SCOPE = JudgeScope(
    repos_dir="/repos",
    workdir="/w/1/work",
    tmpdir="/w/1/tmp",
    home="/w/1/home",
    estate=NAMED,
    look_client=("/look",),
    looks=dict.fromkeys(("git", *PROGRAMS), ""),
)

PLACEHOLDERS = {
    "NAMESPACE": "prod",
    "SERVICE": "web",
    "COMMAND": "uptime",
    "REVISION": "3",
    "RELEASE": "web",
    "FILE": "/repos/estate/compose.yaml",
    "HOST": "host1",
    "NAME": "web",
    "UNIT": "web.service",
    "DIRECTORY": "/repos/estate",
    "PATH": "/repos/estate/README.md",
    "PORT": "443",
    "URL": "http://web.internal/health",
}
SECTIONS = re.compile(
    r"^## (?:Find out|How to check|Work in|Ways to look|Restarting|Acting|Verify).*?(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)
SPAN = re.compile(r"`([^`]+)`")


def taught() -> list[tuple[int, str]]:
    """Return every command that a prompt spells out, with the tier it is told to."""
    found = []
    for path in sorted(PROMPTS.glob("tier*.md")):
        for section in SECTIONS.finditer(path.read_text(encoding="utf-8")):
            for span in SPAN.finditer(section[0]):
                text = " ".join(span[1].split())
                if " " in text and re.match(r"[a-z]", text) and not text.endswith("..."):
                    found.append((int(path.name[4]), text))
    return found


def written_out(command: str) -> str:
    for placeholder, value in PLACEHOLDERS.items():
        command = re.sub(rf"\b{placeholder}\b", value, command)
    return command


def test_each_prompt_teaches_commands() -> None:
    assert {tier for tier, _ in taught()} == {1, 2, 3}
    assert len(taught()) > 40


@pytest.mark.parametrize(("tier", "command"), taught(), ids=str)
def test_what_a_prompt_teaches_is_allowed(tier: int, command: str) -> None:
    call = ToolCall(tool_use_id="t", tool_name="Bash", input={"command": written_out(command)})
    verdict = judge(call, tier=tier_policy(POLICY, tier), scope=SCOPE)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
