"""A daemon without pages imports nothing of theirs."""

from __future__ import annotations

import subprocess
import sys

LISTENER = {"bodies", "connection", "authentication", "endpoints", "listener", "ports", "problems", "table"}
"""What of `claudeops.web` takes alerts and heartbeats."""

ASK = """
import sys
import claudeops.app.daemon, claudeops.app.web, claudeops.web.table
print(*sys.modules)
"""


def test_a_daemon_without_pages_imports_nothing_of_theirs() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "claudeops.app.web" in imported
    ours = {name.removeprefix("claudeops.web.") for name in imported if name.startswith("claudeops.web.")}
    assert ours - LISTENER == set()
    assert imported & {"claudeops.app.pages", "claudeops.store.acts.commands", "claudeops.store.glance"} == set()
    assert {name.partition(".")[0] for name in imported} & {"jinja2", "markupsafe", "argon2", "webauthn"} == set()


WITH_PAGES = """
import sys
import claudeops.app.daemon, claudeops.app.pages, claudeops.cli.doctor.command
print([name for name in sys.modules if name.startswith(("claudeops.web.oidc", "authlib", "joserfc"))])
"""


def test_pages_without_an_identity_provider_import_nothing_of_its_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_PAGES], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
