"""Every command, whatever its situation: one document, as its schema has it, with the exit status that it says.

And no field of a golden document goes or changes its type; `support.envelopes` says how a new one is written.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click
import jsonschema
import pytest

from claudeops.cli.commands import claudeops
from claudeops.engine.gate.approval_key import ensure_key
from support.claude_ops import old_database
from support.commanding import Shell, shell_in
from support.doses import drawn
from support.envelopes import COMMON, GOLDENS, SCHEMAS, file_of, lost_or_changed
from support.estate import look
from support.estate import report as stated
from support.lived_in import QUEUED, log_of, something_of_everything
from support.receivers import Receiver, receiving
from support.stores import POSTGRES

pytest_plugins = ("support.store_fixtures",)

PROBES: Final = """
[[probe]]
name = "web-port"
kind = "tcp"
host = "127.0.0.1"
port = 1
service = "web"

[[probe]]
name = "backup"
kind = "heartbeat"
every = "24h"
"""

PLACE: Final = re.compile(r'"(/[^"/\s]+/[^"\s]+)')

ASKED: Final[Mapping[str, str]] = {
    "ack": "ack 1",
    "alerts replay": "alerts replay alerts.ndjson",
    "approve": "approve 2",
    "audit verify": "audit verify",
    "backup": "backup copy.db",
    "bootstrap": "bootstrap --prompt disk",
    "bootstrap-graph": "bootstrap-graph",
    "chain": "chain 1",
    "command-graph": "command-graph",
    "config": "config",
    "copy-database": "copy-database",
    "delete-session": "delete-session 1 --chain",
    "deny": "deny 2",
    "diff-chains": "diff-chains 1 2",
    "doctor": "doctor",
    "exec-command": "exec-command tier1 disk",
    "exec-tool": "exec-tool web-port",
    "flush-transcript": "flush-transcript 1 --output copy.ndjson",
    "health": "health",
    "incident": "incident 2",
    "end-silence": "end-silence 1",
    "list-actions": "list-actions",
    "list-approvals": "list-approvals",
    "list-checks": "list-checks web",
    "list-events": "list-events",
    "list-incidents": "list-incidents",
    "list-nodes": "list-nodes",
    "list-sessions": "list-sessions",
    "list-silences": "list-silences",
    "list-sources": "list-sources",
    "load-session": "load-session 1",
    "login-link": "login-link",
    "memories add": "memories add it-restarts-at-noon --service web",
    "memories confirm": "memories confirm 2",
    "memories forget": "memories forget 1",
    "memories list": "memories list --all",
    "memories restore": "memories restore 3",
    "migrate": "migrate",
    "migrate-from": "migrate-from old.db",
    "notify test": "notify test apprise",
    "pause": "pause --reason supper",
    "ping": "ping backup",
    "policy fragments": "policy fragments",
    "policy replay": "policy replay policy.toml --since 2026-02-01",
    "policy show": "policy show",
    "policy test": "policy test uptime",
    "probe": "probe",
    "rehearse": "rehearse --list",
    "replay": "replay results/session-000001.ndjson",
    "resolve": "resolve 1",
    "resume": "resume",
    "route": "route disk",
    "show-command": "show-command tier1",
    "show-tool": "show-tool Bash",
    "silence": "silence service=shop --comment moving",
    "spend": "spend",
    "stats": "stats",
    "status": "status",
    "stop": f"stop {QUEUED}",
    "tail": "tail 1 --no-follow",
    "token create": "token create --name am --scope alerts:prometheus --scope read",
    "token list": "token list --all",
    "token revoke": "token revoke 1",
    "tool-pool": "tool-pool",
    "user add": "user add cleo --role viewer",
    "user list": "user list",
    "user remove": "user remove bea",
    "user set": "user set bea --role approver",
    "version": "version",
    "why": "why web --at 2026-03-01T12:30Z",
}
"""What each command is asked in a world where everything is there."""

NOTHING: Final = (
    "approve 99",
    "chain 99",
    "diff-chains 1 99",
    "delete-session 99",
    "deny 99",
    "exec-tool nothing",
    "load-session nope",
)
NOTHING_TOO: Final = ("flush-transcript 99", "replay nothing.ndjson", "show-command nothing", "show-tool nothing")
NOTHING_EITHER: Final = ("probe nothing", "ping nothing", "tail 99", "memories forget 99", "audit verify --session 99")
NO_INCIDENT: Final = ("incident 99", "ack 99", "resolve 99", "end-silence 99")
NOT_THERE: Final = (
    *(*NOTHING, *NOTHING_TOO, *NOTHING_EITHER, *NO_INCIDENT),
    *("stop 99", "exec-command nothing", "rehearse nothing", "token revoke 99", "notify test nobody"),
    *("user set nope --role viewer", "user remove nope", "login-link --name nope"),
)
WRITING: Final = (
    "approve 1",
    "pause",
    "resume",
    "ack 1",
    "silence service=shop",
    "end-silence 1",
    "memories add x --service web",
    "delete-session 1",
    "exec-command tier1",
    "token create --name am --scope read",
    "token revoke 1",
    "login-link",
    "user add cleo --role viewer",
    "user set bea --role viewer",
    "user remove bea",
    f"stop {QUEUED}",
)

NO_DOCUMENT: Final = frozenset({"run", "completion", "policy migrate", "remote-commands"})
"""Commands that have no JSON form: the daemon, which prints its log, and a script for a shell."""


def leaves(group: click.Group = claudeops, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        elif any(parameter.name == "output_format" for parameter in command.params):
            yield f"{before}{name}", command
        else:
            assert f"{before}{name}" in NO_DOCUMENT


COMMANDS: Final = sorted({name for name, _ in leaves()} - {"policy show-tool"})
"""Without the second name of `show-tool`."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as served:
        yield served


@pytest.fixture
def shell(
    tmp_path: Path,
    migrated_sqlite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    receiver: Receiver,
) -> Shell:
    """Return a shell in a world where nothing has happened yet."""
    shell = shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)
    probes = tmp_path / "probes.toml"
    probes.write_text(PROBES, encoding="utf-8")
    shell.set(CLAUDEOPS_PROBES_PATH=str(probes))
    rules = tmp_path / "alerts.toml"
    rules.write_text('[[source]]\nname = "am"\nkind = "alertmanager"\n', encoding="utf-8")
    shell.set(CLAUDEOPS_ALERTS_PATH=str(rules))
    body = {"alerts": [{"status": "firing", "labels": {"alertname": "Down", "service": "shop"}}], "version": "4"}
    (tmp_path / "policy.toml").write_text('extends = "default"\n', encoding="utf-8")
    line = {"source": "am", "at": "2026-03-01T12:00:00Z", "body": body}
    broken = {"source": "am", "at": "2026-03-01T12:01:00Z", "body": "nonsense"}
    lines = "".join(f"{json.dumps(each)}\n" for each in (line, broken))
    (tmp_path / "alerts.ndjson").write_text(lines, encoding="utf-8")
    shell.set(ANTHROPIC_BASE_URL="http://127.0.0.1:1", CLAUDEOPS_NODE="attic")
    shell.set(CLAUDEOPS_APPRISE_URLS=receiver.address)
    shell.script(look(), {"result": {"structured_output": stated(), "result": "All is well."}})
    return shell


@pytest.fixture
def lived_in(shell: Shell) -> Shell:
    """Return the shell of a world in which something of everything has happened."""
    session = shell.prepare(something_of_everything)
    file = shell.root / "results" / "session-000001.ndjson"
    file.write_bytes(log_of(session))
    shell.database.execute("UPDATE sessions SET log_path = :path", path=str(file))
    shell.database.execute(
        "INSERT INTO probes (name, service, kind, state, detail, failures, successes, interval_seconds, explained_by,"
        " incident, counters) VALUES ('backup', 'backup', 'heartbeat', 'unknown', '', 0, 0, 30, '', '', '')"
    )
    shell.database.execute(
        "INSERT INTO users (name, name_key, role, created_at, created_by)"
        " VALUES ('Bea', 'bea', 'operator', '2026-03-01 12:00:00.000000', 'ada')"
    )
    old_database(shell.root / "old.db")
    shell.database.execute("UPDATE memories SET trust = 'quarantined' WHERE id = 2")
    return shell


# --- one document, whatever happens -------------------------------------------------------------------------


def test_every_command_is_asked_here() -> None:
    assert sorted(ASKED) == COMMANDS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=POSTGRES if name == "copy-database" else ()) for name in COMMANDS]
)
def test_success_is_one_document_that_has_lost_nothing(
    name: str, lived_in: Shell, request: pytest.FixtureRequest
) -> None:
    ensure_key(lived_in.root / "state")
    if name == "copy-database":
        lived_in.set(CLAUDEOPS_TARGET_DATABASE_URL=request.getfixturevalue("copy_target").url)
    document = lived_in.ask(*ASKED[name].split())
    assert document["command"] == name
    golden = json.loads(file_of(name, GOLDENS).read_text(encoding="utf-8"))
    assert list(lost_or_changed(golden, document)) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_argument_is_one_document(name: str, shell: Shell) -> None:
    document = shell.ask(*name.split(), "--no-such-option")
    error = document["error"]
    assert isinstance(error, dict)
    assert (document["sysexit"], error["kind"], error["target"]) == (64, "usage", "--no-such-option")


@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_world_without_anything_yet_it_is_one_document(name: str, shell: Shell) -> None:
    shell.ask(*ASKED[name].split())


@pytest.mark.parametrize("asked", NOT_THERE)
def test_what_is_not_there_is_one_document(asked: str, lived_in: Shell) -> None:
    document = lived_in.ask(*asked.split())
    assert document["exit_code"] == 1
    assert document["error"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_database_is_one_document(name: str, shell: Shell) -> None:
    shell.database.file.unlink()
    shell.ask(*ASKED[name].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_database_that_is_away_is_one_document_without_its_password(name: str, shell: Shell) -> None:
    shell.set(CLAUDEOPS_DATABASE_URL="postgresql://ada:hunter22@127.0.0.1:1/ops")
    assert "hunter22" not in json.dumps(shell.ask(*ASKED[name].split()))


@pytest.mark.parametrize("asked", drawn(WRITING))  # each waits out the bound on a lock
def test_a_locked_database_is_one_document(asked: str, lived_in: Shell) -> None:
    ensure_key(lived_in.root / "state")
    with locked(lived_in.database.file):
        document = lived_in.ask(*asked.split())
    error = document["error"]
    assert isinstance(error, dict)
    assert (document["sysexit"], error["kind"], error["operation"], error["retryable"]) == (
        69,
        "runtime",
        "db.connect",
        True,
    )


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


# --- schemas and goldens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_a_schema_is_one_and_asks_for_what_all_have(file: Path) -> None:
    schema = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(COMMON) <= set(schema["required"])


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.json")), ids=lambda golden: golden.stem)
def test_no_golden_document_tells_of_the_machine_that_wrote_it(golden: Path) -> None:
    places = PLACE.findall(golden.read_text(encoding="utf-8"))
    assert [place for place in places if place.split("/")[1] not in {"opt", "srv", "bin"}] == []


def test_every_command_has_its_schema_and_no_schema_is_left_over() -> None:
    named = {file_of(name).name for name in COMMANDS}
    assert {file.name for file in SCHEMAS.glob("*.json")} - {"claudeops.json"} == named


def test_a_golden_document_shows_what_goes_and_what_changes() -> None:
    before = {"a": 1, "b": [{"c": "x"}], "d": {"e": True}}
    after_it = {"a": "1", "b": [{}], "d": {"e": True, "f": 1}}
    assert list(lost_or_changed(before, after_it)) == ["$.a was number, and is string", "$.b[0].c is gone"]
