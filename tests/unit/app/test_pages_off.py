"""A daemon without pages imports nothing of theirs."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import sys
import claudeops.app.daemon, claudeops.app.web, claudeops.web.table
print([name for name in sys.modules if name.startswith(("claudeops.web.pages", "claudeops.web.streams", "jinja2"))])
"""


def test_a_daemon_without_pages_imports_nothing_of_theirs() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WITH_PAGES = """
import sys
import claudeops.app.daemon, claudeops.app.pages, claudeops.cli.doctor.command
print([name for name in sys.modules if name.startswith(("claudeops.web.oidc", "authlib", "joserfc"))])
"""


def test_pages_without_an_identity_provider_import_nothing_of_its_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_PAGES], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
