"""A daemon that is the only one has every role; one whose terms are over begins all its work anew."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from claudeops.domain.owner import ROLES
from support.estate import deliver, look, report
from support.stand_in_daemon import stand_in_node, told
from support.waiting import until

pytestmark = pytest.mark.anyio

PROBES: Final = """
[[probe]]
name = "door"
kind = "tcp"
host = "127.0.0.1"
port = {port}
interval = "1s"
failures = 1
"""
LEASES: Final = "SELECT name, owner FROM leases ORDER BY name"
STATE: Final = "SELECT state FROM probes"
ROUTED: Final = "SELECT id FROM outbox WHERE delivered_at IS NOT NULL"
OF_ALERTS: Final = "SELECT outcome FROM sessions WHERE trigger = 'alert' AND status = 'ended'"


def kinds(roles: Iterable[object]) -> set[str]:
    """Return the kinds of work, without the site of probes."""
    return {str(role).partition(":")[0] for role in roles}


async def test_daemon_whose_terms_are_over_begins_all_its_work_anew(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    door = socket.create_server(("127.0.0.1", 0), backlog=512)  # which is reached although it answers nothing
    async with stand_in_node(tmp_path) as node:
        file.write_text(PROBES.format(port=door.getsockname()[1]), encoding="utf-8")
        node.script(look(), deliver(report()))
        async with node.daemon(CLAUDEOPS_PROBES_PATH=str(file)) as daemon:
            await node.operator.until(STATE, lambda rows: [row["state"] for row in rows] == ["up"])
            await node.until_idle()
            status = json.loads((tmp_path / "state" / "daemon.json").read_bytes())
            assert kinds(status["roles"]) == ROLES
            assert {row["name"]: row["owner"] for row in node.operator.rows(LEASES)} == dict.fromkeys(
                status["roles"], status["owner"]
            )

            with closing(sqlite3.connect(node.operator.database)) as connection:
                connection.execute("UPDATE leases SET owner = 'another', term = term + 1")
                connection.commit()

            # The first batch of the probes finds it, and the next sign of life takes all roles again.
            await until(lambda: len(told(daemon, "role_taken")) > 1)
            await until(lambda: kinds(row["role"] for row in told(daemon, "role_lost")) == ROLES)
            assert {row["owner"] for row in node.operator.rows(LEASES)} == {status["owner"]}
            await until(lambda: len(told(daemon, "schedule_kept")) == 2)
            door.close()
            await node.operator.until(OF_ALERTS, lambda rows: len(rows) > 0)
            await node.operator.until(ROUTED, lambda rows: len(rows) > 0)
            assert await daemon.stop() == 0

        assert {row["owner"] for row in node.operator.rows(LEASES)} == {None}
