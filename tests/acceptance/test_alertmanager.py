"""The real Prometheus sees a service fail, the real Alertmanager says so, and nothing is lost while we are away."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.rehearsal.environment import running_environment
from claudeops.rehearsal.scenario import Expected, Scenario, Service
from support.estate import deliver, look, report
from support.monitoring import alertmanager, block, program, prometheus
from support.senders import listens, post, token, url_of
from support.stand_in_daemon import stand_in_node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

AWAY_SECONDS: Final = 30.0
SCENARIO: Final = Scenario(
    title="a service with metrics",
    services={"shop": Service(answers="shop_orders_total 1")},
    expect=Expected(tiers=()),
    scheduled=False,
)
WELL: Final = {"name": "shop", "status": "healthy", "detail": "uptime ran"}
FAILED: Final = "alertmanager_notification_requests_failed_total"
OF_MANY: Final = "SELECT * FROM alerts WHERE name LIKE 'Many%'"


async def test_what_prometheus_sees_reaches_a_session_and_nothing_is_lost_while_the_database_is_away(
    tmp_path: Path,
) -> None:
    amtool = program("amtool", "prometheus-alertmanager")
    settings = listens(tmp_path, rules=block("toml"))
    async with stand_in_node(tmp_path) as node, running_environment(SCENARIO, tmp_path / "services") as estate:
        shop, operator = estate.services["shop"], node.operator
        node.script(look(), deliver(report(services_checked=[WELL])))
        async with node.daemon(**settings) as daemon:
            url = await url_of(daemon)
            _, header = await token(operator, "alerts:prometheus")
            secret = header["authorization"].removeprefix("Bearer ")
            async with (
                alertmanager(tmp_path, listener=url, token=secret) as manager,
                prometheus(tmp_path, target=f"127.0.0.1:{shop.port}", alerts_to=manager.url),
            ):
                await shop.stop()
                await operator.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 1)
                (incident,) = operator.rows("SELECT * FROM incidents")
                assert (incident["service"], incident["status"]) == ("shop", "open")

                with operator.locked():
                    assert (await post(url, header, b"{}", "prometheus")).status == 503
                    await shop.start()
                    for number in range(20):
                        alert = [f"Many{number}", "severity=page", f"service=s{number}"]
                        await anyio.run_process([amtool, "alert", "add", *alert, "--alertmanager.url", manager.url])
                    await anyio.sleep(AWAY_SECONDS)
                    failed = await manager.count(
                        "alertmanager_notification_requests_failed_total", integration="webhook"
                    )
                    assert failed > 0

                await operator.until(OF_MANY, lambda rows: len(rows) == 20)
                await operator.until("SELECT * FROM incidents", lambda rows: rows[0]["status"] == "resolved")
            assert await daemon.stop() == 0

    first = operator.sessions()[0]
    assert (first["trigger"], first["outcome"]) == ("alert", "success")
    kept = operator.rows("SELECT * FROM alerts WHERE service = 'shop'")
    assert [(row["name"], row["status"], row["severity"]) for row in kept] == [("ShopDown", "resolved", "critical")]
    assert len(operator.sessions()) <= 5
