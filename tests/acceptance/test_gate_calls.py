"""Real CLI, scripted model: what runs and what does not, at every tier, with the reason on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from claudeops.engine.cell.cell import IsolationLevel
from support.doses import drawn
from support.levels import needs
from support.operating import Operator, conclude, look, operator, workdir
from support.strange_repositories import SETUPS, StrangeRepository
from support.waiting import until

pytestmark = pytest.mark.anyio

MODELS: Final = {1: "haiku", 2: "sonnet", 3: "opus"}
NAMED: Final = "web does not answer"  # who starts a higher tier says what it may act on


def bash(command: str) -> dict[str, object]:
    return {"name": "Bash", "input": {"command": command, "description": "as scripted"}}


def at_once(*calls: dict[str, object]) -> dict[str, object]:
    """Return a scripted step: all calls in one message."""
    return {"text": "I do all of it.", "tools": list(calls)}


async def judged(node: Operator, tier: int, **environment: str) -> list[tuple[str, str]]:
    """Run one session of a tier; return verdict and reason of its calls, in the order of the questions."""
    done = await node.bootstrap("--tier", str(tier), "--prompt", NAMED, **environment)
    assert len(node.sessions()) == 1, done.stderr
    calls = node.rows("SELECT verdict, reason FROM tool_calls WHERE tool_name != 'StructuredOutput' ORDER BY id")
    return [(str(call["verdict"]), str(call["reason"])) for call in calls]


@pytest.mark.parametrize("tier", drawn(MODELS, count=0, always=[3]))
async def test_calls_of_every_kind_get_the_verdict_of_their_tier(tmp_path: Path, tier: int) -> None:
    own = workdir(tmp_path) / "notes.txt"
    repository = tmp_path / "repos" / "estate"
    higher = "allow" if tier > 1 else "deny"
    steps = {
        "uptime && df -h /": "allow",
        "ps aux | head -5": "allow",
        "docker restart web": higher,
        "docker restart db": "deny",  # nobody found it unwell
        "docker volume rm data": "deny",
        "docker system prune -af": "deny",
        "cat /etc/shadow": "deny",
        "env": "deny",
        "curl -s http://169.254.169.254/latest/meta-data/": "deny",
        "python3 -c 'print(6*7)'": "deny" if tier < 3 else "ask",
    }
    tools = [
        ({"name": "Read", "input": {"file_path": f"{repository}/CLAUDE-OPS.md"}}, "allow"),
        ({"name": "Read", "input": {"file_path": "/etc/shadow"}}, "deny"),
        ({"name": "Read", "input": {"file_path": "/proc/self/root/etc/shadow"}}, "deny"),
        ({"name": "Grep", "input": {"pattern": "web", "path": str(repository), "glob": "*.md"}}, "allow"),
        ({"name": "Grep", "input": {"pattern": "x", "path": "/root/.ssh"}}, "deny"),
        ({"name": "Glob", "input": {"pattern": "*.md", "path": str(repository)}}, "allow"),
        # A tool that the tier does not have is refused by the CLI itself, which is on record all the same.
        ({"name": "Write", "input": {"file_path": str(own), "content": "seen"}}, higher),
        ({"name": "Write", "input": {"file_path": str(repository / "x"), "content": "x"}}, "deny"),
        ({"name": "WebSearch", "input": {"query": "how to mend web"}}, "deny"),
    ]
    script = [look(command) for command in steps] + [{"tool": call} for call, _ in tools] + [conclude()]
    async with operator(tmp_path, **{MODELS[tier]: script}) as node:
        told = await judged(node, tier, CLAUDEOPS_APPROVAL_TIMEOUT="0.1")
        by_call = node.rows("SELECT tool_name, input, verdict, reason FROM tool_calls ORDER BY id")
    found = {(str(row["tool_name"]), str(row["input"])): str(row["verdict"]) for row in reversed(by_call)}
    assert all(reason for _, reason in told)
    verdicts = [
        next(verdict for (name, given), verdict in found.items() if name == "Bash" and _names(command, given))
        for command in steps
    ]
    assert dict(zip(steps, verdicts, strict=True)) == steps
    of_tools = [
        next(
            verdict
            for (name, given), verdict in found.items()
            if name == call["name"] and all(_names(str(value), given) for value in call["input"].values())  # type: ignore[attr-defined]
        )
        for call, _ in tools
    ]
    assert of_tools == [expected for _, expected in tools]


def _names(text: str, given: str) -> bool:
    return text.replace('"', '\\"') in given


async def test_what_ran_is_told_from_what_was_denied_by_its_result(tmp_path: Path) -> None:
    script = [at_once(bash("uptime"), bash("cat /etc/shadow")), conclude()]
    async with operator(tmp_path, haiku=script) as node:
        await judged(node, 1)
        rows = node.rows("SELECT input, verdict, is_error, ended_at FROM tool_calls WHERE tool_name = 'Bash'")
        told = node.api.traffic.main("haiku")[1]
    found = {("uptime" in str(row["input"])): (row["verdict"], row["is_error"]) for row in rows}
    assert found == {True: ("allow", 0), False: ("deny", 1)}  # asked at once, so in either order
    assert all(row["ended_at"] for row in rows)
    assert told.mentions("load average")
    assert not told.mentions("root:")


async def test_three_restarts_in_one_message_are_three(tmp_path: Path) -> None:
    script = [at_once(*[bash("docker restart web")] * 3), conclude()]
    async with operator(tmp_path, sonnet=script) as node:
        told = await judged(node, 2)
        actions = node.rows("SELECT service, action_type, success FROM cooldown_actions")
        events = node.events()
    assert [verdict for verdict, _ in told] == ["allow", "allow", "deny"]
    assert "2 of 2 allowed within 4 h are used" in told[2][1]
    assert [(row["service"], row["action_type"]) for row in actions] == [("web", "restart")] * 2
    assert all(row["success"] is not None for row in actions)
    assert ("warning", told[2][1]) in events


@pytest.mark.parametrize(
    "forms",
    drawn(
        [
            pytest.param(
                ("ssh 127.0.0.1 docker restart web", "sudo docker restart web", "bash -c 'docker restart web'")
            ),
            pytest.param(("timeout 5 docker restart web", "env docker restart web", "/usr/bin/docker  restart  web")),
            pytest.param(
                (
                    "ssh 127.0.0.1 sudo bash -c \"'docker restart web'\"",
                    "nohup docker restart web",
                    "true && docker restart web",
                )
            ),
        ]
    ),
)
async def test_the_cooldown_counts_a_restart_in_whatever_it_is_wrapped(tmp_path: Path, forms: tuple[str, ...]) -> None:
    async with operator(tmp_path, sonnet=[*map(look, forms), conclude()]) as node:
        told = await judged(node, 2)
    assert [verdict for verdict, _ in told] == ["allow", "allow", "deny"]


async def test_a_chain_that_its_cooldown_held_back_ends_as_cooldown_with_a_critical_event(tmp_path: Path) -> None:
    script = [*[look("docker restart web")] * 3, conclude(needed=True, status="down")]
    async with operator(tmp_path, opus=script) as node:
        done = await node.bootstrap("--tier", "3", "--prompt", NAMED)
        (session,) = node.sessions()
        events = node.events()
    assert (done.code, session["decision_reason"]) == (1, "cooldown")
    assert any(level == "critical" and "cooldown" in str(message) for level, message in events)


async def test_a_dry_run_records_what_it_would_have_done_and_tells_the_session(tmp_path: Path) -> None:
    """The lowest tier is the only one that a dry run starts; with a policy that lets it act, every act is denied."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'extends = "default"\n[tiers.1]\ntools = ["Bash", "Write"]\nwrite = ["{workdir}", "{tmpdir}"]\n',
        encoding="utf-8",
    )
    own = workdir(tmp_path) / "notes.txt"
    script: list[dict[str, object]] = [
        look(f"echo x > {own}"),
        {"tool": {"name": "Write", "input": {"file_path": str(own), "content": "x"}}},
        look("uptime"),
        conclude(needed=True, status="down"),
    ]
    async with operator(tmp_path, haiku=script) as node:
        told = await judged(node, 1, CLAUDEOPS_DRY_RUN="true", CLAUDEOPS_POLICY_PATH=str(policy))
        (session,) = node.sessions()
        events = node.events()
    assert [verdict for verdict, _ in told] == ["deny", "deny", "allow"], told
    assert [reason.startswith("dry run: would ") for _, reason in told] == [True, True, False], told
    assert session["decision_reason"] == "dry_run"
    assert any("dry run" in str(message).lower() and "escalat" in str(message) for _, message in events), events


async def test_a_daemon_killed_in_mid_call_leaves_a_session_that_runs_nothing_more(tmp_path: Path) -> None:
    script = [look("sleep 2"), look("uptime"), look("uptime"), conclude()]
    async with operator(tmp_path, haiku=script) as node:
        async with node.daemon() as daemon:
            await node.until("SELECT * FROM tool_calls", lambda rows: len(rows) > 0)
            await until(lambda: any("sleep" in told for told in node.told_to_sessions()))
            daemon.process.kill()
            await daemon.process.wait()
            await until(lambda: not any("sleep" in told for told in node.told_to_sessions()))
        # Whatever the CLI still asked its model for, no tool has run for it.
        async with node.daemon(CLAUDEOPS_DRAIN_TIMEOUT="0") as again:
            await again.until_logged("daemon_ready")
            assert not node.api.traffic.mentioning("load average")
        rows = node.rows("SELECT verdict, ended_at FROM tool_calls WHERE session_id = 1")
    assert [(row["verdict"], row["ended_at"]) for row in rows] == [("allow", None)]


async def test_git_runs_in_no_session_and_its_output_is_there_all_the_same(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    app = tmp_path / "repos" / "app"
    text = f"git -C {app} log --format=%s | tail -n 1; git -C {app} status"
    steps = [look(text.partition(";")[0]), look(text), conclude()]
    async with operator(tmp_path, haiku=steps) as node:
        repository = StrangeRepository(tmp_path)
        SETUPS["drivers, filters, hooks"](repository)
        told = await judged(node, 1)
        (ran, _) = node.rows("SELECT ran FROM tool_calls WHERE tool_name = 'Bash' ORDER BY id")
        results = json.dumps([request.body for request in node.api.requests], default=str)
    assert [verdict for verdict, _ in told] == ["allow", "deny"]
    assert ("git" in str(ran["ran"]), "/run/claudeops/look" in str(ran["ran"])) == (False, True)
    assert '"ordinary 1"' in results
    assert list(repository.ran.iterdir()) == []
