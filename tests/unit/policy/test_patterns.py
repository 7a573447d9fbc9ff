"""Patterns for file names: the daemon finds the names, and they run, each judged; none is left in what runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.tiers import JudgeScope, PolicyJudgement, explain, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE, bash

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
NAMES = ("/srv/logs/-rf", "/srv/logs/a b.log", "/srv/logs/it's.log", "/srv/logs/new\nline.log", "/srv/logs/x*y.log")


def said(command: str, scope: JudgeScope = SCOPE, tier: int = 1) -> PolicyJudgement:
    return explain(bash(command), tier=tier_policy(POLICY, tier), scope=scope)


def words(command: str, scope: JudgeScope = SCOPE) -> list[str]:
    found = said(command, scope)
    assert found.verdict.kind is ALLOW, found.verdict.reason
    return [word.removeprefix("/usr/bin/") for word in shlex.split(found.runs)]


def finding(found: Mapping[str, tuple[str, ...] | None]) -> JudgeScope:
    return replace(SCOPE, expand=lambda pattern: found.get(pattern, ()))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("wc -l /var/log/nginx/*.log", "wc -l -- /var/log/nginx/access.log /var/log/nginx/error.log"),
        ("wc -l /var/log/nginx/[ae]*", "wc -l -- /var/log/nginx/access.log /var/log/nginx/error.log"),
        ("wc -l /var/log/nginx/a?cess.log", "wc -l -- /var/log/nginx/access.log"),
        ("wc -l /var/log/*/access.log", "wc -l -- /var/log/nginx/access.log"),
        ("wc -l /var/log/nginx/{error,acc}*.log", "wc -l -- /var/log/nginx/error.log /var/log/nginx/access.log"),
        (
            "cd /var/log/nginx && wc -l *.log",
            "cd /var/log/nginx && wc -l -- /var/log/nginx/access.log /var/log/nginx/error.log",
        ),
        ("wc -l ../../var/log/nginx/e*", "wc -l -- /var/log/nginx/error.log"),
        ("bash -c 'wc -l /var/log/nginx/e*'", None),
        ("ls -d /repos/*", "ls -d -- /repos/app /repos/media"),
        ("echo /repos/*", "echo /repos/app /repos/media"),
    ],
)
def test_the_names_that_a_pattern_finds_run(command: str, expected: str | None) -> None:
    found = words(command)
    assert expected is None or found == expected.split(" ")
    assert [word for word in found if "*" in word or "?" in word] == []


@pytest.mark.parametrize("command", ["ls '/srv/logs/*'", 'ls "/srv/logs/*"', "ls /srv/logs/\\*", "ls /nowhere/*"])
def test_what_is_quoted_or_finds_nothing_is_the_name_itself(command: str) -> None:
    assert words(command, finding({"/srv/logs/*": NAMES}))[-1].endswith("/*")


def test_a_name_with_any_character_in_it_is_one_word() -> None:
    assert words("cd /srv/logs && wc -l *", finding({"/srv/logs/*": NAMES}))[-len(NAMES) - 3 :] == [
        "wc",
        "-l",
        "--",
        *NAMES,
    ]


@pytest.mark.parametrize("secret", ["/srv/logs/.env", "/etc/shadow", "/state/claudeops.db", "/proc/1/environ"])
def test_one_secret_among_the_names_refuses_them_all(secret: str) -> None:
    scope = finding({"/srv/logs/*": ("/srv/logs/a.log", secret)})
    for command in (
        "cat /srv/logs/*",
        "cat -- /srv/logs/*",
        "cat < /srv/logs/*",
        "sudo cat /srv/logs/*",
        "grep x /srv/logs/*",
    ):
        assert said(command, scope).verdict.kind is DENY, command


def test_a_pattern_finds_no_option_no_program_and_no_host() -> None:
    scope = finding(
        {"/work/s1/*": ("/work/s1/-f",), "/work/s1/s*": ("/work/s1/sudo",), "/work/s1/w*": ("/work/s1/web1",)}
    )
    assert words("ls *", scope) == ["ls", "--", "/work/s1/-f"]
    for command in (
        "s* id",
        "ssh w* uptime",
        "docker restart w*",
        "docker logs w*",
        "ping -c 1 w*",
    ):
        assert said(command, scope, 3).verdict.kind is not ALLOW, command


def test_a_pattern_that_finds_very_many_names_is_refused() -> None:
    many = tuple(f"/srv/logs/{number}.log" for number in range(513))
    assert "or among too many files" in said("wc -l /srv/logs/*", finding({"/srv/logs/*": None})).verdict.reason
    assert "finds more than 512 names" in said("wc -l /srv/logs/*", finding({"/srv/logs/*": many})).verdict.reason
    assert words("wc -l /srv/logs/*", finding({"/srv/logs/*": many[:100]}))[-1] == "/srv/logs/99.log"


@pytest.mark.parametrize(
    "command",
    [
        "ssh web1 'cat /var/log/nginx/*.log'",
        "docker exec web sh -c 'cat /var/log/nginx/*.log'",
        "kubectl exec web-0 -- sh -c 'cat /var/log/nginx/*.log'",
        "ssh web1 ls '/var/log/*'",
    ],
)
def test_on_another_host_the_names_are_written_out(command: str) -> None:
    verdict = said(command).verdict
    assert (verdict.kind, "write the names out" in verdict.reason) == (DENY, True)


def test_an_action_names_its_services_by_no_pattern() -> None:
    scope = finding({"/work/s1/web*": ("/work/s1/web",)})
    for command in (
        "docker restart web*",
        "systemctl restart web*",
        "docker compose -f /srv/web/compose.yml restart w*",
    ):
        verdict = said(command, scope, 3).verdict
        assert (verdict.kind is ALLOW, verdict.actions) == (False, ()), command
