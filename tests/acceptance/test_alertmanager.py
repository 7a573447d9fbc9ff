"""The real Prometheus sees a service fail, the real Alertmanager says so, and nothing is lost while we are away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest

from claudeops.rehearsal.environment import Running, running_environment
from claudeops.rehearsal.scenario import ExpectedOutcome, Scenario, ScenarioService
from support.estate import deliver, look, report
from support.monitoring import Watcher, alertmanager, block, program, prometheus
from support.senders import listens, post, token, url_of
from support.stand_in_daemon import StandInNode, stand_in_node
from support.waiting import until_it

pytestmark = pytest.mark.anyio

TRIES: Final = 5  # that fail, each longer after the one before
SCENARIO: Final = Scenario(
    title="a service with metrics",
    services={"shop": ScenarioService(answers="shop_orders_total 1")},
    expect=ExpectedOutcome(tiers=()),
    scheduled=False,
)
WELL: Final = {"name": "shop", "status": "healthy", "detail": "its log shows no error"}
FAILED: Final = "alertmanager_notification_requests_failed_total"
OF_MANY: Final = "SELECT * FROM alerts WHERE name LIKE 'Many%'"


@dataclass(frozen=True, kw_only=True)
class Estate:
    """A service that Prometheus looks at, and a daemon that Alertmanager posts to."""

    node: StandInNode
    shop: Running
    manager: Watcher
    url: str
    header: Mapping[str, str]


@asynccontextmanager
async def watched(root: Path) -> AsyncIterator[Estate]:
    settings = listens(root, rules=block("toml"))
    async with stand_in_node(root) as node, running_environment(SCENARIO, root / "services") as services:
        shop = services.services["shop"]
        node.script(look(command="docker logs shop"), deliver(report(services_checked=[WELL])))
        async with node.daemon(**settings) as daemon:
            url = await url_of(daemon)
            _, header = await token(node.operator, "alerts:prometheus")
            secret = header["authorization"].removeprefix("Bearer ")
            async with (
                alertmanager(root, listener=url, token=secret) as manager,
                prometheus(root, target=f"127.0.0.1:{shop.port}", alerts_to=manager.url),
            ):
                yield Estate(node=node, shop=shop, manager=manager, url=url, header=header)
            assert await daemon.stop() == 0


async def fails(estate: Estate) -> None:
    """Let the service stop, and return when a session has looked at it."""
    await estate.shop.stop()
    operator = estate.node.operator
    await operator.until("SELECT * FROM sessions WHERE status = 'ended'", lambda rows: len(rows) == 1)
    (incident,) = operator.rows("SELECT * FROM incidents")
    assert (incident["service"], incident["status"]) == ("shop", "open")


async def is_over(estate: Estate) -> None:
    operator = estate.node.operator
    await operator.until("SELECT * FROM incidents", lambda rows: rows[0]["status"] == "resolved")
    first = operator.sessions()[0]
    assert (first["trigger"], first["outcome"]) == ("alert", "success")
    kept = operator.rows("SELECT * FROM alerts WHERE service = 'shop'")
    assert [(row["name"], row["status"], row["severity"]) for row in kept] == [("ShopDown", "resolved", "critical")]


async def test_what_prometheus_sees_reaches_a_session_and_the_incident_ends_with_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as estate:
        await fails(estate)
        await estate.shop.start()
        await is_over(estate)


@pytest.mark.long
async def test_nothing_is_lost_while_the_database_is_away(tmp_path: Path) -> None:
    amtool = program("amtool", "prometheus-alertmanager")
    async with watched(tmp_path) as estate:
        await fails(estate)
        operator, manager = estate.node.operator, estate.manager
        with operator.locked():
            assert (await post(estate.url, estate.header, b"{}", "prometheus")).status == 503
            await estate.shop.start()
            for number in range(20):
                alert = [f"Many{number}", "severity=page", f"service=s{number}"]
                await anyio.run_process([amtool, "alert", "add", *alert, "--alertmanager.url", manager.url])

            async def failed() -> bool:
                return await manager.count(FAILED, integration="webhook") >= TRIES

            await until_it(failed)
        await operator.until(OF_MANY, lambda rows: len(rows) == 20)
        await is_over(estate)
        assert len(operator.sessions()) <= 5
