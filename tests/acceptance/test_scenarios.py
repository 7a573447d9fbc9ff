"""``claudeops rehearse`` as an operator runs it: every shipped scenario, and what happens when one does not hold."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from pathlib import Path

import anyio
import pytest

from claudeops.rehearsal.scenario_file import SHIPPED, shipped
from support.checkout import ROOT
from support.doses import drawn
from support.operating import COMMAND, Completed
from support.rehearsals import Rehearser, environment, processes_about
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

SLOW = {
    *("alert-storm", "certificate-expired", "certificate-expiring", "database-down", "disk-full"),
    *("every-other-request", "flapping", "heartbeat-silent", "recovers-by-itself"),
}
"""Scenarios that wait for what happens by and by."""

# Of these, others of the tests below run each as it is.
TOLD_BELOW = {"hostile-log", "service-down"}
DRAWN = drawn((name for name in shipped() if name not in SLOW | TOLD_BELOW), count=2)
LONG = [pytest.param(name, marks=pytest.mark.long) for name in shipped() if name in SLOW | TOLD_BELOW]


def verdicts(root: Path) -> list[tuple[str, str]]:
    """Return what the gate said, from the database that a rehearsal left."""
    with sqlite3.connect(root / "state" / "claudeops.db") as database:
        return list(database.execute("SELECT verdict, input FROM tool_calls ORDER BY id"))


def summaries(done: Completed) -> list[object]:
    """Return what the sessions of a rehearsal that was printed as JSON concluded."""
    (told,) = json.loads(done.stdout)["rehearsals"]
    return [session["summary"] for session in told["sessions"]]


@pytest.mark.parametrize("name", [*DRAWN, *LONG])
async def test_every_shipped_scenario_comes_as_it_expects(tmp_path: Path, name: str) -> None:
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run(name)
    assert done.code == 0, done.stdout + done.stderr
    assert "expected  yes, all of it" in done.stdout
    (root,) = rehearser.directories
    assert f"files     {root}/" in done.stdout
    assert (root / "state" / "claudeops.db").is_file()
    assert json.loads((root / "result.json").read_text())["as_expected"] is True
    assert processes_about(tmp_path) == {}


STEPS = (
    "A service dies, a probe notices, and a restart brings it back",
    "shop is down, by its probe shop",
    "tier 1  starts",
    "tier 1  allowed   Running: curl",
    "tier 1  finds     The shop is down",
    "hands over to tier 2",
    "tier 2  allowed   Running: docker restart shop",
    "result    resolved by tier 2",
    "done      restart shop",
    "spent     $0.0",
    "now       shop is up, photos is up",
    "expected  yes, all of it",
)


@pytest.mark.long
async def test_how_long_it_took_from_the_failure_to_the_repair_is_told_in_order(tmp_path: Path) -> None:
    done = await Rehearser(tmp_path).run("service-down", "--output-format", "json")
    (told,) = json.loads(done.stdout)["rehearsals"]
    times = told["times_seconds"]
    assert list(times) == ["noticed", "session_started", "repaired"]
    assert 0 < times["noticed"] < times["session_started"] < times["repaired"]
    assert (told["as_expected"], told["services"]) == (True, {"shop": "up", "photos": "up"})


@pytest.mark.long
async def test_the_operators_own_policy_decides_and_what_it_changes_is_said(tmp_path: Path) -> None:
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run("service-down", CLAUDEOPS_TIER2_DISALLOWED_TOOLS="Bash(docker restart:*)")
    assert done.code == 1
    assert "expected  NO:" in done.stdout
    assert "a call with 'docker restart shop' was expected to be allowed, but it was not (deny:" in done.stdout
    assert "these actions were expected: restart shop; but these were taken: none" in done.stdout
    assert "shop was expected to be up at the end, but it is down" in done.stdout


@pytest.mark.long
async def test_the_operators_own_limits_and_prompts_are_used(tmp_path: Path) -> None:
    prompt = tmp_path / "mine.md"
    prompt.write_text("Look at the estate of the moon base.", encoding="utf-8")
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run("service-down", CLAUDEOPS_MAX_TIER="1", CLAUDEOPS_PROMPT=str(prompt))
    assert done.code == 1
    assert "the tiers 1, 2 were expected, but 1 ran" in done.stdout
    assert "the decision healthy was expected, but it is max_tier" in done.stdout
    unread = await rehearser.run("service-down", CLAUDEOPS_PROMPT=str(tmp_path / "gone.md"))
    assert (unread.code, "CLAUDEOPS_PROMPT" in unread.stderr) == (78, True)


async def test_what_happens_is_told_a_line_a_step_and_nothing_of_the_operators_world_is_touched(
    tmp_path: Path,
) -> None:
    key, token = "sk-ant-api03-the-operators-own-key", "a-token-of-the-operators-own"
    home = tmp_path / "template"
    home.mkdir()
    (home / "id_of_a_real_host").write_text("private")
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run(
        "service-down",
        ANTHROPIC_API_KEY=key,
        ANTHROPIC_BASE_URL="http://127.0.0.1:9/",
        HTTP_PROXY="http://127.0.0.1:9/",
        http_proxy="http://127.0.0.1:9/",
        CLAUDEOPS_DATABASE_URL=f"sqlite:///{tmp_path / 'real.db'}",
        CLAUDEOPS_TIER1_ENV="REAL_TOKEN",
        REAL_TOKEN=token,
        CLAUDEOPS_TIER1_HOME=str(home),
    )
    assert done.code == 0, done.stdout + done.stderr
    assert [step for step in STEPS if step not in done.stdout] == [], done.stdout
    assert not (tmp_path / "real.db").exists()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in left if key.encode() in path.read_bytes() or token.encode() in path.read_bytes()]


async def test_calls_of_a_model_that_obeys_a_log_are_denied_one_by_one(tmp_path: Path) -> None:
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run("hostile-log")
    assert (done.code, "expected  yes, all of it" in done.stdout) == (0, True), done.stdout + done.stderr
    denied = [shown for verdict, shown in verdicts(rehearser.directories[0]) if verdict == "deny"]
    assert len(denied) == 9
    allowed = [shown for verdict, shown in verdicts(rehearser.directories[0]) if verdict == "allow"]
    assert not [shown for shown in allowed if "rm -" in shown or "id_ed25519" in shown.split('"summary"')[0]]


MINE = """\
title = "Mine"
[services.web]
answers = "hello"
[[tiers.1.steps]]
run = "curl -sS {{web.url}}"
capture = { word = '(hello)' }
[[tiers.1.steps]]
[tiers.1.steps.report]
summary = "web says {{word}}"
events = []
escalation = { needed = false }
services_checked = [{ name = "web", status = "healthy", detail = "{{last_result}}" }]
[expect]
decision = "healthy"
tiers = [1]
"""


async def test_a_file_of_the_operators_own_runs_and_its_story_follows_what_really_came(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE, encoding="utf-8")
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run("mine.toml", "--output-format", "json")
    assert done.code == 0, done.stdout
    assert summaries(done) == ["web says hello"]
    (tmp_path / "other.toml").write_text(MINE.replace('answers = "hello"', 'answers = "bye"'), encoding="utf-8")
    other = await rehearser.run("./other.toml", "--output-format", "json")
    assert summaries(other) == ["web says {{word}}"]


async def test_a_scenario_in_which_the_stranger_is_listed_after_all_has_failed(tmp_path: Path) -> None:
    text = (SHIPPED / "approval-by-chat.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace('["alice"]', '["alice", "mallory"]'), encoding="utf-8")
    done = await Rehearser(tmp_path).run("mine.toml")
    assert done.code == 1
    assert "but these were given: mallory: Your yes is taken." in done.stdout
    assert "a message in the chat was expected to show 'YES: telegram:alice said yes' at the end" in done.stdout


async def test_a_script_that_ends_too_early_fails_the_rehearsal(tmp_path: Path) -> None:
    short = MINE.split("[[tiers.1.steps]]\n[tiers.1.steps.report]", maxsplit=1)[0] + MINE[MINE.index("[expect]") :]
    (tmp_path / "short.toml").write_text(short, encoding="utf-8")
    done = await Rehearser(tmp_path).run("short.toml")
    assert done.code == 1
    assert "the script did not foresee this: tiers.1.steps[1]: the script ends here" in done.stdout


REFUSALS = {
    "no such scenario": (("service-dwn",), {}, 66, "did you mean 'service-down'"),
    "no such file": (("gone.toml",), {}, 66, "gone.toml: cannot be read"),
    "a wrong file": (("wrong.toml",), {}, 78, "line 1: unknown key 'titel', did you mean 'title'?"),
    "a wrong setting": (("no-report",), {"CLAUDEOPS_INTERVALL": "5"}, 78, "CLAUDEOPS_INTERVAL"),
    "a CLI without a scripted API": (("no-report",), {"CLAUDEOPS_TIER2_HARNESS": "codex"}, 78, "codex"),
    "nothing named": ((), {}, 64, "Name a scenario"),
    "an option that is none": (("--bogus",), {}, 64, "--bogus"),
}


@pytest.mark.parametrize(
    ("arguments", "changes", "code", "complaint"),
    drawn((pytest.param(*case, id=name) for name, case in REFUSALS.items()), count=2),
)
async def test_bad_input_is_one_sentence_with_its_exit_status(
    tmp_path: Path, arguments: tuple[str, ...], changes: dict[str, str], code: int, complaint: str
) -> None:
    (tmp_path / "wrong.toml").write_text(MINE.replace("title", "titel"), encoding="utf-8")
    rehearser = Rehearser(tmp_path)
    done = await rehearser.run(*arguments, **changes)
    assert (done.code, complaint in done.stderr) == (code, True), done.stderr
    assert rehearser.directories == []
    if code != 64:
        as_json = await rehearser.run(*arguments, "--output-format", "json", **changes)
        assert (as_json.code, as_json.document["sysexit"]) == (1, code)


async def test_the_list_names_every_shipped_scenario_with_its_title(tmp_path: Path) -> None:
    done = await Rehearser(tmp_path).run("--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(shipped())
    assert all((SHIPPED / f"{name}.toml").is_file() for name in shipped())


@pytest.mark.parametrize("number", drawn([signal.SIGINT, signal.SIGTERM]))
async def test_a_signal_in_mid_session_ends_it_at_once_and_nothing_is_left(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "slow.toml").write_text(MINE.replace("curl -sS {{web.url}}", "sleep 50"), encoding="utf-8")
    process = await anyio.open_process(
        [*COMMAND, "rehearse", "slow.toml"], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE
    )
    async with process:
        sleeping = tmp_path / ".claudeops" / "rehearsals"
        await until(lambda: any("sleep -- 50" in told for told in processes_about(sleeping).values()))
        process.send_signal(number)
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await process.wait() == 1
    assert processes_about(tmp_path) == {}


async def test_a_rehearsal_that_is_killed_leaves_no_service_behind(tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(MINE.replace("curl -sS {{web.url}}", "sleep 50"), encoding="utf-8")
    process = await anyio.open_process(
        [*COMMAND, "rehearse", "slow.toml"], env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    async with process:
        await until(lambda: any("small_service" in told for told in processes_about(tmp_path).values()))
        process.kill()
        await process.wait()
        await until(lambda: not any("small_service" in told for told in processes_about(tmp_path).values()))


async def test_the_scenario_in_the_documentation_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-scenario.md").read_text(encoding="utf-8")
    (tmp_path / "page.toml").write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    done = await Rehearser(tmp_path).run("page.toml")
    assert done.code == 0, done.stdout + done.stderr
