"""The manifest that a rehearsal writes for its sessions is one that the daemon understands, all of it."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.engine.estate import read_estate
from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario_file import find, shipped
from claudeops.rehearsal.stage import REPOSITORY, write_manifest


@pytest.mark.parametrize("name", shipped())
def test_every_service_of_a_rehearsal_is_understood_without_a_fault(name: str, tmp_path: Path) -> None:
    scenario = find(name, cwd=tmp_path).scenario
    with closing(socket.socket()) as reserved:
        running = {
            service: Running(
                name=service, service=given, faults=[], directory=tmp_path / service, port=8000, reserved=reserved
            )
            for service, given in scenario.services.items()
        }
        write_manifest(Environment(services=running), tmp_path / "repos")
    estate = read_estate(tmp_path / "repos")
    assert estate.faults == ()
    assert estate.expected == tuple(scenario.services)
    assert estate.prohibitions == ()
    for service in estate.services:
        assert service.source.path.startswith(f"{REPOSITORY}/")
        assert (service.address != "", service.healthy != "", service.restart != "") == (True, True, True)
        assert service.kind in {"container", "kubernetes", "systemd"}
    assert estate.hosts
    assert [host for host in estate.hosts if refuse_host(host)] == []
