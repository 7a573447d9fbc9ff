"""The documents of commands: their schemas in ``schemas/envelope``, and a golden one of each.

``WRITE_ENVELOPES=1`` before pytest lets `Shell.ask` write what is new: the schema of a command that has none, further
types of a field that it has seen, and a golden document where there is none. What is there is never narrowed; to take
a field away is a change of the contract, and is done by hand.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, cast

import jsonschema

SCHEMAS: Final = Path(__file__).parents[2] / "schemas" / "envelope"
GOLDENS: Final = Path(__file__).parents[1] / "data" / "envelopes"
_OF_A_TEST: Final = re.compile(r"/[^\s\"]*/pytest-\d+/(popen-\w+/)?[^/\s\"]+")
WRITES: Final = os.environ.get("WRITE_ENVELOPES") == "1"
COMMON: Final = ("timestamp", "command", "exit_code", "sysexit", "output_format", "schema_version")

LACKING: Final = ("doctor", "health", "status")
"""Commands whose golden document is of a place where a daemon and the model API are lacking, with exit status 1."""

Schema = dict[str, object]

FIRM: Final = frozenset(
    [
        "session_id",
        "created_at",
        "last_modified",
        "prompt_count",
        "stopped",
        "name",
        "kind",
        "score",
        "source_hint",
        "state",
        "stop_reason",
        "python_version",
        "implementation",
        "platform_name",
        "test_command",
        "cancel_observed",
        "output",
        "prompt",
        "level",
        "message",
        "status",
        "verdict",
    ]
)
"""Fields within objects and lists that are never null; all others may be, because columns may."""

_KINDS: Final = ["filesystem", "auth", "session", "parse", "runtime", "mcp", "delivery", "usage", "policy", "unknown"]
_HEAD: Final[Schema] = {
    "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
    "exit_code": {"enum": [0, 1, 2]},
    "sysexit": {"type": "integer", "minimum": 0, "maximum": 255},
    "output_format": {"const": "json"},
    "schema_version": {"const": "1.0"},
    "error": {
        "type": "object",
        "properties": {
            "kind": {"type": "string"},
            "operation": {"type": "string"},
            "target": {"type": "string"},
            "retryable": {"type": "boolean"},
            "message": {"type": "string", "minLength": 1},
            "hint": {"type": "string", "minLength": 1},
        },
        "required": ["kind", "message", "retryable"],
        "anyOf": [
            {
                "properties": {"kind": {"enum": _KINDS}},
                "required": ["kind", "operation", "target", "retryable", "message", "hint"],
            },
            {"properties": {"kind": {"pattern": "_not_found$"}, "retryable": {"const": False}}},
        ],
    },
    "name": {"type": "string"},
    "found": {"type": "boolean"},
    "help": {"type": "string"},
    "usage": {"type": "string"},
}


def file_of(command: str, directory: Path = SCHEMAS) -> Path:
    """Return the file of a command's schema, or of its golden document."""
    return directory / f"{command.replace(' ', '-')}.json"


def fault_of(document: Mapping[str, object]) -> str | None:
    """Return what keeps a document from being one of its command, or ``None``."""
    command = str(document["command"])
    if WRITES:
        _learn(command, document)
    try:
        _validator(command).validate(document)
    except FileNotFoundError:
        return f"{command} has no schema: run its test with WRITE_ENVELOPES=1"
    except jsonschema.ValidationError as error:
        return f"{command}: {error.json_path}: {error.message}"
    return None


@cache
def _validator(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(file_of(command).read_text(encoding="utf-8")))


def lost_or_changed(golden: object, fresh: object, place: str = "$") -> Iterator[str]:
    """Yield every field of a golden document that a fresh one has lost, or whose type has changed.

    Of a list the first entries are compared; null has no type, and an empty list no entries.
    """
    if golden is None or fresh is None:
        return
    if kind_of(golden) != kind_of(fresh):
        yield f"{place} was {kind_of(golden)}, and is {kind_of(fresh)}"
    elif isinstance(golden, Mapping) and isinstance(fresh, Mapping):
        for name, value in golden.items():
            if name not in fresh:
                yield f"{place}.{name} is gone"
            else:
                yield from lost_or_changed(value, fresh[name], f"{place}.{name}")
    elif isinstance(golden, list) and isinstance(fresh, list) and golden and fresh:
        yield from lost_or_changed(golden[0], fresh[0], f"{place}[0]")


def kind_of(value: object) -> str:
    """Return a value's type in the words of JSON; integers count as numbers, as in most languages."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "array" if isinstance(value, list) else "object"


# --- writing ------------------------------------------------------------------------------------------


def _learn(command: str, document: Mapping[str, object]) -> None:
    file = file_of(command)
    if not file.exists():
        schema: Schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"claudeops {command} --output-format json",
            "description": "Further fields may come in version 1.0; none goes, and none changes its type.",
            "type": "object",
            "properties": {**_HEAD, "command": {"const": command}},
            "required": list(COMMON),
        }
        if command == "claudeops":
            cast("Schema", schema["properties"])["command"] = {"type": "string"}
    else:
        schema = json.loads(file.read_text(encoding="utf-8"))
    properties = cast("dict[str, Schema]", schema["properties"])
    own = {name: value for name, value in document.items() if name not in _HEAD and name != "command"}
    for name, value in own.items():
        properties[name] = _widened(properties.get(name), value)
    _write(file, schema)
    _validator.cache_clear()
    golden = file_of(command, GOLDENS)
    if (document["exit_code"] == 0 or command in LACKING) and "help" not in document:
        before = json.loads(golden.read_text(encoding="utf-8")) if golden.exists() else {}
        if len(json.dumps(document)) > len(json.dumps(before)) and not list(lost_or_changed(before, document)):
            _write(golden, _anywhere(document))


def _anywhere(document: Mapping[str, object]) -> Mapping[str, object]:
    """Return a document as if it were from an installed node: of no machine and no test in particular."""
    text = json.dumps(document).replace(str(SCHEMAS.parents[1]), "/opt/claudeops")
    return cast("Mapping[str, object]", json.loads(_OF_A_TEST.sub("/srv/claudeops", text)))


def _widened(known: Schema | None, value: object, *, may_be_null: bool = False) -> Schema:
    """Return the schema that a value fits, besides all that fitted before."""
    schema: Schema = dict(known or {})
    kinds = cast("Sequence[str]", [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", []))
    kind = "integer" if isinstance(value, int) and not isinstance(value, bool) else kind_of(value)
    if kind == "integer" and "number" in kinds:
        kind = "number"
    also = ["null"] if may_be_null else []
    found = [one for one in (*kinds, kind, *also) if one != "integer" or kind != "number"]
    unique = sorted(dict.fromkeys(found))
    schema["type"] = unique[0] if len(unique) == 1 else unique
    if isinstance(value, Mapping):
        inner = cast("dict[str, Schema]", schema.get("properties", {}))
        seen = {name: _widened(inner.get(name), one, may_be_null=name not in FIRM) for name, one in value.items()}
        schema["properties"] = {**inner, **seen}
        required = cast("Sequence[str]", schema.get("required", list(value)))
        schema["required"] = [name for name in required if name in value]
    elif isinstance(value, list):
        items = cast("Schema | None", schema.get("items"))
        for one in value:
            items = _widened(items, one)
        if items is not None:
            schema["items"] = items
    return schema


def _write(file: Path, value: Mapping[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
