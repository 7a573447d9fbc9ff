"""The library on a real disk: what repositories put there is read within bounds, and one of them stops no other."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from claudeops import logs
from claudeops.engine.library import MOST_FILES, Libraries
from claudeops.formats.library import BUILT_IN, HEADINGS, Library, LibraryKind
from claudeops.settings.files import library_dir
from support.hung_disk import disk
from support.library_texts import SHIPPED, file, shipped

pytestmark = pytest.mark.anyio
LOG = logs.get_logger()


class Repositories:
    """A directory of repositories, and the library that is read from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.libraries = Libraries(repos_dir=root)

    def put(self, path: str, content: str | None = None) -> Path:
        """Write a file of a repository: ``media/checks/web.md``."""
        repository, kind, name = path.split("/")
        target = self.root / repository / ".claude-ops" / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file(Path(name).stem, LibraryKind(kind)) if content is None else content, encoding="utf-8")
        return target

    async def read(self) -> Library:
        return await self.libraries.look(LOG)

    async def names(self) -> list[str]:
        return [text.name for text in (await self.read()).texts]

    async def faults(self) -> list[str]:
        return [str(fault) for fault in (await self.read()).faults]


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    (tmp_path / "repos").mkdir()
    return Repositories(tmp_path / "repos")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure(level="debug", fmt="json", stream=stream, redact=str)
    yield stream
    logs.flush()


async def test_the_built_in_texts_are_found_where_they_are_shipped() -> None:
    assert library_dir() == SHIPPED
    read = await Libraries(library_dir()).look(LOG)
    assert read.faults == ()
    assert {text.digest for text in read.texts} == {text.digest for text in shipped().texts}
    assert {text.origin for text in read.texts} == {BUILT_IN}


async def test_a_file_that_has_not_changed_is_not_parsed_again(repositories: Repositories) -> None:
    repositories.put("media/checks/web.md")
    repositories.put("media/checks/db.md")
    first = {text.name: text for text in (await repositories.read()).texts}
    repositories.put("media/checks/db.md", file("db", LibraryKind("checks")) + "\nMore.\n")
    second = {text.name: text for text in (await repositories.read()).texts}
    assert second["media/web"].about is first["media/web"].about
    assert second["media/db"] != first["media/db"]


async def test_texts_of_all_kinds_and_repositories_are_read(repositories: Repositories) -> None:
    for path in ("media/checks/jellyfin.md", "media/playbooks/jellyfin.md", "shop/skills/orders.md"):
        repositories.put(path)
    (repositories.root / "empty" / ".claude-ops").mkdir(parents=True)
    (repositories.root / "plain").mkdir()
    (repositories.root / "README.md").write_text("no repository")
    repositories.put("media/checks/README.md", "For people.")
    assert await repositories.names() == ["media/jellyfin", "media/jellyfin", "shop/orders"]
    assert await repositories.faults() == []


async def test_repositories_stand_beside_the_built_in_library(repositories: Repositories) -> None:
    repositories.put("media/checks/http.md")
    read = await Libraries(SHIPPED, repositories.root).look(LOG)
    assert [text.name for text in read.texts if text.name.endswith("http")][:2] == ["media/http", "http"]


async def test_everything_broken_is_a_fault_with_its_file_and_stops_nothing(repositories: Repositories) -> None:
    root = repositories.root
    repositories.put("good/checks/web.md")
    outside = root.parent / "secret.md"
    outside.write_text(file("stolen"))
    bad = repositories.put("bad/checks/a-line.md", file("a-line", front="tier = 'x'\n")).parent
    (bad / "b-link.md").symlink_to(outside)
    os.mkfifo(bad / "c-pipe.md")
    (bad / "d-bytes.md").write_bytes(b"\xff\xfe")
    (bad / "e-long.md").write_bytes(b"x" * 5_000)
    (bad / "f-directory.md").mkdir()
    with socket.socket(socket.AF_UNIX) as served:
        with contextlib.chdir(bad):  # the path of a socket may have some hundred characters, and that of a test more
            served.bind("g-socket.md")
        (bad / "h\n\x1b[31m.md").write_text("x")
        (bad.parent / "skills").symlink_to(root.parent)
        (bad.parent / "playbooks").write_text("no directory")
        (root / "linked").mkdir()
        (root / "linked" / ".claude-ops").symlink_to(root / "good" / ".claude-ops")
        (root / "away").symlink_to(root.parent / "elsewhere")
        (root.parent / "elsewhere" / ".claude-ops").mkdir(parents=True)
        shutil.copytree(root / "good", root / "built-in")
        shutil.copytree(root / "good", root / "a `name`")

        assert await repositories.names() == ["good/web"]
        said = await repositories.faults()

    assert [fault.partition(": ")[::2] for fault in said] == [
        (
            "'a `name`'",
            "the repository's name has other characters than letters, digits, '.', '_' and '-': rename its directory",
        ),
        ("away", f"it is a link that leads out of {root}: put the repository itself there"),
        ("bad/.claude-ops/checks/a-line.md:3", "its front matter has a tier that is no number of a tier: tier = 2"),
        ("bad/.claude-ops/checks/b-link.md", "it is a link, and links are not followed: put the file itself there"),
        ("bad/.claude-ops/checks/c-pipe.md", "it is no file: remove it"),
        ("bad/.claude-ops/checks/d-bytes.md", "it is not UTF-8: save it as UTF-8"),
        ("bad/.claude-ops/checks/e-long.md", "it is longer than 4096 bytes: shorten it, or make it two"),
        ("bad/.claude-ops/checks/f-directory.md", "it is no file: remove it"),
        ("bad/.claude-ops/checks/g-socket.md", "it is no file: remove it"),
        (
            r"bad/.claude-ops/checks/'h\n\x1b[31m.md':1",
            "it does not begin with a line +++: put name, tier and about between two such lines",
        ),
        *(
            (f"{path}/", "it is no directory of its own, and links are not followed: put the directory itself there")
            for path in ("bad/.claude-ops/playbooks", "bad/.claude-ops/skills")
        ),
        ("'built-in'", "a repository called built-in would be taken for claudeops itself: rename its directory"),
        (
            "linked/.claude-ops/",
            "it is no directory of its own, and links are not followed: put the directory itself there",
        ),
    ]


async def test_a_repository_that_is_a_link_within_the_directory_is_read(repositories: Repositories) -> None:
    repositories.put("media/checks/web.md")
    (repositories.root / "other").symlink_to("media")
    assert await repositories.names() == ["media/web", "other/web"]


async def test_a_heap_of_texts_is_read_up_to_a_bound(repositories: Repositories) -> None:
    for number in range(MOST_FILES + 5):
        repositories.put(f"media/checks/c{number:03}.md")
    assert len(await repositories.names()) == MOST_FILES
    (fault,) = await repositories.faults()
    assert fault.startswith("media/.claude-ops/checks/: it has more than 64 texts")


async def test_an_edit_counts_at_once_and_a_wrong_one_leaves_what_was_good(repositories: Repositories) -> None:
    path = repositories.put("media/checks/web.md")
    before = (await repositories.read()).texts
    path.write_text("## Broken")
    broken = await repositories.read()
    assert broken.texts == before
    assert len(broken.faults) == 1
    path.write_text(file("web", body="".join(f"## {heading}\nNew.\n" for heading in HEADINGS[LibraryKind.CHECK])))
    mended = await repositories.read()
    assert "New." in mended.texts[0].text
    assert mended.faults == ()
    path.unlink()
    assert (await repositories.read()).texts == ()
    path.write_text("## Broken")
    assert (await repositories.read()).texts == (), "what is gone is gone"


async def test_people_are_told_once_of_each_change(repositories: Repositories, logged: io.StringIO) -> None:
    path = repositories.put("media/checks/web.md", "broken")
    for _ in range(3):
        await repositories.read()
    (event,) = repositories.libraries.notices.take()
    assert event.fingerprint == "library:media"
    assert event.message == (
        "Not all of the library can be used as it is written: media/.claude-ops/checks/web.md:1: it does not begin "
        "with a line +++: put name, tier and about between two such lines."
    )
    assert logged.getvalue().count('"library_faulty"') == 1
    await repositories.read()
    assert repositories.libraries.notices.take() == ()
    path.write_text("+++\nbroken otherwise\n+++\n")
    await repositories.read()
    assert len(repositories.libraries.notices.take()) == 1
    path.write_text(file("web"))
    await repositories.read()
    assert repositories.libraries.notices.take() == ()
    path.write_text("broken")
    await repositories.read()
    assert len(repositories.libraries.notices.take()) == 1


async def test_a_repository_that_left_and_came_back_broken_is_told_again(repositories: Repositories) -> None:
    repositories.put("media/checks/web.md", "broken")
    await repositories.read()
    (repositories.root / "media").rename(repositories.root / ".away")
    await repositories.read()
    (repositories.root / ".away").rename(repositories.root / "media")
    repositories.libraries.notices.take()
    await repositories.read()
    assert len(repositories.libraries.notices.take()) == 1


async def test_two_sessions_may_look_at_the_same_time(repositories: Repositories) -> None:
    found: list[int] = []

    async def look() -> None:
        found.append(len((await repositories.read()).texts))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            repositories.put(f"repository{number}/checks/web.md")
            tasks.start_soon(look)
            await anyio.lowlevel.checkpoint()
    assert max(found) <= 10
    assert len(await repositories.names()) == 10


async def test_many_faults_are_one_short_event(repositories: Repositories) -> None:
    for number in range(40):
        repositories.put(f"media/checks/c{number:02}.md", "broken")
    await repositories.read()
    (event,) = repositories.libraries.notices.take()
    assert event.message.endswith("; and 37 more.")


async def test_a_repository_that_hangs_stops_no_other(
    repositories: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    repositories.put("media/checks/web.md")
    repositories.put("shop/checks/web.md")
    await repositories.read()
    repositories.put("shop/checks/new.md")
    monkeypatch.setattr("claudeops.engine.library._REPOSITORY_SECONDS", 0.3)
    with disk(repositories.root / "media", answers=False) as away:
        read = await repositories.read()
        assert away.on_the_loop == []
        away.comes_back()
    assert [text.name for text in read.texts] == ["media/web", "shop/new", "shop/web"]
    assert ["took longer" in str(fault) for fault in read.faults] == [True]


async def test_without_the_repositories_directory_the_last_reading_serves(
    repositories: Repositories, logged: io.StringIO
) -> None:
    repositories.put("media/checks/web.md")
    await repositories.read()
    repositories.root.rename(repositories.root.with_name("moved"))
    assert await repositories.names() == ["media/web"]
    assert '"library_not_read"' in logged.getvalue()
