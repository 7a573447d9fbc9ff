"""The probes file of a rehearsal: what its scenario declares under ``[probes]``, as the daemon reads it.

The daemon would make probes of the manifest's addresses by itself. In a scenario that declares none they would find its
faults beside the sessions, or use up every second answer of a service; so each service has one that is silenced and
looks once a day.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from claudeops.domain.probes.probe import HeartbeatLook
from claudeops.errors import ConfigurationError
from claudeops.formats.probes.declaration import read_probes
from claudeops.rehearsal.scenario import OF_SERVICES, Scenario, ScenarioProbes
from claudeops.scripted_api.responses import PLACEHOLDER, fill
from claudeops.text.toml_file import TomlFault, nearest

_PORT: Final = ".port"
_ANYWHERE: Final = {"url": "http://127.0.0.1:1/", "host": "127.0.0.1:1", "port": "1"}


def probes_text(scenario: Scenario, values: Mapping[str, str]) -> str:
    """Return the probes file of a rehearsal; ``values`` replace its placeholders."""
    return "\n".join(line for line, _ in _lines(_declared(scenario), values)) + "\n"


def check_probes(scenario: Scenario) -> None:
    """Raise `ConfigurationError`, which begins with the place, for probes that the daemon would refuse."""
    values = {f"{service}.{what}": _ANYWHERE[what] for service in scenario.services for what in OF_SERVICES}
    lines = list(_lines(_declared(scenario), values))
    try:
        declared = read_probes("\n".join(line for line, _ in lines), file="probes.toml").probes
    except TomlFault as fault:
        raise ConfigurationError(f"{lines[fault.line - 1][1]}: {fault}") from None
    names = tuple(probe.name for probe in declared)
    beating = tuple(probe.name for probe in declared if isinstance(probe.look, HeartbeatLook))
    for name in scenario.expect.probes:
        if scenario.probes is None or name not in names:
            raise ConfigurationError(f"expect.probes.{name}: there is no such probe, {nearest(name, names)}")
    for service, given in scenario.services.items():
        if given.pings is not None and given.pings not in beating:
            reason = f"there is no heartbeat {given.pings!r}, add it as a [[probes.probe]]"
            raise ConfigurationError(f"services.{service}.pings: {reason}")


def _declared(scenario: Scenario) -> ScenarioProbes:
    if scenario.probes is not None:
        return scenario.probes
    silenced = {"kind": "tcp", "host": "127.0.0.1", "interval": "1d", "failures": 1, "silenced": True}
    return ScenarioProbes(
        probe=tuple({"name": name, "port": f"{{{{{name}{_PORT}}}}}", **silenced} for name in scenario.services)
    )


def _lines(probes: ScenarioProbes, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the file, each with the place in the scenario that it comes from."""
    tables = [("[defaults]", "probes.defaults", probes.defaults)] if probes.defaults else []
    tables += [("[[probe]]", f"probes.probe[{index}]", table) for index, table in enumerate(probes.probe)]
    for header, place, table in tables:
        yield header, place
        for key, value in table.items():
            yield f"{_quoted(key)} = {_toml(_filled(value, values))}", f"{place}.{key}"


def _filled(value: object, values: Mapping[str, str]) -> object:
    """Return a value with its placeholders replaced; a port that stands alone is a number."""
    alone = PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    if alone and alone[1].endswith(_PORT):
        return int(values[alone[1]])
    return fill(value, values)


def _toml(value: object) -> str:
    match value:
        case str():
            return _quoted(value)
        case dict():
            return "{" + ", ".join(f"{_quoted(str(key))} = {_toml(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return _quoted(str(value))  # a date, of which no probe knows; it is refused where it stands


def _quoted(text: str) -> str:
    """Return a text as TOML writes it, which is as JSON does but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
