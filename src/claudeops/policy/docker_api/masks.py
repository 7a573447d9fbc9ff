"""Answers of the Docker Engine API without secrets: by field first, by kind, then whatever a redactor finds.

What holds secrets by its nature (values of environment and labels, arguments, outputs of health checks, options of
drivers) is replaced by one constant, whether it looks like a secret or not; names, numbers, ids, states, times, images,
ports and paths of mounts stay. Nothing is invented: what was empty stays empty, and a list keeps its length.

Fields are known by their names at any depth, because engines move them: a list says in `Labels` what an inspection says
in `Config.Labels`. An object that is named by people, such as a network called "Labels", may lose too much by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.policy.docker_api.requests import DockerAnswerKind
from claudeops.text import regex
from claudeops.text.redact import MASK, Redactor
from claudeops.text.redact.patterns import pattern

_Mask = Callable[[object, int], object]
"""From a value and the level on which it stands to what is shown."""

_DEEPEST: Final = 48  # levels; answers of engines have about ten

_LABELS: Final = frozenset(
    f"com.docker.compose.{name}"
    for name in (
        *("project", "service", "container-number", "oneoff", "version", "config-hash", "image", "depends_on", "slug"),
        *("project.working_dir", "project.config_files", "project.environment_file"),
        *("replace", "network", "volume", "image.builder"),
    )
)
_LABEL_FAMILIES: Final = ("com.docker.stack.", "com.docker.swarm.")
_OPTIONS: Final = frozenset({"max-size", "max-file", "max-buffer-size", "compress", "mode", "type"})
_OPTION_FAMILIES: Final = ("com.docker.network.",)
_REFERENCE: Final = frozenset({"ConfigID", "ConfigName", "SecretID", "SecretName", "Name", "UID", "GID"})
_CHECKS: Final = frozenset({"NONE", "CMD", "CMD-SHELL"})
_COLUMNS: Final = frozenset(
    {
        *(
            "PID",
            "PPID",
            "PGID",
            "PGRP",
            "SID",
            "SESS",
            "TID",
            "LWP",
            "TTY",
            "TT",
            "CLS",
            "CLASS",
            "S",
            "STAT",
            "STATE",
        ),
        *("USER", "UID", "RUSER", "RUID", "EUSER", "EUID", "GROUP", "GID", "RGROUP", "EGROUP"),
        *("C", "CP", "%CPU", "%MEM", "VSZ", "RSS", "RSZ", "SZ", "NI", "PRI", "PSR", "NLWP", "THCNT", "WCHAN"),
        *("TIME", "ELAPSED", "STIME", "START"),
    }
)
"""Titles of `ps` whose values are numbers, names or times; below any other may stand a command line."""

_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "container": frozenset({"name", "image", "exitCode", "signal", "execID", "execDuration", "oldName"}),
    "network": frozenset({"name", "type", "container"}),
    "volume": frozenset({"driver", "container", "destination", "read/write", "propagation"}),
    **dict.fromkeys(("image", "plugin", "service", "node", "secret", "config", "daemon"), frozenset({"name"})),
}
"""Attributes of an event that are no labels, by its type."""

_COMMANDS: Final = frozenset({"COMMAND", "CMD", "ARGS"})
_HEALTH: Final = frozenset({"healthy", "unhealthy", "starting", "none", "running"})
_HELD: Final = regex.Pattern(pattern(MASK))
_ACTION: Final = regex.Pattern(r"[A-Za-z_-]{1,64}")
_PROGRAM: Final = regex.Pattern(r"[A-Za-z0-9_./:@-]{1,128}")
_CELL: Final = regex.Pattern(r"[A-Za-z0-9_./+:@?<>$,%*()-]{1,64}")
_VARIABLE: Final = regex.Pattern(r"[A-Za-z0-9_.-]{1,255}")
_SCHEME: Final = regex.Pattern(r"[A-Za-z][A-Za-z0-9+.-]*")


def masked(kind: DockerAnswerKind, document: object) -> object:
    """Return a new document without what holds secrets by its nature; the redactor has not seen it yet."""
    return _BY_KIND.get(kind, _walk)(document, 0)


def masked_body(kind: DockerAnswerKind, body: bytes, redactor: Redactor) -> bytes | None:
    """Return a JSON answer without its secrets; None if it is no JSON, of which nothing can be shown."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return _redacted(masked(kind, document), redactor) + (b"\n" if body.endswith(b"\n") else b"")


def masked_line(kind: DockerAnswerKind, line: bytes, redactor: Redactor) -> bytes:
    """Return one line of a stream without its secrets; nothing for a line that is no JSON object."""
    if not line.lstrip().startswith(b"{"):
        return b""
    return masked_body(kind, line, redactor) or b""


def holds_mask(body: bytes) -> bool:
    """Whether a mask stands in a body, escaped or encoded in any way: what was masked is not written back."""
    return _HELD.search(body) is not None


def _redacted(document: object, redactor: Redactor) -> bytes:
    """Encode a document and redact it in pieces: one hit costs as much as all of the line in which it is."""
    if isinstance(document, list):
        return b"[" + b",".join(redactor.lines([msgspec.json.encode(one) for one in document])) + b"]"
    if not isinstance(document, dict):
        return redactor.line(msgspec.json.encode(document))
    names = redactor.lines([msgspec.json.encode(name) for name in document])
    values = [
        _redacted(one, redactor) if isinstance(one, list) else redactor.line(msgspec.json.encode(one))
        for one in document.values()
    ]
    return b"{" + b",".join(name + b":" + value for name, value in zip(names, values, strict=True)) + b"}"


# --- by kind ------------------------------------------------------------------------------------------


def _top(document: object, level: int) -> object:
    """Mask the lines of `ps`: of a command line the name of the program stays."""
    if not isinstance(document, dict):
        return _hidden(document, level)
    titles = document.get("Titles")
    columns = [title.upper() if isinstance(title, str) else "" for title in titles] if isinstance(titles, list) else []
    rows = document.get("Processes")
    shown = [_row(row, columns) for row in rows] if isinstance(rows, list) else _hidden(rows, level)
    return {**_others(document, level, "Processes"), **({"Processes": shown} if "Processes" in document else {})}


def _row(row: object, columns: Sequence[str]) -> object:
    if not isinstance(row, list):
        return _hidden(row, _DEEPEST)
    titled = [*columns[: len(row)], *[""] * (len(row) - len(columns))]
    return [_cell(value, title) for value, title in zip(row, titled, strict=True)]


def _cell(value: object, title: str) -> object:
    if not isinstance(value, str):
        return _hidden(value, _DEEPEST)
    if title in _COLUMNS:
        return value if _CELL.fullmatch(value) else _hidden(value, 0)
    return _command_line(value, named=True) if title in _COMMANDS else _hidden(value, 0)


def _event(document: object, level: int) -> object:
    """Mask an event: its name goes on with a command line, and its attributes are labels for the most part."""
    if not isinstance(document, dict):
        return _hidden(document, level)
    shown = dict(_others(document, level, "Action", "status", "Actor"))
    shown |= {name: _action(document[name], level) for name in ("Action", "status") if name in document}
    actor, kept = document.get("Actor"), _ATTRIBUTES.get(str(document.get("Type")), frozenset())
    if isinstance(actor, dict):
        attributes = {"Attributes": _named(actor["Attributes"], level, kept)} if "Attributes" in actor else {}
        shown["Actor"] = {**_others(actor, level, "Attributes"), **attributes}
    elif "Actor" in document:
        shown["Actor"] = _hidden(actor, level)
    return shown


def _action(value: object, level: int) -> object:
    if not isinstance(value, str):
        return _hidden(value, level)
    name, colon, rest = value.partition(":")
    if not _ACTION.fullmatch(name):
        return _hidden(value, level)
    health = name == "health_status" and rest.strip() in _HEALTH
    return value if health or not rest.strip() else f"{name}{colon} {MASK}"


def _changes(document: object, level: int) -> object:
    """Show which files of a container differ from its image's."""
    if not isinstance(document, list):
        return _walk(document, level)
    return [
        _others(one, level, "Path") | {name: one[name] for name in ("Path",) if isinstance(one.get(name), str)}
        if isinstance(one, dict)
        else _hidden(one, level)
        for one in document
    ]


# --- by field -----------------------------------------------------------------------------------------


def _walk(value: object, level: int) -> object:
    """Copy a value; every field of a name that is known goes its own way."""
    if not isinstance(value, dict | list):
        return value
    if level > _DEEPEST:
        return MASK
    below = level + 1
    if isinstance(value, list):
        return [_walk(one, below) if isinstance(one, dict | list) else one for one in value]
    return {
        name: mask(one, below)
        if (mask := _FIELDS.get(name))
        else _walk(one, below)
        if isinstance(one, dict | list)
        else one
        for name, one in value.items()
    }


def _others(value: Mapping[str, object], level: int, *left_out: str) -> dict[str, object]:
    shown = _walk({name: one for name, one in value.items() if name not in left_out}, level)
    return shown if isinstance(shown, dict) else {}


def _hidden(value: object, level: int) -> object:
    """Mask all texts in a value; its form stays, and what is empty."""
    if isinstance(value, str):
        return MASK if value else ""
    if not isinstance(value, dict | list) or not value:
        return value
    if level > _DEEPEST:
        return MASK
    if isinstance(value, list):
        return [_hidden(one, level + 1) for one in value]
    return {name: _hidden(one, level + 1) for name, one in value.items()}


def _named(value: object, level: int, kept: frozenset[str]) -> object:
    """Mask values, but those that are kept and the labels by which clients find what belongs together."""
    if not isinstance(value, dict):
        return _environment(value, level)
    return {
        name: one
        if isinstance(one, str) and (name in kept or name in _LABELS or name.startswith(_LABEL_FAMILIES))
        else _hidden(one, level)
        for name, one in value.items()
    }


def _labels(value: object, level: int) -> object:
    return _named(value, level, frozenset())


def _environment(value: object, level: int) -> object:
    """Mask ``NAME=value`` after the sign; of an object (a plugin's) all but its name."""
    if isinstance(value, list):
        return [_environment(one, level + 1) if level <= _DEEPEST else MASK for one in value]
    if isinstance(value, dict):
        return {
            name: one if name == "Name" and isinstance(one, str) else _hidden(one, level) for name, one in value.items()
        }
    if not isinstance(value, str):
        return value
    name, equals, content = value.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        return _hidden(value, level)
    return f"{name}={MASK}" if content else value


def _options(value: object, level: int) -> object:
    if not isinstance(value, dict):
        return _hidden(value, level)
    return {
        name: one
        if isinstance(one, str) and (name in _OPTIONS or name.startswith(_OPTION_FAMILIES))
        else _hidden(one, level)
        for name, one in value.items()
    }


def _log_config(value: object, level: int) -> object:
    if not isinstance(value, dict):
        return _hidden(value, level)
    return {name: _options(one, level) if name == "Config" else _walk(one, level) for name, one in value.items()}


def _references(value: object, level: int) -> object:
    """Show which secrets and configs a service has, by name and id."""
    if isinstance(value, list):
        return [_references(one, level + 1) if level <= _DEEPEST else MASK for one in value]
    if not isinstance(value, dict):
        return _hidden(value, level)
    return {
        name: one
        if isinstance(one, str) and name in _REFERENCE
        else _references(one, level + 1)
        if isinstance(one, dict) and level <= _DEEPEST
        else _hidden(one, level)
        for name, one in value.items()
    }


def _check(value: object, level: int) -> object:
    """Mask the command of a health check; its first word says how it is run."""
    if isinstance(value, list) and value and isinstance(value[0], str) and value[0] in _CHECKS:
        return [value[0], *(_hidden(one, level) for one in value[1:])]
    return _hidden(value, level)


def _program(value: object, level: int) -> object:
    return value if isinstance(value, str) and _PROGRAM.fullmatch(value) else _hidden(value, level)


def _command(value: object, level: int) -> object:
    return _command_line(value) if isinstance(value, str) else _hidden(value, level)


def _command_line(text: str, *, named: bool = False) -> str:
    """Mask all but the program: a path, or (``named``) the first word that `ps` shows, without its folder."""
    first, space, _ = text.partition(" ")
    if not text or not _PROGRAM.fullmatch(first) or not (named or first.startswith("/")):
        return MASK if text else ""
    return (first.rsplit("/", 1)[-1] if named else first) + (f" {MASK}" if space else "")


def _text(value: object, level: int) -> object:
    """Mask a text; an object of the same name has fields of its own."""
    return _hidden(value, level) if isinstance(value, str) else _walk(value, level)


def _status(value: object, level: int) -> object:
    """Mask what the driver of a volume says; other objects of this name have a state."""
    return _hidden(value, level) if isinstance(value, dict) and "State" not in value else _walk(value, level)


def _address(value: object, level: int) -> object:
    """Mask user and password in addresses."""
    if isinstance(value, dict):
        return {name: _address(one, level + 1) if level <= _DEEPEST else MASK for name, one in value.items()}
    if isinstance(value, list):
        return [_address(one, level + 1) if level <= _DEEPEST else MASK for one in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    before, _, host = value.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    return f"{scheme}://{MASK}@{host}" if slashes and _SCHEME.fullmatch(scheme) else f"{MASK}@{host}"


_FIELDS: Final[Mapping[str, _Mask]] = {
    **dict.fromkeys(("Labels", "labels", "Annotations", "annotations"), _labels),
    **dict.fromkeys(("Env", "env"), _environment),
    **dict.fromkeys(
        ("Args", "Cmd", "Entrypoint", "OnBuild", "Shell", "arguments", "entrypoint", "runtimeArgs"), _hidden
    ),
    **dict.fromkeys(("Output", "CreatedBy", "Comment", "VolumeContext", "PublishContext", "CredentialSpec"), _hidden),
    **dict.fromkeys(("JoinTokens", "UnlockKey", "SigningCAKey", "Password", "Auth", "IdentityToken"), _hidden),
    **dict.fromkeys(("Options", "options", "DriverOpts", "StorageOpt"), _options),
    **dict.fromkeys(("HttpProxy", "HttpsProxy", "HTTPProxy", "HTTPSProxy", "RegistryConfig", "Mirrors"), _address),
    **dict.fromkeys(("Description", "Data", "data"), _text),
    **dict.fromkeys(("Secrets", "Configs"), _references),
    "Command": _command,
    "LogConfig": _log_config,
    "Path": _program,
    "Status": _status,
    "Test": _check,
}
_BY_KIND: Final[Mapping[DockerAnswerKind, _Mask]] = {
    DockerAnswerKind.TOP: _top,
    DockerAnswerKind.EVENTS: _event,
    DockerAnswerKind.CHANGES: _changes,
}
