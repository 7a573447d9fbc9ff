"""A tool that looks for what the CLI, an MCP server or another tool has in memory, with the gate wide open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel, UserCell
from claudeops.structs import replace
from support.caged import Caged, caged
from support.operating import look

pytestmark = pytest.mark.anyio

TOKEN = "token-of-the-server"

READ_ALL = (
    "for p in /proc/[0-9]*; do "
    'name=$(cat $p/comm); for f in environ maps auxv; do [ "$(head -c 1 $p/$f 2>/dev/null | wc -c)" = 1 ] '
    '&& echo "READS $f of $name"; done; readlink $p/exe $p/fd/0 >/dev/null 2>&1 && echo "OPENS $name"; done; '
    "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/[0-9]*/comm | sort -u | sed 's/^/THERE /'"
)
LEAVE = "SECRET=of-the-first-tool setsid sleep 600 & echo $! > ~/pid; echo left"
USE = (
    "cat /proc/$(cat ~/pid)/environ 2>&1 | tr '\\0' ' '; kill $(cat ~/pid) && echo killed; "
    "mkdir a b; echo x > a/x; mv a/x b/ && ln b/x a/y && ls a b; echo $$ | xargs echo pid; ulimit -c; "
    "trap 'echo t' EXIT"
)


def without_a_shell_of_its_own(cage: Caged) -> None:
    """Start tools with bash itself, as where the kernel has no Landlock."""
    cell = cage.estate.context.confinement.cell
    assert isinstance(cell, BubblewrapCell | UserCell)
    cage.estate.with_context(cell=replace(cell, interpreter=None))


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.USER], ids=str)
@pytest.mark.parametrize("apart", [True, False])
async def test_no_tool_reads_the_cli_an_mcp_server_or_another_tool(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, mcp_server: Path, *, apart: bool
) -> None:
    server = {"command": str(mcp_server), "env": {"TOKEN": TOKEN}}
    steps: list[Mapping[str, object]] = [
        {"text": "I ask.", "tool": {"name": "mcp__grafana__tell", "input": {}}},
        look(READ_ALL),
    ]
    async with caged(tmp_path, level, steps=steps, binary=everybodys_cli) as cage:
        if not cage.estate.context.confinement.cell.keeps_tools_apart:
            pytest.skip("this kernel has no Landlock, or lets this user look into everything")
        cage.estate.with_context(mcp_servers={"grafana": server})
        if not apart:
            without_a_shell_of_its_own(cage)
        ending = await cage.run()
        of_the_server, seen, *_ = cage.outputs()
    assert (ending.calls_ran, "TOKEN" in of_the_server) == (2, True)
    assert "THERE claude" in seen
    open_ones = ["READS environ of claude", "READS maps of claude", "OPENS claude", TOKEN]
    assert [word for word in open_ones if word in seen] == ([] if apart else open_ones)


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.USER], ids=str)
async def test_a_tool_that_is_apart_still_does_what_a_shell_does(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    async with caged(tmp_path, level, LEAVE, USE, binary=everybodys_cli) as cage:
        if not cage.estate.context.confinement.cell.keeps_tools_apart:
            pytest.skip("this kernel has no Landlock, or lets this user look into everything")
        ending = await cage.run()
        left, used, *_ = cage.outputs()
    assert (ending.calls_ran, "left" in left) == (2, True)
    assert "of-the-first-tool" not in used
    assert "Permission denied" in used
    for word in ("killed", "a:\\ny", "b:\\nx", "pid ", "\\n0\\nt"):
        assert word in used.replace("\n", "\\n"), used
