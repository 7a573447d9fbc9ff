"""What is shipped works: the wheel, installed into a new environment, runs a chain in an empty directory.

The libraries come from the environment that runs the tests, so nothing is fetched; ``claudeops`` itself, its
schemas, prompts and migrations come from the wheel alone.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from support.checkout import ROOT
from support.waiting import PATIENCE_SECONDS

PACKAGED = ("schemas", "prompts", "migrations")
REPORT = {
    "summary": "The disk has room and the site answers.",
    "events": [],
    "escalation": {"needed": False},
    "services_checked": [{"name": "disk", "status": "healthy", "detail": "room left"}],
}
WORRIED = {
    **REPORT,
    "summary": "The disk looks full.",
    "events": [{"level": "warning", "service": "disk", "message": "nearly full"}],
    "escalation": {"needed": True, "reason": "the disk looks full", "failed_checks": ["disk"]},
    "services_checked": [{"name": "disk", "status": "degraded"}],
}
LOOK = {"tool": {"name": "Bash", "input": {"command": "df -h /"}}}
SCRIPT = {"tiers": {"haiku": {"steps": [LOOK, {"report": WORRIED}]}, "sonnet": {"steps": [LOOK, {"report": REPORT}]}}}


class Installed(NamedTuple):
    """A new environment with the wheel in it."""

    prefix: Path
    wheel: Path

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    @property
    def claudeops(self) -> str:
        return str(self.prefix / "bin" / "claudeops")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    directory = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)])
    (wheel,) = directory.glob("*.whl")
    new = Installed(prefix=directory / "venv", wheel=wheel)
    venv.create(new.prefix, with_pip=False)  # which would take most of the time
    pip = [sys.executable, "-m", "pip", "--python", new.python]
    run([*pip, "install", "--no-index", "--no-deps", "--no-compile", str(wheel)])
    # A path in a .pth file comes after the environment's own packages, and the .pth files there are not followed:
    # not even an editable claudeops gets in.
    site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(new.prefix)}))
    (site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return new


def run(
    command: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def packed_below(wheel: Path, prefix: str) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.removeprefix(prefix): archive.read(name)
            for name in archive.namelist()
            if name.startswith(prefix) and not name.endswith("/")
        }


@pytest.mark.parametrize("kind", PACKAGED)
def test_wheel_carries_what_the_repository_has(installed: Installed, kind: str) -> None:
    packed = packed_below(installed.wheel, f"claudeops/_packaged/{kind}/")

    assert packed == files_below(ROOT / kind)
    assert packed, f"the repository has no {kind}"


def test_wheel_carries_every_file_of_the_policy(installed: Installed) -> None:
    packed = packed_below(installed.wheel, "claudeops/policy/")

    assert packed == files_below(ROOT / "src" / "claudeops" / "policy")
    assert {name.partition("/")[0] for name in packed if not name.endswith(".py")} == {"default", "fragments"}


def test_the_library_in_the_wheel_is_found_and_usable(installed: Installed, tmp_path: Path) -> None:
    packed = packed_below(installed.wheel, "claudeops/_packaged/prompts/library/")
    assert {name.partition("/")[0] for name in packed} == {"checks", "playbooks", "skills"}
    script = (
        "import anyio; from claudeops.engine.library import Libraries; from claudeops.logs import get_logger; "
        "from claudeops.settings.files import library_dir; "
        "found = anyio.run(Libraries(library_dir()).look, get_logger()); "
        "print(len(found.texts), len(found.faults))"
    )
    done = run([installed.python, "-c", script], cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.stdout.split() == [str(len(packed)), "0"]


def test_wheel_carries_nothing_but_the_package_and_its_metadata(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = archive.namelist()

    assert {name.split("/")[0].split("-")[0] for name in names} == {"claudeops"}
    assert "claudeops/py.typed" in names


def test_installed_package_is_the_wheels_own(installed: Installed, tmp_path: Path) -> None:
    done = run(
        [installed.python, "-c", "import claudeops; print(claudeops.__file__)"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path)},
    )

    assert Path(done.stdout.strip()).is_relative_to(installed.prefix)


def test_chain_runs_from_the_wheel_in_an_empty_directory(installed: Installed, tmp_path: Path) -> None:
    repository = tmp_path / "repos" / "homelab"
    repository.mkdir(parents=True)
    (repository / "README.md").write_text("One service: disk.\n", encoding="utf-8")
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    with scripted_api(installed, script) as url:
        done = run(
            [installed.claudeops, "bootstrap", "--output-format", "json"],
            cwd=tmp_path,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(tmp_path),
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "sk-ant-made-up-for-this-test",
                "CLAUDEOPS_STATE_DIR": str(tmp_path / "state"),
                "CLAUDEOPS_RESULTS_DIR": str(tmp_path / "results"),
                "CLAUDEOPS_REPOS_DIR": str(tmp_path / "repos"),
            },
        )

    document = json.loads(done.stdout)
    assert (document["command"], document["exit_code"]) == ("bootstrap", 0)
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "claudeops.db")) as database:
        rows = database.execute("SELECT tier, outcome, decision_reason, log_path FROM sessions ORDER BY id").fetchall()
    assert [row[:3] for row in rows] == [(1, "success", "escalated"), (2, "success", "healthy")]
    assert all(Path(row[3]).stat().st_size > 0 for row in rows)


@contextlib.contextmanager
def scripted_api(installed: Installed, script: Path) -> Iterator[str]:
    """Run the scripted Messages API out of the wheel; yields its URL and expects the script to have covered all."""
    journal = script.with_suffix(".journal")
    with subprocess.Popen(
        [installed.python, "-m", "claudeops.scripted_api.server", str(script), "--journal", str(journal)],
        cwd=script.parent,
        stdout=subprocess.PIPE,
    ) as api:
        try:
            assert api.stdout is not None
            yield json.loads(api.stdout.readline())["url"]
        finally:
            api.terminate()
            api.wait(PATIENCE_SECONDS)
    assert api.returncode == 0
