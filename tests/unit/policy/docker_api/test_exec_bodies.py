"""An exec runs the command that was judged, and nothing beside it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.policy.docker_api.requests import (
    EXEC_START,
    DockerRefusal,
    ExecCommand,
    exec_body,
    read_act_body,
    read_exec,
    read_exec_start,
)

DOCKER = {
    "User": "",
    "Privileged": False,
    "Tty": False,
    "AttachStdin": False,
    "AttachStderr": True,
    "AttachStdout": True,
    "Detach": False,
    "DetachKeys": "",
    "Env": None,
    "WorkingDir": "",
    "Cmd": ["cat", "/etc/passwd"],
}


def body(**fields: object) -> bytes:
    """Return what docker sends, with other fields."""
    return json.dumps(DOCKER | fields).encode() + b"\n"


def test_the_body_of_docker_is_read() -> None:
    assert read_exec(body()) == ExecCommand(command=("cat", "/etc/passwd"), attach_stdout=True, attach_stderr=True)


def test_the_command_alone_is_enough() -> None:
    assert read_exec(b'{"Cmd":["id"]}') == ExecCommand(command=("id",))


def test_user_directory_and_environment_are_the_callers_to_judge() -> None:
    command = read_exec(body(User="0", WorkingDir="/srv", Env=["X=1"]))

    assert isinstance(command, ExecCommand)
    assert (command.user, command.directory, command.environment) == ("0", "/srv", ("X=1",))


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"Privileged": True}, "--privileged"),
        ({"Privileged": 1}, "--privileged"),
        ({"Privileged": "false"}, "--privileged"),
        ({"Tty": True}, "-t"),
        ({"Detach": True}, "-d"),
        ({"DetachKeys": "ctrl-a"}, "--detach-keys"),
    ],
)
def test_what_makes_more_of_an_exec_is_refused_with_the_option_to_leave_out(
    fields: dict[str, object], remedy: str
) -> None:
    refused = read_exec(body(**fields))

    assert isinstance(refused, DockerRefusal)
    assert refused.status == 403
    assert remedy in refused.sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"Cmd": []},
        {"Cmd": None},
        {"Cmd": "id"},
        {"Cmd": ["id", 1]},
        {"Cmd": ["id", None]},
        {"Cmd": [["id"]]},
        {"Cmd": ["id\0"]},
        {"Cmd": ["\ud800"]},
        {"Env": "X=1"},
        {"Env": {"X": "1"}},
        {"Env": ["X=\0"]},
        {"User": 0.5},
        {"User": ["root"]},
        {"WorkingDir": {"a": 1}},
        {"AttachStdout": "yes"},
        {"AttachStderr": 1},
        {"Capabilities": ["ALL"]},
        {"cmd": ["id"]},
        {"cmd": None},
        {"CMD": []},
        {"tty": False},
        {"privileged": True},
        {"\u212a": "", "k": ""},
        {"Ti\u017f": "", "tis": ""},
    ],
)
def test_a_field_that_engines_could_read_in_another_way_is_refused(fields: dict[str, object]) -> None:
    assert isinstance(read_exec(body(**fields)), DockerRefusal)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"id"',
        b"{",
        b'{"Cmd":["id"]}{"Cmd":["rm"]}',
        b'{"Cmd":["id"],"Cmd":["rm"]}',
        b'{"Cmd":["id"],"\\u0043md":["rm"]}',
        b'{"Cmd":["id"],"Env":[],"Env":["X=1"]}',
        b'{"Cmd":["id"],"x":NaN}',
        b'{"Cmd":["\xff"]}',
        json.dumps({"Cmd": ["id"]}).encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"Cmd":["id"]}',
        b'{"x":' + b"[" * 50_000,
        json.dumps({"Cmd": ["a" * 70_000]}).encode(),
        b'{"Cmd":["id"],"x":' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_plain_object_is_refused(raw: bytes) -> None:
    assert isinstance(read_exec(raw), DockerRefusal)
    assert isinstance(read_exec_start(raw), DockerRefusal) or raw == b"{}"


@pytest.mark.parametrize(
    "fields",
    [{"Future": None}, {"Future": False}, {"Future": ""}, {"Future": []}, {"Future": {}}, {"ConsoleSize": [24, 80]}],
)
def test_an_empty_field_of_engines_to_come_says_nothing(fields: dict[str, object]) -> None:
    assert read_exec(body(**fields)) == read_exec(body())


words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)


@given(
    command=st.builds(
        ExecCommand,
        command=st.lists(words, min_size=1, max_size=4).map(tuple),
        user=words,
        directory=words,
        environment=st.lists(words, max_size=3).map(tuple),
        attach_stdout=st.booleans(),
        attach_stderr=st.booleans(),
    )
)
def test_what_is_sent_is_what_was_read(command: ExecCommand) -> None:
    assert read_exec(exec_body(command)) == command


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    raw=st.binary(max_size=40)
    | st.dictionaries(st.sampled_from([*DOCKER, "cmd", "x"]), json_values, max_size=6).map(
        lambda one: json.dumps(one).encode()
    )
)
def test_every_body_is_read_or_refused(raw: bytes) -> None:
    command = read_exec(raw)
    start = read_exec_start(raw)

    assert isinstance(command, DockerRefusal) or read_exec(exec_body(command)) == command
    assert start is None or isinstance(start, DockerRefusal)


@pytest.mark.parametrize(
    "raw", [EXEC_START, b"{}", b'{"Tty":false}', b'{"Detach":false,"Tty":false,"ConsoleSize":[24,80]}\n']
)
def test_an_exec_starts_with_its_output_on_the_line(raw: bytes) -> None:
    assert read_exec_start(raw) is None


@pytest.mark.parametrize(
    "raw", [b'{"Detach":true}', b'{"Tty":true}', b'{"detach":true}', b'{"Tty":false,"tty":true}', b'{"X":1}', b""]
)
def test_an_exec_does_not_start_in_another_way(raw: bytes) -> None:
    assert isinstance(read_exec_start(raw), DockerRefusal)


@pytest.mark.parametrize("raw", [b"", b"{}", b" {}\n", b"\n"])
def test_an_act_says_nothing_in_its_body(raw: bytes) -> None:
    assert read_act_body(raw) is None


@pytest.mark.parametrize("raw", [b'{"Binds":["/:/h"]}', b'{"Privileged":true}', b"null", b"t=0", b"[]", b"{ }x"])
def test_an_act_with_a_body_is_refused(raw: bytes) -> None:
    assert isinstance(read_act_body(raw), DockerRefusal)
