"""What the built-in library teaches, the default policy lets the text's tier do."""

from __future__ import annotations

import re

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.formats.library import LibraryKind, LibraryText
from claudeops.policy.programs.network import PROGRAMS
from claudeops.policy.tiers import JudgeScope
from support.library_texts import shipped
from support.policy_cases import judged

SERVICE = Service(name="web", source=StatementSource(path="estate/CLAUDE-OPS.md", line=1))
ESTATE = Estate(manifests=(Manifest(repository="estate", services=(SERVICE,)),), hosts=("host1", "web.example.org"))
SCOPE = JudgeScope(
    repos_dir="/repos",
    workdir="/w/1/work",
    tmpdir="/w/1/tmp",
    home="/w/1/home",
    estate=ESTATE,
    look_client=("/look",),
    looks=dict.fromkeys(("git", *PROGRAMS), ""),
)
PLACEHOLDERS = {
    "NAMESPACE": "prod",
    "SERVICE": "web",
    "REVISION": "3",
    "RELEASE": "web",
    "FILE": "/repos/estate/compose.yaml",
    "HOST": "host1",
    "UNIT": "web.service",
    "DIRECTORY": "/repos/estate",
    "PATH": "/srv/data",
    "PORT": "5432",
    "URL": "https://web.example.org/health",
    "WORD": "welcome",
}
FURTHER = {"NAME": ("web", "web.example.org")}  # a container, or what is looked up
SPAN = re.compile(r"`([^`]+)`")
DENIED_ON_PURPOSE = {"docker exec env"}  # the texts warn of it


def taught() -> list[tuple[LibraryText, str]]:
    """Return every command that a built-in text spells out: code with a blank in it that begins with a small letter."""
    return [
        (text, span)
        for text in shipped().texts
        for span in SPAN.findall(text.text)
        if " " in span and re.match(r"[a-z]", span) and span not in DENIED_ON_PURPOSE
    ]


def written_out(command: str) -> str:
    name = FURTHER["NAME"]["dig" in command or "getent" in command]
    for placeholder, value in {**PLACEHOLDERS, "NAME": name}.items():
        command = re.sub(rf"\b{placeholder}\b", value, command)
    return command


def test_nearly_every_text_teaches_commands() -> None:
    assert len(taught()) > 100
    assert {text.name for text in shipped().texts} - {text.name for text, _ in taught()} == {"hand-over"}


@pytest.mark.parametrize(("text", "command"), taught(), ids=lambda value: getattr(value, "name", value))
def test_what_the_library_teaches_the_tier_may_do(text: LibraryText, command: str) -> None:
    verdict = judged(written_out(command), text.tier, SCOPE)
    allowed = {VerdictKind.ALLOW, VerdictKind.ASK} if text.kind is LibraryKind.PLAYBOOK else {VerdictKind.ALLOW}
    assert verdict.kind in allowed, verdict.reason
    if text.kind is not LibraryKind.PLAYBOOK:
        assert not verdict.actions
