"""Finds, reads and checks scenario files; reports a mistake with its line, place and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.sessions import DecisionReason, Outcome, Trigger
from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.rehearsal.probes_file import check_probes
from claudeops.rehearsal.scenario import (
    Button,
    Chat,
    DiskFull,
    ExpectedChat,
    ExpectedEvent,
    ExpectedOutcome,
    ExpiredCertificate,
    Failing,
    Fault,
    Scenario,
    ScenarioAlerts,
    ScenarioProbes,
    ScenarioService,
    ScenarioStep,
    ScenarioTap,
    ScenarioTier,
    Silent,
    Stopped,
    Within,
    build_script,
    check_placeholders,
)
from claudeops.scripted_api.script import ScriptedError, ScriptedToolUse, convert
from claudeops.text.toml_file import NotTomlError, nearest, parse
from claudeops.text.toml_lines import key_lines

SHIPPED: Final = Path(__file__).parent / "scenarios"
MAX_BYTES: Final = 1024 * 1024

_SHAPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "services": ScenarioService,
    "steps": ScenarioStep,
    "tool": ScriptedToolUse,
    "error": ScriptedError,
    "tiers": ScenarioTier,
    "expect": ExpectedOutcome,
    "alerts": ScenarioAlerts,
    "taps": ScenarioTap,
    "events": ExpectedEvent,
    "within_seconds": Within,
}
_FAULTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "stopped": Stopped,
    "failing": Failing,
    "disk-full": DiskFull,
    "silent": Silent,
    "expired": ExpiredCertificate,
}
_REMEDIES: Final = {
    "kind": f"must be one of {', '.join(_FAULTS)}",
    "tiers": "must be tables by number, such as [[tiers.1.steps]]",
    "services": "must be tables by name in lower case letters, digits and dashes, such as [services.web]",
    "service": "must be the name of a service, in lower case letters, digits and dashes",
    "capture": "must be regular expressions by a name in lower case, such as { pod = '(web-\\S+)' }",
    "decision": f"must be one of {', '.join(DecisionReason)}",
    "outcome": f"must be one of {', '.join(Outcome)}",
    "button": f"must be one of {', '.join(Button)}",
    "approvers": 'must be some names in lower case letters, digits and dashes, such as ["alice"]',
    "trigger": f"must be one of {', '.join(Trigger)}",
    "probes": f"must be states of probes by their names, each one of {', '.join(ProbeState)}",
}
_UNKNOWN: Final = re.compile(r"unknown key '([^']*)'")
_PLACE_PREFIX: Final = re.compile(r"([A-Za-z0-9_.\[\]-]+): ")
_STEP_OF_PATH: Final = re.compile(r"([A-Za-z0-9_-]+)((?:\[[^\]]*\])*)")


class NamedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, its file, and the name under which it is reported."""

    name: str
    path: Path
    scenario: Scenario


def shipped() -> tuple[str, ...]:
    """Return the names of the scenarios that come with claudeops, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find(given: str, *, cwd: Path) -> NamedScenario:
    """Return a shipped scenario by its name, or the one in a file.

    Raises `MissingInputError` when neither exists, `ConfigurationError` when the file is not a scenario.
    """
    if "/" not in given and not given.endswith(".toml"):
        if given not in shipped():
            raise MissingInputError(
                f"There is no scenario {given!r}, {nearest(given, shipped())} "
                "Name one of those that `claudeops rehearse --list` shows, or give the path of a .toml file."
            )
        path = SHIPPED / f"{given}.toml"
    else:
        path = cwd / given
    return NamedScenario(name=path.stem, path=path, scenario=read(path))


def read(path: Path) -> Scenario:
    """Read a scenario file; raises `MissingInputError` or `ConfigurationError`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MissingInputError(f"{path}: cannot be read ({error.strerror}): give the path of a scenario.") from None
    if len(raw) > MAX_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_BYTES} bytes: that is not a scenario.")
    try:
        text = raw.decode()
        document = parse(text)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}: line {line}: not UTF-8: save the file as UTF-8.") from None
    except NotTomlError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}.") from None
    try:
        return scenario_of(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {_with_line(str(error), text)}") from None


def scenario_of(document: Mapping[str, object]) -> Scenario:
    """Build a scenario from a parsed document, and check that its parts fit together.

    Raises `ConfigurationError`: one sentence that begins with the place, as ``tiers.1.steps[2].when: …``.
    """
    for place, part, shape in _parts(document):
        convert(part, shape, place=place, shapes=_SHAPES, remedies=_REMEDIES)
    scenario = convert(document, Scenario, place="", shapes=_SHAPES, remedies=_REMEDIES)
    _check_names(scenario)
    _check_faults(scenario)
    check_placeholders(scenario)
    check_probes(scenario)
    build_script(scenario)  # finds steps that cannot become a message of the model
    return scenario


def _parts(document: Mapping[str, object]) -> Iterator[tuple[str, object, type[msgspec.Struct]]]:
    """Yield the parts that are checked on their own first, each with its place.

    msgspec reports neither the key of a table that led to a fault, nor the struct of a union that did not know a key.
    """
    for name, shape in (("services", ScenarioService), ("tiers", ScenarioTier)):
        table = document.get(name)
        for key, part in table.items() if isinstance(table, dict) else ():
            yield f"{name}.{key}", part, shape
    faults = document.get("faults")
    for index, fault in enumerate(faults if isinstance(faults, list) else ()):
        kind = fault.get("kind") if isinstance(fault, dict) else None
        if isinstance(kind, str) and kind in _FAULTS:
            yield f"faults[{index}]", fault, _FAULTS[kind]
    if "probes" in document:
        yield "probes", document["probes"], ScenarioProbes
    if "alerts" in document:
        yield "alerts", document["alerts"], ScenarioAlerts
    if "chat" in document:
        yield "chat", document["chat"], Chat
    expect = document.get("expect")
    if isinstance(expect, dict) and "chat" in expect:
        yield "expect.chat", expect["chat"], ExpectedChat


def _check_names(scenario: Scenario) -> None:
    known = tuple(scenario.services)
    named = [(f"faults[{index}].service", fault.service) for index, fault in enumerate(scenario.faults)]
    named += [(f"expect.services.{name}", name) for name in scenario.expect.services]
    named += [(f"services.{name}.needs", need) for name, given in scenario.services.items() for need in given.needs]
    for place, name in named:
        if name not in known:
            raise ConfigurationError(f"{place}: {name!r} is not a service of this scenario, {nearest(name, known)}")
    if scenario.expect.chat != ExpectedChat() and scenario.chat is None:
        raise ConfigurationError("expect.chat: nobody can say anything without a chat: add [chat] with its approvers")
    for tier in scenario.expect.tiers:
        if str(tier) not in scenario.tiers:
            raise ConfigurationError(f"expect.tiers: tier {tier} is expected, but [[tiers.{tier}.steps]] is missing")


def _check_faults(scenario: Scenario) -> None:
    for index, fault in enumerate(scenario.faults):
        if (lacks := _lacks(fault, scenario.services[fault.service])) is not None:
            raise ConfigurationError(f"faults[{index}]: {fault.service} {lacks} in [services.{fault.service}]")
        if fault.after_seconds is None and (fault.lasts_seconds is not None or fault.times > 1):
            raise ConfigurationError(
                f"faults[{index}]: a fault that is there from the beginning does not come and go: say after_seconds"
            )
        if fault.times > 1 and fault.lasts_seconds is None:
            raise ConfigurationError(f"faults[{index}].times: a fault that stays comes once: say lasts_seconds")
    for name, service in scenario.services.items():
        if service.certificate_days != ScenarioService().certificate_days and not service.tls:
            raise ConfigurationError(f"services.{name}.certificate_days: there is a certificate only with tls = true")


def _lacks(fault: Fault, service: ScenarioService) -> str | None:
    """Return what a service needs for a fault, as the end of a sentence about it."""
    match fault:
        case DiskFull() if fault.after_seconds is not None:
            return "has a disk that is full from the beginning or never: leave out after_seconds"
        case DiskFull() if service.disk_kib is None:
            return "has no disk that could be full: give it a size, such as disk_kib = 1024"
        case ExpiredCertificate() if not service.tls:
            return "has no certificate that could expire: say tls = true"
        case Silent() if service.pings is None:
            return "sends no heartbeat that could stop: name one, as pings,"
        case _:
            return None


# --- line numbers ------------------------------------------------------------------------------------


def _with_line(sentence: str, text: str) -> str:
    """Return a sentence that begins with a place, preceded by the line of that place."""
    found = _PLACE_PREFIX.match(sentence)
    place = (found and found[1]) or ""
    if unknown := _UNKNOWN.match(sentence.removeprefix(f"{place}: ")):
        place = f"{place}.{unknown[1]}"
    number = line_of(text, place) if place else None
    end = "" if sentence.endswith(("?", ".")) else "."
    return (f"line {number}: " if number else "") + sentence + end


def line_of(text: str, place: str) -> int | None:
    """Return the line of a place such as ``tiers.1.steps[2].when``, or of the nearest thing around it that is known.

    The contents of an inline table get the line of the table.
    """
    lines = key_lines(text)
    path: list[str | int] = []
    for name, indices in _STEP_OF_PATH.findall(place):
        path += [name, *(int(found) if found.isdigit() else found for found in re.findall(r"\[([^\]]*)\]", indices))]
    around = (tuple(path[:end]) for end in range(len(path), 0, -1))
    return next((lines[each] for each in around if each in lines), None)
