"""The files that somebody deploys several nodes with: compose and systemd, beside those of the one daemon."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from claudeops.engine.gate.approval_key import ensure_key, read_key
from claudeops.engine.session.supervisor import STOP_MARGIN_SECONDS
from support.checkout import ROOT
from support.deploy_files import COMPOSE, DATABASE, SERVICE, STOPPING_SECONDS, node_settings, unit, unknown

FILE = ROOT / "deploy" / "compose.postgresql.yaml"
SEVERAL: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
NODES = {name: service for name, service in SEVERAL["services"].items() if "extends" in service}
SERVER = SEVERAL["services"]["postgresql"]


def joined(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return what compose makes of a node: the service of the other file, with its own over it."""
    volumes = {line.split(":")[1]: line for line in (*SERVICE["volumes"], *service["volumes"])}
    return {
        **SERVICE,
        **service,
        "environment": SERVICE["environment"] | service["environment"],
        "secrets": [*SERVICE["secrets"], *service["secrets"]],
        "volumes": list(volumes.values()),
    }


# --- compose --------------------------------------------------------------------------------------------


def test_each_node_is_the_one_daemon_with_a_name_and_volumes_of_its_own() -> None:
    assert len(NODES) == 2
    assert {yaml.safe_dump(node["extends"]) for node in NODES.values()} == {"file: compose.yaml\nservice: claudeops\n"}
    assert len({node["hostname"] for node in NODES.values()}) == len(NODES)

    own = [line.split(":")[0] for node in NODES.values() for line in node["volumes"]]
    assert len(set(own)) == len(own) == 4
    assert {*own, "database"} == set(SEVERAL["volumes"])
    for node in NODES.values():
        assert sorted(line.split(":")[1] for line in joined(node)["volumes"]) == ["/repos", "/results", "/state"]


@pytest.mark.parametrize("name", NODES)
def test_a_node_takes_away_nothing_that_locks_the_one_daemon_in(name: str) -> None:
    changed = {each for each in NODES[name] if each in SERVICE and NODES[name][each] != SERVICE[each]}

    assert changed == {"environment", "hostname", "secrets", "volumes"}
    assert {"ports", "expose", "network_mode", "privileged", "cap_add"} & set(joined(NODES[name])) == set()


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_longer_than_draining_takes(name: str, tmp_path: Path) -> None:
    node = joined(NODES[name])
    timeouts = node_settings(node["environment"], tmp_path).timeouts

    assert timeouts.drain_seconds + timeouts.stop_grace_seconds + STOP_MARGIN_SECONDS == STOPPING_SECONDS
    assert int(node["stop_grace_period"].removesuffix("s")) > STOPPING_SECONDS


def test_all_nodes_have_one_database_and_the_same_settings(tmp_path: Path) -> None:
    environments = [joined(node)["environment"] for node in NODES.values()]
    settings = node_settings(environments[0], tmp_path)

    assert environments[1:] == environments[:1]
    assert settings.places.database_url == DATABASE.replace("postgresql:", "postgresql+psycopg:")
    assert environments[0]["CLAUDEOPS_DISPATCHER"] == "procrastinate"
    assert unknown(environments[0]) == []


def test_every_secret_is_a_file_and_each_is_named_where_it_is_used() -> None:
    used = {
        secret if isinstance(secret, str) else secret["source"]
        for service in (*map(joined, NODES.values()), SERVER)
        for secret in service["secrets"]
    }

    assert used == set(SEVERAL["secrets"])
    assert SEVERAL["secrets"].items() >= COMPOSE["secrets"].items()
    assert {secret["file"] for secret in SEVERAL["secrets"].values()} == {f"./secrets/{name}" for name in used}
    assert "planted" not in FILE.read_text(encoding="utf-8")
    assert [name for name in SERVER["environment"] if name.endswith("PASSWORD")] == []


def test_the_key_of_answers_is_where_the_daemon_makes_its_own(tmp_path: Path) -> None:
    ensure_key(tmp_path)

    for node in NODES.values():
        (key,) = [secret for secret in node["secrets"] if isinstance(secret, dict)]
        assert key["target"] == f"/state/{next(tmp_path.iterdir()).name}"


def test_a_node_waits_for_a_server_that_answers_by_the_network_and_is_looked_at_by_our_own_command() -> None:
    test = SERVER["healthcheck"]["test"]

    assert test[:2] == ["CMD", "pg_isready"]
    assert "--host" in test  # while it is set up for the first time it answers at its socket alone
    for node in NODES.values():
        assert node["depends_on"] == {"postgresql": {"condition": "service_healthy"}}
        assert node["healthcheck"]["test"] == ["CMD", "claudeops", "health"]


def test_nothing_but_the_nodes_reaches_the_server() -> None:
    assert SEVERAL["networks"]["database"] == {"internal": True}
    assert SERVER["networks"] == ["database"]
    assert {"ports", "expose", "network_mode", "privileged"} & set(SERVER) == set()


DOCKER = """\
#!/usr/bin/env bash
echo "$*" >>"$RECORD"
case "$*" in
*--services) printf '%s\\n' $SERVICES ;;
*"$SICK") exit 1 ;;
esac
"""


def update(directory: Path, *words: str, sick: str = "none") -> tuple[int, str, list[str]]:
    """Run the script with a docker that writes down how it is called; return status, message and calls."""
    docker, record = directory / "docker", directory / "record"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    environment = {"PATH": f"{directory}:/usr/bin:/bin", "RECORD": str(record), "SICK": sick}
    environment["SERVICES"] = " ".join(["node-10", *reversed(SEVERAL["services"])])
    script = [str(ROOT / "deploy" / "update-nodes"), *words]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False, timeout=240)
    return done.returncode, done.stderr, record.read_text().splitlines()


def test_nodes_are_updated_one_after_the_other_each_when_the_one_before_is_healthy(tmp_path: Path) -> None:
    status, said, (listed, *updated) = update(tmp_path)

    assert (status, said, listed) == (0, "", f"compose -f {FILE} config --services")
    assert updated == [
        f"compose -f {FILE} up -d --no-deps --wait --wait-timeout 300 {node}" for node in (*NODES, "node-10")
    ]


def test_no_node_is_touched_after_one_that_is_not_healthy(tmp_path: Path) -> None:
    status, said, calls = update(tmp_path, "-f", "mine.yaml", sick="node-1")

    assert (status, len(calls)) == (1, 2)
    assert calls[1].startswith("compose -f mine.yaml up ")
    assert said == "node-1 is not healthy, and no other node was touched after it: docker compose logs node-1\n"


# --- systemd --------------------------------------------------------------------------------------------

NODE = "claudeops@.service"
OF_A_NODE = {"Description", "ExecStartPre", "Environment", "LoadCredential", "EnvironmentFile"}
"""What a node's unit has otherwise than the one daemon's, beside directories with its name."""


def test_the_unit_of_a_node_is_locked_in_and_stopped_as_that_of_the_one_daemon() -> None:
    one, node = unit(), unit(NODE)
    directories = {"StateDirectory": ["claudeops-%i"], "LogsDirectory": ["claudeops-%i"]}

    assert {name: node[name] for name in directories} == directories
    assert {name for name in {*one, *node} if one.get(name) != node.get(name)} == {*OF_A_NODE, *directories}
    assert int(node["TimeoutStopSec"][0]) > STOPPING_SECONDS


def test_every_variable_of_the_unit_of_a_node_is_a_setting_that_the_daemon_takes(tmp_path: Path) -> None:
    variables = dict(value.split("=", 1) for value in unit(NODE)["Environment"])
    directories = {"%S": "/var/lib", "%L": "/var/log", "%d": "/run/credentials", "%i": "attic"}
    for specifier, value in directories.items():
        variables = {name: text.replace(specifier, value) for name, text in variables.items()}

    settings = node_settings(variables | {"CLAUDEOPS_REPOS_DIR": str(tmp_path)}, tmp_path / "world")
    assert (settings.node.name, str(settings.places.state_dir)) == ("attic", "/var/lib/claudeops-attic")
    credentials = {value.split(":")[0] for value in unit(NODE)["LoadCredential"]}
    assert {Path(text).name for text in variables.values() if text.startswith("/run/cred")} <= credentials


def test_the_unit_of_a_node_puts_the_key_where_the_daemon_takes_it(tmp_path: Path) -> None:
    """Its command is run as systemd fills it in; a credential can be readable for more than its owner."""
    state, credentials = tmp_path / "claudeops-attic", tmp_path / "credentials"
    for directory in (state, credentials):
        directory.mkdir()
    (credentials / "approval.key").write_bytes(bytes(range(32)))
    (credentials / "approval.key").chmod(0o440)
    (command,) = unit(NODE)["ExecStartPre"]
    filled = command.replace("%d", str(credentials)).replace("%S", str(tmp_path)).replace("%i", "attic")
    for _ in range(2):  # and at each further start
        subprocess.run(shlex.split(filled), check=True, timeout=240)

    assert read_key(state) == bytes(range(32))


@pytest.mark.parametrize("dumps", [True, False])
def test_the_backup_of_postgresql_gives_a_name_to_a_whole_copy_and_then_removes_old_ones(
    tmp_path: Path, *, dumps: bool
) -> None:
    """Its commands are run as systemd splits and fills them in, with a directory and a `pg_dump` of this test."""
    copies, program = tmp_path / "copies", tmp_path / "pg_dump"
    copies.mkdir()
    program.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" != --file ] || echo copy >"$2"; shift; done\n'
        f"exit {0 if dumps else 1}\n"
    )
    program.chmod(0o755)
    old, other = copies / "claudeops-2020-01-01T000000Z.dump", copies / "notes.txt"
    for file in (old, other):
        file.touch()
        os.utime(file, (0, 0))
    found = unit("claudeops-backup-postgresql.service")
    for (command,) in (found["ExecStart"], found["ExecStartPost"]):
        filled = command.replace("$$", "$").replace("%%", "%").replace("/var/backups/claudeops", str(copies))
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(shlex.split(filled), env=environment, check=False, capture_output=True, timeout=240)
        if done.returncode != 0:
            break  # as systemd does

    names = sorted({file.name for file in copies.iterdir()} - {other.name})
    assert other.exists()
    if not dumps:
        assert names == [old.name, "claudeops.part"]
        return
    (name,) = names
    assert re.fullmatch(r"claudeops-\d{4}-\d\d-\d\dT\d{6}Z\.dump", name)


def test_the_backup_of_postgresql_names_no_password_and_reaches_the_network() -> None:
    found = unit("claudeops-backup-postgresql.service")

    assert "Environment" not in found
    assert "PrivateNetwork" not in found
    assert found["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6"]
    assert found["ReadWritePaths"] == ["/var/backups/claudeops"]
    same = set(unit("claudeops-backup.service")) - {"Environment", "PrivateNetwork"}
    assert set(found) == {*same, "Wants", "After"}
    timers = [unit(f"claudeops-backup{name}.timer") for name in ("", "-postgresql")]
    assert len({str(timer | {"Description": ""}) for timer in timers}) == 1
