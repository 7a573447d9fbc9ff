"""What is on a session's list: what files and settings say is read and looked up; what fails is named in the log."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from claudeops import logs
from claudeops.domain.estate.estate import Estate
from claudeops.engine.cell.own_network import NameLookup
from claudeops.engine.cell.reach import Needs, list_of, open_reach, ssh_text
from claudeops.files import read_text
from claudeops.policy.tiers import TierPolicy, parse_policy, tier_policy
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

KUBECONFIG = "clusters:\n- name: one\n  cluster:\n    server: https://cluster.example:6443\n"
SSH = "Host web1\n  HostName 10.0.0.7\n  Port 2222\nInclude more\n"


def tier() -> TierPolicy:
    return tier_policy(parse_policy('[tiers.1]\nhosts = ["{estate}"]\nurls = ["{estate}"]\n'), 1)


def needs(home: Path, environment: Mapping[str, str] | None = None, **more: object) -> Needs:
    given: dict[str, object] = {
        "tier": tier(),
        "estate": Estate(),
        "environment": environment or {},
        "home": home,
        **more,
    }
    return Needs(**given)  # type: ignore[arg-type]  # a test names its fields


async def ports(wanted: Needs) -> dict[str, set[int]]:
    return {one.host: set(one.tcp) for one in await list_of(wanted)}


async def test_files_and_variables_of_the_session_name_what_it_may_connect_to(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(SSH)
    (tmp_path / ".ssh" / "more").write_text("Host db1\n  ProxyJump jump.example\n")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(KUBECONFIG)
    other = tmp_path / "other.yaml"
    other.write_text(KUBECONFIG.replace("cluster.example", "other.example"))
    estate = Estate(hosts=("web1", "db1"), ports={"db1": (5432,)})
    environment = {"KUBECONFIG": f"{other}:relative", "HTTPS_PROXY": "http://proxy.example:3128"}
    found = await ports(needs(tmp_path, environment, estate=estate, endpoints=(("tools.example", 443),)))
    assert found == {
        "10.0.0.7": {2222},
        "cluster.example": {6443},
        "db1": {22, 80, 443, 5432},
        "jump.example": {22},
        "other.example": {6443},
        "proxy.example": {3128},
        "tools.example": {443},
        "web1": {22, 80, 443},
    }


async def test_a_name_of_this_machine_counts_for_its_loopback_too(tmp_path: Path) -> None:
    name = os.uname().nodename.lower()
    estate = Estate(hosts=(name,), ports={name: (8080,)})
    assert (await ports(needs(tmp_path, {"SITE": "http://localhost:9090"}, estate=estate)))["localhost"] == {8080, 9090}


def test_what_cannot_be_read_is_nothing_and_keeps_nothing_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [read_text(tmp_path / name) for name in ("pipe", "absent", ".")] == ["", "", ""]
    assert ssh_text(tmp_path / "no-home", lambda _: "") == "Host *\n\nHost *\n"


async def test_what_does_not_answer_is_in_the_log_by_its_name_and_the_meter_is_on_every_list(tmp_path: Path) -> None:
    logged = io.StringIO()
    logs.configure(level="info", fmt="json", stream=logged, redact=str)
    with socket.socket() as silent, socket.create_server(("127.0.0.1", 0)) as meter:
        silent.bind(("127.0.0.1", 0))  # nothing listens there
        port, meter_port = silent.getsockname()[1], meter.getsockname()[1]
        wanted = needs(
            tmp_path, {"SITE": f"http://web1.example:{port}"}, ours=[("127.0.0.1", meter_port)], estate=Estate()
        )
        names = NameLookup({"web1.example": ("127.0.0.1",)}.__getitem__)
        async with open_reach(wanted, names, logs.get_logger()) as reach:
            assert reach.tally.connected == 0
            assert "127.0.0.1 web1.example" in reach.network.hosts
            received = await anyio.to_thread.run_sync(_as_the_launcher, reach.network.door, port, meter)
            assert received == ["meter", "refused"]
            assert (reach.tally.connected, reach.tally.failed) == (1, 1)
    lines = {line["event"]: line for line in map(json.loads, logged.getvalue().splitlines())}
    failed = lines["connection_failed"]
    assert (failed["names"], failed["port"], failed["error"]) == (["web1.example"], port, "Connection refused")
    assert (lines["network_opened"]["places"], lines["network_closed"]["failed"]) == (2, 1)


def _as_the_launcher(door: int, port: int, meter: socket.socket) -> list[str]:
    """Hand over sockets as the launcher does, here of other addresses of loopback, and connect to them."""
    with socket.socket(fileno=os.dup(door)) as ours:
        text = b""
        while not text.endswith(b"\n\n"):
            text += ours.recv(65536)
        asked = [line.split() for line in text.decode().split("\n") if line.startswith("tcp")]
        made = [socket.create_server(("127.77.0.1", int(port))) for _, _, port in asked]
        socket.send_fds(ours, [f"{','.join(map(str, range(len(made))))}\n".encode()], [each.fileno() for each in made])
        ours.send(b".\n")
        for each in made:
            each.close()
    with _connection(meter.getsockname()[1]) as mine, meter.accept()[0] as outside:
        outside.sendall(b"meter")
        answer = mine.recv(5).decode()
    try:
        with _connection(port) as mine:  # may be reset before it stands
            return [answer, f"{mine.recv(1)!r}"]
    except ConnectionError:
        return [answer, "refused"]


def _connection(port: int) -> socket.socket:
    return socket.create_connection(("127.77.0.1", port), PATIENCE_SECONDS)
