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
