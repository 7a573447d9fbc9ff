"""The operator's probes file, read: TOML text becomes probes, or the line that is wrong and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar, cast

import msgspec

from claudeops.domain.access.tokens import NAME as ADDRESSED
from claudeops.domain.estate.estate import Estate
from claudeops.domain.probes.probe import AnyLook, CommandLook, HeartbeatLook, HttpLook, Probe, ProbeLook
from claudeops.formats.probes.keys import KINDS, Defaults, ProbeKeys, check_look, in_unit
from claudeops.text import casefold_key, join_names, regex
from claudeops.text.toml_file import KeyFault, TomlFile, as_struct, keys_of, nearest

MOST_PROBES: Final = 5000
"""Probes of one file."""

MOST_SITES: Final = 20
"""Sites that look with one probe."""

_TOP: Final = ("defaults", "probe")
_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,99}")
_MOST_SERVICE: Final = 255
_SHORTEST_INTERVAL: Final = 1.0
_LONGEST_INTERVAL: Final = 86400.0
_SHORTEST_TIMEOUT: Final = 0.1
_LONGEST_TIMEOUT: Final = 300.0
_MOST_IN_A_ROW: Final = 100


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What a probes file says."""

    probes: tuple[Probe, ...] = ()
    defaults: Defaults = msgspec.field(default_factory=Defaults)


NO_DECLARATION: Final = Declaration()


def allow_all(_command: str) -> str | None:
    """Refuse no command: for readers that are not about to run any."""
    return None


def read_probes(text: str, *, file: str, refuse_command: Callable[[str], str | None] = allow_all) -> Declaration:
    """Return what a probes file says. Raises `TomlFault` for the first fault.

    ``file`` is its name in `Probe.origin`. ``refuse_command`` says why tier 1's policy does not allow a command, or
    None.
    """
    toml = TomlFile(text, what="a probes file")
    toml.check_keys(toml.values, (), _TOP, where=_called(toml.values))
    given, tables = toml.values.get("defaults", {}), toml.values.get("probe", [])
    if not isinstance(given, dict):
        raise toml.fault(("defaults",), "defaults is a table: write [defaults]")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise toml.fault(("probe",), "each probe is a table of its own: write [[probe]]")
    if len(tables) > MOST_PROBES:
        raise toml.fault(("probe", MOST_PROBES), f"a file holds at most {MOST_PROBES} probes: leave some out")
    reader = _Reader(toml, file=file, refuse_command=refuse_command)
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


def absent_sites(probes: Iterable[Probe], running: Collection[str]) -> tuple[str, ...]:
    """Return what is wrong with the sites that probes name, where nodes of those in ``running`` run: a warning."""
    shared = [probe for probe in probes if probe.sites]
    absent = sorted({site for probe in shared for site in probe.sites if site not in running})
    mute = [probe.name for probe in shared if len(set(probe.sites) & set(running)) < probe.quorum]
    sentences = []
    if absent:
        looking = [probe.name for probe in shared if not set(probe.sites) <= set(running)]
        sentences.append(f"no node is known of sites that are to look: {join_names(absent)} ({join_names(looking)})")
    if mute:
        sentences.append(f"fewer sites than have to agree can look, so these are never down: {join_names(mute)}")
    return tuple(sentences)


class _Reader:
    """Reads the tables of one text."""

    def __init__(self, toml: TomlFile, *, file: str, refuse_command: Callable[[str], str | None]) -> None:
        self._toml = toml
        self._file = file
        self._refuse_command = refuse_command
        self._taken: dict[str, int] = {}  # names, in one case, with the index of their tables

    def defaults(self, table: Mapping[str, object]) -> Defaults:
        """Return what ``[defaults]`` says."""
        self._toml.check_keys(table, ("defaults",), keys_of(Defaults), where=_called(table))
        with self._toml.at("defaults"):
            defaults = as_struct(table, Defaults, value_of=in_unit)
            retry = defaults.retry_interval if "retry_interval" in table else None
            _check_times(defaults.interval, retry=retry, timeout=defaults.timeout if "timeout" in table else None)
            _check_counts(defaults.failures, defaults.successes)
        return defaults

    def probe(self, index: int, table: Mapping[str, object], defaults: Defaults) -> Probe:
        """Return the probe of one ``[[probe]]``."""
        called, common = _called(table), keys_of(ProbeKeys)
        with self._toml.at("probe", index, where=called):
            kind = _kind_of(table)
            self._toml.check_keys(table, ("probe", index), (*common, *keys_of(kind)), where=called)
            own = {key: value for key, value in table.items() if key in common}
            entry = as_struct(own, ProbeKeys, value_of=in_unit)
            own_of_kind = {key: value for key, value in table.items() if key not in common}
            look = as_struct(own_of_kind, kind, value_of=in_unit)
            self._check_entry(index, entry)
            _check_address(look, entry.name)
            _check_sites(look, entry)
            check_look(look)
            self._check_command(look)
            origin = f"{self._file}:{self._toml.line('probe', index)}"
            probe = _probe(entry, cast("AnyLook", look), defaults, origin=origin)
            _check_against(look, probe)
        return probe

    def _check_entry(self, index: int, entry: ProbeKeys) -> None:
        if _NAME.fullmatch(entry.name) is None:
            reason = "write letters, digits and . _ - : / @, at most 100, and begin with a letter or digit"
            raise KeyFault("name", f"name: {entry.name[:40]!r} cannot be a name: {reason}")
        before = self._taken.setdefault(casefold_key(entry.name), index)
        if before != index:
            line = self._toml.line("probe", before)
            raise KeyFault("name", f"this name is taken by the probe in line {line}: choose another")
        for key, names in (("service", (entry.service,)), ("depends_on", entry.depends_on)):
            for name in names:
                is_name = len(name) <= _MOST_SERVICE and name.isprintable() and name == name.strip()
                if not is_name or (not name and key == "depends_on"):
                    raise KeyFault(key, f"{key}: {name[:40]!r} is not a name of a service: write it as a manifest does")

    def _check_command(self, look: ProbeLook) -> None:
        if isinstance(look, CommandLook) and (reason := self._refuse_command(look.command)) is not None:
            raise KeyFault("command", f"command: tier 1's policy does not allow it: {reason}")


def _kind_of(table: Mapping[str, object]) -> type[ProbeLook]:
    kind = table.get("kind")
    if kind is None:
        raise KeyFault("", f"'kind' is missing: add one of {', '.join(KINDS)}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise KeyFault("kind", f"{str(kind)[:40]!r} is not a kind of probe: {nearest(str(kind), KINDS)}")
    return KINDS[kind]


def _called(table: Mapping[str, object]) -> str:
    name = table.get("name")
    return f"the probe {name[:40]!r}: " if isinstance(name, str) else ""


# --- a probe of a table -----------------------------------------------------------------------------------


def _probe(entry: ProbeKeys, look: AnyLook, defaults: Defaults, *, origin: str) -> Probe:
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
        sites=entry.sites,
        quorum=_given(entry.quorum, len(entry.sites) // 2 + 1) if entry.sites else 0,
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


def _check_address(look: ProbeLook, name: str) -> None:
    if isinstance(look, HeartbeatLook) and ADDRESSED.fullmatch(name) is None:
        reason = "write letters, digits and . _ - : @, and no slash"
        raise KeyFault("name", f"name: {name[:40]!r} cannot be part of the address of its pings: {reason}")


def _check_sites(look: ProbeLook, entry: ProbeKeys) -> None:
    if isinstance(look, HeartbeatLook) and entry.sites:
        raise KeyFault("sites", "sites: a ping is heard by every site, so none of them looks: leave it out")
    for name in entry.sites:
        if len(name) > _MOST_SERVICE or not name.isprintable() or not name or name != name.strip():
            raise KeyFault("sites", f"sites: {name[:40]!r} is not a name of a site: write it as CLAUDEOPS_SITE does")
    if len(entry.sites) > MOST_SITES or len(set(entry.sites)) < len(entry.sites):
        raise KeyFault("sites", f"sites: name at most {MOST_SITES}, and each once")
    if entry.quorum is not None and not entry.sites:
        raise KeyFault("quorum", "quorum: no sites are named that could agree: add 'sites', or leave it out")
    if entry.quorum is not None and not 1 <= entry.quorum <= len(entry.sites):
        most = len(entry.sites)
        raise KeyFault("quorum", f"quorum: {entry.quorum} of {most} sites cannot agree: write 1 to {most}")


def _check_against(look: ProbeLook, probe: Probe) -> None:
    if isinstance(look, HttpLook) and look.slower_than is not None and look.slower_than >= probe.timeout:
        reason = f"no answer is awaited for longer than the timeout of {probe.timeout:g} s: write less"
        raise KeyFault("slower_than", f"slower_than: {reason}")
