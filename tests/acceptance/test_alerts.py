"""Alerts come in over HTTP, a chain looks, people are told, and the incident ends by two witnesses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from support.estate import deliver, look, report
from support.operating import conclude, operator
from support.operating import look as call
from support.postgres import running_server
from support.posting import SERVICES, answers, command
from support.receivers import receiving
from support.senders import body, listens, one, post, token, url_of
from support.stand_in_daemon import stand_in_node
from support.stores import POSTGRES
from support.waiting import until, until_it

pytestmark = pytest.mark.anyio

WELL: Final = {"name": "shop", "status": "healthy", "detail": "its log shows no error"}


async def test_an_alert_of_whoever_has_a_token_becomes_a_session_an_incident_and_a_notice_and_ends_by_two_witnesses(
    tmp_path: Path,
) -> None:
    with receiving() as phone:
        settings = {**listens(tmp_path), "CLAUDEOPS_APPRISE_URLS": phone.address}
        async with stand_in_node(tmp_path) as node:
            node.script(look(command="docker logs shop"), deliver(report(services_checked=[WELL])))
            async with node.daemon(**settings) as daemon:
                url = await url_of(daemon)
                _, header = await token(node.operator, "alerts:am")
                _, wrong = await token(node.operator, "alerts:other", "read")
                assert [(await post(url, shown, body(one()))).status for shown in (wrong, {})] == [403, 401]
                assert node.operator.rows("SELECT * FROM alert_deliveries") == []
                said = await post(url, header, body(one()))
                assert said.status == 202, said.body
                await daemon.until_logged("alerts_started_chain")
                await node.operator.until("SELECT * FROM sessions", lambda rows: [*map(_status, rows)] == ["ended"])
                (incident,) = node.operator.rows("SELECT * FROM incidents")
                assert incident["status"] == "open"
                await until(lambda: bool(phone.heard))

                over = await post(url, header, body(one(resolved=True)))
                assert over.status == 202
                await node.operator.until("SELECT * FROM incidents", lambda rows: _status(rows[0]) == "resolved")
                listed = (await node.operator.run("list-incidents", "--all", "-o", "json")).document
                assert await daemon.stop() == 0
        (session,) = node.operator.sessions()
        decisions = node.operator.rows("SELECT * FROM alert_decisions ORDER BY id")
        told_people = node.operator.rows("SELECT * FROM outbox WHERE result = 'delivered'")

    assert (session["trigger"], session["outcome"], session["incident_id"]) == ("alert", "success", 1)
    assert [row["decision"] for row in decisions] == ["started", "joined"]
    assert decisions[0]["session_id"] == session["id"]
    assert told_people
    assert any("shop" in text for text in phone.bodies)
    assert '"resolved"' in str(listed).replace("'", '"')


async def test_an_alert_about_a_service_that_no_session_looked_at_stays_open_and_people_are_told(
    tmp_path: Path,
) -> None:
    with receiving() as phone:
        settings = {**listens(tmp_path), "CLAUDEOPS_APPRISE_URLS": phone.address}
        async with stand_in_node(tmp_path) as node:
            web = {"name": "web", "status": "healthy", "detail": "uptime ran"}
            node.script(look(), deliver(report(services_checked=[web])))
            async with node.daemon(**settings) as daemon:
                url = await url_of(daemon)
                _, header = await token(node.operator, "alerts:am")
                assert (await post(url, header, body(one()))).status == 202
                await node.operator.until("SELECT * FROM sessions", lambda rows: [*map(_status, rows)] == ["ended"])
                assert (await post(url, header, body(one(resolved=True)))).status == 202
                await until(lambda: any("shop, which the report leaves out" in text for text in phone.bodies))
                await node.operator.until("SELECT * FROM alerts", lambda rows: _status(rows[0]) == "resolved")
                assert await daemon.stop() == 0
        (session,) = node.operator.sessions()
        (incident,) = node.operator.rows("SELECT * FROM incidents")

    assert session["decision_reason"] == "no_evidence"
    assert incident["status"] == "open"
    assert '"look"' not in str(incident["witnesses"])


async def test_what_was_acknowledged_is_there_although_the_daemon_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "answers.ndjson"
    async with stand_in_node(tmp_path) as node, anyio.create_task_group() as tasks:
        node.script(look(), deliver(report()))
        async with node.daemon(**listens(tmp_path)) as daemon:
            url = await url_of(daemon)
            _, header = await token(node.operator, "alerts:am")
            sender = command(url, header["authorization"], file, rate=100, seconds=30, distinct=500)
            tasks.start_soon(partial(anyio.run_process, sender, check=False))
            await until(lambda: file.exists() and len(answers(file)) >= 200)
            daemon.process.kill()
            await daemon.process.wait()
        said = answers(file)
        kept = {row["key"] for row in node.operator.rows("SELECT key FROM alert_deliveries")}
        async with node.daemon(**listens(tmp_path)) as following:
            await url_of(following)  # from then on it heeds signals, even where nothing was left to decide
            await node.operator.until("SELECT count(*) AS n FROM alert_queue", lambda rows: rows[0]["n"] == 0)
            assert await following.stop() == 0
        counted = node.operator.rows(
            "SELECT d.alerts * (1 + d.repeats) AS said, count(c.id) AS decided, count(DISTINCT c.alert_id) AS alerts"
            " FROM alert_deliveries d LEFT JOIN alert_decisions c ON c.delivery_id = d.id GROUP BY d.id"
        )

    stored = [each for each in said if each.status == 202]
    assert len(stored) >= 200
    assert [each.number for each in stored if each.delivery not in kept] == []
    assert {(row["said"], row["decided"], row["alerts"]) for row in counted} == {(10, 10, 10)}


@pytest.mark.parametrize("alerts", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_storm_over_http_below_a_broken_parent_is_few_sessions_and_a_silenced_one_is_none(
    tmp_path: Path, alerts: int
) -> None:
    below = "".join(f"| s{number} | http://127.0.0.1:1/ | core |\n" for number in range(SERVICES))
    manifest = f"# Services\n\n| service | check | depends on |\n| --- | --- | --- |\n| core | | |\n{below}"
    asked: list[dict[str, object]] = [call(), conclude(status="down")]
    async with operator(tmp_path, haiku=asked, sonnet=[conclude()]) as node:
        (tmp_path / "repos" / "estate" / "CLAUDE-OPS.md").write_text(manifest, encoding="utf-8")
        async with node.daemon(**listens(tmp_path)) as daemon:
            url = await url_of(daemon)
            _, header = await token(node, "alerts:am")
            assert (await node.run("silence", "service=~'s1.*'", "--for", "10m")).code == 0
            quiet = [one(f"Quiet{number}", f"s1{number}") for number in range(100)]
            assert (await post(url, header, body(*quiet))).status == 202
            await node.until("SELECT * FROM alerts", lambda rows: len(rows) == len(quiet))
            assert (node.sessions(), node.api.traffic.main("haiku")) == ([], [])

            assert (await post(url, header, body(one("Down", "core"), group="core"))).status == 202
            file = tmp_path / "answers.ndjson"
            await anyio.run_process(
                command(url, header["authorization"], file, rate=100, seconds=alerts / 1_000, distinct=alerts),
                stderr=None,
            )
            assert {each.status for each in answers(file)} == {202}
            await node.until("SELECT count(*) AS n FROM alert_queue", lambda rows: rows[0]["n"] == 0)
            decided = node.rows("SELECT DISTINCT alert_id FROM alert_decisions")
            sessions = len(node.sessions())
            assert await daemon.stop() == 0

    assert len(decided) == alerts + len(quiet) + 1
    assert 1 <= sessions <= 5


@POSTGRES[0]
async def test_while_postgresql_is_stopped_senders_are_told_to_come_again_and_then_all_is_kept(tmp_path: Path) -> None:
    with running_server() as server:
        database = {"CLAUDEOPS_DATABASE_URL": server.url(server.create())}
        async with stand_in_node(tmp_path) as node, node.daemon(**listens(tmp_path), **database) as daemon:
            url = await url_of(daemon)
            _, header = await token(node.operator, "alerts:am", **database)
            assert (await post(url, header, body(one(severity="info")))).status == 202
            server.stop()
            away = await post(url, header, body(one(severity="info", code="2")))
            assert (away.status, "retry-after" in away.headers) == (503, True)
            server.start()

            async def taken() -> bool:
                said = await post(url, header, body(one(severity="info", code="2")))
                assert said.status in {202, 503}, said.body
                return said.status == 202

            await until_it(taken)
            assert await daemon.stop() == 0
            with server.connect("test_0") as connection:
                kept = connection.execute("SELECT count(*) FROM alert_deliveries").fetchone()
    assert kept == (2,)


def _status(row: dict[str, object]) -> object:
    return row["status"]
