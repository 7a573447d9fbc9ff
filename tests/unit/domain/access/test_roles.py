"""Roles of people, and what each opens."""

from __future__ import annotations

from itertools import pairwise

from claudeops.domain.access.logins import Role
from claudeops.domain.access.tokens import PERSONS_SCOPES, PLAIN_SCOPES, ScopeKind


def test_each_role_may_do_all_that_the_one_before_may() -> None:
    scopes = [role.scopes for role in Role]
    assert all(fewer < more for fewer, more in pairwise(scopes))


def test_whoever_looks_changes_nothing_and_an_operator_answers_no_approval() -> None:
    assert Role.VIEWER.scopes == {ScopeKind.READ, ScopeKind.METRICS}
    assert ScopeKind.APPROVE not in Role.OPERATOR.scopes
    assert ScopeKind.ADMIN not in Role.APPROVER.scopes
    assert Role.ADMIN.scopes == {*PLAIN_SCOPES, *PERSONS_SCOPES}
