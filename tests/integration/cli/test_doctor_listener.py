"""What doctor says about the listener: a real port, taken and free."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import cast

import pytest

from claudeops.cli.doctor.access import listener
from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from support.settings_world import make_world


async def told(root: Path, **given: str) -> Finding:
    settings = make_world(root).settings(ANTHROPIC_API_KEY="sk-ant-none", **given)
    return await listener(cast("DoctorContext", None), settings)


async def test_a_free_port_is_fine_and_a_taken_one_is_told_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = await told(tmp_path / "taken", CLAUDEOPS_DASHBOARD_PORT=port)
    free = await told(tmp_path / "free", CLAUDEOPS_DASHBOARD_PORT="0")

    assert (refused.status, free.status) == (FindingStatus.WARNING, FindingStatus.OK)
    assert f"port {port} on 127.0.0.1" in refused.text
    assert "CLAUDEOPS_DASHBOARD_PORT" in str(refused.remedy)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "no name is known"),
        ({"CLAUDEOPS_PUBLIC_URL": "http://claudeops:8080"}, "by plain HTTP"),
        ({"CLAUDEOPS_PUBLIC_URL": "http://claudeops:8080", "CLAUDEOPS_DASHBOARD": "off"}, ""),
        ({"CLAUDEOPS_PUBLIC_URL": "http://claudeops:8080", "CLAUDEOPS_DASHBOARD_INSECURE": "true"}, ""),
        ({"CLAUDEOPS_PUBLIC_URL": "http://claudeops:8080, https://ops.example.com"}, ""),
    ],
)
async def test_who_listens_to_all_needs_a_name_and_tls(tmp_path: Path, given: dict[str, str], says: str) -> None:
    found = await told(tmp_path, CLAUDEOPS_DASHBOARD_HOST="::", CLAUDEOPS_DASHBOARD_PORT="0", **given)
    assert found.status is (FindingStatus.WARNING if says else FindingStatus.OK)
    assert says in found.text


async def test_who_listens_to_this_machine_needs_neither(tmp_path: Path) -> None:
    url = "http://claudeops:8080"
    assert (await told(tmp_path, CLAUDEOPS_DASHBOARD_PORT="0", CLAUDEOPS_PUBLIC_URL=url)).status is FindingStatus.OK


async def test_switched_off_is_no_fault(tmp_path: Path) -> None:
    assert (await told(tmp_path, CLAUDEOPS_LISTENER="off")).status is FindingStatus.OK


async def test_passkeys_that_no_person_could_use_are_no_silent_no_to_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLAUDEOPS_LISTENER", "CLAUDEOPS_DASHBOARD"):
        found = await told(
            tmp_path / name, CLAUDEOPS_APPROVAL_PASSKEY="3", CLAUDEOPS_DASHBOARD_PORT="0", **{name: "off"}
        )
        assert (found.status, "no pages" in found.text) == (FindingStatus.WARNING, True)
    given = {"CLAUDEOPS_APPROVAL_PASSKEY": "3", "CLAUDEOPS_DASHBOARD_PORT": "0"}
    assert (await told(tmp_path / "with", **given)).status is FindingStatus.OK
    monkeypatch.setattr("claudeops.cli.doctor.access.find_spec", lambda _: None)
    found = await told(tmp_path / "without", **given)
    assert (found.status, found.remedy) == (FindingStatus.WARNING, "Install claudeops[passkeys].")
