"""A policy file, read: TOML text becomes a `PolicyDocument`, or the line that is wrong and what to write instead.

A file stands alone, or begins with ``extends = "default"`` and then says only what is different. It may extend
fragments too, ``["default", "cloud-read"]``: they are laid over the default, in their order. In that case

- tables (tiers, actions, services, wrappers, aliases) are laid over the default's, key by key;
- rules for commands and tools come before the default's: the first that fits decides;
- ``without`` removes the default's rules for a command, and the command itself;
- what is ``never`` allowed can only become more.

A document can also be written out as a file that means the same: the policy in force, with everything it extends.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.policy.policy_tables import TABLES, DeclaredAction, PolicyDocument, TierEntry, command_fault, group_fault
from claudeops.text import regex
from claudeops.text.toml_file import KeyFault, TomlFault, TomlFile, nearest
from claudeops.text.toml_lines import Path

DEFAULT: Final = "default"
_MIGRATE: Final = "'claudeops policy migrate FILE' writes the whole file so"
_STEP: Final = regex.Pattern(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_AT: Final = regex.Pattern(r" - at `\$([^`]*)`$")
_LISTS: Final = ("commands", "groups", "tools")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class PolicyFault(TomlFault):
    """What is wrong with a policy file.

    ``extended`` names what the file extends (`DEFAULT` or a fragment) where the fault lies in there.
    """

    def __init__(self, line: int, reason: str, *, extended: str = "") -> None:
        super().__init__(line, reason)
        self.extended = extended


def read_document(text: str, *, default: str = "", fragments: Mapping[str, str] = _NONE) -> PolicyDocument:
    """Return what a file says, merged with the default and fragments that it extends. Raises `PolicyFault`.

    ``fragments``: texts by name.
    """
    toml = _load(text)
    reader = _Reader(toml)
    reader.check_keys()
    document = reader.document()
    if document.extends is None:
        reader.check(document)
        return document
    base = _load(default, extended=DEFAULT).values
    for name in reader.fragments(document, known=fragments):
        base = _laid_over(base, _load(fragments[name], extended=name).values)
    reader.check_without(document.without, base)
    merged = msgspec.convert(_laid_over(_without(base, document.without), toml.values), PolicyDocument)
    reader.check(merged, own=document)
    return merged


def _load(text: str, *, extended: str = "") -> TomlFile:
    try:
        return TomlFile(text, what="a policy")
    except TomlFault as fault:
        raise PolicyFault(fault.line, str(fault), extended=extended) from None


def _laid_over(base: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    merged: dict[str, object] = dict(base)
    for key, value in own.items():
        below = base.get(key)
        if key == "never" and isinstance(value, dict) and isinstance(below, dict):
            merged[key] = {name: [*below.get(name, []), *value.get(name, [])] for name in {*below, *value}}
        elif key in _LISTS and isinstance(value, list) and isinstance(below, list):
            merged[key] = [*value, *below]
        elif isinstance(value, dict) and isinstance(below, dict):
            merged[key] = {
                name: {**below[name], **inner}
                if isinstance(inner := value.get(name, below.get(name)), dict) and isinstance(below.get(name), dict)
                else inner
                for name in {**below, **value}
            }
        else:
            merged[key] = value
    return merged


def _without(base: Mapping[str, object], gone: tuple[str, ...]) -> dict[str, object]:
    """Return the default without the commands and wrappers of these names."""

    def stays(name: str) -> bool:
        return not any(name == each or name.startswith(f"{each} ") for each in gone)

    left = dict(base)
    commands, wrappers = base.get("commands"), base.get("wrappers")
    if isinstance(commands, list):
        named = ((rule, "|".join(filter(stays, str(rule["name"]).split("|")))) for rule in commands)
        left["commands"] = [{**rule, "name": name} for rule, name in named if name]
    if isinstance(wrappers, dict):
        left["wrappers"] = {name: tier for name, tier in wrappers.items() if stays(name)}
    return left


class _Reader:
    """Checks one text."""

    def __init__(self, toml: TomlFile) -> None:
        self._toml = toml
        self._own = toml.values

    def fault(self, path: Path, reason: str) -> PolicyFault:
        """Return a fault at a path."""
        return PolicyFault(self._toml.line(*path), reason)

    def check_keys(self) -> None:
        """Raise `PolicyFault` for an unknown key, with the nearest known one."""
        for path, table in _tables((), self._own):
            known = TABLES.get(_shape(path))
            for key in table:
                if known is None or key in known:
                    continue
                from claudeops.policy.migrate import GONE, new_form  # noqa: PLC0415 - of faults alone

                if path[:1] == ("commands",) and key in GONE:
                    form = new_form(table)
                    instead = f"write {form}" if form else "write options and arguments"
                    raise self.fault((*path, key), f"{key!r} is of the old form: {instead} ({_MIGRATE})")
                remedy = nearest(key, sorted(known))
                raise self.fault((*path, key), f"the key {key!r} is not known here: {remedy}")

    def fragments(self, document: PolicyDocument, *, known: Iterable[str]) -> tuple[str, ...]:
        """Return the fragments that are extended; raises `PolicyFault` for unknown ones."""
        wanted = (document.extends,) if isinstance(document.extends, str) else document.extends or ()
        names = sorted(known)
        for name in wanted:
            if name not in (DEFAULT, *names):
                remedy = nearest(name, (DEFAULT, *names))
                raise self.fault(("extends",), f"there is no policy {name!r} to extend: {remedy}")
        if wanted[:1] != (DEFAULT,) or len(set(wanted)) != len(wanted):
            expected = ", ".join(f'"{name}"' for name in dict.fromkeys((DEFAULT, *wanted)))
            raise self.fault(("extends",), f"a fragment only adds to the default: write extends = [{expected}]")
        return wanted[1:]

    def document(self) -> PolicyDocument:
        """Return the text's values; raises `PolicyFault` for one of the wrong type."""
        try:
            return msgspec.convert(self._own, PolicyDocument)
        except msgspec.ValidationError as error:
            message = str(error)
            found = _AT.search(message)
            path = self._path(found[1] if found else "")
            raise self.fault(path, f"{'.'.join(map(str, path))}: {_AT.sub('', message)}") from None

    def _path(self, text: str) -> Path:
        """Return the path that msgspec writes as ``.tiers[...].tools[0]``, which leaves out the keys of mappings."""
        path: list[str | int] = []
        for name, index in ((step[1], step[2]) for step in _STEP.finditer(text)):
            path.append(name or (int(index) if index.isdigit() else "*"))
        if "*" not in path or len(path) < 2:  # noqa: PLR2004 - table, key
            return tuple(path)
        table = self._own.get(str(path[0]))
        for key, value in table.items() if isinstance(table, dict) else ():
            if not _fits(str(path[0]), value):
                return (path[0], key, *path[2:])
        return tuple(path[:1])

    def check_without(self, gone: Iterable[str], base: Mapping[str, object]) -> None:
        """Raise `PolicyFault` for a command in ``without`` that the default does not have."""
        default = msgspec.convert(base, PolicyDocument)
        names = {name for rule in default.commands for name in rule.name.split("|")} | set(default.wrappers)
        for name in gone:
            if not any(known == name or known.startswith(f"{name} ") for known in names):
                near = difflib.get_close_matches(name, names, n=1)
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise self.fault(("without",), f"the default has no rule for {name!r}{hint}")

    def check(self, document: PolicyDocument, own: PolicyDocument | None = None) -> None:
        """Raise `PolicyFault` for parts that do not fit together; in a merged document only ``own`` is checked."""
        mine = own or document
        self._check_maintenance(mine)
        for number in mine.tiers:
            if not regex.fullmatch(r"[1-9]\d?", number):
                raise self.fault(("tiers", number), f"{number!r} is not a tier: tiers count from 1")
        if "1" not in document.tiers:
            raise self.fault(("tiers",), 'tier 1 is missing: add [tiers.1], or begin the file with extends = "default"')
        for number, entry in document.tiers.items():
            fault = entry.fault(document)
            if fault is not None:
                raise self.fault(("tiers", number, *fault[0].split(".")), f"tier {number}: {fault[1]}")
        for kind in mine.actions:
            if (reason := document.actions[kind].fault()) is not None:
                raise self.fault(("actions", kind), f"the action {kind!r}: {reason}")
        for name, lowest in mine.wrappers.items():
            if (reason := document.wrapper_fault(name, lowest)) is not None:
                raise self.fault(("wrappers", name), reason)
        self._check_rules(mine, document)

    def _check_maintenance(self, mine: PolicyDocument) -> None:
        if mine.maintenance not in {"hold", "act"}:
            raise self.fault(("maintenance",), f"{mine.maintenance!r} is not known: write 'hold' or 'act'")

    def _check_rules(self, mine: PolicyDocument, document: PolicyDocument) -> None:
        if (reason := mine.never.fault()) is not None:
            raise self.fault(("never", "hosts"), reason)
        highest = max(map(int, document.tiers), default=0)
        path: Path = ()
        try:
            for index, rule in enumerate(mine.commands):
                path = ("commands", index)
                command_fault(rule, kinds=document.actions, highest=highest)
            for index, group in enumerate(mine.groups):
                path = ("groups", index)
                group_fault(group)
            for index, tool in enumerate(mine.tools):
                path = ("tools", index)
                tool.check(document, highest=highest)
        except KeyFault as fault:
            raise self.fault((*path, fault.key), str(fault)) from None


def _fits(table: str, value: object) -> bool:
    kinds: dict[str, object] = {"tiers": TierEntry, "actions": DeclaredAction, "services": list[str], "wrappers": int}
    try:
        msgspec.convert(value, kinds.get(table, str))
    except msgspec.ValidationError:
        return False
    return True


def _shape(path: Path) -> Path:
    """Return a path with ``*`` for names that the operator chooses."""
    shape = tuple("*" if isinstance(step, int) else step for step in path)
    return (shape[0], "*", *shape[2:]) if len(shape) > 1 and shape[0] in {"tiers", "actions"} else shape


def _tables(path: Path, table: Mapping[str, object]) -> Iterable[tuple[Path, Mapping[str, object]]]:
    yield path, table
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _tables((*path, key), value)
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, dict):
                yield from _tables((*path, key, index), item)


# --- a document as a file -------------------------------------------------------------------------------


_BARE: Final = regex.Pattern(r"[A-Za-z0-9_-]+")
_ARRAYS: Final = ("groups", "commands", "tools")
_ORIGINS: Final = frozenset({"extends", "without"})  # how the document was made, not what it says


def in_force(document: PolicyDocument, origin: str) -> str:
    """Return a policy as people read it, with where it is from."""
    return f"# In force, from {origin}\n\n{render(document)}"


def render(document: PolicyDocument) -> str:
    """Return a standalone file that means the same."""
    body: dict[str, object] = msgspec.to_builtins(document)
    plain = {key: value for key, value in body.items() if isinstance(value, str) and key not in _ORIGINS}
    lines = list(_pairs(plain))
    for key, value in body.items():
        if isinstance(value, dict):
            lines += _table((key,), value)
    for key in _ARRAYS:
        for entry in msgspec.to_builtins(getattr(document, key)):
            lines += ["", f"[[{key}]]", *_pairs(entry)]
    return "\n".join(lines).strip() + "\n"


def _table(path: tuple[str, ...], table: Mapping[str, object]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    plain = {key: value for key, value in table.items() if key not in inner}
    if plain or not inner:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
        yield from _pairs(plain)
    for key, value in inner.items():
        yield from _table((*path, key), value)


def _pairs(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        # An empty text means nothing; switches are off, but for those that are on unless it is said.
        meaningful = value not in ("", False) or key in {"changes", "dashes", "attached"}
        if value is not None and meaningful:
            yield f"{_key(key)} = {_value(value)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str) and "\\" in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    # A JSON string is a basic string of TOML: their escapes are the same.
    return json.dumps(value, ensure_ascii=False)
