"""The real Prometheus scrapes the daemon, takes our rules, and sees what has happened; an alarm rings when it stops."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from support.checkout import ROOT
from support.estate import deliver, look, report
from support.loopback_http import ask
from support.monitoring import Watcher, program, scraping
from support.senders import body, listens, one, post, token, url_of
from support.stand_in_daemon import stand_in_node
from support.waiting import until_it

pytestmark = pytest.mark.anyio

RULES: Final = ROOT / "deploy" / "prometheus" / "claudeops.rules.yaml"
WELL: Final = {"name": "shop", "status": "healthy", "detail": "its log shows no error"}


async def value(prometheus: Watcher, expression: str) -> float | None:
    """Return what an expression comes to now; ``None``: nothing."""
    answer = await ask(f"{prometheus.url}/api/v1/query?query={quote(expression)}", method="GET")
    found = json.loads(answer.body)["data"]["result"]
    return float(found[0]["value"][1]) if found else None


async def states(prometheus: Watcher) -> dict[str, tuple[str, str]]:
    """Return how the evaluation of each rule went, and how its alarm stands."""
    answer = await ask(f"{prometheus.url}/api/v1/rules", method="GET")
    groups = json.loads(answer.body)["data"]["groups"]
    return {rule["name"]: (rule["health"], rule["state"]) for group in groups for rule in group["rules"]}


def test_the_rules_are_rules_for_prometheus() -> None:
    done = subprocess.run(
        [program("promtool", "prometheus"), "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_prometheus_sees_what_the_daemon_does_and_that_it_is_gone(tmp_path: Path) -> None:
    program("prometheus", "prometheus")
    async with stand_in_node(tmp_path) as node:
        node.script(look(command="docker logs shop"), deliver(report(services_checked=[WELL])))
        settings = {
            **listens(tmp_path),
            "CLAUDEOPS_SCHEDULES_PATH": "",
            "CLAUDEOPS_APPRISE_URLS": "json://127.0.0.1:1/",
        }
        async with node.daemon(**settings) as daemon:
            url = await url_of(daemon)
            _, reads = await token(node.operator, "metrics")
            _, sends = await token(node.operator, "alerts:am")
            secret = reads["authorization"].removeprefix("Bearer ")
            async with scraping(tmp_path, target=url.removeprefix("http://"), token=secret, rules=RULES) as prometheus:

                async def has(expression: str, wanted: float) -> None:
                    async def is_so() -> bool:
                        return await value(prometheus, expression) == wanted

                    await until_it(is_so)

                await has("count(claudeops_build_info)", 1)
                await node.until_idle()
                await has('claudeops_sessions_total{tier="1",trigger="scheduled",outcome="success"}', 1)
                await has("claudeops_schedule_lateness_seconds_count", 1)
                await has('claudeops_decisions_total{tier="1",reason="healthy"}', 1)
                await has('sum(claudeops_tool_calls_total{tier="1",verdict="allow"})', 1)
                await has("sum(claudeops_sessions_running)", 0)
                await has("claudeops_last_healthy_cycle_timestamp_seconds > bool 0", 1)
                assert (await post(url, sends, body(one()))).status == 202
                await has('claudeops_alerts_received_total{source="am",status="firing"}', 1)
                await has('claudeops_alerts_decided_total{source="am",decision="started"}', 1)
                await has('claudeops_incidents_open{severity="critical"}', 1)
                await has('claudeops_notifications_total{channel="apprise",result="failed"} > bool 0', 1)
                await has("sum(claudeops_db_writes_failed_total)", 0)
                for name in ("gate_decision_duration", "db_write_duration", "alert_store_duration"):
                    await has(f"claudeops_{name}_seconds_count > bool 0", 1)

                async def are_evaluated() -> bool:
                    found = await states(prometheus)
                    return bool(found) and all(health == "ok" for health, _ in found.values())

                await until_it(are_evaluated)
                assert (await states(prometheus))["ClaudeopsDown"] == ("ok", "inactive")
                assert await daemon.stop() == 0

                async def rings() -> bool:
                    return (await states(prometheus))["ClaudeopsDown"] in {("ok", "pending"), ("ok", "firing")}

                await until_it(rings)


async def test_a_scrape_while_the_database_is_away_has_what_the_daemon_knows_by_itself(tmp_path: Path) -> None:
    async with stand_in_node(tmp_path) as node, node.daemon(**listens(tmp_path)) as daemon:
        url = await url_of(daemon)
        _, reads = await token(node.operator, "metrics")

        async def scraped() -> str:
            answer = await ask(f"{url}/metrics", method="GET", headers=reads)
            assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
            return answer.body.decode()

        assert "claudeops_sessions_queued 0.0" in await scraped()
        assert "claudeops_db_writes_failed_total 0.0" in await scraped()
        with node.operator.locked():

            async def is_seen() -> bool:
                return "claudeops_db_writes_failed_total 0.0" not in await scraped()

            await until_it(is_seen)
        assert (await ask(f"{url}/metrics", method="GET")).status == 401
        assert await daemon.stop() == 0
