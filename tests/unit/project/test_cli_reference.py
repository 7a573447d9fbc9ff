"""docs/reference/cli.md says what the commands say."""

from __future__ import annotations

import importlib.util

from support.checkout import ROOT

SCRIPT = ROOT / "scripts" / "make_cli.py"


def test_the_page_of_the_commands_is_not_stale() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == module.page(), "run `make reference`"
