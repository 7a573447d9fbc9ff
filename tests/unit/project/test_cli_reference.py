"""docs/reference/cli.md says what the commands say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "docs" / "reference" / "make_cli.py"


def test_the_page_of_the_commands_is_not_stale() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = SCRIPT.with_name("cli.md").read_text(encoding="utf-8")
    assert written == module.page(), "run `.venv/bin/python docs/reference/make_cli.py`"
