"""The operator's probes file, read: TOML text becomes probes, or the line that is wrong and what to write instead."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

import msgspec

from claudeops.domain.access.tokens import NAME as ADDRESSED
from claudeops.domain.estate.estate import Estate
from claudeops.domain.probes.probe import AnyLook, CommandLook, HeartbeatLook, HttpLook, Look, Probe
from claudeops.formats.probes.keys import KINDS, Defaults, Entry, KeyFault, check_look, in_unit, keys_of, required_of
from claudeops.text import casefold_key, regex
from claudeops.text.toml_lines import Path, key_lines, line_of

MOST_PROBES: Final = 5000
"""Probes of one file."""

_POSITION: Final = regex.Pattern(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_AT: Final = regex.Pattern(r" - at `\$\.?(\w*)[^`]*`$")
_EXPECTED: Final = regex.Pattern(r"Expected `([^`]+)`, got `([^`]+)`")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list in brackets",
    "object": "a table",
}
_TOP: Final = ("defaults", "probe")
_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,99}")
_MOST_SERVICE: Final = 255
_SHORTEST_INTERVAL: Final = 1.0
_LONGEST_INTERVAL: Final = 86400.0
_SHORTEST_TIMEOUT: Final = 0.1
_LONGEST_TIMEOUT: Final = 300.0
_MOST_IN_A_ROW: Final = 100

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class ProbesFault(Exception):  # noqa: N818 - not an error of ours: it describes a fault in an operator's text
    """What is wrong with a probes file; ``str()`` is a clause with the remedy, ``line`` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """What a probes file says."""

    probes: tuple[Probe, ...] = ()
    defaults: Defaults = field(default_factory=Defaults)


NO_DECLARATION: Final = Declaration()


def allow_all(_command: str) -> str | None:
    """Refuse no command: for readers that are not about to run any."""
    return None


def read_probes(text: str, *, file: str, refuse_command: Callable[[str], str | None] = allow_all) -> Declaration:
    """Return what a probes file says. Raises `ProbesFault` for the first fault.

    ``file`` is its name in `Probe.origin`. ``refuse_command`` says why tier 1's policy does not allow a command, or
    None.
    """
    document = _load(text)
    reader = _Reader(text, file=file, refuse_command=refuse_command)
    _refuse_unknown((), document, _TOP, reader)
    given, tables = document.get("defaults", {}), document.get("probe", [])
    if not isinstance(given, dict):
        raise reader.fault(("defaults",), "defaults is a table: write [defaults]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise reader.fault(("probe",), "each probe is a table of its own: write [[probe]]")
    if len(tables) > MOST_PROBES:
        raise reader.fault(("probe", MOST_PROBES), f"a file holds at most {MOST_PROBES} probes: leave some out")
    defaults = reader.defaults(given)
    probes = tuple(reader.probe(index, table, defaults) for index, table in enumerate(tables))
    return Declaration(probes=probes, defaults=defaults)


def unknown_services(probes: Iterable[Probe], estate: Estate) -> tuple[str, ...]:
    """Return a sentence for each service that probes name and no manifest knows: a warning, not a fault."""
    known = {casefold_key(name) for name in (*estate.expected, *estate.other_names, *estate.hosts)}
    sentences = []
    for probe in probes:
        named = () if casefold_key(probe.service) == casefold_key(probe.name) else (probe.service,)
        for name in dict.fromkeys((*named, *probe.depends_on)):
            if casefold_key(name) not in known:
                near = difflib.get_close_matches(name, estate.expected, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "add it to a manifest, or correct the name"
                sentences.append(f"{probe.origin}: the probe {probe.name!r} names the service {name!r}, which no "
                                 f"manifest describes: {hint}")  # fmt: skip
    return tuple(sentences)


def _load(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _POSITION.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        raise ProbesFault(line, f"this is not TOML: {_POSITION.sub('', str(error))}") from None
    except RecursionError:
        raise ProbesFault(1, "this is nested too deeply to be a probes file") from None


class _Reader:
    """Reads the tables of one text, and knows where its keys are."""

    def __init__(self, text: str, *, file: str, refuse_command: Callable[[str], str | None]) -> None:
        self._lines = key_lines(text)
        self._file = file
        self._refuse_command = refuse_command
        self._taken: dict[str, int] = {}  # names, in one case, with the index of their tables

    def fault(self, path: Path, reason: str) -> ProbesFault:
        """Return a fault at a path."""
        return ProbesFault(line_of(self._lines, path), reason)

    def defaults(self, table: Mapping[str, object]) -> Defaults:
        """Return what ``[defaults]`` says."""
        path: Path = ("defaults",)
        _refuse_unknown(path, table, keys_of(Defaults), self)
        try:
            defaults = _converted(table, Defaults)
            retry = defaults.retry_interval if "retry_interval" in table else None
            _check_times(defaults.interval, retry=retry, timeout=defaults.timeout if "timeout" in table else None)
            _check_counts(defaults.failures, defaults.successes)
        except KeyFault as fault:
            raise self.fault((*path, fault.key), str(fault)) from None
        return defaults

    def probe(self, index: int, table: Mapping[str, object], defaults: Defaults) -> Probe:
        """Return the probe of one ``[[probe]]``."""
        path: Path = ("probe", index)
        try:
            kind = _kind_of(table)
            common = keys_of(Entry)
            _refuse_unknown(path, table, (*common, *keys_of(kind)), self)
            entry = _converted({key: value for key, value in table.items() if key in common}, Entry)
            look = _converted({key: value for key, value in table.items() if key not in common}, kind)
            self._check_entry(index, entry)
            _check_address(look, entry.name)
            check_look(look)
            self._check_command(look)
            probe = _probe(entry, cast("AnyLook", look), defaults, origin=f"{self._file}:{line_of(self._lines, path)}")
            _check_against(look, probe)
        except KeyFault as fault:
            raise self.fault((*path, fault.key), f"{_called(table)}{fault}") from None
        return probe

    def _check_entry(self, index: int, entry: Entry) -> None:
        if _NAME.fullmatch(entry.name) is None:
            reason = "write letters, digits and . _ - : / @, at most 100, and begin with a letter or digit"
            raise KeyFault("name", f"name: {entry.name[:40]!r} cannot be a name: {reason}")
        before = self._taken.setdefault(casefold_key(entry.name), index)
        if before != index:
            line = line_of(self._lines, ("probe", before))
            raise KeyFault("name", f"this name is taken by the probe in line {line}: choose another")
        for key, names in (("service", (entry.service,)), ("depends_on", entry.depends_on)):
            for name in names:
                is_name = len(name) <= _MOST_SERVICE and name.isprintable() and name == name.strip()
                if not is_name or (not name and key == "depends_on"):
                    raise KeyFault(key, f"{key}: {name[:40]!r} is not a name of a service: write it as a manifest does")

    def _check_command(self, look: Look) -> None:
        if isinstance(look, CommandLook) and (reason := self._refuse_command(look.command)) is not None:
            raise KeyFault("command", f"command: tier 1's policy does not allow it: {reason}")


def _kind_of(table: Mapping[str, object]) -> type[Look]:
    kind = table.get("kind")
    if kind is None:
        raise KeyFault("", f"'kind' is missing: add one of {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(KINDS)}"
        raise KeyFault("kind", f"{str(kind)[:40]!r} is not a kind of probe: {hint}")
    return KINDS[kind]


def _refuse_unknown(path: Path, table: Mapping[str, object], known: Collection[str], reader: _Reader) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise reader.fault((*path, key), f"{_called(table)}the key {key[:40]!r} is not known here: {hint}")


def _called(table: Mapping[str, object]) -> str:
    name = table.get("name")
    return f"the probe {name[:40]!r}: " if isinstance(name, str) else ""


def _converted(table: Mapping[str, object], kind: type[_Struct]) -> _Struct:
    """Return a table as a struct. Raises `KeyFault` for a value of the wrong type, and for one that is missing."""
    for key in required_of(kind):
        if key not in table:
            raise KeyFault("", f"{key!r} is missing: add it")
    values = {key: in_unit(key, value) for key, value in table.items()}
    tag = {} if kind.__struct_config__.tag is None else {"kind": kind.__struct_config__.tag}
    try:
        return msgspec.convert(values | tag, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        found = _AT.search(message)
        key = str(found[1]) if found else ""
        raise KeyFault(key, f"{key}: {_in_words(_AT.sub('', message))}") from None


def _in_words(message: str) -> str:
    """Return what msgspec says about types as a clause with the remedy."""
    found = _EXPECTED.fullmatch(message)
    if found is None:
        return f"{message[:1].lower()}{message[1:]}: correct it"
    wanted = " or ".join(_WORDS[each] for each in found[1].split(" | ") if each in _WORDS)
    return f"this is {_WORDS.get(found[2], found[2])}: write {wanted}"


# --- a probe of a table -----------------------------------------------------------------------------------


def _probe(entry: Entry, look: AnyLook, defaults: Defaults, *, origin: str) -> Probe:
    beats = isinstance(look, HeartbeatLook)
    usual = min(defaults.interval, look.every) if isinstance(look, HeartbeatLook) else defaults.interval
    interval = _given(entry.interval, usual)
    _check_times(interval, retry=entry.retry_interval, timeout=entry.timeout)
    probe = Probe(
        name=entry.name,
        look=look,
        service=entry.service or entry.name,
        interval=interval,
        retry_interval=_given(entry.retry_interval, min(defaults.retry_interval, interval)),
        timeout=_given(entry.timeout, min(defaults.timeout, interval)),
        failures=_given(entry.failures, 1 if beats else defaults.failures),  # a heartbeat has its grace time instead
        successes=_given(entry.successes, 1 if beats else defaults.successes),
        depends_on=entry.depends_on,
        starts_chain=defaults.starts_chain if entry.starts_chain is None else entry.starts_chain,
        silenced=entry.silenced,
        origin=origin,
    )
    _check_counts(probe.failures, probe.successes)
    return probe


_Value = TypeVar("_Value", int, float)


def _given(value: _Value | None, default: _Value) -> _Value:
    return default if value is None else value


def _check_times(interval: float, *, retry: float | None, timeout: float | None) -> None:
    if not _SHORTEST_INTERVAL <= interval <= _LONGEST_INTERVAL:
        raise KeyFault("interval", f"interval: {interval:g} s cannot be kept: write 1 s to 1 day")
    if retry is not None and not 0 < retry <= interval:
        reason = f"{retry:g} s is no retry within the interval of {interval:g} s: write at most that"
        raise KeyFault("retry_interval", f"retry_interval: {reason}")
    if timeout is not None and not _SHORTEST_TIMEOUT <= timeout <= _LONGEST_TIMEOUT:
        raise KeyFault("timeout", f"timeout: {timeout:g} s cannot be kept: write 0.1 s to 5 minutes")
    if timeout is not None and timeout > interval:
        reason = f"a look may not take longer than the interval of {interval:g} s: write at most that"
        raise KeyFault("timeout", f"timeout: {reason}")


def _check_counts(failures: int, successes: int) -> None:
    for key, count in (("failures", failures), ("successes", successes)):
        if not 1 <= count <= _MOST_IN_A_ROW:
            raise KeyFault(key, f"{key}: {count} in a row cannot be: write 1 to {_MOST_IN_A_ROW}")


def _check_address(look: Look, name: str) -> None:
    if isinstance(look, HeartbeatLook) and ADDRESSED.fullmatch(name) is None:
        reason = "write letters, digits and . _ - : @, and no slash"
        raise KeyFault("name", f"name: {name[:40]!r} cannot be part of the address of its pings: {reason}")


def _check_against(look: Look, probe: Probe) -> None:
    if isinstance(look, HttpLook) and look.slower_than is not None and look.slower_than >= probe.timeout:
        reason = f"no answer is awaited for longer than the timeout of {probe.timeout:g} s: write less"
        raise KeyFault("slower_than", f"slower_than: {reason}")
