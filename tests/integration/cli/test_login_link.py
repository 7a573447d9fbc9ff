"""A link for a browser: printed for whoever runs the command, and written nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.domain.access.tokens import digest_of
from support.commanding import Shell, shell_in

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("settings", "begins"),
    [
        ({}, "http://localhost:8080/setup/"),
        ({"CLAUDEOPS_DASHBOARD_HOST": "::", "CLAUDEOPS_DASHBOARD_PORT": "80"}, "http://localhost:80/setup/"),
        ({"CLAUDEOPS_DASHBOARD_HOST": "10.1.2.3"}, "http://10.1.2.3:8080/setup/"),
        ({"CLAUDEOPS_DASHBOARD_HOST": "fd00::1"}, "http://[fd00::1]:8080/setup/"),
        ({"CLAUDEOPS_PUBLIC_URL": "https://ops.example.com/"}, "https://ops.example.com/setup/"),
    ],
)
def test_the_link_leads_to_where_the_daemon_is_reached_and_its_secret_is_kept_nowhere(
    shell: Shell, settings: dict[str, str], begins: str
) -> None:
    shell.set(**settings)
    code, written, complaints = shell.call("login-link")
    link = written.split()[0]
    assert (code, complaints) == (0, "")
    assert link.startswith(begins)
    (row,) = shell.database.rows("login_links")
    assert row["digest"] == digest_of(link.removeprefix(begins))
    assert link.removeprefix(begins) not in str(row)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"CLAUDEOPS_LISTENER": "off"}, "CLAUDEOPS_LISTENER"),
        ({"CLAUDEOPS_LISTENER": "off"}, "CLAUDEOPS_DASHBOARD"),
        ({"CLAUDEOPS_DASHBOARD_PORT": "0"}, "any free port"),
    ],
)
def test_no_link_is_made_that_leads_nowhere(shell: Shell, settings: dict[str, str], named: str) -> None:
    shell.set(**settings)
    code, written, complaints = shell.call("login-link")
    assert (code, written) == (1, "")
    assert named in complaints
    assert shell.database.rows("login_links") == []
