"""Where a login leads, how long it lasts, and what a secret looks like."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from claudeops.domain.access.logins import IDLE, LONGEST, Login, Role, next_path, secret_of
from claudeops.structs import replace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOGIN = Login(
    id=1,
    name="ada",
    role=Role.VIEWER,
    digest="d",
    created_at=NOON,
    expires_at=NOON + LONGEST,
    last_used_at=NOON,
)


@pytest.mark.parametrize(
    "wanted",
    [
        *("//evil.example.com", "https://evil.example.com/", "/\\evil.example.com", "/ /x", "javascript:alert(1)", ""),
        *("evil", "/\n//evil.example.com", "/\u2028", "///x", "/" + "a" * 600, "/<script>", '/"onload="x'),
    ],
)
def test_a_login_never_leads_to_another_site(wanted: str) -> None:
    assert next_path(wanted) == "/"


@pytest.mark.parametrize("wanted", ["/", "/incidents/3", "/events?open=true&level=critical", "/services/a%20b"])
def test_a_login_leads_where_somebody_wanted_to_go(wanted: str) -> None:
    assert next_path(wanted) == wanted


def test_a_login_is_over_when_it_is_old_idle_or_ended() -> None:
    assert LOGIN.is_active(NOON + IDLE - timedelta(seconds=1))
    assert not LOGIN.is_active(NOON + IDLE)
    in_use = replace(LOGIN, last_used_at=NOON + LONGEST - timedelta(seconds=1))
    assert in_use.is_active(NOON + LONGEST - timedelta(seconds=1))
    assert not in_use.is_active(NOON + LONGEST)
    assert not replace(LOGIN, ended_at=NOON).is_active(NOON)


@pytest.mark.parametrize("text", ["", "a" * 42, "a" * 44, "a" * 42 + "\n", "a" * 42 + "'", "ä" * 43])
def test_what_is_no_secret_is_looked_up_nowhere(text: str) -> None:
    assert secret_of(text) is None
