"""A command carries no key: the refusal says where the daemon adds it, or how an operator has it added."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.structs import replace
from support.policy_cases import SCOPE, judged

ADDING = replace(SCOPE, headers={"authorization": ("https://grafana.example",)})
URL = "http://127.0.0.1:8080/"


@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Bearer abc",
        "authorization;",
        "Cookie: session=1",
        "X-Api-Key: abc",
        "X-Auth-Token: abc",
        "X-Vault-Token: abc",
        f"X-Trace: sk-ant-api03-{'a1B2' * 12}",
    ],
)
def test_a_header_with_a_key_is_refused_and_says_how_it_can_be_added(header: str) -> None:
    verdict = judged(f"curl -s -H '{header}' {URL}", 1)
    assert verdict.kind is VerdictKind.DENY
    assert "CLAUDEOPS_HEADERS_PATH" in verdict.reason


def test_where_the_daemon_adds_it_the_refusal_names_the_place() -> None:
    verdict = judged(f"curl -s -H 'Authorization: Bearer abc' {URL}", 1, ADDING)
    assert verdict.kind is VerdictKind.DENY
    assert "the daemon adds this header, for https://grafana.example: ask there without it" in verdict.reason


@pytest.mark.parametrize("header", ["Accept: text/plain", "X-Scope-OrgID: 1", "X-Request-Id: 0a1b"])
def test_other_headers_are_as_before(header: str) -> None:
    assert judged(f"curl -s -H '{header}' {URL}", 1, ADDING).kind is VerdictKind.ALLOW
