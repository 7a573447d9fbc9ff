"""What the first how-to tells somebody to write works: the manifest's checks pass the gate, the host's list holds."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from claudeops.domain.calls import VerdictKind
from support.checkout import ROOT
from support.policy_cases import judged

PAGE = (ROOT / "docs" / "how-to" / "watch-your-first-estate.md").read_text(encoding="utf-8")
CHECKS = re.findall(r"^\| [\w-]+ \| \S+ \| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
(SCRIPT,) = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
LISTED = ["uptime", *re.findall(r'"([a-z][^"]*)"', SCRIPT.partition("echo")[0])]


def test_the_page_has_checks() -> None:
    assert len(CHECKS) == 4
    assert len(LISTED) == 8


@pytest.mark.parametrize("command", CHECKS)
def test_every_check_of_the_manifest_is_allowed_to_the_lowest_tier(command: str) -> None:
    assert judged(command, 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("command", LISTED)
def test_what_the_host_would_run_is_allowed_by_the_gate_too(command: str) -> None:
    assert judged(f"ssh web1 {command}", 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("command", [line.removeprefix("ssh web1 ") for line in CHECKS if line.startswith("ssh")])
def test_the_host_runs_what_the_manifest_asks_of_it(command: str) -> None:
    assert on_the_host(command) == 0


@pytest.mark.parametrize(
    "command",
    ["cat /etc/passwd", "uptime; id", "uptime\nid", "df -h /etc", "", "sh", "systemctl restart shop.service", "UPTIME"],
)
def test_the_host_runs_nothing_else(command: str) -> None:
    assert on_the_host(command) == 126


def on_the_host(command: str) -> int:
    """Run the forced command of the page as sshd would, and return its exit status."""
    surroundings = {"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": command}
    done = subprocess.run(["sh", "-c", SCRIPT], env=surroundings, capture_output=True, check=False, timeout=240)
    return done.returncode
