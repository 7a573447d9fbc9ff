"""What is declared is read when it changes; a wrong edit, an odd file and a manifest are told apart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event
from typing import TypeVar

import anyio
import pytest

from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.engine.probes.declared import DeclaredNow, DeclaredReader
from claudeops.tasks import Threads
from support.waiting import PATIENCE_SECONDS

T = TypeVar("T")

pytestmark = pytest.mark.anyio


def text(*names: str) -> str:
    return "\n".join(f'[[probe]]\nname = "{name}"\nkind = "http"\nurl = "http://{name}.test/"\n' for name in names)


def names_of(declared: DeclaredNow | None) -> list[str] | None:
    return None if declared is None else [each.name for each in declared.probes]


async def test_a_file_is_read_when_it_changes_and_may_come_and_go(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    reading = DeclaredReader(file=file)
    assert names_of(await reading.changed()) == []
    assert await reading.changed() is None

    file.write_text(text("web", "db"))
    assert names_of(await reading.changed()) == ["web", "db"]
    assert await reading.changed() is None

    file.write_text('[[probe]]\nname = "web"\nkind = "htpp"\n')
    wrong = await reading.changed()
    assert wrong is not None
    assert names_of(wrong) == ["web", "db"]
    assert f"{file}, line 3: the probe 'web': 'htpp' is not a kind of probe: did you mean 'http'?" in wrong.fault

    file.unlink()
    gone = await reading.changed()
    assert (names_of(gone), gone and gone.fault) == ([], "")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        pytest.param(lambda file: file.write_bytes(b"\xff\xfe"), "not UTF-8", id="not text"),
        pytest.param(lambda file: file.mkdir(), "cannot be read", id="a directory"),
        pytest.param(lambda file: file.write_bytes(b"#" * (4 * 1024 * 1024 + 1)), "longer than", id="too long"),
    ],
)
async def test_a_file_that_is_none_is_a_fault(tmp_path: Path, write: Callable[[Path], object], says: str) -> None:
    file = tmp_path / "probes.toml"
    write(file)
    declared = await DeclaredReader(file=file).changed()
    assert declared is not None
    assert says in declared.fault


async def test_a_wrong_file_is_read_again_though_nothing_shows_that_it_was_mended(tmp_path: Path) -> None:
    """As after a chmod of a file that was closed to the daemon, which changes neither its size nor its time."""
    file = tmp_path / "probes.toml"
    file.write_text(text("web").replace("http", "htpp", 1))
    before = file.stat()
    reading = DeclaredReader(file=file)
    wrong = await reading.changed()
    assert wrong is not None
    assert "did you mean 'http'?" in wrong.fault

    file.write_text(text("web"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    mended = await reading.changed()
    assert mended is not None
    assert (names_of(mended), mended.fault) == (["web"], "")


async def test_an_edit_that_was_read_too_late_is_found_by_the_next_look(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    file.write_text(text("web"))
    answers = Event()

    def refuse(_command: str) -> None:
        assert answers.wait(PATIENCE_SECONDS)

    reading = DeclaredReader(file=file, refuse_command=refuse, read_seconds=0.01)
    file.write_text(text("web") + '[[probe]]\nname = "disk"\nkind = "command"\ncommand = "df /"\n')
    assert await reading.changed() is None
    answers.set()
    reading.read_seconds = PATIENCE_SECONDS
    assert names_of(await reading.changed()) == ["web", "disk"]


async def test_who_decides_by_what_is_declared_needs_no_watch_and_waits_for_no_disk(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    file.write_text('[[probe]]\nname = "df"\nkind = "command"\ncommand = "df /"\n')
    answers, now = Event(), [0.0]

    def refuse(_command: str) -> None:
        assert answers.wait(PATIENCE_SECONDS)

    reading = DeclaredReader(file=file, refuse_command=refuse, read_seconds=0.01, monotonic=lambda: now[0])
    assert names_of(await reading.now()) == []
    answers.set()
    reading.read_seconds = PATIENCE_SECONDS
    assert names_of(await reading.now()) == [], "it is not read at every call"
    now[0] = 60.0
    assert names_of(await reading.now()) == ["df"]
    assert names_of(await reading.changed()) == ["df"], "a watch has not taken it yet"
    assert await reading.changed() is None


class Slow(Threads):
    """Work whose results come when they are let through."""

    def __init__(self) -> None:
        super().__init__(most=1)
        self.has_read, self.lets_through = anyio.Event(), anyio.Event()

    async def run(
        self, work: Callable[[], T], *, seconds: float, what: str, undo: Callable[[T], object] | None = None
    ) -> T:
        done = await super().run(work, seconds=seconds, what=what, undo=undo)
        self.has_read.set()
        await self.lets_through.wait()
        return done


async def test_a_role_that_is_lost_and_taken_while_somebody_reads_finds_what_is_declared(tmp_path: Path) -> None:
    """Else nothing would be watched before the file changes."""
    file = tmp_path / "probes.toml"
    file.write_text(text("web"))
    reading = DeclaredReader(file=file, monotonic=partial(next, itertools.count(0, 60)))
    assert names_of(await reading.changed()) == ["web"]

    reading._thread = slow = Slow()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.now)
            await slow.has_read.wait()
            reading.forget()
            slow.lets_through.set()
        assert names_of(await reading.changed()) == ["web"]
    assert await reading.changed() is None


async def test_a_manifest_makes_probes_and_its_change_is_noticed_though_the_file_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    file.write_text("[[probe")
    estates = [Estate(), estate("web")]
    reading = DeclaredReader(file=file, estate=lambda: estates[0])
    first = await reading.changed()
    estates.pop(0)
    second = await reading.changed()
    assert first is not None
    assert second is not None
    assert first.fault == second.fault != ""
    assert [each.service for each in second.probes] == ["web"]


def estate(*names: str) -> Estate:
    services = tuple(
        Service(name=name, address=f"https://{name}.test/", source=StatementSource(path="x/CLAUDE-OPS.md"))
        for name in names
    )
    return Estate(manifests=(Manifest(repository="x", services=services),))
