"""Logs that are packed read as they did before, and are never lost on the way, nor put over another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.engine.session_log import reader
from claudeops.engine.session_log.reader import open_log, pack, packed_path, remove
from support.estate import Estate, deliver, look, report
from support.replays import Replayed, replay

CONTENT = b'{"type":"a"}\n' * 50_000


class Killed(BaseException):
    """The process dies here."""


def nothing() -> None:
    return


def dies() -> None:
    raise Killed


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "session-000001.ndjson"
    path.write_bytes(CONTENT)
    return path


def content(log: Path) -> bytes:
    with open_log(log) as opened:
        return opened.read()


def test_a_packed_log_is_smaller_and_reads_as_before_under_its_own_name(log: Path) -> None:
    saved = pack(log, nothing)

    assert not log.exists()
    assert saved == len(CONTENT) - packed_path(log).stat().st_size
    assert saved > len(CONTENT) // 2
    assert content(log) == CONTENT


def test_nobody_else_may_read_what_only_the_owner_could(log: Path) -> None:
    log.chmod(0o600)

    pack(log, nothing)

    assert packed_path(log).stat().st_mode & 0o777 == 0o600


def test_death_while_packing_costs_nothing_and_the_next_time_it_works(log: Path) -> None:
    with pytest.raises(Killed):
        pack(log, dies)
    assert content(log) == CONTENT

    log.with_name(f"{log.name}.zst.partial").write_bytes(b"half")  # what a death by SIGKILL leaves
    pack(log, nothing)

    assert content(log) == CONTENT
    assert [path.name for path in log.parent.iterdir()] == [packed_path(log).name]


def test_death_between_the_packed_file_and_the_end_of_the_plain_one_is_made_good(log: Path) -> None:
    pack(log, nothing)
    log.write_bytes(CONTENT)

    pack(log, nothing)

    assert not log.exists()
    assert content(log) == CONTENT


@pytest.mark.parametrize("other", [CONTENT + b"more\n", CONTENT[:-13], b"x" * len(CONTENT)])
def test_the_packed_log_of_another_life_is_not_overwritten(log: Path, other: bytes) -> None:
    pack(log, nothing)
    log.write_bytes(other)

    with pytest.raises(FileExistsError):
        pack(log, nothing)

    assert log.read_bytes() == other
    log.unlink()
    assert content(log) == CONTENT


def test_a_damaged_packed_log_is_an_error_of_the_disk(log: Path) -> None:
    pack(log, nothing)
    packed = packed_path(log)
    packed.write_bytes(packed.read_bytes()[:-40] + b"\0" * 40)

    with pytest.raises(OSError, match="damaged"):
        content(log)


def test_a_link_is_not_followed_when_packing(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "session-000002.ndjson"
    link.symlink_to(log)

    with pytest.raises(OSError, match=r"link|loop|levels"):
        pack(link, nothing)

    assert log.read_bytes() == CONTENT


@pytest.mark.parametrize("packed", [False, True])
def test_removing_a_log_takes_what_lies_beside_it_and_nothing_else(log: Path, *, packed: bool) -> None:
    other = log.with_name("session-000002.ndjson")
    for path in (log.with_suffix(".index"), log.with_suffix(".stderr"), other):
        path.write_bytes(b"x")
    if packed:
        pack(log, nothing)

    assert remove(log)

    assert list(log.parent.iterdir()) == [other]
    assert not remove(log)


async def test_a_packed_log_is_replayed_like_any_other(estate: Estate) -> None:
    row = await estate.finished(look(), deliver(report()))
    plain = await replay(1, estate.context)
    assert isinstance(plain, Replayed)
    log = estate.root / "results" / "session-000001.ndjson"
    assert str(log) == row["log_path"]
    reader.pack(log, nothing)

    packed = await replay(1, estate.context)

    assert packed == plain
