"""What a request is: the traps by hand, and what holds for every first line."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claudeops.policy.docker_api.requests import (
    CreateExec,
    DockerAct,
    DockerAnswerKind,
    DockerRead,
    DockerRefusal,
    ReadExec,
    Request,
    StartExec,
    read_request,
)

EXEC_ID = "9649b511de678c7b3b9dcf68fa62cc05a6cdaa4ee90c61ae1f2b77bb102d6df2"


def refused(method: str, target: str) -> int:
    """Return the status with which a request is refused, 0 if it is not."""
    request = read_request(method, target)
    if not isinstance(request, DockerRefusal):
        return 0
    assert request.sentence.isprintable()
    assert len(request.sentence) < 600
    return request.status


@pytest.mark.parametrize(
    "target",
    [
        "/v1.41/containers/json/../x",
        "/v1.41/containers/../secrets",
        "/v1.41/./info",
        f"/v1.41//exec/{EXEC_ID}/json",
        "//v1.41/info",
        "/v1.41/info/",
        "/v1.41/containers/web%2Fjson",
        "/v1.41/containers/%2e%2e/secrets",
        "/v1.41/containers/web/json#x",
        "/v1.41/info?x=1#y",
        "/v1.41/containers/we b/json",
        "/v1.41/info\r\nX: y",
        "/v1.41/info\0",
        "/v1.41/info?x=é",
        "/v1.41/info?x=a b",
        "/v1.41/containers/wéb/json",
        "/v1.41/containers\\json",
        "http://docker/v1.41/info",
        "docker:2375",
        "*",
        "",
        "/",
        "?all=1",
        "/v1.41/info?" + "x" * 9000,
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_an_address_that_two_readers_could_take_differently_is_refused(method: str, target: str) -> None:
    assert refused(method, target) == 400


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1.41/Containers/json"),
        ("GET", "/V1.41/info"),
        ("get", "/v1.41/info"),
        ("GET", "/v1/info"),
        ("GET", "/v1.41.0/info"),
        ("GET", "/v0.1/info"),
        ("GET", "/v1.4100/info"),
        ("GET", "/v1.41/v1.41/info"),
        ("GET", "/v4.0.0/libpod/containers/json"),
        ("GET", "/libpod/info"),
        ("GET", "/v1.41"),
        ("GET", "/containers"),
        ("GET", "/containers/web"),
        ("GET", "/containers/ps"),
        ("GET", "/containers/web/archive?path=/etc"),
        ("HEAD", "/containers/web/archive?path=/etc"),
        ("HEAD", "/info"),
        ("PUT", "/containers/web/archive?path=/etc"),
        ("GET", "/containers/web/export"),
        ("GET", "/containers/web/attach/ws"),
        ("GET", "/containers/web/attach"),
        ("POST", "/containers/web/attach"),
        ("POST", "/containers/web/json"),
        ("POST", "/containers/json"),
        ("GET", "/containers/web/restart"),
        ("POST", "/containers/web/kill"),
        ("POST", "/containers/web/pause"),
        ("POST", "/containers/web/resize"),
        ("POST", "/containers/create"),
        ("POST", "/containers/prune"),
        ("DELETE", "/containers/web"),
        ("GET", "/images/get"),
        ("GET", "/images/bb:1/get"),
        ("GET", "/images/search?term=x"),
        ("POST", "/images/load"),
        ("POST", "/images/create"),
        ("GET", "/plugins/privileges?remote=x"),
        ("GET", "/distribution/bb:1/json"),
        ("GET", "/swarm"),
        ("GET", "/swarm/unlockkey"),
        ("GET", "/secrets"),
        ("GET", "/configs"),
        ("POST", "/session"),
        ("POST", "/grpc"),
        ("POST", "/build"),
        ("POST", "/build/prune"),
        ("POST", "/commit"),
        ("POST", "/auth"),
        ("POST", f"/exec/{EXEC_ID}/resize"),
        ("GET", f"/exec/{EXEC_ID}/start"),
        ("POST", f"/exec/{EXEC_ID}/json"),
        ("POST", "/services/svc/update?version=1"),
        ("OPTIONS", "/info"),
        ("CONNECT", "/info"),
        ("PRI", "/info"),
        ("GET", "/metrics"),
        ("GET", "/debug/pprof/heap"),
    ],
)
def test_what_is_not_in_the_tables_is_refused_with_what_to_do(method: str, target: str) -> None:
    assert refused(method, target) == 403


def test_the_sentence_names_the_request_and_a_remedy() -> None:
    request = read_request("GET", "/v1.41/containers/web/archive?path=/etc")

    assert isinstance(request, DockerRefusal)
    assert request.sentence == (
        "GET /containers/web/archive is not reached through the filter of the Docker API, which passes looks, and"
        " restart, start, stop, unpause and exec where the policy allows them: read a file with docker exec CONTAINER"
        " cat FILE"
    )


@pytest.mark.parametrize("prefix", ["", "/v1.24", "/v1.41", "/v1.52"])
def test_a_version_goes_where_the_request_goes(prefix: str) -> None:
    read = read_request("GET", f"{prefix}/containers/web/json")
    act = read_request("POST", f"{prefix}/containers/web/restart?t=1&signal=SIGTERM")

    assert read == DockerRead(
        target=f"{prefix}/containers/web/json", kind=DockerAnswerKind.CONTAINER, stream=False, dropped=()
    )
    assert act == DockerAct(
        verb="restart", container="web", parameters=(("signal", "SIGTERM"), ("t", "1")), version=prefix
    )
    assert read_request("POST", f"{prefix}/containers/web/exec") == CreateExec(container="web", version=prefix)
    assert read_request("POST", f"{prefix}/exec/{EXEC_ID}/start") == StartExec(exec_id=EXEC_ID, version=prefix)
    assert read_request("GET", f"{prefix}/exec/{EXEC_ID}/json") == ReadExec(exec_id=EXEC_ID, version=prefix)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_ping_passes_with_its_method(method: str) -> None:
    assert read_request(method, "/_ping") == DockerRead(
        target="/_ping", kind=DockerAnswerKind.PING, stream=False, dropped=(), method=method
    )


# --- the chain of docker inspect ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bb:1", "registry.example:5000/team/app:1", "a/b", "x@sha256:0123", "_x", "n" * 256])
@pytest.mark.parametrize(
    "path",
    [
        *("/containers/{}/json", "/networks/{}", "/volumes/{}", "/services/{}?insertDefaults=false", "/tasks/{}"),
        *("/nodes/{}", "/secrets/{}", "/configs/{}"),
    ],
)
def test_a_name_that_cannot_be_one_is_not_found_so_that_docker_looks_on(path: str, name: str) -> None:
    assert refused("GET", f"/v1.41{path.format(name)}") == 404


@pytest.mark.parametrize("path", ["/secrets/web", "/configs/web"])
def test_what_is_not_served_is_not_found_by_its_name_alone(path: str) -> None:
    request = read_request("GET", path)

    assert isinstance(request, DockerRefusal)
    assert request.status == 404
    assert "stays with the services" in request.sentence


@pytest.mark.parametrize("name", ["bb:1", "registry.example:5000/team/app:1", "x@sha256:0123", "get", "json", "a/json"])
def test_images_and_plugins_have_longer_names(name: str) -> None:
    image, plugin = (read_request("GET", f"/{collection}/{name}/json") for collection in ("images", "plugins"))

    assert image == DockerRead(target=f"/images/{name}/json", kind=DockerAnswerKind.IMAGE, stream=False, dropped=())
    assert plugin == DockerRead(target=f"/plugins/{name}/json", kind=DockerAnswerKind.PLUGIN, stream=False, dropped=())


@pytest.mark.parametrize("path", ["/containers/a:b/top", "/containers/a:b/logs", "/images/_x/history"])
def test_a_name_that_cannot_be_one_is_refused_where_docker_does_not_guess(path: str) -> None:
    assert refused("GET", path) == 400


# --- parameters of reads ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("/containers/json?all=true&size=0&limit=-1", "/containers/json?all=1&size=0&limit=-1"),
        ("/containers/json?all=&filters=", "/containers/json?all=0&filters=%7B%7D"),
        ("/containers/json?filters={%22name%22:[%22web%22]}", "/containers/json?filters=" + quote('{"name":["web"]}')),
        ("/containers/web/json?size=1", "/containers/web/json?size=1"),
        ("/containers/web/top?ps_args=-o%20pid,args", "/containers/web/top?ps_args=-o+pid%2Cargs"),
        ("/containers/web/top?ps_args=", "/containers/web/top?ps_args=-ef"),
        (
            "/containers/web/logs?tail=all&since=1795728737.000000001",
            "/containers/web/logs?tail=all&since=1795728737.000000001",
        ),
        ("/system/df?type=image&type=volume", "/system/df?type=image&type=volume"),
        ("/networks/host?verbose=true&scope=swarm", "/networks/host?verbose=1&scope=swarm"),
    ],
)
def test_a_known_parameter_is_sent_in_one_spelling(given: str, sent: str) -> None:
    read = read_request("GET", given)

    assert isinstance(read, DockerRead), read
    assert read.target == sent
    assert read.dropped == ()


def test_an_unknown_parameter_of_a_read_is_named_and_not_sent() -> None:
    read = read_request("GET", "/containers/json?trunc_cmd=0&all=1&trunc_cmd=1&x=%0")
    dropped = read_request("GET", "/containers/json?trunc_cmd=0&all=1&trunc_cmd=1&decorate=a%26b")

    assert isinstance(read, DockerRefusal)
    assert isinstance(dropped, DockerRead)
    assert dropped.target == "/containers/json?all=1"
    assert dropped.dropped == ("trunc_cmd", "decorate")


def test_the_lines_of_a_container_come_without_its_variables() -> None:
    container, service = (
        read_request("GET", f"/{collection}/x/logs?stdout=1&details=1") for collection in ("containers", "services")
    )

    assert container == DockerRead(
        target="/containers/x/logs?stdout=1", kind=DockerAnswerKind.LOGS, stream=True, dropped=("details",)
    )
    assert service == DockerRead(
        target="/services/x/logs?stdout=1&details=1", kind=DockerAnswerKind.LOGS, stream=True, dropped=()
    )


@pytest.mark.parametrize(
    "target",
    [
        "/containers/web/json?size=1&size=2",
        "/containers/web/json?size=1&size=1",
        "/containers/web/json?size=2",
        "/containers/web/json?size=%ff",
        "/containers/web/json?size=%",
        "/containers/web/json?=1",
        "/containers/web/json?&",
        "/containers/web/json?" + "&".join(f"a{number}=1" for number in range(40)),
        "/containers/json?limit=1e3",
        "/containers/json?limit=-2",
        "/containers/json?limit=10000000",
        "/containers/json?filters=[]",
        "/containers/json?filters=x",
        "/containers/json?filters=" + quote('{"name":{"a":1}}'),
        "/containers/json?filters=" + quote('{"name":[1]}'),
        "/containers/json?filters=" + quote('{"name":"web"}'),
        "/containers/json?filters=" + quote('{"name":["a"],"name":["b"]}'),
        "/containers/json?filters=" + quote('{"label":{"a":true,"a":false}}'),
        "/containers/json?filters=" + quote('{"Name":["a"]}'),
        "/containers/json?filters=" + quote(json.dumps({"name": ["a" * 5000]})),
        "/containers/json?filters=" + "[" * 5000,
        "/containers/web/logs?tail=-1",
        "/containers/web/logs?since=yesterday",
        "/containers/web/logs?until=1.2.3",
        "/containers/web/logs?follow=maybe",
        "/containers/web/stats?stream=no",
        "/events?since=-5",
        "/networks/host?scope=a%20b",
    ],
)
def test_a_parameter_of_another_shape_is_refused(target: str) -> None:
    assert refused("GET", target) == 400


@pytest.mark.parametrize("event", ["exec_create: mysql -phunter", "exec_create:", "", "a b", "start\n"])
def test_events_are_no_oracle_for_command_lines(event: str) -> None:
    """An engine compares by the beginning once `exec_create` is among the filters."""
    filters = json.dumps({"event": {"exec_create": True, event: True}})

    assert refused("GET", f"/events?filters={quote_plus(filters)}") == 400
    assert refused("GET", f"/events?filters={quote_plus(json.dumps({'event': ['exec_create', event]}))}") == 400
    assert refused("GET", "/events?filters=" + quote_plus('{"event":{"exec_create":true,"health_status":true}}')) == 0


@pytest.mark.parametrize(
    "arguments", ["", "-ef", "aux", "-o pid", "-o pid,args", "-eo user,pid,%cpu,comm,cmd", "-o pid,command"]
)
def test_ps_shows_what_is_harmless(arguments: str) -> None:
    assert refused("GET", f"/containers/web/top?ps_args={quote_plus(arguments)}") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            "eww",
            "auxe",
            "auxeww",
            "axe",
            "e",
            "-ef e",
            "-ef eww",
            "aux e",
            "-e e",
            "-efww",
            "-o",
            "-o ",
            "-o,",
            "-opid",
        ),
        *("-o pid,environ", "-o pid,", "-o pid  args", "-o pid,args e", "-o pid -o args", "-eo pid=X", "-o args=PID"),
        *("-o args,pid", "-o pid,args,comm", "-o cmd,args", "-O pid", "-o PID", "-o pid\targs", "-C bash", "--help"),
        *("-o pid,pid" * 40, "-o " + "pid," * 100 + "pid", "axo pid,args", "o pid,args", "-ef\n", "-ef;id"),
    ],
)
def test_ps_shows_no_environment_and_no_command_line_but_at_the_end(arguments: str) -> None:
    assert refused("GET", f"/containers/web/top?ps_args={quote_plus(arguments)}") == 400


@pytest.mark.parametrize(
    ("target", "stream"),
    [
        ("/containers/web/logs?stdout=1&tail=3", True),
        ("/services/svc/logs?stdout=1", True),
        ("/tasks/t1/logs?stdout=1", True),
        ("/events", True),
        ("/containers/web/stats", True),
        ("/containers/web/stats?stream=1", True),
        ("/containers/web/stats?stream=0", False),
        ("/containers/web/stats?stream=false&one-shot=1", False),
        ("/containers/web/stats?stream=", False),
        ("/containers/json", False),
        ("/info", False),
    ],
)
def test_an_answer_without_an_end_is_a_stream(target: str, stream: bool) -> None:
    read = read_request("GET", target)

    assert isinstance(read, DockerRead)
    assert read.stream is stream


# --- parameters of acts -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "1", "10", "3600"])
@pytest.mark.parametrize("verb", ["restart", "stop"])
def test_a_container_gets_time_to_stop(verb: str, value: str) -> None:
    act = read_request("POST", f"/containers/web/{verb}?t={value}")

    assert act == DockerAct(verb=verb, container="web", parameters=(("t", value),), version="")


@pytest.mark.parametrize(
    "target",
    [
        "/containers/x/restart?t=-1",
        "/containers/x/restart?t=3601",
        "/containers/x/restart?t=1.5",
        "/containers/x/restart?t=",
        "/containers/x/restart?t=1&t=1",
        "/containers/x/restart?T=1",
        "/containers/x/restart?signal=",
        "/containers/x/restart?signal=KILL%20x",
        "/containers/x/restart?signal=-9",
        "/containers/x/restart?force=1",
        "/containers/x/start?checkpoint=c1",
        "/containers/x/start?detachKeys=a",
        "/containers/x/start?t=1",
        "/containers/x/unpause?t=1",
        "/containers/x/exec?x=1",
        f"/exec/{EXEC_ID}/start?x=1",
        "/containers/a:b/restart",
        "/containers/_x/start",
    ],
)
def test_a_write_with_anything_unknown_is_refused(target: str) -> None:
    assert refused("POST", target) == 400


@pytest.mark.parametrize("exec_id", ["x", EXEC_ID[:12], EXEC_ID.upper(), EXEC_ID + "0", "json"])
def test_an_exec_has_an_id_and_no_name(exec_id: str) -> None:
    assert refused("POST", f"/exec/{exec_id}/start") == 404
    assert refused("GET", f"/exec/{exec_id}/json") == 404


def test_a_wait_changes_nothing_and_comes_when_it_comes() -> None:
    assert read_request("POST", "/v1.41/containers/job/wait?condition=next-exit&x=1") == DockerRead(
        target="/v1.41/containers/job/wait?condition=next-exit",
        kind=DockerAnswerKind.WAIT,
        stream=True,
        dropped=("x",),
        method="POST",
    )


# --- whatever comes -----------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("v1.41", "containers", "images", "networks", "volumes", "exec", "services", "tasks", "nodes", "plugins"),
        *("secrets", "json", "logs", "top", "stats", "start", "restart", "wait", "_ping", "info", "events", "web"),
        *("system", "df", "bb:1", EXEC_ID, "", "..", "%2e", "A", "a.b", "history", "changes", "swarm", "\u017f"),
    ]
)
PAIRS = st.sampled_from(
    [
        *("all=1", "size=true", "filters=%7B%7D", 'filters={"name":["a"]}', "tail=all", "since=1.5", "stream=0", "t=1"),
        *("x=y", "ps_args=aux", "ps_args=-o+pid,args", "limit=3", "signal=9", "a;b=c", "size=1", "%zz", "=", "%F0=1"),
        'filters={"a":{"é":true}}',
    ]
)
targets = st.one_of(
    st.text(max_size=60),
    st.builds(
        lambda words, pairs: "/" + "/".join(words) + "?" * bool(pairs) + "&".join(pairs),
        st.lists(WORDS, max_size=5),
        st.lists(PAIRS, max_size=4),
    ),
)
methods = st.one_of(st.sampled_from(["GET", "POST", "HEAD", "DELETE", "PUT"]), st.text(max_size=8))


@given(method=methods, target=targets)
@example(method="\ud800", target="/\ud800")
@example(method="GET", target="/events?filters=" + quote('{"a":["\\ud800"]}'))
def test_every_first_line_is_one_thing_and_what_is_sent_reads_as_it_was_read(method: str, target: str) -> None:
    request: Request = read_request(method, target)

    match request:
        case DockerRead():
            again = read_request(request.method, request.target)
            assert again == DockerRead(
                target=request.target, kind=request.kind, stream=request.stream, dropped=(), method=request.method
            )
            assert request.target.isascii()
            assert request.target.split("?")[0] == target.split("?", maxsplit=1)[0]
            sent = [name for name, _ in parse_qsl(request.target.partition("?")[2], keep_blank_values=True)]
            assert not set(sent) & set(request.dropped)
        case DockerRefusal():
            assert request.status in {400, 403, 404}
            assert request.sentence.isprintable()
        case DockerAct():
            assert method == "POST"
            assert (
                target.split("?", maxsplit=1)[0] == f"{request.version}/containers/{request.container}/{request.verb}"
            )
        case CreateExec() | StartExec() | ReadExec():
            assert target.startswith(request.version)
