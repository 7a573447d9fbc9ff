"""Every call that docker 28, docker 20.10 and compose 2.40 were seen to make is passed, made an act, or refused."""

from __future__ import annotations

import json
from typing import Final

import pytest

from claudeops.policy.docker_api.requests import (
    CreateExec,
    DockerAct,
    DockerRead,
    DockerRefusal,
    ReadExec,
    StartExec,
    read_exec,
    read_exec_start,
    read_request,
)
from support.checkout import ROOT

CALLS: Final = [
    json.loads(line)
    for line in (ROOT / "tests/data/recordings/docker-engine-calls.jsonl").read_text(encoding="utf-8").splitlines()
]

LOOKS: Final = (
    *("ps", "inspect", "container inspect", "image inspect", "network inspect", "volume inspect", "container ls"),
    *("logs", "top", "stats", "events", "images", "history", "port", "diff", "system df", "info", "version", "wait"),
    *("network ls", "volume ls", "plugin ls", "plugin inspect", "node ls", "node inspect", "node ps", "service ls"),
    *("service ps", "service inspect", "service logs", "stack ls"),
    *("compose ls", "compose ps", "compose logs", "compose top", "compose images", "compose port", "compose stats"),
    *("compose events", "compose wait"),
)
ELSEWHERE: Final = {("GET", "containers/bb:1/json"): 404}
"""A look that the engine answers with 404 as well, since no container can have that name."""


def words_of(command: str) -> str:
    """Return the subcommand of a docker command, without options in front of it."""
    words = command.split()
    words = words[words.index("docker") + 1 :]
    while words[0].startswith("-"):
        words = words[2:]
    if words[0] == "compose":
        rest = words[1:]
        while rest[0].startswith("-"):
            rest = rest[2:]
        return f"compose {rest[0]}"
    groups = {"container", "image", "network", "volume", "plugin", "node", "service", "stack", "system"}
    return " ".join(words[:2]) if words[0] in groups else words[0]


@pytest.mark.parametrize(
    "call", [call for call in CALLS if words_of(call["command"]) in LOOKS], ids=lambda call: call["path"]
)
def test_a_look_passes_as_it_came(call: dict[str, str]) -> None:
    read = read_request(call["method"], call["path"])

    path = call["path"].split("?")[0].removeprefix("/v1.41/")
    if (call["method"], path) in ELSEWHERE:
        assert isinstance(read, DockerRefusal)
        assert read.status == ELSEWHERE[call["method"], path]
        return
    assert isinstance(read, DockerRead), read
    details = "/containers/" in call["path"] and "details=1&" in call["path"]
    sent = call["path"].replace("details=1&", "") if details else call["path"]
    assert read.target == sent.replace("=true", "=1").replace("=false", "=0")
    assert read.method == call["method"]
    assert read.dropped == (("details",) if details else ())


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call["method"] != "GET" and call["path"] != "/_ping"],
    ids=lambda call: f"{call['method']} {call['path']}",
)
def test_of_all_that_changes_something_four_verbs_and_an_exec_are_left(call: dict[str, str]) -> None:
    request = read_request(call["method"], call["path"])

    verb = call["path"].split("?")[0].rsplit("/", 1)[-1]
    if call["path"].startswith("/v1.41/containers/") and verb in {"restart", "start", "stop", "unpause"}:
        assert isinstance(request, DockerAct)
        assert request.verb == verb
        assert f"/{request.container}/" in call["path"]
        assert request.version == "/v1.41"
    elif verb == "exec":
        assert isinstance(request, CreateExec)
    elif verb == "start":
        assert isinstance(request, StartExec)
    elif verb == "wait":
        assert isinstance(request, DockerRead)
        assert request.stream
    else:
        assert isinstance(request, DockerRefusal), request
        assert request.status == 403


DANGERS: Final = ("archive", "export", "images/get", "attach", "/swarm", "/secrets", "/configs", "images/search")


@pytest.mark.parametrize(
    "path",
    sorted({call["path"] for call in CALLS if call["method"] == "GET" and any(one in call["path"] for one in DANGERS)}),
)
def test_reads_that_carry_secrets_or_files_are_refused(path: str) -> None:
    refused = read_request("GET", path)

    assert isinstance(refused, DockerRefusal), path
    assert refused.status == (404 if path.count("/") == 3 and path.split("/")[2] in {"secrets", "configs"} else 403)


def test_the_table_of_dangers_sees_some() -> None:
    seen = [one for one in DANGERS if any(one in call["path"] for call in CALLS)]

    assert seen == list(DANGERS)


def test_of_the_recorded_execs_those_that_run_no_more_than_a_command_are_read() -> None:
    commands = {
        call["command"].split("docker ", 1)[1]: read_exec(call["body"].encode())
        for call in CALLS
        if call["path"].endswith("/exec")
    }

    taken = {command: one.command for command, one in commands.items() if not isinstance(one, DockerRefusal)}
    assert taken == {
        "exec web cat /etc/passwd": ("cat", "/etc/passwd"),
        "exec -i web cat < /etc/hostname": ("cat",),
        "compose -f proj/compose.yaml exec -T app echo hi": ("echo", "hi"),
    }
    assert {command for command in commands if command not in taken} == {
        "exec -d web sleep 1",
        "exec -e X=1 -u 0 --privileged web /bin/true",
    }


def test_what_runs_in_the_background_does_not_start() -> None:
    starts = {
        call["body"].strip(): read_exec_start(call["body"].encode())
        for call in CALLS
        if call["path"].endswith("/start") and "body" in call
    }

    assert starts.pop('{"Detach":false,"Tty":false}') is None
    assert isinstance(starts.pop('{"Detach":true,"Tty":false}'), DockerRefusal)
    assert starts == {}


def test_how_an_exec_ended_is_read() -> None:
    ends = [
        read_request("GET", call["path"])
        for call in CALLS
        if call["path"].startswith("/v1.41/exec/") and call["method"] == "GET"
    ]

    assert ends
    assert all(isinstance(end, ReadExec) for end in ends)
