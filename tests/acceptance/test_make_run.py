"""The first five minutes: ``make run`` in a fresh clone, by somebody who has no credentials.

What `make` would fetch is there already, linked from the environment that runs the tests; ``claudeops`` itself comes
from the clone alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import venv
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from support.checkout import ROOT
from support.operating import conclude, look, operator
from support.rehearsals import environment, processes_about
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh clone that has its .venv already."""
    clone = tmp_path_factory.mktemp("first") / "claudeops"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    # What is being worked on counts, committed or not.
    changed = subprocess.run(["git", "-C", str(ROOT), "diff", "HEAD"], check=True, capture_output=True).stdout
    if changed:
        subprocess.run(["git", "-C", str(clone), "apply"], input=changed, check=True)
    new = clone / ".venv"
    venv.create(new, with_pip=False)
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(new)}))
    # Paths in a .pth file come after each other, and .pth files in them are not followed: no other claudeops gets in.
    paths = f"{clone / 'src'}\n{sysconfig.get_path('purelib')}\n"
    (site_packages / "first.pth").write_text(paths, encoding="utf-8")
    command = new / "bin" / "claudeops"
    command.write_text(f"#!{new}/bin/python\nfrom claudeops.cli.main import main\nmain()\n", encoding="utf-8")
    command.chmod(0o755)
    for stamp in ("packages-installed", "project-installed"):
        (new / stamp).touch()
    return clone


async def started(clone: Path, output: Path, **changes: str) -> Process:
    """Start ``make run`` as a shell would: a process group of its own, which Ctrl-C reaches as a whole."""
    with output.open("wb") as sink:
        return await anyio.open_process(
            ["make", "run"],
            cwd=clone,
            env={**environment(output.parent), **changes},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.mark.long
async def test_without_credentials_two_rehearsals_end_as_resolved(clone: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    async with await started(clone, output, PACE="0") as process:
        with anyio.fail_after(PATIENCE_SECONDS):
            status = await process.wait()
    told = output.read_text()
    assert status == 0, told
    first = told.splitlines()[0]
    assert first.startswith("No credentials are set (ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN or ANTHROPIC_BASE_URL)")
    in_order = (
        "Rehearsal 1 of 2: A service dies, a probe notices, and a restart brings it back",
        "daemon  critical  shop: shop is down, by its probe shop",
        "tier 1  starts    session 1 · haiku · alert  (probes of the daemon found shop unwell)",
        "tier 1  allowed   Running: curl",
        "tier 1  next      hands over to tier 2",
        "tier 2  allowed   Running: docker restart shop  (restart shop)",
        "result    resolved by tier 2",
        "times     shop failed: noticed by a probe after ",
        "Rehearsal 2 of 2: A restart does not help, and tier 3 mends the cause",
        "tier 2  next      hands over to tier 3",
        "tier 3  allowed   Running: kubectl rollout undo deployment/checkout  (redeploy checkout)",
        "result    resolved by tier 3",
        "done      restart checkout, redeployment checkout",
        "spent     $",
        "files     ",
        "2 of 2 rehearsals went as expected",
    )
    rest = told
    for text in in_order:
        assert text in rest, text
        rest = rest.split(text, 1)[1]
    assert processes_about(clone) == {}


async def test_without_credentials_it_rehearses_and_ctrl_c_ends_it_with_no_process_left(
    clone: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    async with await started(clone, output) as process:
        await until(lambda: "tier 1  starts" in output.read_text())
        assert len(processes_about(clone)) >= 3  # make, claudeops, a service; soon the CLI
        os.killpg(process.pid, signal.SIGINT)
        with anyio.fail_after(PATIENCE_SECONDS):
            await process.wait()
    assert processes_about(clone) == {}
    told = output.read_text()
    assert told.startswith("No credentials are set (ANTHROPIC_API_KEY, CLAUDE_CODE_OAUTH_TOKEN or ANTHROPIC_BASE_URL)")
    assert "Rehearsal 1 of 2: A service dies, a probe notices, and a restart brings it back" in told
    assert "stopped before the end" in told
    assert "Traceback" not in told


async def test_with_credentials_the_daemon_watches_for_real_and_tells_it_live(clone: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    async with operator(tmp_path / "estate", haiku=[look(), conclude()]) as node:
        changes = {
            key: value for key, value in node.environment().items() if key.startswith(("CLAUDEOPS_", "ANTHROPIC_"))
        }
        async with await started(clone, output, **changes) as process:
            await until(lambda: "next      healthy" in output.read_text())
            os.killpg(process.pid, signal.SIGINT)
            with anyio.fail_after(PATIENCE_SECONDS):
                await process.wait()
        told = output.read_text()
        assert "rehearsal" not in told
        assert f"Watching what {tmp_path / 'estate' / 'repos'} describes; Ctrl-C stops." in told
        assert "tier 1  allowed   Running: uptime" in told
        assert [row["decision_reason"] for row in node.sessions()] == ["healthy"]
    assert processes_about(clone) == {}


async def test_credentials_in_a_file_count_and_nothing_to_watch_is_said(clone: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-ant-api03-not-a-real-one")
    output = tmp_path / "output"
    async with await started(clone, output, ANTHROPIC_API_KEY_FILE=str(key)) as process:
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await process.wait() != 0
    assert "There is nothing to watch" in output.read_text()
    assert "CLAUDEOPS_REPOS_DIR" in output.read_text()
