"""Known failures of headless CLI sessions: what they share, are told, may do, and give away."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.sessions import Session
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.harness.claude import ClaudeHarness
from claudeops.store.calls import Calls
from claudeops.structs import replace
from support.aftermath import assert_settled
from support.caged import caged
from support.estate import Estate, deliver, look, report
from support.operating import conclude, operator
from support.operating import look as scripted_look

pytestmark = pytest.mark.anyio


def told(estate: Estate) -> list[dict[str, dict[str, str]]]:
    """Return how the sessions of the stand-in were started, by the ``tell`` step."""
    return [json.loads(path.read_text()) for path in sorted((estate.root / "told").glob("*.json"))]


def tell(estate: Estate) -> Mapping[str, object]:
    (estate.root / "told").mkdir(exist_ok=True)
    return {"tell": str(estate.root / "told")}


async def test_row_17_configuration_is_corrupted_by_parallel_sessions(estate: Estate) -> None:
    """Every session has a configuration of its own, seeded from nobody's, and it is gone with the session."""
    estate.script(tell(estate), {"grow": "x", "every": 0, "times": 1}, look(), deliver(report()))
    sessions = [await estate.queue() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for queued in sessions:
            tasks.start_soon(end_of, estate, queued.id)
    places = {start["environment"]["CLAUDE_CONFIG_DIR"] for start in told(estate)}
    homes = {start["environment"]["HOME"] for start in told(estate)}
    assert (len(places), len(homes)) == (3, 3)
    assert [row["outcome"] for row in estate.rows("SELECT * FROM sessions")] == ["success"] * 3
    assert [place for place in places | homes if Path(place).exists()] == []


async def end_of(estate: Estate, chain: int) -> None:
    ending = await SessionRunner(context=estate.context).run(await estate.claim(chain), StopControl())
    await estate.store.queue.finish(ending, rules=estate.context.rules)


async def test_row_20_tools_of_an_mcp_server_are_missing(tmp_path: Path) -> None:
    """The real CLI with a server that cannot be started: ended at once, and looked for once more."""
    server = {"mcpServers": {"grafana": {"command": str(tmp_path / "no-such-server")}}}
    (tmp_path / "mcp.json").write_text(json.dumps(server), encoding="utf-8")
    async with operator(tmp_path, haiku=[scripted_look("uptime"), conclude()]) as node:
        done = await node.bootstrap(CLAUDEOPS_MCP_CONFIG=str(tmp_path / "mcp.json"))
        assert node.processes_of_sessions() == []
    first, retry = node.sessions()
    # Its first call to the model may have been answered by then.
    assert (first["outcome"], first["decision_reason"]) == ("error", "session_failed"), done.stderr
    assert "MCP server" in str(first["error"])
    assert (retry["trigger"], retry["outcome"], retry["decision_reason"]) == ("retry", "success", "healthy"), (
        done.stderr
    )
    (event,) = node.rows("SELECT level, count FROM events WHERE message LIKE 'MCP servers are not connected: grafana%'")
    assert event == {"level": "warning", "count": 2}


@pytest.mark.parametrize("status", ["pending", "failed", "needs-auth"])
async def test_row_20_whatever_the_cli_calls_it(estate: Estate, status: str) -> None:
    estate.with_context(mcp_servers={"grafana": {"command": "/bin/true"}})
    servers = [{"name": "grafana", "status": status}]
    init = {"type": "system", "subtype": "init", "tools": ["Bash"], "permissionMode": "dontAsk", "mcp_servers": servers}
    row = await estate.finished({"frame": init}, {"hang": True})
    assert (row["outcome"], row["decision_reason"]) == ("error", "session_failed")
    assert f"grafana ({status})" in str(estate.rows("SELECT message FROM events"))


async def test_row_23_prompt_too_long_for_an_argument(estate: Estate) -> None:
    prompt = "look at the disk of node " + "seven, " * 60_000
    row = await asked(estate, prompt)
    assert (row["outcome"], row["decision_reason"]) == ("success", "healthy")
    (start,) = told(estate)
    assert len(prompt) > 3 * 128 * 1024
    assert "seven" not in json.dumps([start["arguments"], start["environment"]])


async def asked(estate: Estate, prompt: str) -> dict[str, object]:
    estate.script(tell(estate), look(), deliver(report()))
    queued = await estate.queue(prompt_text=prompt)
    await end_of(estate, queued.id)
    return estate.row(queued.id)


async def test_row_24_allow_list_is_not_enforced_on_chained_commands(tmp_path: Path) -> None:
    """The command in front is allowed by the policy; what hangs on it is not, however it is tied to it."""
    changed = tmp_path / "changed"
    tied = ("; touch {}", " && touch {}", " | tee {}", " $(touch {})", "\ntouch {}")
    ways = [f"uptime{way.format(changed)}" for way in tied]
    async with operator(tmp_path, haiku=[*map(scripted_look, ways), scripted_look("uptime"), conclude()]) as node:
        done = await node.bootstrap()
        calls = node.rows("SELECT input, verdict FROM tool_calls WHERE tool_name = 'Bash' ORDER BY id")
    assert [call["verdict"] for call in calls] == ["deny"] * len(ways) + ["allow"], done.stderr
    assert not changed.exists()


async def test_row_25_hooks_fail_open_and_the_gate_does_not(tmp_path: Path) -> None:
    """The real CLI, whose question about a call is never answered: it gives up waiting, and the call does not run."""
    ran = tmp_path / "ran"
    async with caged(tmp_path, IsolationLevel.NONE, f"touch {ran}") as cage:
        estate = cage.estate

        class Stuck(Calls):
            """Its write never comes back for calls of Bash."""

            async def record_call(self, session: Session, call: ToolCall, *given: Any, **more: Any) -> Verdict:
                if call.tool_name == "Bash":
                    await anyio.sleep_forever()
                return await super().record_call(session, call, *given, **more)

        harnesses = {**estate.context.clis.harnesses, "claude": ClaudeHarness(hook_timeout_seconds=1)}
        estate.with_context(store=replace(estate.store, calls=Stuck(estate.store.database)), harnesses=harnesses)
        ending = await cage.run()
        await estate.store.queue.finish(ending, rules=estate.context.rules)
        row = estate.row(ending.session_id)
        assert_settled(estate)
    assert "gate_request_cancelled" in estate.logged.getvalue()
    assert not ran.exists()
    assert (ending.calls_ran, row["decision_reason"]) == (0, "no_evidence")


async def test_row_26_permissions_are_never_skipped(estate: Estate) -> None:
    """So it makes no difference whether the daemon is root: the flag that is refused to root is not used."""
    row = await estate.finished(tell(estate), look(), deliver(report()))
    assert row["outcome"] == "success"
    (start,) = told(estate)
    arguments = [str(argument) for argument in start["arguments"]]
    assert [argument for argument in arguments if "dangerously" in argument] == []
    assert arguments[arguments.index("--permission-mode") + 1] == "dontAsk"
    assert "IS_SANDBOX" not in start["environment"]


async def test_row_27_session_ids_are_chosen_by_us_and_never_resumed(estate: Estate) -> None:
    row = await estate.finished(tell(estate), {"exit": 3})
    retry = estate.rows("SELECT id FROM sessions WHERE status = 'queued'")[0]["id"]
    with estate.connect() as connection:
        connection.exec_driver_sql("UPDATE sessions SET not_before = NULL")
    estate.script(tell(estate), look(), deliver(report()))
    again = await estate.claim(1)
    ending = await SessionRunner(context=estate.context).run(again, StopControl())
    await estate.store.queue.finish(ending, rules=estate.context.rules)
    second = estate.row(int(str(retry)))
    given = [list(start["arguments"]) for start in told(estate)]
    starts = {str(arguments[arguments.index("--session-id") + 1]) for arguments in given}
    assert starts == {row["cli_session_id"], second["cli_session_id"]}
    assert len(starts) == 2
    assert all(uuid.UUID(str(key)).version == 4 for key in starts)
    assert not {"--resume", "--continue", "-r", "-c"} & {word for arguments in given for word in arguments}
    assert second["outcome"] == "success"


async def test_row_27_an_id_that_the_cli_chose_itself_is_the_rows(estate: Estate) -> None:
    other = str(uuid.uuid4())
    init = {"type": "system", "subtype": "init", "session_id": other, "tools": ["Bash"], "permissionMode": "dontAsk"}
    row = await estate.finished({"raw": json.dumps(init) + "\n"}, look(), deliver(report()))
    assert (row["outcome"], row["cli_session_id"]) == ("success", other)


async def test_row_31_secrets_verbatim_in_transcripts_and_stream(estate: Estate) -> None:
    secret = "planted-secret-value"
    words = {"frame": {"type": "assistant", "message": {"content": [{"type": "text", "text": f"it is {secret}"}]}}}
    leaked = report(
        summary=f"the password is {secret}",
        events=[{"level": "critical", "service": "web", "message": f"password {secret} in the log"}],
        memories=[{"key": "web:login", "value": f"log in with {secret}"}],
    )
    escaped = secret.replace("p", "\\u0070", 1)
    row = await estate.finished(
        look(command=f"echo {secret}"),
        words,
        {"raw": json.dumps({"type": "system", "subtype": "note"})[:-1] + f', "text": "{escaped}"}}\n'},
        {"stderr": f"{secret}\n"},
        {"grow": secret, "every": 0, "times": 1},
        deliver(leaked),
    )
    assert row["outcome"] == "success"
    estate.steps_file.unlink()
    files = [path for path in estate.root.rglob("*") if path.is_file()]
    assert [str(path) for path in files if secret.encode() in path.read_bytes()] == []
    assert escaped not in Path(estate.log_path(1)).read_text()
    assert any(b"[redacted]" in path.read_bytes() for path in files)
    assert secret not in estate.logged.getvalue()
