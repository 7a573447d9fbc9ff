"""Masks by hand: what an engine of another version, podman or a plugin says, and what no engine says."""

from __future__ import annotations

import json

import pytest

from claudeops.policy.docker_api import masks
from claudeops.policy.docker_api.requests import DockerAnswerKind
from claudeops.text.redact import Redactor

NOTHING = Redactor([])
CONTAINER = DockerAnswerKind.CONTAINER


def shown(field: str, value: object, kind: DockerAnswerKind = CONTAINER) -> object:
    """Return what is shown of a field."""
    document = masks.masked(kind, {field: value})
    assert isinstance(document, dict)
    return document[field]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("Env", ["A=b", "A=", "A", "two words=x", "=x", ""], ["A=[redacted]", "A=", *["[redacted]"] * 3, ""]),
        ("Env", None, None),
        ("Env", {"A": "b"}, {"A": "[redacted]"}),
        (
            "Labels",
            {"a": "b", "e": "", "com.docker.compose.project": "p"},
            {"a": "[redacted]", "e": "", "com.docker.compose.project": "p"},
        ),
        ("Labels", {"com.docker.compose.x": "b"}, {"com.docker.compose.x": "[redacted]"}),
        ("Labels", {"com.docker.compose.project": ["b"]}, {"com.docker.compose.project": ["[redacted]"]}),
        ("Labels", ["a=b"], ["a=[redacted]"]),
        ("Labels", "a", "[redacted]"),
        (
            "Labels",
            {"com.docker.swarm.task.name": "svc.1", "com.docker.stack.image": "i"},
            {"com.docker.swarm.task.name": "svc.1", "com.docker.stack.image": "i"},
        ),
        ("Annotations", {"a": "b"}, {"a": "[redacted]"}),
        ("Cmd", ["serve", "", 8080, None], ["[redacted]", "", 8080, None]),
        ("Cmd", [], []),
        ("Entrypoint", "sh -c x", "[redacted]"),
        ("Path", "/bin/sh", "/bin/sh"),
        ("Path", "PASSWORD=x", "[redacted]"),
        ("Path", "a b", "[redacted]"),
        ("Command", "/bin/sh -c x", "/bin/sh [redacted]"),
        ("Command", "/bin/sh", "/bin/sh"),
        ("Command", "hunter2", "[redacted]"),
        ("Command", "'/my program' x", "[redacted]"),
        ("Command", "", ""),
        ("Command", ["/bin/sh", "x"], ["[redacted]", "[redacted]"]),
        ("Test", ["CMD-SHELL", "curl x"], ["CMD-SHELL", "[redacted]"]),
        ("Test", ["NONE"], ["NONE"]),
        ("Test", ["curl", "x"], ["[redacted]", "[redacted]"]),
        ("Test", [["CMD"]], [["[redacted]"]]),
        (
            "LogConfig",
            {"Type": "gelf", "Config": {"max-size": "10m", "token": "x"}},
            {"Type": "gelf", "Config": {"max-size": "10m", "token": "[redacted]"}},
        ),
        (
            "Options",
            {"com.docker.network.driver.mtu": "1400", "o": "password=x", "type": "cifs"},
            {"com.docker.network.driver.mtu": "1400", "o": "[redacted]", "type": "cifs"},
        ),
        ("DriverOpts", {"a": "b"}, {"a": "[redacted]"}),
        (
            "Secrets",
            [{"File": {"Name": "s", "UID": "0", "Mode": 292}, "SecretName": "s", "Data": "x"}],
            [{"File": {"Name": "s", "UID": "0", "Mode": 292}, "SecretName": "s", "Data": "[redacted]"}],
        ),
        ("Configs", [{"ConfigID": "c", "Content": "x"}], [{"ConfigID": "c", "Content": "[redacted]"}]),
        ("Data", "c2VjcmV0", "[redacted]"),
        ("Data", {"LowerDir": "/a"}, {"LowerDir": "/a"}),
        ("Description", "mount / from exec /bin/sh -c x", "[redacted]"),
        (
            "Description",
            {"Hostname": "h", "Engine": {"Labels": {"a": "b"}}},
            {"Hostname": "h", "Engine": {"Labels": {"a": "[redacted]"}}},
        ),
        ("Status", "Up 4 minutes (healthy)", "Up 4 minutes (healthy)"),
        ("Status", {"token": "x", "used": 5}, {"token": "[redacted]", "used": 5}),
        ("Status", {"State": "running", "Message": "started"}, {"State": "running", "Message": "started"}),
        (
            "JoinTokens",
            {"Worker": "SWMTKN-1", "Manager": "SWMTKN-2"},
            {"Worker": "[redacted]", "Manager": "[redacted]"},
        ),
        ("HttpProxy", "http://user:pass@proxy:3128", "http://[redacted]@proxy:3128"),
        ("HttpProxy", "user@proxy", "[redacted]@proxy"),
        ("HttpProxy", "http://user:p@ss@proxy", "http://[redacted]@proxy"),
        ("HttpProxy", "http://proxy:3128", "http://proxy:3128"),
        (
            "RegistryConfig",
            {"Mirrors": ["https://token@mirror/"], "Secure": True},
            {"Mirrors": ["https://[redacted]@mirror/"], "Secure": True},
        ),
    ],
)
def test_a_field_is_masked_as_its_nature_is(field: str, value: object, expected: object) -> None:
    assert shown(field, value) == expected
    below = masks.masked(CONTAINER, [{"Deep": [{field: value}]}])
    assert below == [{"Deep": [{field: expected}]}]


def test_a_plugin_shows_the_names_of_its_settings() -> None:
    plugin = {
        "Name": "vieux/sshfs:latest",
        "Settings": {"Env": ["PASSWORD=x"], "Args": ["x"], "Mounts": [{"Source": "/var"}]},
        "Config": {
            "Env": [{"Name": "PASSWORD", "Description": "d", "Settable": ["value"], "Value": "x"}],
            "Args": {"Name": "args", "Value": ["x"]},
        },
    }

    assert masks.masked(DockerAnswerKind.PLUGIN, plugin) == {
        "Name": "vieux/sshfs:latest",
        "Settings": {"Env": ["PASSWORD=[redacted]"], "Args": ["[redacted]"], "Mounts": [{"Source": "/var"}]},
        "Config": {
            "Env": [
                {"Name": "PASSWORD", "Description": "[redacted]", "Settable": ["[redacted]"], "Value": "[redacted]"}
            ],
            "Args": {"Name": "[redacted]", "Value": ["[redacted]"]},
        },
    }


# --- top ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("titles", "row", "expected"),
    [
        (["PID", "CMD"], ["1", "/usr/bin/env x"], ["1", "env [redacted]"]),
        (["PID", "COMMAND"], ["1", "nginx: master process"], ["1", "nginx: [redacted]"]),
        (["PID", "COMMAND"], ["1", "/bin/"], ["1", ""]),
        (["PID", "COMMAND"], ["1", "PASSWORD=x sh"], ["1", "[redacted]"]),
        (["PID", "COMMAND"], ["1", ""], ["1", ""]),
        (["PID", "ENVIRON"], ["1", "A=b"], ["1", "[redacted]"]),
        (["PID", "X"], ["1", "sh"], ["1", "[redacted]"]),
        (["pid", "cmd"], ["1", "sh x"], ["1", "sh [redacted]"]),
        (["CMD", "PID"], ["sh", "-c secret 1"], ["sh", "[redacted]"]),
        (["PID"], ["1", "more"], ["1", "[redacted]"]),
        (["PID", "CMD"], ["1"], ["1"]),
        (["PID", "STIME", "%CPU", "TTY"], ["1", "Nov27", "0.0", "?"], ["1", "Nov27", "0.0", "?"]),
        ([1, "CMD"], ["x", 5], ["[redacted]", 5]),
    ],
)
def test_of_a_command_line_the_program_stays(titles: list[object], row: list[object], expected: list[object]) -> None:
    document = masks.masked(DockerAnswerKind.TOP, {"Titles": titles, "Processes": [row]})

    assert document == {"Titles": titles, "Processes": [expected]}


@pytest.mark.parametrize(
    "document",
    [
        {"Processes": [["sh x"]]},
        {"Titles": "CMD", "Processes": [["sh x"]]},
        {"Processes": "sh x"},
        ["sh x"],
        {"Titles": ["CMD"], "Processes": {"a": "sh x"}},
        {"Titles": ["CMD"], "Processes": ["sh x"]},
    ],
)
def test_another_form_of_top_shows_no_text(document: object) -> None:
    assert "sh x" not in json.dumps(masks.masked(DockerAnswerKind.TOP, document))


# --- events -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("start", "start"),
        ("exec_create: sh -c secret", "exec_create: [redacted]"),
        ("exec_start:secret", "exec_start: [redacted]"),
        ("exec_die", "exec_die"),
        ("health_status: healthy", "health_status: healthy"),
        ("health_status: unhealthy", "health_status: unhealthy"),
        ("health_status: curl said x", "health_status: [redacted]"),
        ("other: healthy", "other: [redacted]"),
        ("exec_create: ", "exec_create: "),
        ("sh -c secret", "[redacted]"),
        ("", ""),
        (5, 5),
    ],
)
def test_the_name_of_an_event_stays_and_what_follows_goes(action: object, expected: object) -> None:
    assert masks.masked(DockerAnswerKind.EVENTS, {"Action": action, "status": action}) == {
        "Action": expected,
        "status": expected,
    }


@pytest.mark.parametrize(
    ("type_of", "attributes", "expected"),
    [
        (
            "container",
            {"name": "web", "exitCode": "1", "type": "label"},
            {"name": "web", "exitCode": "1", "type": "[redacted]"},
        ),
        (
            "network",
            {"name": "n", "type": "bridge", "exitCode": "x"},
            {"name": "n", "type": "bridge", "exitCode": "[redacted]"},
        ),
        ("builder", {"name": "x"}, {"name": "[redacted]"}),
        (None, {"name": "x"}, {"name": "[redacted]"}),
        ("container", {"com.docker.compose.service": "s", "x": ""}, {"com.docker.compose.service": "s", "x": ""}),
    ],
)
def test_attributes_of_an_event_are_those_of_its_type(
    type_of: object, attributes: dict[str, str], expected: dict[str, str]
) -> None:
    event = masks.masked(DockerAnswerKind.EVENTS, {"Type": type_of, "Actor": {"ID": "1", "Attributes": attributes}})

    assert event == {"Type": type_of, "Actor": {"ID": "1", "Attributes": expected}}


@pytest.mark.parametrize(
    "event", [["secret"], "secret", {"Actor": "secret"}, {"Actor": ["secret"]}, {"Actor": {"Attributes": "secret"}}]
)
def test_another_form_of_an_event_shows_no_text(event: object) -> None:
    assert "secret" not in json.dumps(masks.masked(DockerAnswerKind.EVENTS, event))


def test_changed_files_are_shown_whatever_their_names() -> None:
    changes = [{"Path": "/srv/my file", "Kind": 0}, {"Path": ["no path"]}, "x", {}]

    assert masks.masked(DockerAnswerKind.CHANGES, changes) == [
        {"Path": "/srv/my file", "Kind": 0},
        {},
        "[redacted]",
        {},
    ]
    assert masks.masked(DockerAnswerKind.CHANGES, None) is None


# --- bodies and lines ---------------------------------------------------------------------------------


def deep(levels: int, field: str) -> object:
    """Return an object in an object, and so on."""
    document: object = "secret"
    for _ in range(levels):
        document = {field: document}
    return document


@pytest.mark.parametrize(
    "kind", [DockerAnswerKind.CONTAINER, DockerAnswerKind.TOP, DockerAnswerKind.EVENTS, DockerAnswerKind.CHANGES]
)
@pytest.mark.parametrize(
    "field",
    [
        "x",
        "Env",
        "Labels",
        "Cmd",
        "Options",
        "Secrets",
        "RegistryConfig",
        "LogConfig",
        "Status",
        "Actor",
        "Processes",
        "Description",
    ],
)
def test_a_document_may_be_as_deep_as_it_likes(kind: DockerAnswerKind, field: str) -> None:
    document = deep(10_000, field)

    assert masks.masked(kind, document) is not None
    assert masks.masked(kind, [document]) is not None
    assert b"secret" not in (masks.masked_body(kind, json.dumps(deep(300, field)).encode(), NOTHING) or b"")
    assert masks.masked_body(kind, b'{"' + field.encode() + b'":' + b"[" * 100_000, NOTHING) is None


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"page not found\n", b'{"a":1}{"b":2}', b"\xff", b"<html>", b'"\\ud800"']
)
def test_what_is_no_json_is_not_shown(body: bytes) -> None:
    assert masks.masked_body(CONTAINER, body, NOTHING) is None


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[1]\n", b'"x"\n', b"5\n", b"{\n", b'{"a":1}{"b":2}\n', b"\x1e{}\n", b"null\n"]
)
def test_a_line_that_is_no_object_becomes_nothing(line: bytes) -> None:
    assert masks.masked_line(DockerAnswerKind.EVENTS, line, NOTHING) == b""


def test_a_line_keeps_its_end() -> None:
    assert masks.masked_line(DockerAnswerKind.STATS, b' {"read":"x","n":18446744073709551615}\r\n', NOTHING) == (
        b'{"read":"x","n":18446744073709551615}\n'
    )
    assert masks.masked_line(DockerAnswerKind.STATS, b"{}", NOTHING) == b"{}"


def test_of_a_key_that_stands_there_twice_one_is_shown() -> None:
    assert masks.masked_body(CONTAINER, b'{"Name":"a","Name":"b"}', NOTHING) == b'{"Name":"b"}'


def test_numbers_stay_as_they_are() -> None:
    body = b'{"a":9223372036854771712,"b":0.1,"c":-1,"d":1e-9,"e":true,"f":null}'

    assert masks.masked_body(CONTAINER, body, NOTHING) == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"Env":["A=[redacted]"]}',
        b"[redacted]",
        b'{"Env":["A=\\u005bredacted\\u005D"]}',
        b'{"Env":["A=\\u005b\\u0072\\u0065\\u0064\\u0061\\u0063\\u0074\\u0065\\u0064\\u005d"]}',
        b'{"patch":"{\\"Env\\":[\\"A=\\\\u005bredacted]\\"]}"}',
        b"name=%5Bredacted%5D",
        b'{"Data":"QT1bcmVkYWN0ZWRd"}',
    ],
)
def test_a_mask_is_found_in_every_form(body: bytes) -> None:
    assert masks.holds_mask(body)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"Cmd":["echo","redacted"]}', b"[Redacted]", b"[redacted ]", b"\xff"])
def test_other_words_are_no_mask(body: bytes) -> None:
    assert not masks.holds_mask(body)
