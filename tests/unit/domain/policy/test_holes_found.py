"""Holes that were found by reading the gate against itself; each let a secret, a host or an action through."""

from __future__ import annotations

import pytest

from claudeops.domain.model import VerdictKind
from claudeops.domain.policy import explain, tier_policy
from support.policy_cases import POLICY, SCOPE, bash, judged


@pytest.mark.parametrize(
    "command",
    [
        # a value of another test was taken for the name that is searched for
        "find /srv/x -printf -name -type f -exec cat {} +",
        "find /srv/x -path -name -readable -exec cat {} +",
        "find /srv/x -regex -name -mount -exec grep -r '' {} +",
        # find's own matching drops a backslash
        "find /srv/x -name 'id_rs\\a' -exec cat {} +",
        "find /srv/x -name '.en\\v' -exec cat {} +",
        # jq 1.6 reads a dollar and a name as two words
        "jq -n '$ ENV'",
        "jq -n '$\nENV'",
        "docker exec web jq -n '$ ENV'",
        # any request, to any host of the estate
        "printf 'POST / HTTP/1.1\\r\\n' | openssl s_client -connect web.example:2376",
        "openssl s_client -connect web.example:443 <<< 'DELETE / HTTP/1.1'",
        "cat /etc/hosts | openssl s_client -connect web.example:443",
    ],
)
def test_what_went_through_is_denied(command: str) -> None:
    assert judged(command, 1).kind is VerdictKind.DENY


@pytest.mark.parametrize(
    "command",
    [
        "openssl s_client -connect web.example:443 </dev/null",
        "echo | openssl s_client -connect web.example:443",
        "echo Q | openssl s_client -connect web.example:443",
        "find /repos -name README.md -exec cat {} +",
    ],
)
def test_what_was_meant_stays_allowed(command: str) -> None:
    assert judged(command, 1).kind is VerdictKind.ALLOW


EXCLUDED = " ".join(
    f"--exclude='*{word}*' --exclude-dir='*{word}*'"
    for word in ("secret", "pass", "cred", "key", "token", "vault", "auth", "kubeconfig")
)


def test_what_a_search_is_for_stands_before_what_it_leaves_out() -> None:
    """GNU grep searches whatever no pattern fits unless the first one includes, and the last one that fits decides."""
    command = f"grep -r {EXCLUDED} --include='*.yml' x /srv/x"
    runs = explain(bash(command), tier=tier_policy(POLICY, 1), scope=SCOPE).runs
    assert 0 < runs.index("--include=") < runs.index("--exclude=")
