"""Commands on sessions and tiers beyond the contract's vectors: what they do to the record, and what they refuse."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import cast

import anyio
import pytest

from claudeops.app.stages import STAGES, StageWriter, read_stages
from claudeops.clock import Clock
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.sessions import Session
from claudeops.errors import ConfigurationError
from claudeops.store.locks import claim_database
from claudeops.store.store import Store
from support.commanding import Shell, shell_in
from support.doses import drawn
from support.estate import report
from support.store_values import NOW, RULES, ending, gone, started

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def shell(
    tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    return shell_in(tmp_path, migrated_sqlite, monkeypatch, capsys)


def log_of(cli_session_id: str | None, *, cost: float = 0.25) -> bytes:
    named = {"session_id": cli_session_id}
    used = {"usage": {"input_tokens": 12, "output_tokens": 3}, "total_cost_usd": cost, "structured_output": report()}
    frames = [
        {"type": "system", "subtype": "init", **named},
        {"type": "result", "subtype": "success", "is_error": False, "num_turns": 4, "result": "Well.", **used, **named},
    ]
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def lost(shell: Shell) -> Path:
    """Leave a session whose daemon has died, with a whole log; return the log."""

    async def die(store: Store) -> Session:
        session = await started(store)
        await gone(store, at=NOW)
        return session

    session = shell.prepare(die)
    log = shell.root / "results" / "session-000001.ndjson"
    log.write_bytes(log_of(session.cli_session_id))
    shell.database.execute("UPDATE sessions SET log_path = :path", path=str(log))
    return log


# --- flush-transcript and replay ----------------------------------------------------------------------------


def test_what_a_lost_session_has_said_is_taken_in_once(shell: Shell) -> None:
    lost(shell)
    first = shell.ask("flush-transcript", "1")
    assert (first["flushed"], first["messages_count"], first["input_tokens"], first["output_tokens"]) == (
        True,
        2,
        12,
        3,
    )
    assert "report" in str(first["added"])
    rows = shell.database.rows("sessions")

    assert shell.ask("flush-transcript", "s1")["added"] == []
    assert shell.database.rows("sessions") == rows


def test_the_copy_of_a_log_is_unpacked_and_for_its_owner_alone(shell: Shell) -> None:
    log = lost(shell)
    target = shell.root / "copy.ndjson"
    assert shell.ask("flush-transcript", "1", "--output", str(target))["path"] == str(target)
    assert target.read_bytes() == log.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in shell.root.glob("copy*")) == ["copy.ndjson"]


def test_a_running_session_is_not_taken_in(shell: Shell) -> None:
    shell.prepare(started)
    error = shell.ask("flush-transcript", "1")["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["retryable"]) == ("session", True)


def test_a_log_from_elsewhere_is_replayed_and_nothing_written(shell: Shell) -> None:
    file = shell.root / "elsewhere.ndjson"
    file.write_bytes(log_of("9f7b0000-0000-4000-8000-000000000000"))
    told = shell.ask("replay", str(file), "--tier", "2")
    assert (told["session_id"], told["tier"], told["outcome"], told["extraction_method"]) == (
        "",
        2,
        "success",
        "structured",
    )
    assert (told["decision"], told["on_record"]) == ("no_evidence", None)
    assert shell.database.rows("sessions") == []


def test_the_log_of_a_session_on_record_is_compared_with_its_row(shell: Shell) -> None:
    told = shell.ask("replay", str(lost(shell)))
    assert (told["session_id"], told["on_record"]) == ("1", {"outcome": "lost", "decision": "session_failed"})


def test_a_log_that_is_not_there_is_a_missing_file(shell: Shell) -> None:
    document = shell.ask("replay", "nothing.ndjson")
    error = document["error"]
    assert isinstance(error, dict)
    assert (error["kind"], error["operation"]) == ("filesystem", "read_log")


# --- delete-session -----------------------------------------------------------------------------------------


def test_the_log_goes_with_the_session(shell: Shell) -> None:
    log = lost(shell)
    shell.database.execute("DELETE FROM sessions WHERE id = 2")  # the second try
    assert shell.ask("delete-session", "1")["paths"] == [str(log)]
    assert not log.exists()


def test_a_running_session_is_refused_by_policy(shell: Shell) -> None:
    shell.prepare(started)
    document = shell.ask("delete-session", "1")
    error = document["error"]
    assert isinstance(error, dict)
    assert (document["deleted"], error["kind"], error["operation"]) == (False, "policy", "delete-session")


def test_a_shortened_id_that_fits_several_is_told_with_all_of_them(shell: Shell) -> None:
    async def two(store: Store) -> Session:
        await store.queue.finish(ending(await started(store)), rules=RULES)
        second = await started(store)
        await store.queue.finish(ending(second), rules=RULES)
        return second

    shell.prepare(two)
    shell.database.execute("UPDATE sessions SET cli_session_id = 'abcd000' || id")
    document = shell.ask("load-session", "abcd")
    assert "2, 1" in json.dumps(document["error"])
    assert shell.ask("load-session", "abcd0002")["session_id"] == "2"


# --- exec-command -------------------------------------------------------------------------------------------


def test_a_session_that_ends_when_it_is_asked_to_has_seen_that(shell: Shell) -> None:
    shell.script({"hang": True})
    document = shell.ask("exec-command", "tier1", "--timeout", "1")
    turn = document["turn"]
    assert isinstance(turn, dict)
    assert (document["exit_code"], document["sysexit"]) == (2, 124)
    assert (turn["stop_reason"], turn["cancel_observed"], document["cancel_observed"]) == ("timeout", True, True)


def test_missing_credentials_are_of_the_kind_auth(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.script()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for asked in (["exec-command", "tier1"], ["bootstrap"]):
        error = shell.ask(*asked)["error"]
        assert isinstance(error, dict)
        assert (error["kind"], error["operation"]) == ("auth", "resolve_credentials")
        assert (error["target"], error["retryable"]) == ("ANTHROPIC_API_KEY", False)
        assert "ANTHROPIC_API_KEY" in error["hint"]


def test_a_dry_run_lets_no_higher_tier_run(shell: Shell) -> None:
    shell.set(CLAUDEOPS_DRY_RUN="true")
    document = shell.ask("exec-command", "remediate", "mend web")
    error = document["error"]
    assert isinstance(error, dict)
    assert (document["handled"], document["prompt"], error["kind"], error["operation"]) == (
        False,
        "mend web",
        "policy",
        "escalate",
    )


@pytest.mark.parametrize("kind", drawn([HoldKind.PAUSED, HoldKind.BUDGET]))
def test_what_is_held_for_now_is_to_be_tried_later_whatever_asks_and_in_whatever_form(
    shell: Shell, kind: HoldKind
) -> None:
    async def hold(store: Store) -> None:
        now = Clock().now()
        await store.holds.hold(Hold(kind=kind, reason="not today", since=now), now=now)

    shell.script({"exit": 0})
    shell.prepare(hold)
    assert shell.call("bootstrap", "--prompt", "look")[0] == 75
    assert shell.call("exec-command", "tier1", "look")[0] == 75
    assert shell.call("exec-command", "tier1", "look", "--output-format", "stream-json")[0] == 75
    for asked in (("bootstrap", "--prompt", "look"), ("exec-command", "tier1", "look")):
        assert shell.ask(*asked)["sysexit"] == 75
    assert shell.database.rows("sessions") == []


def test_nobody_leaves_a_tier_to_a_daemon_that_is_not_there(shell: Shell) -> None:
    document = shell.ask("exec-command", "tier1", "--no-wait")
    assert (document["sysexit"], shell.database.rows("sessions")) == (75, [])


def test_nothing_is_left_to_a_daemon_while_sessions_are_held(shell: Shell) -> None:
    assert shell.call("pause", "--reason", "moving house")[0] == 0
    with claim_database(shell.database.url, shell.root / "state"):
        document = shell.ask("exec-command", "tier1", "look", "--no-wait")
        assert shell.ask("bootstrap", "--prompt", "look", "--detach")["sysexit"] == document["sysexit"] == 75
    error = document["error"]
    assert isinstance(error, dict)
    assert "moving house" in error["message"]
    assert shell.database.rows("sessions") == []


def test_a_command_says_who_starts_a_session(shell: Shell) -> None:
    shell.script({"result": {"structured_output": report()}})
    with claim_database(shell.database.url, shell.root / "state"):
        assert shell.ask("exec-command", "tier1", "look", "--no-wait")["sysexit"] == 0
        assert shell.call("bootstrap", "--prompt", "look", "--detach")[0] == 0
    me = next((user.pw_name for user in pwd.getpwall() if user.pw_uid == os.getuid()), f"uid {os.getuid()}")
    assert [row["started_by"] for row in shell.database.rows("sessions")] == [me, me]
    assert me in shell.call("load-session", "1")[1]
    (listed, _) = cast("list[dict[str, object]]", shell.ask("list-sessions")["sessions"])
    assert listed["started_by"] == me
    assert f"manual by {me}" in shell.call("chain", "1")[1]


def test_a_session_that_fails_has_its_error(shell: Shell) -> None:
    shell.script({"exit": 3})
    document = shell.ask("exec-command", "tier1")
    error = document["error"]
    assert isinstance(error, dict)
    assert (document["exit_code"], document["handled"], error["kind"], error["target"]) == (
        1,
        False,
        "session",
        "tier1",
    )


# --- bootstrap-graph ----------------------------------------------------------------------------------------


def test_the_stages_of_a_start_are_kept(shell: Shell) -> None:
    shell.script({"result": {"structured_output": report()}})
    assert {stage["state"] for stage in stages(shell)} == {"waiting"}
    shell.ask("exec-command", "tier1")
    assert [(stage["name"], stage["state"]) for stage in stages(shell)] == [(name, "done") for name in STAGES]


def stages(shell: Shell) -> list[dict[str, object]]:
    found = shell.ask("bootstrap-graph")["stages"]
    assert isinstance(found, list)
    return found


def test_the_stage_at_which_a_start_failed_is_named(tmp_path: Path) -> None:
    async def work(done: object) -> None:
        assert callable(done)
        done()

    async def start() -> None:
        async with StageWriter(file=tmp_path / "startup.json", clock=Clock(), write=work).kept() as kept:
            await kept.enter("isolation")
            raise ConfigurationError("no level works.")

    with pytest.raises(ConfigurationError):
        anyio.run(start)
    found = read_stages(tmp_path / "startup.json")
    assert found is not None
    states = {stage.name: (stage.state, stage.error) for stage in found.stages}
    assert states["lock"] == ("done", None)
    assert states["isolation"] == ("failed", "no level works.")
    assert states["ready"] == ("waiting", None)


# --- completion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_claudeops(name: str, shell: Shell) -> None:
    code, out, err = shell.call("completion", name)
    assert (code, err) == (0, "")
    assert "_CLAUDEOPS_COMPLETE" in out


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("load-session ", "2 1"), ("list-sessions --service w", "web"), ("approve ", ""), ("load-ses", "load-session")],
)
def test_ids_and_names_are_completed_from_the_record(
    line: str, wanted: str, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(shell)
    shell.database.execute(
        "INSERT INTO service_checks (session_id, service, status, source, checked_at)"
        " VALUES (1, 'web', 'healthy', 'report', '2026-03-01 12:00:00')"
    )
    words = f"claudeops {line}"
    monkeypatch.setenv("_CLAUDEOPS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        shell.call()
    assert [part.partition(",")[2] for part in shell.capsys.readouterr().out.split()] == wanted.split()


def test_without_a_database_nothing_is_completed_and_nothing_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.database.file.unlink()
    monkeypatch.setenv("_CLAUDEOPS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "claudeops load-session ")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        shell.call()
    assert "".join(shell.capsys.readouterr()).strip() == ""
