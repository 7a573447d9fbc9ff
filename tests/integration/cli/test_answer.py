"""What an operator asks from the shell: success, nothing there, a wrong question, no database, a locked one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from claudeops.cli.command_line import call
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.setting import MASK
from claudeops.structs import replace
from support.migrated import write_migrated
from support.store_values import (
    NOW,
    RULES,
    alarm,
    allow,
    check,
    claimed,
    ending,
    one_session,
    recorded,
    report,
    restart,
)
from support.stores import Database, opened

LISTS = ("list-events", "list-checks", "list-actions")
READERS = (*LISTS, "spend", "stats")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state directory of a node that has run and does not now."""
    directory = tmp_path / "state"
    directory.mkdir()
    write_migrated(directory / "claudeops.db")
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.fixture
async def chain(state: Path) -> int:
    """Return a chain of two sessions: web was down, and was restarted."""
    async with opened(Database(f"sqlite:///{state / 'claudeops.db'}")) as store:
        first = alarm("web")
        await one_session(store, replace(first, services_checked=(*first.services_checked, check("db"))), cost_usd=0.25)
        session = await claimed(store)
        assert session is not None
        await recorded(store, session, "toolu_1", allow(restart()))
        await store.queue.finish(ending(session, report(), cost_usd=1.5), rules=RULES)
    return 1


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Run a command in JSON mode; return its document."""
    code = call([*arguments, "--output-format", "json"])
    written = capsys.readouterr()
    document = json.loads(written.out)
    assert isinstance(document, dict)
    assert document["exit_code"] == code
    assert (document["command"], document["schema_version"]) == (arguments[0], "1.0")
    return document


def error_of(document: dict[str, object]) -> dict[str, object]:
    error = document["error"]
    assert isinstance(error, dict)
    return error


# --- answers ----------------------------------------------------------------------------------------------


async def test_a_chain_is_told_as_a_tree(chain: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["chain", "2"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"chain {chain} · manual · 2 sessions · $1.75")
    assert "└─ session 2  tier 2" in text
    assert "asked to  web answers 502" in text
    assert "restart of web" in text

    document = told(capsys, "chain", "5e0b1")  # fits both
    assert (document["found"], error_of(document)["kind"]) == (False, "session_not_found")
    document = told(capsys, "chain", "#1")
    assert (document["chain"], document["sessions_count"], document["cost_usd"]) == (1, 2, 1.75)


async def test_two_chains_stand_beside_each_other_with_where_they_part(
    chain: int, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(Database(f"sqlite:///{state / 'claudeops.db'}")) as store:
        await one_session(store, report(check("web")))
    assert call(["diff-chains", str(chain + 1), "3"]) == 0  # a later session of the first chain
    text = capsys.readouterr().out
    assert "They part at call 1." in text
    assert "<- they part here" in text
    assert call(["diff-chains", "1", "2"]) == 0
    assert "They do not part" in capsys.readouterr().out
    document = told(capsys, "diff-chains", "1", "3")
    assert (document["divergence"], document["only_first"], document["only_second"]) == (0, 1, 0)


async def test_a_policy_that_is_tried_names_the_calls_that_it_changes(
    chain: int, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"command": "df -h"}
    Database(f"sqlite:///{state / 'claudeops.db'}").execute(
        "UPDATE tool_calls SET input = :given, session_id = :chain", given=json.dumps(given), chain=chain
    )

    async def replayed(*arguments: str) -> int:
        return await anyio.to_thread.run_sync(call, ["policy", "replay", *arguments])

    file = tmp_path / "mine.toml"
    file.write_text('extends = "default"\nwithout = ["df"]\n', encoding="utf-8")
    assert await replayed(str(file), "--since", "2026-02-01") == 0
    text = capsys.readouterr().out
    assert "1 of 1 call" in text
    assert "df -h" in text
    file.write_text('extends = "default"\ncolour = "red"\n', encoding="utf-8")
    assert await replayed(str(file), "--since", "2026-02-01") == 78
    assert "line 2" in capsys.readouterr().err
    assert await replayed(str(tmp_path / "none.toml")) == 78


async def test_lists_have_their_counts_and_where_they_go_on(chain: int, capsys: pytest.CaptureFixture[str]) -> None:
    document = told(capsys, "list-checks", "--limit", "1")
    assert (document["checks_count"], document["before"]) == (1, 2)
    document = told(capsys, "list-checks", "WEB", "--before", "2")
    assert (document["checks_count"], document["before"]) == (1, None)
    document = told(capsys, "list-actions", "--service", "web", "--tier", "2")
    actions = document["actions"]
    assert isinstance(actions, list)
    [action] = actions
    assert (action["action_type"], action["held"], action["chain"]) == ("restart", None, chain)
    document = told(capsys, "spend", "--since", "2026-02-27")
    assert (document["booked_usd"], document["day_budget_usd"]) == (1.75, 25.0)
    document = told(capsys, "stats", "--since", "2026-02-27")
    assert (document["sessions"], document["outcomes"]) == (2, {"success": 2})

    assert call(["list-checks", "--limit", "1", "--utc"]) == 0
    text = capsys.readouterr().out
    assert "2026-03-01 12:0" in text
    assert "claudeops list-checks --before 2" in text


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("command", READERS)
def test_nothing_there_is_no_failure(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, command)["exit_code"] == 0
    assert call([command]) == 0
    written = capsys.readouterr()
    assert written.out
    assert written.err == ""


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("chain", "99"), "session_not_found"),
        (("diff-chains", "1", "99"), "session_not_found"),
        (("list-checks", "nobody"), "service_not_found"),
        (("config", "NONSENSE"), "setting_not_found"),
    ],
)
def test_what_does_not_exist_is_named(
    arguments: tuple[str, ...], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = told(capsys, *arguments)
    assert (document["found"], document["name"], error_of(document)["kind"]) == (False, arguments[1], kind)
    assert call(list(arguments)) == 1
    written = capsys.readouterr()
    assert (written.out, written.err.startswith("claudeops: ")) == ("", True)


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    "arguments",
    [
        ("list-events", "--since", "soon"),
        ("list-events", "--level", "awful"),
        ("list-actions", "--tier", "0"),
        ("list-checks", "--limit", "0"),
        ("chain", "web"),
        ("spend", "--by", "moon"),
        ("status", "--watch"),
    ],
)
def test_a_wrong_question_is_one_document(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    document = told(capsys, *arguments)
    assert (document["exit_code"], error_of(document)["kind"]) == (1, "usage")


# --- the database -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READERS)
def test_a_missing_database_is_one_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no database" in str(error_of(told(capsys, command))["message"])


@pytest.fixture
def locked(state: Path) -> Iterator[None]:
    """Lock the database as a copy of it by hand would."""
    with closing(sqlite3.connect(state / "claudeops.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.usefixtures("locked")
def test_a_locked_database_is_told_and_may_be_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(told(capsys, "list-events"))
    assert (error["kind"], error["retryable"]) == ("runtime", True)
    document = told(capsys, "status")
    assert document["database"] == {"available": False, "message": _locked(document)}


def _locked(document: dict[str, object]) -> str:
    database = document["database"]
    assert isinstance(database, dict)
    assert "locked" in database["message"]
    return str(database["message"])


# --- status -----------------------------------------------------------------------------------------------


async def test_status_without_a_daemon_says_so_and_tells_what_is_on_record(
    chain: int, capsys: pytest.CaptureFixture[str]
) -> None:
    document = told(capsys, "status")
    assert (document["lives"], document["exit_code"], document["queued"]) == (False, 1, 0)
    last = document["last_session"]
    assert isinstance(last, dict)
    assert (last["session_id"], last["chain"], last["outcome"]) == (2, chain, "success")
    assert document["money"] == {
        "today_usd": 0.0,
        "reserved_usd": 0.0,
        "day_budget_usd": 25.0,
        "timezone": "UTC",
    }
    assert call(["status"]) == 1
    assert "No daemon runs here" in capsys.readouterr().out


async def test_status_says_in_which_chats_answers_do_not_arrive(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "answers in ops are not received (Conflict\u202e): end the other program."
    async with opened(Database(f"sqlite:///{state / 'claudeops.db'}")) as store:
        event = NewEvent(level=EventLevel.CRITICAL, message=message, fingerprint="chat_deaf:ops")
        await store.probes.note(event, over=False, now=NOW)

    assert told(capsys, "status")["chats_deaf"] == [message]
    call(["status"])
    text = capsys.readouterr().out
    assert "chats        answers in ops are not received (Conflict\\u202e): end the other program." in text


# --- config -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("state")
def test_every_setting_says_where_it_is_from_and_no_secret_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-hunter2hunter2")
    monkeypatch.setenv("ANTHROPIC_API_KEY_FILE", str(key))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://ann:hunter2@gateway.example")
    monkeypatch.setenv("CLAUDEOPS_DATABASE_URL", "postgresql://ann:hunter2@db.example/ops?password=hunter2")
    monkeypatch.setenv("CLAUDEOPS_DAILY_BUDGET_USD", "3")

    assert call(["config"]) == 0
    assert "hunter2" not in capsys.readouterr().out
    settings = told(capsys, "config")["settings"]
    assert isinstance(settings, list)
    found = {one["name"]: (one["value"], one["origin"]) for one in settings}
    assert "hunter2" not in json.dumps(settings)
    assert found["ANTHROPIC_API_KEY"] == (MASK, f"file {key}")
    assert found["ANTHROPIC_BASE_URL"] == ("https://gateway.example", "environment")
    assert found["CLAUDEOPS_DATABASE_URL"] == ("postgresql+psycopg://db.example/ops", "environment")
    assert found["CLAUDEOPS_DAILY_BUDGET_USD"] == ("3", "environment")
    assert found["CLAUDEOPS_CHAIN_BUDGET_USD"] == ("3", "computed")
    assert found["CLAUDEOPS_INTERVAL"] == ("3600", "default")
    assert found["CLAUDEOPS_CRON"] == (None, "unset")
    assert "CLAUDEOPS_TIER4_MODEL" not in found


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("wrong", [{}, {"CLAUDEOPS_MAX_TIER": "eleven"}], ids=["right settings", "wrong settings"])
def test_no_secret_of_the_environment_is_shown_also_where_the_settings_are_wrong(
    wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is known to be a secret comes from settings that are right, so nothing may rest upon that alone."""
    given = {
        "ANTHROPIC_API_KEY": "sk-hunter2hunter2",
        "ANTHROPIC_BASE_URL": "https://ann:hunter2@gateway.example",
        "CLAUDEOPS_APPRISE_URLS": "json://hunter2@receiver.example",
        "CLAUDEOPS_DATABASE_URL": "postgresql://ann:hunter2@db.example/ops?password=hunter2",
        "CLAUDEOPS_HEARTBEAT_URL": "https://ann:hunter2@watch.example/ping",
    }
    for name, value in {**given, **wrong}.items():
        monkeypatch.setenv(name, value)

    call(["config"])
    assert "hunter2" not in capsys.readouterr().out
    settings = told(capsys, "config")["settings"]
    assert isinstance(settings, list)
    assert "hunter2" not in json.dumps(settings)
    found = {one["name"]: one["value"] for one in settings}
    assert (found["ANTHROPIC_API_KEY"], found["CLAUDEOPS_APPRISE_URLS"]) == (MASK, MASK)


@pytest.mark.usefixtures("state")
def test_settings_that_contradict_each_other_are_shown_with_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAUDEOPS_MAX_TIER", "eleven")
    document = told(capsys, "config", "max_tier")
    assert (document["exit_code"], document["sysexit"], document["settings_count"]) == (1, 78, 1)
    assert "CLAUDEOPS_MAX_TIER" in str(error_of(document)["message"])


# --- ids --------------------------------------------------------------------------------------------------


async def test_a_session_is_named_by_the_beginning_of_its_clis_id_where_that_fits_one(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with opened(Database(f"sqlite:///{state / 'claudeops.db'}")) as store:
        await one_session(store, report())

    def ask() -> None:
        assert told(capsys, "chain", "5E0B1BD8")["chain"] == 1
        assert told(capsys, "tail", "5e0b")["session_id"] == 1
        assert told(capsys, "tail", "5e0c")["found"] is False
        assert told(capsys, "stop", "5e0b")["handled"] is False

    await anyio.to_thread.run_sync(ask)  # some of them run an event loop of their own
