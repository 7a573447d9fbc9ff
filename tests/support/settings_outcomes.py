"""What the settings make of variables, good and bad: the recording in ``tests/data/settings``, and how it is made.

``PYTHONPATH=tests .venv/bin/python -m support.settings_outcomes`` loads what was recorded once more, and writes down
what comes out now. A difference is a contract that changed: a value, a sentence, a warning.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from claudeops.errors import ConfigurationError
from support.checkout import ROOT
from support.settings_world import World, make_world

RECORDING = ROOT / "tests" / "data" / "settings" / "outcomes.json"
PLAIN = (str, int, float, Path, type(None))

Given = Mapping[str, str]
Outcome = Mapping[str, object]


def furnish(world: World) -> World:
    """Add what the recorded values name."""
    world.file("note.txt", "some text\n")
    world.file("secret.txt", "a-secret-of-a-file-0123456789\n")
    world.file("empty.txt", "\n")
    world.file("somewhere/else/kept.txt", "kept\n")
    world.file("ssh/id", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
    world.file("servers.json", '{"mcpServers": {"notes": {"command": "notes"}}}')
    world.file("policy.toml", 'extends = "default"\n')
    world.file("tool", "#!/bin/sh\n").chmod(0o755)
    codex = world.claude.parent / "codex"
    codex.write_text("#!/bin/sh\n")
    codex.chmod(0o755)
    return world


def outcome(world: World, given: Given) -> Outcome:
    """Return the fault, or what differs from the settings of an empty environment; of that one everything."""
    try:
        loaded = world.load(given)
    except ConfigurationError as fault:
        return {"fault": _portable(str(fault), world), "kind": fault.kind.name}
    usual = dict(values(world.settings())) if given else {}
    changed = {path: value for path, value in values(loaded.settings) if usual.get(path) != value}
    found = {"changed": {path: _portable(value, world) for path, value in changed.items()}}
    warnings = [_portable(warning, world) for warning in loaded.warnings]
    return {**found, **({"warnings": warnings} if warnings else {})}


def values(holder: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of a tree of settings as text, with its path; of what is no plain value only its form."""
    if is_dataclass(holder) and not isinstance(holder, type) and (not path or "Settings" in type(holder).__name__):
        for each in fields(holder):
            yield from values(getattr(holder, each.name), f"{path}.{each.name}".lstrip("."))
    elif isinstance(holder, tuple) and holder and is_dataclass(holder[0]) and "Settings" in type(holder[0]).__name__:
        for number, each in enumerate(holder, 1):
            yield from values(each, f"{path}.{number}")
    else:
        yield path, "the host's" if path == "node.name" and holder == os.uname().nodename else _text(holder)


def _text(value: object) -> str:
    if isinstance(value, PLAIN):
        return str(value) if isinstance(value, Path) else repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ")"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(_text, value))) + "}"
    return type(value).__name__


def _portable(text: str, world: World) -> str:
    return text.replace(str(world.base), "BASE").replace(f"user {os.geteuid()}", "user UID")


def record() -> None:
    """Load what was recorded again, and write down what comes out now."""
    cases = [case["given"] for case in json.loads(RECORDING.read_text(encoding="utf-8"))]
    with tempfile.TemporaryDirectory() as directory:
        world = furnish(make_world(Path(directory).resolve()))
        found = [{"given": given, **outcome(world, given)} for given in cases]
    RECORDING.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    record()
