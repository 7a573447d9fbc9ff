"""What has been seen to hide in a word of a command runs nothing: bash itself executes what the gate lets run."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.tiers import explain, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE, bash
from support.waiting import PATIENCE_SECONDS

# {touch} leaves a trace; each of these lines left one when it was run as it was given.
HIDDEN: Final = (
    "test ! ! -v 'a[$({touch})]'",
    "test x = x -a -v 'a[$({touch})]'",
    "test -n x -a -v 'a[$({touch})]' -o -n y",
    "'[' ! ! -v 'a[$({touch})]' ]",
    "'test' ! ! -v 'a[$({touch})]'",
    "\\test ! ! -v 'a[$({touch})]'",
    "builtin test ! ! -v 'a[$({touch})]'",
    "command test ! ! -v 'a[$({touch})]'",
    "bash -c \"test ! ! -v 'a[\\$({touch})]'\"",
    'bash -c "bash -c \\"test ! ! -v \'a[\\\\\\$({touch})]\'\\""',
    "bash -s <<'E'\ntest ! ! -v 'a[$({touch})]'\nE",
    "ssh host \"test ! ! -v 'a[\\$({touch})]'\"",
    "ssh host bash -s <<'E'\ntest ! ! -v 'a[$({touch})]'\nE",
    "if test ! ! -v 'a[$({touch})]'; then df; fi",
    "printf -v 'a[$({touch})]' x",
)

BEYOND: Final = (  # what is not in the language does not run at all
    "eval \"test ! ! -v 'a[\\$({touch})]'\"",
    "df | while test ! ! -v 'a[$({touch})]'; do break; done",
    "[[ -v a[$({touch})] ]]",
    "read 'a[$({touch})]' <<< x",
    "x='a[$({touch})]'; echo $((x))",
    "f() { {touch}; }; f",
)


def programs(directory: Path) -> str:
    """Make an ssh that runs what it is told with bash; return the ``PATH`` with it in front."""
    bin_directory = directory / "bin"
    bin_directory.mkdir()
    ssh = bin_directory / "ssh"
    ssh.write_text('#!/bin/bash\nshift\nexec /bin/bash -c "$*"\n', encoding="utf-8")
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    return f"{bin_directory}:/usr/local/bin:/usr/bin:/bin"


def runs(command: str, path: str) -> str | None:
    """Return what runs for a command at the top tier, or None where it may not run."""
    scope = replace(SCOPE, program=lambda name: shutil.which(name, path=path))
    found = explain(bash(command), tier=tier_policy(POLICY, 3), scope=scope)
    return found.runs if found.verdict.kind is not VerdictKind.DENY and found.runs else None


def run(text: str, directory: Path, path: str) -> None:
    subprocess.run(
        ["/bin/bash", "-c", text],
        env={"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=directory,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("line", HIDDEN + BEYOND)
def test_what_hides_in_a_word_leaves_no_trace(line: str, tmp_path: Path) -> None:
    path, trace = programs(tmp_path), tmp_path / "trace"
    command = line.replace("{touch}", f"/usr/bin/touch {trace}")
    text = runs(command, path)
    if text is not None:
        run(text, tmp_path, path)
    assert not trace.exists(), text
    run(command, tmp_path, path)
    assert trace.exists()  # as it was given it would have left one


def test_what_bash_alone_knows_is_refused_rather_than_written_down(tmp_path: Path) -> None:
    path = programs(tmp_path)
    assert not [line for line in HIDDEN + BEYOND if runs(line, path)]


def test_no_variable_that_printf_sets_leads_to_a_program_of_a_hostile_repository(tmp_path: Path) -> None:
    """``%n`` puts the count of what was printed into a variable of the shell: ``PATH=3``."""
    path, trace = programs(tmp_path), tmp_path / "trace"
    hostile = tmp_path / "3"
    hostile.mkdir()
    (hostile / "ls").write_text(f"#!/bin/bash\n: > '{trace}'\n", encoding="utf-8")
    (hostile / "ls").chmod(0o755)
    command = "printf 'abc%n' PATH; ls"
    text = runs(command, path)
    if text is not None:
        run(text, tmp_path, path)
    assert not trace.exists()
    run(command, tmp_path, path)
    assert trace.exists()
