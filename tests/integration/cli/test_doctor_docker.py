"""What doctor says about docker's engine: which tiers reach it, how, and that nobody takes a socket for a filter."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import cast

import pytest

from claudeops.cli.doctor.docker import docker
from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from support.levels import PATH, level_with_a_filter
from support.settings_world import make_world

pytestmark = pytest.mark.anyio


async def found(root: Path, **given: str) -> Finding:
    settings = make_world(root).settings(ANTHROPIC_API_KEY="sk-ant-none", PATH=PATH, **given)
    return await docker(cast("DoctorContext", None), settings)


def names(host: str, *, level: str) -> dict[str, str]:
    return {"DOCKER_HOST": host, "CLAUDEOPS_TIER2_ENV": "DOCKER_HOST", "CLAUDEOPS_ISOLATION": level}


async def test_without_a_variable_nothing_is_reached(tmp_path: Path) -> None:
    finding = await found(tmp_path, CLAUDEOPS_ISOLATION="none")
    assert finding.status is FindingStatus.OK
    assert "none of their variables" in finding.text


async def test_a_socket_at_level_none_is_a_warning_because_sessions_go_around_the_filter(tmp_path: Path) -> None:
    finding = await found(tmp_path, **names("unix:///run/engine.sock", level="none"))
    assert finding.status is FindingStatus.WARNING
    assert "Tier 2 may use /run/engine.sock itself" in finding.text
    assert "CLAUDEOPS_ISOLATION" in str(finding.remedy)


@pytest.mark.parametrize("host", ["tcp://10.0.0.5:2375", "ssh://ops@db1"])
async def test_an_engine_elsewhere_is_a_warning_because_no_filter_is_there(tmp_path: Path, host: str) -> None:
    finding = await found(tmp_path, **names(host, level="none"))
    assert finding.status is FindingStatus.WARNING
    assert "without the filter" in finding.text


async def test_a_socket_that_answers_is_said_to_be_filtered(tmp_path: Path) -> None:
    level = level_with_a_filter()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        listening.listen()
        finding = await found(tmp_path / "world", **names(f"unix://{tmp_path}/engine.sock", level=level))
    assert finding.status is FindingStatus.OK
    assert "through the filter" in finding.text


@pytest.mark.parametrize("there", [True, False])
async def test_a_socket_that_is_none_is_said_with_the_remedy(tmp_path: Path, *, there: bool) -> None:
    level = level_with_a_filter()
    if there:
        (tmp_path / "engine.sock").touch()
    finding = await found(tmp_path / "world", **names(f"unix://{tmp_path}/engine.sock", level=level))
    assert finding.status is FindingStatus.WARNING
    assert ("that is no socket" if there else "it is not there") in finding.text
    assert "DOCKER_HOST" in str(finding.remedy)
