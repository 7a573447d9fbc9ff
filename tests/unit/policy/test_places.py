"""What looks like a secret is read by nobody, nowhere, however it is spelled; what an operator needs stays readable."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.policy.places import covers, is_secret_name, may_match, meet
from claudeops.policy.tiers import judge, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE, TIERS, judged, rows, sections

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY

READERS = ("cat {}", "head -n 5 {}", "base64 {}", "sed -n 1p {}", "grep -n x {}", "awk '{{print}}' {}", "sort < {}")
ELSEWHERE = (
    'ssh web1 "cat {}"',
    'ssh web1 "sudo cat {}"',
    "sudo -n head {}",
    "docker exec web cat {}",
    "kubectl exec -n media web-0 -- cat {}",
    'ssh web1 "docker exec web cat {}"',
    'bash -c "tail -n 3 {}"',
)  # fmt: skip
COPIES = ("~", "-", ".bak", ".old", ".orig", ".gz", ".swp", ".1", ".save", "-2024", "_backup", ".dpkg-old", ".tar.gz")


def read(path: str, tier: int = 3) -> VerdictKind:
    call = ToolCall(tool_use_id="t", tool_name="Read", input={"file_path": path})
    return judge(call, tier=tier_policy(POLICY, tier), scope=SCOPE).kind


def test_the_tables_are_worth_the_name() -> None:
    assert len(set(rows("secret_paths.txt"))) >= 100
    assert len(set(rows("readable_paths.txt"))) >= 60


@pytest.mark.parametrize("section", sections("secret_paths.txt"))
def test_no_reader_reads_what_looks_like_a_secret(section: str) -> None:
    paths = sections("secret_paths.txt")[section]
    asked = [reader.format(f"'{path}'") for path in paths for reader in READERS]
    assert [command for command in asked if judged(command, 2).kind is not DENY] == []
    assert [path for path in paths for tier in TIERS if read(path, tier) is not DENY] == []


@pytest.mark.parametrize("section", sections("secret_paths.txt"))
def test_a_secret_is_one_on_another_host_in_a_container_and_under_sudo(section: str) -> None:
    asked = [where.format(f"'{path}'") for path in sections("secret_paths.txt")[section] for where in ELSEWHERE]
    assert [command for command in asked if judged(command, 3).kind is ALLOW] == []


@pytest.mark.parametrize("section", sections("readable_paths.txt"))
def test_what_an_operator_needs_stays_readable(section: str) -> None:
    paths = sections("readable_paths.txt")[section]
    asked = [form.format(f"'{path}'") for path in paths for form in ("cat {}", *ELSEWHERE[:4])]
    assert {command: judged(command, 1).reason for command in asked if judged(command, 1).kind is not ALLOW} == {}
    assert [path for path in paths if read(path, 1) is not ALLOW] == []


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_as_secret_as_what_it_was_copied_from(copy: str) -> None:
    originals = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/srv/web/.env", "/srv/x/id_rsa", "/srv/x/web.key")
    others = ("/srv/x/db-secret.yaml", "/srv/x/.netrc", "/srv/x/terraform.tfstate", "/etc/kubernetes/admin.conf")
    assert [path for path in (*originals, *others) if read(path + copy) is not DENY] == []


@pytest.mark.parametrize(
    "path", ["/ETC/Shadow", "/srv/x/ID_RSA", "/srv/web/.Env", "/srv/x/Web.KEY", "/srv/x/MySecret.YAML"]
)
def test_no_spelling_in_capitals_makes_a_secret_harmless(path: str) -> None:
    assert read(path) is DENY


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/shad*",
        "cat /etc/s?adow",
        "cat /etc/[s]hadow.b*",
        "cat /srv/web/.e*",
        "cat /srv/web/*.e*",
        "cat /srv/x/.psql_h*",
        "cat /srv/x/id_*",
        "cat /srv/x/.#id_r*",
        "cat /etc/kubernetes/*.conf",
        "cat /etc/kubernetes/adm*",
        "cat /etc/ssl/certs/*",
        "cat /etc/ssl/certs/*.key",
        "cat /proc/*/environ",
        "cat /var/lib/etc*/member/snap/db",
        "cd /etc && cat shadow.bak",
        "cd /srv/web && cat .env.old",
        "ssh web1 'cd /etc && cat shadow.bak'",
        "find /srv -name '*etrc' -exec cat {} +",
        "find /srv -name 'id_*' -exec head -n 3 {} +",
        "tar -tf /srv/x/secrets.tar.gz",
        "diff /etc/hosts /etc/shadow.bak",
    ],
)  # fmt: skip
def test_no_pattern_finds_a_secret(command: str) -> None:
    assert judged(command, 3).kind is DENY


def test_a_link_to_a_key_among_the_certificates_is_not_followed() -> None:

    links = {"/etc/ssl/certs/own.pem": "/etc/ssl/private/own.key"}
    scope = replace(SCOPE, resolve=lambda path: links.get(path, path))
    assert judged("cat /etc/ssl/certs/own.pem", 1, scope).kind is DENY
    assert judged("cat /etc/ssl/certs/other.pem", 1, scope).kind is ALLOW


@pytest.mark.parametrize(
    ("left", "right", "hidden", "expected"),
    [
        ("web", "web", False, True),
        ("WEB", "web", False, True),
        ("*", ".env*", False, False),
        ("*", ".env*", True, True),
        (".e*", "*.env", False, True),
        ("[.]env", ".env", True, True),
        ("a*b", "*ab", False, True),
        ("a?c", "abc", False, True),
        ("a*", "b*", False, False),
        ("*.yml", "*secret*", False, True),
        ("x" * 300, "secret", False, True),
    ],
)
def test_two_patterns_meet_where_some_name_matches_both(left: str, right: str, expected: bool, *, hidden: bool) -> None:
    assert may_match(left, right, hidden=hidden) is expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("*secret*", "*secret*", True),
        ("*secret*", "*-secret*", True),
        ("*secret", "*secret*", False),
        ("*-secret*", "*secret*", False),
        ("*sec?et*", "*secret*", False),
        ("compose*.yml", "compose.*.yml", True),
        ("compose*.yml", "*.yml", False),
        ("*pass*", "*pass*", True),
    ],
)
def test_a_pattern_leaves_out_another_only_where_it_covers_all_of_it(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


def test_no_name_makes_the_judge_think_for_long() -> None:
    """One that backtracks needs hours for these: the limit of a test ends it."""
    for name in ("a" * 250 + ".key", "*a" * 120, "-secret" * 35 + "x", "?*" * 125, "*" * 250, "." * 255, "a" * 100_000):
        is_secret_name(name)
        meet(("srv", name), ("**", "*a*b*c*d*e*f*g"))


@pytest.mark.parametrize("section", sections("environments.txt"))
def test_no_command_prints_the_environment_of_what_runs(section: str) -> None:
    letters = {"a": ALLOW, "d": DENY}
    asked = [row.partition("\t") for row in sections("environments.txt")[section]]
    wrong = [
        (tier, command, judged(command, tier).reason)
        for verdict, _, command in asked
        for tier in TIERS
        if judged(command, tier).kind is not letters[verdict]
    ]
    assert wrong == []
