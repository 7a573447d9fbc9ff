"""A CLI whose gate has a hole is found out before it is used, whatever it says about itself."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from claudeops import logs
from claudeops.app.cell import serve_script, try_gate
from claudeops.clock import Clock
from claudeops.engine.cell.cell import PlainCell
from claudeops.engine.gate.admission import CliAdmission, Trial
from claudeops.engine.gate.self_test import Bench, CliFault, SelfTestResult, self_test
from support.checkout import TESTS
from support.estate import look, open_estate
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

LEAKY = TESTS / "support" / "leaky_cli.py"
PATH = "/usr/local/bin:/usr/bin:/bin"

NOT_HEEDED = {CliFault.ASKED_RAN, CliFault.ANSWERED_NOT_RUN, CliFault.NOT_TOLD}
NOTHING_RAN = {CliFault.ALLOWED_NOT_RUN, CliFault.ANSWERED_NOT_RUN, CliFault.NOT_TOLD}
HOLES = {
    "none": set(),
    "unasked": {
        CliFault.NOT_ASKED,
        CliFault.DENIED_RAN,
        CliFault.LATE_RAN,
        CliFault.UNANSWERED_RAN,
        *NOT_HEEDED,
    },
    "denied": {CliFault.DENIED_RAN},
    "late": {CliFault.LATE_RAN},
    "unanswered": {CliFault.UNANSWERED_RAN},
    "deaf": NOTHING_RAN,
    "headstrong": NOT_HEEDED,
    "silent": {CliFault.NOT_TOLD},
    "tools": {CliFault.INIT_DIFFERS},
    "fewer": {CliFault.INIT_DIFFERS},
    "broken": {CliFault.NOT_STARTED, CliFault.NOT_ASKED, *NOTHING_RAN},
    "slow": {CliFault.TOO_SLOW, CliFault.NOT_ASKED, *NOTHING_RAN},
}


def cli(directory: Path, hole: str) -> Path:
    """Return a CLI with one hole."""
    there = directory / f"cli-{hole}"
    there.symlink_to(LEAKY)
    return there


def bench(directory: Path) -> Bench:
    return Bench(cell=PlainCell(), path=PATH, root=directory / "bench")


@pytest.mark.parametrize("hole", HOLES)
async def test_every_hole_has_its_own_name(hole: str, tmp_path: Path) -> None:
    limit = 3 if hole == "slow" else 30
    tested = await self_test(cli(tmp_path, hole), bench=bench(tmp_path), serve=serve_script, limit_seconds=limit)
    assert set(tested.faults) == HOLES[hole], tested


async def test_a_cli_that_is_not_there_is_a_fault_and_no_crash(tmp_path: Path) -> None:
    tested = await try_gate(tmp_path / "nothing", bench(tmp_path))
    assert CliFault.NOT_STARTED in tested.faults
    assert "nothing" in tested.detail


# --- remembering ----------------------------------------------------------------------------------------


class Trials:
    """Counts the tests; each finds what it was told to find."""

    def __init__(self, *faults: CliFault) -> None:
        self.faults = faults
        self.made = 0

    async def __call__(self, _binary: Path) -> SelfTestResult:
        self.made += 1
        return SelfTestResult(faults=self.faults, detail="")


class Later(Clock):
    """The machine's clock, an hour on: whatever was changed until now has long been so."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


class Standing(Clock):
    """A clock that stands still."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


def admission(directory: Path, test: Trial | None, tester: str = "1", *, clock: Clock | None = None) -> CliAdmission:
    record = directory / "tests.json"
    return CliAdmission(record=record, tester=tester, test=test, clock=clock or Clock(), log=logs.get_logger())


async def test_what_has_passed_is_not_tested_again_by_the_next_daemon(tmp_path: Path) -> None:
    binary, tests = cli(tmp_path, "none"), Trials()
    assert await admission(tmp_path, tests).refusal(binary) is None
    assert await admission(tmp_path, tests).refusal(binary) is None
    assert tests.made == 1


async def test_a_binary_is_read_while_it_answers_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of this test answers once it is being read."""
    binary, fifo, file_digest = tmp_path / "cli", tmp_path / "fifo", hashlib.file_digest
    os.mkfifo(fifo)
    binary.write_text(f"#!/bin/sh\nread line <{fifo}\necho 2.1.999\n", encoding="utf-8")
    binary.chmod(0o755)

    def digest(file: BinaryIO, name: str) -> object:
        fifo.write_text("it is being read\n", encoding="utf-8")
        return file_digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", digest)
    clis = admission(tmp_path, Trials())
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await clis.refusal(binary) is None
    assert clis.versions == {binary: "2.1.999"}


async def test_a_file_that_has_passed_is_not_even_read_by_the_next_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, tests, read = tmp_path / "cli-none", Trials(), list[str]()
    shutil.copy(LEAKY, binary)
    file_digest = hashlib.file_digest

    def digest(file: BinaryIO, name: str) -> object:
        read.append(file.name)
        return file_digest(file, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", digest)
    first, second = admission(tmp_path, tests, clock=Later()), admission(tmp_path, tests, clock=Later())
    assert [await clis.refusal(binary) for clis in (first, second)] == [None, None]
    assert (len(read), tests.made) == (1, 1)
    assert second.versions == first.versions
    binary.chmod(0o700)  # what is known of the file is the same but for the moment of its last change
    assert await admission(tmp_path, tests, clock=Later()).refusal(binary) is None
    assert (len(read), tests.made) == (2, 1)
    other = tmp_path / "other"
    shutil.copy(binary, other)
    other.replace(binary)
    assert await admission(tmp_path, tests, clock=Later()).refusal(binary) is None
    assert (len(read), tests.made) == (3, 1)


async def test_a_file_that_was_changed_just_now_is_read_again_by_the_next_daemon(tmp_path: Path) -> None:
    """It may be changed once more within the same step of the kernel's clock."""
    binary, tests = cli(tmp_path, "none"), Trials()
    just_now = Standing(datetime.fromtimestamp(binary.stat().st_ctime, UTC))  # the checkout may be old
    assert await admission(tmp_path, tests, clock=just_now).refusal(binary) is None
    (entry,) = json.loads((tmp_path / "tests.json").read_text(encoding="utf-8"))["passed"]
    assert entry["identity"] is None


async def test_a_file_that_has_passed_is_tested_again_by_another_claudeops(tmp_path: Path) -> None:
    binary, tests = cli(tmp_path, "none"), Trials()
    for tester in ("1", "2", "1"):
        await admission(tmp_path, tests, tester=tester, clock=Later()).refusal(binary)
    assert tests.made == 2


async def test_another_claudeops_tests_again(tmp_path: Path) -> None:
    binary, tests = cli(tmp_path, "none"), Trials()
    await admission(tmp_path, tests, tester="1").refusal(binary)
    await admission(tmp_path, tests, tester="2").refusal(binary)
    assert tests.made == 2


async def test_a_binary_that_changes_on_disk_is_tested_before_it_is_used(tmp_path: Path) -> None:
    binary, tests = tmp_path / "cli-none", Trials()
    shutil.copy(LEAKY, binary)
    clis = admission(tmp_path, tests)
    assert [await clis.refusal(binary) for _ in range(2)] == [None, None]
    with binary.open("a", encoding="utf-8") as file:
        file.write("# an update\n")
    tests.faults = (CliFault.DENIED_RAN,)
    refusal = await clis.refusal(binary)
    assert refusal is not None
    assert CliFault.DENIED_RAN.value in refusal
    assert "CLAUDEOPS_CLAUDE_BIN" in refusal
    assert tests.made == 2


async def test_a_failure_is_not_remembered(tmp_path: Path) -> None:
    binary, tests = cli(tmp_path, "none"), Trials(CliFault.TOO_SLOW)
    clis = admission(tmp_path, tests)
    assert await clis.refusal(binary) is not None
    tests.faults = ()
    assert await clis.refusal(binary) is None


async def test_a_binary_that_gets_further_links_during_its_tests_is_tested_again_and_let_through(
    tmp_path: Path,
) -> None:
    binary = tmp_path / "cli-none"
    shutil.copy(LEAKY, binary)

    tests = Trials()

    async def link(tested: Path) -> SelfTestResult:
        if tests.made < 3:
            binary.with_name(f"another-name-{tests.made}").hardlink_to(binary)
        return await tests(tested)

    assert await admission(tmp_path, link).refusal(binary) is None
    assert tests.made == 4


async def test_a_binary_that_is_replaced_during_its_test_is_not_let_through(tmp_path: Path) -> None:
    binary = tmp_path / "cli-none"
    shutil.copy(LEAKY, binary)

    async def replace(_binary: Path) -> SelfTestResult:
        binary.unlink()
        shutil.copy(LEAKY, binary)
        return SelfTestResult(faults=(), detail="")

    assert "replaced" in (await admission(tmp_path, replace).refusal(binary) or "")
    tests = Trials(CliFault.DENIED_RAN)  # what was tested was another file, so that is no memory of this one
    assert CliFault.DENIED_RAN.value in (await admission(tmp_path, tests).refusal(binary) or "")


async def test_a_damaged_record_costs_a_test_and_nothing_else(tmp_path: Path) -> None:
    binary, tests = cli(tmp_path, "none"), Trials()
    (tmp_path / "tests.json").write_text('{"passed": "all of them"}', encoding="utf-8")
    assert await admission(tmp_path, tests).refusal(binary) is None
    assert tests.made == 1


async def test_a_record_that_cannot_be_written_stops_nothing_and_is_logged(tmp_path: Path) -> None:
    said = io.StringIO()
    logs.configure(level="info", fmt="json", stream=said, redact=str)
    (tmp_path / "tests.json.new").mkdir()
    assert await admission(tmp_path, Trials()).refusal(cli(tmp_path, "none")) is None
    assert [json.loads(line)["event"] for line in said.getvalue().splitlines()] == [
        "cli_self_test_passed",
        "cli_self_test_forgotten",
    ]


async def test_a_cli_that_is_too_old_by_now_is_refused_without_a_test(tmp_path: Path) -> None:
    old, tests = tmp_path / "claude", Trials()
    old.write_text("#!/bin/sh\necho 2.1.100\n")
    old.chmod(0o755)
    assert "2.1.236" in (await admission(tmp_path, tests).refusal(old) or "")
    assert tests.made == 0


async def test_switched_off_nothing_is_tested(tmp_path: Path) -> None:
    assert await admission(tmp_path, None).refusal(tmp_path / "nothing") is None


async def test_a_session_does_not_start_on_a_cli_that_is_refused(tmp_path: Path) -> None:
    async def refusal(_binary: Path) -> str:
        return "The gate does not hold with this CLI."

    async with open_estate(tmp_path) as estate:
        estate.with_context(refusal=refusal)
        row = await estate.finished(look())
        assert (row["outcome"], row["error"]) == ("spawn_failed", "The gate does not hold with this CLI.")
        assert estate.rows("SELECT * FROM tool_calls") == []
