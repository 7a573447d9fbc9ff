"""A CLI that has not answered in time may do so later; one that answers with nonsense will not."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.cli.reply import Exit, exit_for
from claudeops.engine.gate.cli_version import check_version
from claudeops.errors import ConfigurationError


@pytest.mark.parametrize(
    ("does", "ends_with"),
    [
        pytest.param("exec cat /dev/zero > /dev/null", Exit.TRY_LATER, id="no answer in time"),
        pytest.param("echo hello", Exit.CONFIGURATION, id="no version"),
        pytest.param("exit 1", Exit.CONFIGURATION, id="a failure"),
    ],
)
def test_a_start_is_tried_again_where_the_cli_was_only_late(tmp_path: Path, does: str, ends_with: Exit) -> None:
    cli = tmp_path / "claude"
    cli.write_text(f"#!/bin/sh\n{does}\n", encoding="ascii")
    cli.chmod(0o755)
    with pytest.raises(ConfigurationError) as raised:
        check_version(cli, seconds=0.5 if ends_with is Exit.TRY_LATER else 60)
    assert exit_for(raised.value) is ends_with
