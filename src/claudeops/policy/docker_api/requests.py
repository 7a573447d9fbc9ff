"""What a request to the Docker Engine API is: a read, an action that needs a grant, a step of an exec, or refused.

Paths, parameters and fields that are not known here are refused or left out, also those of engines to come. Whatever
passes is sent in this filter's own spelling and never as it came, so that the engine cannot read something else in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.policy.docker_api import parameters, refusals
from claudeops.policy.docker_api.parameters import Shape
from claudeops.text import regex


class DockerAnswerKind(StrEnum):
    """The kind of an answer, by which it is masked."""

    PING = "ping"
    VERSION = "version"
    INFO = "info"
    CONTAINERS = "containers"
    CONTAINER = "container"
    TOP = "top"
    STATS = "stats"
    CHANGES = "changes"
    LOGS = "logs"
    WAIT = "wait"
    EVENTS = "events"
    IMAGES = "images"
    IMAGE = "image"
    HISTORY = "history"
    NETWORKS = "networks"
    NETWORK = "network"
    VOLUMES = "volumes"
    VOLUME = "volume"
    DISK_USE = "disk_use"
    SERVICES = "services"
    SERVICE = "service"
    TASKS = "tasks"
    TASK = "task"
    NODES = "nodes"
    NODE = "node"
    PLUGINS = "plugins"
    PLUGIN = "plugin"
    EXEC = "exec"
    REPLY = "reply"  # to a write, and every error: an id, warnings, or a sentence


class DockerRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that does not reach the engine."""

    status: int
    sentence: str  # the answer's ``message``, which clients print


class DockerRead(msgspec.Struct, frozen=True, kw_only=True):
    """A request that changes nothing; it is sent without a body."""

    target: str  # path with the version that it had, and the known parameters
    kind: DockerAnswerKind
    stream: bool  # lines or frames without a bound on their number, or an answer that comes whenever it comes
    dropped: tuple[str, ...]  # names of parameters that are not known, and not sent
    method: str = "GET"


class DockerAct(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one container, which needs a grant; it is sent without a body."""

    verb: str  # restart, start, stop or unpause
    container: str  # name or id, as written
    parameters: tuple[tuple[str, str], ...]  # by name
    version: str  # "/v1.41", or empty


class CreateExec(msgspec.Struct, frozen=True, kw_only=True):
    """The first step of an exec: its command is in the body (`read_exec`)."""

    container: str  # name or id, as written
    version: str


class StartExec(msgspec.Struct, frozen=True, kw_only=True):
    """The second step, whose answer is the command's output."""

    exec_id: str
    version: str


class ReadExec(msgspec.Struct, frozen=True, kw_only=True):
    """How an exec ended."""

    exec_id: str
    version: str


class ExecCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What an exec runs."""

    command: tuple[str, ...]
    user: str = ""
    directory: str = ""
    environment: tuple[str, ...] = ()  # NAME=value
    attach_stdin: bool = False
    attach_stdout: bool = False
    attach_stderr: bool = False


Request = DockerRefusal | DockerRead | DockerAct | CreateExec | StartExec | ReadExec


class _Route(msgspec.Struct, frozen=True, kw_only=True):
    kind: DockerAnswerKind
    known: Mapping[str, Shape] = msgspec.field(default_factory=dict)
    repeatable: frozenset[str] = frozenset()
    streams: bool = False


_LONGEST_TARGET: Final = 8192  # characters
_LONGEST_NAME: Final = 255
_LONGEST_IMAGE: Final = 512
_LONGEST_BODY: Final = 65_536  # bytes

_PLAIN: Final = regex.Pattern(r"/[A-Za-z0-9._~!$&'()*+,;=:@/-]*")
_VERSION: Final = regex.Pattern(r"v[1-9][0-9]?\.[0-9]{1,3}")
_NAME: Final = regex.Pattern(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_IMAGE: Final = regex.Pattern(r"[a-zA-Z0-9][a-zA-Z0-9_.:@/-]*")
_EXEC_ID: Final = regex.Pattern(r"[0-9a-f]{64}")
_VISIBLE: Final = regex.Pattern(r"[!-~]*")

_FILTERED: Final = {"filters": parameters.filters}
_LINES: Final[Mapping[str, Shape]] = {
    **dict.fromkeys(("follow", "stdout", "stderr", "timestamps"), parameters.flag),
    **dict.fromkeys(("since", "until"), parameters.moment),
    "tail": parameters.tail,
}
_LOGS: Final = _Route(kind=DockerAnswerKind.LOGS, known=_LINES, streams=True)
"""Without ``details``, which puts variables and labels in front of each line."""

_SWARM_LOGS: Final = _Route(kind=DockerAnswerKind.LOGS, known={**_LINES, "details": parameters.flag}, streams=True)
"""Clients find a line's task in its details."""

_WAIT: Final = _Route(kind=DockerAnswerKind.WAIT, known={"condition": parameters.word}, streams=True)

_FIXED: Final = {
    "/_ping": _Route(kind=DockerAnswerKind.PING),
    "/version": _Route(kind=DockerAnswerKind.VERSION),
    "/info": _Route(kind=DockerAnswerKind.INFO),
    "/containers/json": _Route(
        kind=DockerAnswerKind.CONTAINERS,
        known={**_FILTERED, "all": parameters.flag, "size": parameters.flag, "limit": parameters.limit},
    ),
    "/images/json": _Route(
        kind=DockerAnswerKind.IMAGES,
        known={**_FILTERED, **dict.fromkeys(("all", "digests", "shared-size", "manifests"), parameters.flag)},
    ),
    "/networks": _Route(kind=DockerAnswerKind.NETWORKS, known=_FILTERED),
    "/volumes": _Route(kind=DockerAnswerKind.VOLUMES, known=_FILTERED),
    "/services": _Route(kind=DockerAnswerKind.SERVICES, known={**_FILTERED, "status": parameters.flag}),
    "/tasks": _Route(kind=DockerAnswerKind.TASKS, known=_FILTERED),
    "/nodes": _Route(kind=DockerAnswerKind.NODES, known=_FILTERED),
    "/plugins": _Route(kind=DockerAnswerKind.PLUGINS, known=_FILTERED),
    "/system/df": _Route(
        kind=DockerAnswerKind.DISK_USE,
        known={"type": parameters.word, "verbose": parameters.flag},
        repeatable=frozenset({"type"}),
    ),
    "/events": _Route(
        kind=DockerAnswerKind.EVENTS,
        known={"filters": parameters.event_filters, "since": parameters.moment, "until": parameters.moment},
        streams=True,
    ),
}

_NAMED: Final = {
    ("containers", "json"): _Route(kind=DockerAnswerKind.CONTAINER, known={"size": parameters.flag}),
    ("containers", "top"): _Route(kind=DockerAnswerKind.TOP, known={"ps_args": parameters.ps_args}),
    ("containers", "stats"): _Route(
        kind=DockerAnswerKind.STATS, known={"stream": parameters.flag, "one-shot": parameters.flag}, streams=True
    ),
    ("containers", "changes"): _Route(kind=DockerAnswerKind.CHANGES),
    ("containers", "logs"): _LOGS,
    ("images", "json"): _Route(kind=DockerAnswerKind.IMAGE, known={"manifests": parameters.flag}),
    ("images", "history"): _Route(kind=DockerAnswerKind.HISTORY),
    ("networks", ""): _Route(
        kind=DockerAnswerKind.NETWORK, known={"verbose": parameters.flag, "scope": parameters.word}
    ),
    ("volumes", ""): _Route(kind=DockerAnswerKind.VOLUME),
    ("services", ""): _Route(kind=DockerAnswerKind.SERVICE, known={"insertDefaults": parameters.flag}),
    ("services", "logs"): _SWARM_LOGS,
    ("tasks", ""): _Route(kind=DockerAnswerKind.TASK),
    ("tasks", "logs"): _SWARM_LOGS,
    ("nodes", ""): _Route(kind=DockerAnswerKind.NODE),
    ("plugins", "json"): _Route(kind=DockerAnswerKind.PLUGIN),
}
"""By collection, and what follows the name."""

_WITH_SLASHES: Final = frozenset({"images", "plugins"})
_GUESSED: Final = frozenset(
    {
        *(("containers", "json"), ("images", "json"), ("plugins", "json")),
        *((collection, "") for collection in ("networks", "volumes", "services", "tasks", "nodes")),
        *(("secrets", ""), ("configs", "")),
    }
)
"""Where ``docker inspect NAME`` looks, one after the other, while the answer is 404."""

_ACTS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "restart": {"t": parameters.seconds, "signal": parameters.signal},
    "stop": {"t": parameters.seconds, "signal": parameters.signal},
    "start": {},
    "unpause": {},
}


def read_request(method: str, target: str) -> Request:
    """Say what a request is, from its first line alone. Never raises."""
    path, _, query = target.partition("?")
    words = path[1:].split("/")
    plain = len(target) <= _LONGEST_TARGET and _VISIBLE.fullmatch(target) and "#" not in target
    if not plain or not _PLAIN.fullmatch(path) or not {"", ".", ".."}.isdisjoint(words):
        return DockerRefusal(status=400, sentence=refusals.no_path(path, _LONGEST_TARGET))
    pairs = parameters.query_pairs(query)
    if pairs is None:
        return DockerRefusal(status=400, sentence=refusals.no_parameter("", query, path))
    version = f"/{words[0]}" if len(words) > 1 and _VERSION.fullmatch(words[0]) else ""
    words = words[1:] if version else words
    if method == "POST":
        return _write(version, words, pairs)
    if method == "GET":
        return _get(version, words, pairs)
    if method == "HEAD" and words == ["_ping"]:
        return _read(method, f"{version}/_ping", _FIXED["/_ping"], pairs)
    return DockerRefusal(status=403, sentence=refusals.not_reached(method, words))


def read_act_body(body: bytes) -> DockerRefusal | None:
    """Check the body of an action or a wait, which says nothing: older engines took a container's settings there."""
    if body.strip() in {b"", b"{}"}:
        return None
    return DockerRefusal(
        status=400, sentence="a body is not taken here: send none, so that nothing but the action happens"
    )


def read_exec(body: bytes) -> ExecCommand | DockerRefusal:
    """Read the command of an exec. `exec_body` writes it anew; the body itself is never sent."""
    given = _fields(body)
    if given is None:
        return _no_body("Cmd, a list of words")
    for name in refusals.OF_EXEC:
        if given.pop(name, None) not in _EMPTY:
            return DockerRefusal(status=403, sentence=refusals.no_exec(name))
    command, environment = _strings(given.pop("Cmd", None)), _strings(given.pop("Env", None) or [])
    user, directory = (_string(given.pop(name, None) or "") for name in ("User", "WorkingDir"))
    streams = [given.pop(name, None) or False for name in ("AttachStdin", "AttachStdout", "AttachStderr")]
    given.pop("ConsoleSize", None)  # means something with a terminal only
    if not command or environment is None or user is None or directory is None:
        return _no_body("Cmd, a list of words, with User and WorkingDir as texts and Env as a list of NAME=VALUE")
    if not all(isinstance(stream, bool) for stream in streams) or not all(value in _EMPTY for value in given.values()):
        return _no_body("Cmd, AttachStdin, AttachStdout, AttachStderr, User, WorkingDir and Env")
    return ExecCommand(
        command=command,
        user=user,
        directory=directory,
        environment=environment,
        attach_stdin=bool(streams[0]),
        attach_stdout=bool(streams[1]),
        attach_stderr=bool(streams[2]),
    )


def exec_body(command: ExecCommand) -> bytes:
    """Write the body of an exec, with every field that could make more of it."""
    fields = {
        "AttachStdin": command.attach_stdin,
        "AttachStdout": command.attach_stdout,
        "AttachStderr": command.attach_stderr,
        "Detach": False,
        "DetachKeys": "",
        "Tty": False,
        "Privileged": False,
        "User": command.user,
        "WorkingDir": command.directory,
        "Env": list(command.environment),
        "Cmd": list(command.command),
    }
    return json.dumps(fields).encode()


def read_exec_start(body: bytes) -> DockerRefusal | None:
    """Check the body with which an exec starts; `EXEC_START` is sent in its place."""
    given = _fields(body)
    if given is None:
        return _no_body("Detach and Tty, both false")
    for name in ("Detach", "Tty"):
        if given.pop(name, None) not in _EMPTY:
            return DockerRefusal(status=403, sentence=refusals.no_exec(name))
    given.pop("ConsoleSize", None)
    return None if all(value in _EMPTY for value in given.values()) else _no_body("Detach and Tty, both false")


EXEC_START: Final = b'{"Detach":false,"Tty":false}'
"""The body with which an exec starts: output comes on this connection, and ends with the command."""

_EMPTY: Final[tuple[object, ...]] = (None, False, "", [], {})


# --- reads --------------------------------------------------------------------------------------------


def _get(version: str, words: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Request:
    route = _FIXED.get("/" + "/".join(words))
    if route is not None:
        return _read("GET", f"{version}/{'/'.join(words)}", route, pairs)
    collection, last = words[0], words[-1]
    if collection == "exec" and last == "json" and len(words) == 3:  # noqa: PLR2004 - its id is between them
        return _exec_step(ReadExec, words[1], version, ())
    after = last if len(words) > 2 and (collection, last) in _NAMED else ""  # noqa: PLR2004 - a name is between them
    name = "/".join(words[1:-1] if after else words[1:])
    route, guessed = _NAMED.get((collection, after)), (collection, after) in _GUESSED and name
    if route is not None and _is_name(collection, name):
        return _read("GET", f"{version}/{'/'.join(words)}", route, pairs)
    if guessed:
        why = refusals.no_name(collection, name) if route else refusals.not_reached("GET", words)
        return DockerRefusal(status=404, sentence=why)
    if route is not None and name:
        return DockerRefusal(status=400, sentence=refusals.no_name(collection, name))
    return DockerRefusal(status=403, sentence=refusals.not_reached("GET", words))


def _read(method: str, path: str, route: _Route, pairs: Sequence[tuple[str, str]]) -> DockerRefusal | DockerRead:
    sent: list[tuple[str, str]] = []
    dropped: list[str] = []
    for name, value in pairs:
        shape = route.known.get(name)
        if shape is None:
            dropped.append(name)
            continue
        spelling = shape(value)
        if spelling is None or (name not in route.repeatable and name in {known for known, _ in sent}):
            return DockerRefusal(status=400, sentence=refusals.no_parameter(name, value, path))
        sent.append((name, spelling))
    query = parameters.query_of(sent)
    return DockerRead(
        target=f"{path}?{query}" if query else path,
        kind=route.kind,
        stream=route.streams and ("stream", "0") not in sent,
        dropped=tuple(dict.fromkeys(dropped)),
        method=method,
    )


# --- writes -------------------------------------------------------------------------------------------


def _write(version: str, words: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Request:
    collection, name, verb = words if len(words) == 3 else ("", "", "")  # noqa: PLR2004 - and no others
    if collection == "exec" and verb == "start":
        return _exec_step(StartExec, name, version, pairs)
    if collection != "containers" or verb not in {*_ACTS, "exec", "wait"}:
        return DockerRefusal(status=403, sentence=refusals.not_reached("POST", words))
    if not _is_name(collection, name):
        return DockerRefusal(status=400, sentence=refusals.no_name(collection, name))
    if verb == "wait":
        return _read("POST", f"{version}/containers/{name}/wait", _WAIT, pairs)
    given = _given(pairs, _ACTS.get(verb, {}), f"/containers/{name}/{verb}")
    if isinstance(given, DockerRefusal):
        return given
    exec_created = CreateExec(container=name, version=version)
    return exec_created if verb == "exec" else DockerAct(verb=verb, container=name, parameters=given, version=version)


def _given(
    pairs: Sequence[tuple[str, str]], known: Mapping[str, Shape], path: str
) -> tuple[tuple[str, str], ...] | DockerRefusal:
    """Return the parameters of a write by name: each is known, stands there once and has a value of its shape."""
    sent: dict[str, str] = {}
    for name, value in pairs:
        shape = known.get(name)
        spelling = None if shape is None or name in sent else shape(value)
        if spelling is None:
            return DockerRefusal(status=400, sentence=refusals.no_parameter(name, value, path))
        sent[name] = spelling
    return tuple(sorted(sent.items()))


def _exec_step(
    step: type[StartExec | ReadExec], exec_id: str, version: str, pairs: Sequence[tuple[str, str]]
) -> DockerRefusal | StartExec | ReadExec:
    if not _EXEC_ID.fullmatch(exec_id):
        return DockerRefusal(status=404, sentence=refusals.no_name("execs", exec_id))
    given = _given(pairs, {}, f"/exec/{exec_id}")
    return given if isinstance(given, DockerRefusal) else step(exec_id=exec_id, version=version)


# --- bodies -------------------------------------------------------------------------------------------


def _no_body(wanted: str) -> DockerRefusal:
    return DockerRefusal(status=400, sentence=refusals.no_body(wanted))


def _fields(body: bytes) -> dict[str, object] | None:
    """Read the fields of an object; engines do not distinguish their names by case."""
    try:
        text = body.decode() if len(body) <= _LONGEST_BODY else ""
    except UnicodeDecodeError:
        return None
    given = parameters.json_object(text)
    if given is None or len({name.casefold() for name in given}) != len(given):
        return None
    return dict(given)


def _strings(value: object) -> tuple[str, ...] | None:
    texts = [_string(one) for one in value] if isinstance(value, list) else [None]
    found = tuple(text for text in texts if text is not None)
    return found if len(found) == len(texts) else None


def _string(value: object) -> str | None:
    """Return a text that every reader takes for the same."""
    readable = isinstance(value, str) and "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)
    return str(value) if readable else None


# --- names ---------------------------------------------------------------------------------------------


def _is_name(collection: str, text: str) -> bool:
    if collection in _WITH_SLASHES:
        return len(text) <= _LONGEST_IMAGE and bool(_IMAGE.fullmatch(text))
    return len(text) <= _LONGEST_NAME and bool(_NAME.fullmatch(text))
