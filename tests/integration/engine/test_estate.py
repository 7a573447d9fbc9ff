"""Repositories on a disk: a broken, hostile or huge one beside a good one stops nothing; what changed is read again."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, cast

import pytest

from claudeops import logs
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.engine.estate import (
    MOST_BYTES,
    MOST_COMPOSE_FILES,
    MOST_REPOSITORIES,
    EstateReader,
    Estates,
    UnboundRules,
    read_estate,
)
from claudeops.errors import DatabaseUnavailableError
from claudeops.formats.estate.manifest import FILE
from claudeops.store.probes import Probes
from claudeops.structs import replace
from support.replays import StillClock

NOBODY: Final = 65534
GOOD = "# Services\n- shop (web1): https://shop.example.org/\n"
DEEP = "services:\n" + "".join(f"{'  ' * depth}a:\n" for depth in range(1, 200))
LAUGH = "services:\n  a: &a [x, x]\n" + "".join(
    f"  {new}: &{new} [*{old}, *{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def repos(tmp_path: Path) -> Path:
    """Return the repositories directory, with a good repository between all that may come."""
    directory = tmp_path / "repos"
    write(directory, "good", GOOD)
    return directory


def write(repos: Path, name: str, text: str | bytes, *, file: str = FILE) -> Path:
    path = repos / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def told(estate: Estate, repository: str) -> list[str]:
    """Return the faults of one repository, after asserting that the good one is understood."""
    assert "shop" in estate.expected
    assert "shop.example.org" in estate.hosts
    return [str(fault) for fault in estate.faults if fault.source.path.partition("/")[0] == repository]


def test_repositories_are_read_in_their_order_with_compose_files_one_directory_down(repos: Path) -> None:
    write(repos, "good", "services:\n  shop:\n    container_name: shop-app\n", file="compose.yaml")
    write(repos, "good", "services:\n  web: {hostname: deep.lan}\n", file="stack/docker-compose.prod.yml")
    write(repos, "good", "services:\n  no: {hostname: hidden.lan}\n", file=".git/compose.yml")
    write(repos, "another", "# Services\n- mailer\n")
    (repos / "empty").mkdir()
    (repos / "README.md").write_text("no repository")
    estate = read_estate(repos)
    assert estate.expected == ("mailer", "shop")
    assert [manifest.repository for manifest in estate.manifests] == ["another", "good"]
    assert estate.other_names["shop-app"] == "shop"
    assert "deep.lan" in estate.hosts
    assert "hidden.lan" not in estate.hosts
    assert estate.faults == ()


BROKEN = {
    "not UTF-8": (b"# Services\n- caf\xe9\n", ":2: ", "UTF-8"),
    "too long": (b"a" * (MOST_BYTES + 1), ": ", "longer than"),
    "zeros": (b"\0" * 1000, None, None),
    "billion laughs": (f"---\n{LAUGH}---\n".encode(), ":3: ", "anchors"),
    "nested": (f"---\n{DEEP}---\n".encode(), ":14: ", "deep"),
}


@pytest.mark.parametrize(("content", "line", "word"), BROKEN.values(), ids=BROKEN)
def test_a_broken_manifest_is_a_fault_of_its_own(
    repos: Path, content: bytes, line: str | None, word: str | None
) -> None:
    write(repos, "bad", content)
    faults = told(read_estate(repos), "bad")
    if line is None or word is None:
        assert faults == []
    else:
        (fault,) = faults
        assert f"bad/{FILE}{line}" in fault
        assert word in fault


@pytest.mark.parametrize("text", [LAUGH, DEEP], ids=["billion laughs", "nested"])
def test_a_hostile_compose_file_multiplies_nothing(repos: Path, text: str) -> None:
    write(repos, "bad", text, file="compose.yml")
    assert len(told(read_estate(repos), "bad")) <= 1


@pytest.mark.parametrize("directory", ["", "stack/", "stacks/media/"])
def test_a_compose_file_is_read_down_to_two_directories_below_its_repository(repos: Path, directory: str) -> None:
    write(repos, "good", "services:\n  web: {hostname: found.lan}\n", file=f"{directory}docker-compose.yml")
    assert "found.lan" in read_estate(repos).hosts


def test_a_file_that_is_included_and_not_read_is_named(repos: Path) -> None:
    text = (
        "include:\n  - a/compose.yml\n  - path: [deep/er/than/compose.yml]\n"
        "services:\n  db:\n    extends: {file: base.yml, service: db}\n"
    )
    write(repos, "good", text, file="compose.yaml")
    write(repos, "good", "services:\n  web: {hostname: included.lan}\n", file="a/compose.yml")
    estate = read_estate(repos)
    assert "included.lan" in estate.hosts
    assert [(fault.source.path, fault.source.line) for fault in estate.faults] == [
        ("good/compose.yaml", 3),
        ("good/compose.yaml", 6),
    ]
    assert "'deep/er/than/compose.yml' is not read" in estate.faults[0].sentence
    assert "'base.yml' is not read" in estate.faults[1].sentence


def test_compose_files_beyond_those_that_are_read_are_named_and_that_ends_with_them(repos: Path) -> None:
    for number in range(MOST_COMPOSE_FILES):
        write(repos, "many", "services: {}\n", file=f"s{number:02}/compose.yml")
    reader = EstateReader()
    assert told(reader.read(repos), "many") == []
    extra = write(repos, "many", "services: {}\n", file="s99/compose.yml")
    (fault,) = told(reader.read(repos), "many")
    assert "not s99/compose.yml" in fault
    extra.unlink()
    assert told(reader.read(repos), "many") == []


def test_a_large_compose_file_is_read_to_its_end(repos: Path) -> None:
    environment = "".join(f"      VARIABLE_{number}: value-{number}\n" for number in range(18))
    service = "  svc{0}:\n    container_name: prod-svc{0}\n    hostname: svc{0}.lan\n    environment:\n" + environment
    text = "services:\n" + "".join(service.format(number) for number in range(300))
    assert 150_000 < len(text) < MOST_BYTES
    write(repos, "good", text, file="compose.yml")
    estate = read_estate(repos)
    assert estate.faults == ()
    assert {"svc0.lan", "svc150.lan"} <= set(estate.hosts)


def test_what_is_no_plain_file_is_never_opened_for_long(repos: Path) -> None:
    (repos / "pipe").mkdir()
    os.mkfifo(repos / "pipe" / FILE)
    (repos / "directory" / FILE).mkdir(parents=True)
    (repos / "device").mkdir()
    (repos / "device" / FILE).symlink_to("/dev/zero")
    (repos / "sock").mkdir()
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(repos / "sock" / FILE))
        estate = read_estate(repos)
    for name in ("pipe", "directory", "device", "sock"):
        (fault,) = told(estate, name)
        assert "cannot be read" in fault


def test_a_link_leads_nowhere_outside_of_its_repository(repos: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# Services\n- leaked\n")
    for name, target in (
        ("absolute", secret),
        ("relative", Path("../../secret.md")),
        ("other", Path("../good") / FILE),
    ):
        (repos / name).mkdir()
        (repos / name / FILE).symlink_to(target)
    (repos / "linked-directory").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "compose.yml").write_text("services:\n  leaked-host:\n    image: x\n")
    (repos / "linked-directory" / "stack").symlink_to(tmp_path / "outside")
    (repos / "loop").mkdir()
    (repos / "loop" / FILE).symlink_to(FILE)
    estate = read_estate(repos)
    assert estate.expected == ("shop",)
    assert "leaked-host" not in estate.hosts
    for name in ("absolute", "relative", "other", "loop"):
        (fault,) = told(estate, name)
        assert "cannot be read" in fault


def test_a_link_within_its_repository_is_followed(repos: Path) -> None:
    write(repos, "inner", "# Services\n- mailer\n", file="docs/ops.md")
    (repos / "inner" / FILE).symlink_to("docs/ops.md")
    assert "mailer" in read_estate(repos).expected


@contextmanager
def somebody() -> Iterator[None]:
    """Read as a user who may not read everything."""
    ours = os.geteuid()
    if ours == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(ours)


def test_a_repository_that_may_not_be_read_is_a_fault() -> None:
    with tempfile.TemporaryDirectory() as directory:  # pytest's own lets nobody else pass
        repos = Path(directory)
        repos.chmod(0o755)
        write(repos, "good", GOOD)
        closed = write(repos, "closed", GOOD).parent
        closed.chmod(0)
        try:
            with somebody():
                (fault,) = told(read_estate(repos), "closed")
        finally:
            closed.chmod(0o700)
    assert "Permission denied" in fault


def test_more_repositories_than_are_read_is_a_fault(repos: Path) -> None:
    for number in range(MOST_REPOSITORIES):
        write(repos, f"z{number:03}", f"# Services\n- z{number}\n")
    estate = read_estate(repos)
    assert len(estate.expected) == MOST_REPOSITORIES
    assert len(estate.faults) == 1


def test_only_what_changed_is_read_again(repos: Path) -> None:
    other = write(repos, "other", "# Services\n- mailer\n")
    reader = EstateReader()
    first = reader.read(repos)
    assert reader.read(repos) is first
    other.write_text("# Services\n- mailer\n- queue\n")
    second = reader.read(repos)
    assert second.expected == ("shop", "mailer", "queue")
    assert reader.read(repos) is second
    other.unlink()
    assert reader.read(repos).expected == ("shop",)
    write(repos, "other", "services:\n  x: {hostname: later.lan}\n", file="compose.yml")
    assert "later.lan" in reader.read(repos).hosts


# --- what the daemon does with it ---------------------------------------------------------------------


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_faults_are_logged_when_they_change_and_not_for_every_session(repos: Path, logged: io.StringIO) -> None:
    estates = Estates(repos, read=EstateReader().read)
    log = logs.get_logger()
    await estates.look(log)
    bad = write(repos, "bad", "# Services\n- shop2 (aka shop)\n")
    await estates.look(log)
    await estates.look(log)
    bad.write_text("# Services\n\n- shop2 (aka shop)\n")
    await estates.look(log)
    bad.unlink()
    await estates.look(log)
    assert estates.latest.expected == ("shop",)
    faulty = [event for event in events(logged) if event["event"] == "estate_faulty"]
    assert [(event["level"], event["count"]) for event in faulty] == [("warning", 1), ("warning", 1)]
    assert f"bad/{FILE}:3" in str(faulty[1]["faults"])


@pytest.mark.parametrize("harm", ["no text", "too long", "a pipe"])
def test_a_manifest_that_can_no_longer_be_read_forbids_what_it_forbade(repos: Path, harm: str) -> None:
    path, reader = write(repos, "good", GOOD + "\n# Rules\n- never restart shop\n"), EstateReader()
    (before,) = reader.read(repos).prohibitions
    if harm == "no text":
        path.write_bytes(b"\xff\xfe")
    elif harm == "too long":
        path.write_bytes(b"x" * (MOST_BYTES + 1))
    else:
        path.unlink()
        os.mkfifo(path)
    estate = reader.read(repos)
    assert estate.prohibitions == (before,)
    assert len(estate.faults) == 1
    path.unlink()
    write(repos, "good", GOOD)
    assert reader.read(repos).prohibitions == ()  # the operator has taken the rule out


async def test_repositories_that_never_answered_are_not_taken_for_ones_that_forbid_nothing() -> None:
    def hangs(_repos_dir: Path) -> Estate:
        raise TimeoutError(errno.ETIMEDOUT, "no answer")

    assert (await Estates(read=hangs).look(logs.get_logger())).unread


async def test_a_directory_that_is_gone_leaves_the_estate_as_it_was(repos: Path, logged: io.StringIO) -> None:
    estates = Estates(repos, read=EstateReader().read)
    log = logs.get_logger()
    await estates.look(log)
    repos.rename(repos.with_name("away"))
    assert (await estates.look(log)).expected == ("shop",)
    assert [event["event"] for event in events(logged)] == ["estate_not_read"]
    assert await Estates(repos, read=EstateReader().read).look(log) == NO_ESTATE


# --- the event about prohibitions that bind nothing ---------------------------------------------------------

PROSE = "\n## Notes\n\nNever restart shop, {why}.\n"


@dataclass(kw_only=True)
class Noted:
    """Keeps events as the store would."""

    open: dict[str, NewEvent] = field(default_factory=dict)
    away: bool = False

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        if self.away:
            raise DatabaseUnavailableError("the database is locked")
        assert now == StillClock().now()
        if over:
            self.open.pop(event.fingerprint or "", None)
        else:
            self.open[event.fingerprint or ""] = event


def unbound_rules(noted: Noted) -> UnboundRules:
    return UnboundRules(
        events=cast("Probes", noted), clock=StillClock(), redact=lambda text: text.replace("hunter2", "***")
    )


async def test_a_prohibition_in_prose_is_an_event_until_it_is_written_in_a_form(repos: Path) -> None:
    path, reader, noted = write(repos, "good", GOOD + PROSE.format(why="it is hunter2")), EstateReader(), Noted()
    keeper = unbound_rules(noted)
    noted.away = True
    with pytest.raises(DatabaseUnavailableError):
        await keeper.note(reader.read(repos))
    noted.away = False
    await keeper.note(reader.read(repos))
    (event,) = noted.open.values()
    assert event.level is EventLevel.WARNING
    assert f"good/{FILE}:6" in event.message
    assert "write '- shop' in a list below '## Never'" in event.message
    assert "hunter2" not in event.message

    await keeper.note(replace(NO_ESTATE, unread=True))
    assert noted.open  # what does not answer has mended nothing
    path.write_text(GOOD + "\n## Never\n\n- shop\n")
    await keeper.note(reader.read(repos))
    assert noted.open == {}


async def test_a_daemon_ends_the_event_of_the_one_before(repos: Path) -> None:
    noted = Noted()
    write(repos, "good", GOOD + PROSE.format(why="it is old"))
    await unbound_rules(noted).note(read_estate(repos))
    write(repos, "good", GOOD)
    await unbound_rules(noted).note(read_estate(repos))
    assert noted.open == {}
