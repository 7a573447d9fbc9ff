"""What an environment variable is: name, kind, default, bounds and meaning; and how a field of the settings has one.

    chain_usd: float = setting(money("CLAUDEOPS_CHAIN_BUDGET_USD", "15", "a session and everything it led to"))

is all that there is to declare. The reader, ``docs/reference/settings.md``, the example of a file of variables, the
page and ``claudeops config`` follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, dataclass_transform

import msgspec

HIGHEST_TIER: Final = 9
"""The names of variables have one digit for the tier."""

FILE_SUFFIX: Final = "_FILE"
"""``<secret>_FILE`` names a file that holds the secret."""

HARNESSES: Final = ("claude", "codex", "caliban")
"""The kinds of CLI, the default first."""

GATED: Final = ("claude",)
"""Harnesses that ask before every tool call. The others run only where `CLAUDEOPS_ALLOW_UNGATED` names them."""

PROVIDER_SWITCHES: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
"""Variables that make the ``claude`` CLI call another provider than the Messages API."""

HARNESS_MODELS: Final[Mapping[str, str]] = MappingProxyType({"codex": "gpt-5-codex"})
"""The default model of every tier on these harnesses; other harnesses except ``claude`` have none."""

BROWSER_CREDENTIAL_PREFIX: Final = "BROWSER_CRED_"
"""Prefix of log-ins for a browser. Sessions have none, but the values are still redacted."""

WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CLAUDEOPS_SUMMARY_MODEL": "every session writes its summary itself",
        "CLAUDEOPS_BROWSER_ALLOWED_ORIGINS": "claudeops gives sessions no browser",
    }
)
"""Names that installations may still set, and why nothing reads them. Not an error, so that upgrades do not fail."""

ONE_DAY: Final = 86_400
ONE_MONTH: Final = 31 * ONE_DAY

_SHOWN_CHARACTERS: Final = 80
_KEY_SHAPE: Final = re.compile(r"sk-[A-Za-z0-9_-]{8}")
_VARIABLES: Final = "variables"
_GROUP: Final = "group"
_PLAIN: Final = "plain"
_NAMES: Final = "names, separated by commas"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ValueKind(Enum):
    """What a value must look like, and thereby how it is read; `phrase` says it to the operator."""

    TEXT = auto()
    PROSE = auto()  # may have several lines
    ADDRESS = auto()
    IDENTIFIER = auto()  # of a machine or a place
    MODEL = auto()
    SECONDS = auto()
    WHOLE = auto()
    MONEY = auto()
    SWITCH = auto()
    CHOICE = auto()
    FILE = auto()
    DIRECTORY = auto()
    PROGRAM = auto()
    NAMES = auto()
    TIERS = auto()
    NETWORKS = auto()
    PATHS = auto()
    TOOLS = auto()
    URL = auto()
    SECRET = auto()
    TOKEN = auto()  # a secret that is sent in an HTTP header
    LONG_TOKEN = auto()  # and that others must not find by trying
    SECRET_URL = auto()

    @property
    def phrase(self) -> str:
        """What a value is, in words."""
        return _PHRASES[self]


_PHRASES: Final[Mapping[ValueKind, str]] = {
    ValueKind.TEXT: "text",
    ValueKind.PROSE: "text",
    ValueKind.ADDRESS: "text",
    ValueKind.IDENTIFIER: "a name: letters, digits and . _ : @ -",
    ValueKind.MODEL: "a model name or alias",
    ValueKind.SECONDS: "seconds",
    ValueKind.WHOLE: "a whole number",
    ValueKind.MONEY: "US dollars",
    ValueKind.SWITCH: "true or false",
    ValueKind.CHOICE: "one of the listed words",
    ValueKind.FILE: "path of a file",
    ValueKind.DIRECTORY: "path of a directory",
    ValueKind.PROGRAM: "path of a program, or its name on PATH",
    ValueKind.NAMES: _NAMES,
    ValueKind.TIERS: _NAMES,
    ValueKind.NETWORKS: _NAMES,
    ValueKind.PATHS: "paths, separated by commas",
    ValueKind.TOOLS: "tool names or patterns like `Bash(docker ps:*)`, separated by commas",
    ValueKind.URL: "http:// or https:// URL",
    ValueKind.SECRET: "secret",
    ValueKind.TOKEN: "secret",
    ValueKind.LONG_TOKEN: "secret",
    ValueKind.SECRET_URL: "secret",
}


class Hides(Enum):
    """Where in a value the redactor finds what to hide."""

    NOTHING = auto()  # or what the module that reads it says
    ALL = auto()
    IN_URL = auto()  # password and secret parameters
    NOTICE = auto()  # a URL that is a secret as a whole, and the tokens in its path


class Variable(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """One variable, whose value is a ``T_co``; ``{n}`` in its name stands for the number of a tier."""

    name: str
    kind: ValueKind
    meaning: str
    defaults: tuple[str, ...] = ()  # as an operator would write them; for ``{n}`` one for each tier
    default_note: str = ""  # for the documentation, where the default is computed
    low: float | None = None  # smallest valid value
    high: float | None = None  # greatest valid value
    choices: tuple[str, ...] = ()
    used: bool = True  # False: read and checked, but nothing acts on it yet
    secret: bool = False  # never shown; may come from ``<name>_FILE``
    hides: Hides = Hides.NOTHING
    configuration: bool = False  # a file of the daemon, which no session may see
    below: str = ""  # the variable whose value is greater, always

    @property
    def default(self) -> str | None:
        """The value of an unset variable, if there is one."""
        return self.defaults[0] if self.defaults else None

    @property
    def bounds(self) -> str:
        """What the value must be, as a phrase."""
        if self.choices:
            return ", ".join(self.choices)
        if self.low is not None and self.high is not None:
            unit = "" if self.kind is ValueKind.WHOLE else f" {self.kind.phrase}"
            return f"{self.low:.12g} to {self.high:.12g}{unit}"
        return self.kind.phrase


def prompt_variable(tier: int) -> str:
    """Return the name of the variable for a tier's prompt."""
    return "CLAUDEOPS_PROMPT" if tier == 1 else f"CLAUDEOPS_TIER{tier}_PROMPT"


# --- fields that have variables ----------------------------------------------------------------------


def setting(variable: Variable[T]) -> T:
    """Declare a field that holds what a variable says."""
    shown = not variable.secret and variable.hides is Hides.NOTHING
    declared: T = field(metadata={_VARIABLES: (variable,), _PLAIN: True}, repr=shown)
    return declared


def derived(*variables: Variable[object], shown: bool = True) -> Any:
    """Declare a field that is worked out: from variables, from other fields, from the surroundings.

    ``shown`` is False for what may hold a secret.
    """
    return field(metadata={_VARIABLES: variables}, repr=shown and not any(each.secret for each in variables))


def group(declared: type[T]) -> T:
    """Declare a field that holds a group of fields."""
    holder: T = field(metadata={_GROUP: declared})
    return holder


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(setting, derived, group))
def settings_group(declared: type[T]) -> type[T]:
    """Make a class a group of settings: a frozen dataclass whose ``repr()`` shows no secret."""
    return dataclass(frozen=True, kw_only=True, slots=True)(declared)


def declared_by(holder: type[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Variable[object]]]:
    """Yield each variable that a class's fields have, with the names of the fields that lead to its value."""
    for each in fields(holder):
        own = (*path, each.name)
        if (inner := each.metadata.get(_GROUP)) is not None:
            yield from declared_by(inner, own)
        for variable in each.metadata.get(_VARIABLES, ()):
            yield own, variable


def plain_fields(holder: type[Any]) -> Iterator[tuple[str, Variable[object]]]:
    """Yield the fields of a group that hold just what a variable says, by `setting`."""
    for each in fields(holder):
        if each.metadata.get(_PLAIN):
            yield each.name, each.metadata[_VARIABLES][0]


# --- kinds of variables ------------------------------------------------------------------------------


def seconds(
    name: str, default: str, high: float, meaning: str, *, low: float = 0.1, below: str = ""
) -> Variable[float]:
    """Return a variable for a time; where it is below another one, a default gives way to that."""
    kind = ValueKind.SECONDS
    return Variable(name=name, kind=kind, defaults=(default,), low=low, high=high, meaning=meaning, below=below)


def whole(name: str, defaults: str, low: int, high: int, meaning: str) -> Variable[int]:
    """Return a variable for a whole number; several defaults are those of the tiers."""
    given = tuple(defaults.split())
    return Variable(name=name, kind=ValueKind.WHOLE, defaults=given, low=low, high=high, meaning=meaning)


def money(name: str, defaults: str, meaning: str) -> Variable[float]:
    """Return a variable for US dollars; several defaults are those of the tiers."""
    given = tuple(defaults.split())
    return Variable(name=name, kind=ValueKind.MONEY, defaults=given, low=0.01, high=100_000, meaning=meaning)


def switch(name: str, default: str, meaning: str) -> Variable[bool]:
    """Return a variable that is on or off."""
    return Variable(name=name, kind=ValueKind.SWITCH, defaults=(default,), meaning=meaning)


def choice(name: str, choices: str, meaning: str, *, used: bool = True) -> Variable[str]:
    """Return a variable with a closed set of values; the first one is the default."""
    words = tuple(choices.split())
    return Variable(name=name, kind=ValueKind.CHOICE, defaults=words[:1], choices=words, meaning=meaning, used=used)


def text(name: str, meaning: str, *defaults: str) -> Variable[str | None]:
    """Return a variable for text of one line."""
    return Variable(name=name, kind=ValueKind.TEXT, defaults=defaults, meaning=meaning)


def address(name: str, default: str, meaning: str) -> Variable[str]:
    """Return a variable for an IP address."""
    return Variable(name=name, kind=ValueKind.ADDRESS, defaults=(default,), meaning=meaning)


def identifier(name: str, meaning: str, *defaults: str, note: str = "") -> Variable[str]:
    """Return a variable for the name of a machine or a place; ``note`` says which one it is by default."""
    return Variable(name=name, kind=ValueKind.IDENTIFIER, defaults=defaults, meaning=meaning, default_note=note)


def file(name: str, meaning: str, note: str = "", *, configuration: bool = False) -> Variable[object]:
    """Return a variable for the path of a file; ``note`` says which one it is by default."""
    return Variable(name=name, kind=ValueKind.FILE, meaning=meaning, default_note=note, configuration=configuration)


def configuration(name: str, meaning: str, note: str = "") -> Variable[object]:
    """Return a variable for the path of a file of the daemon."""
    return file(name, meaning, note, configuration=True)


def directory(name: str, meaning: str, note: str = "") -> Variable[object]:
    """Return a variable for the path of a directory."""
    return Variable(name=name, kind=ValueKind.DIRECTORY, meaning=meaning, default_note=note)


def program(name: str, meaning: str, note: str) -> Variable[object]:
    """Return a variable for a program."""
    return Variable(name=name, kind=ValueKind.PROGRAM, meaning=meaning, default_note=note)


def names(name: str, meaning: str) -> Variable[tuple[str, ...]]:
    """Return a variable for names."""
    return Variable(name=name, kind=ValueKind.NAMES, meaning=meaning)


def networks(name: str, meaning: str) -> Variable[tuple[str, ...]]:
    """Return a variable for networks, as CIDR."""
    return Variable(name=name, kind=ValueKind.NETWORKS, meaning=meaning)


def tier_list(name: str, default: str, meaning: str) -> Variable[frozenset[int]]:
    """Return a variable for numbers of tiers."""
    return Variable(name=name, kind=ValueKind.TIERS, defaults=(default,), meaning=meaning)


def tools(name: str, meaning: str) -> Variable[tuple[str, ...]]:
    """Return a variable for tools and patterns of tools."""
    return Variable(name=name, kind=ValueKind.TOOLS, meaning=meaning)


def url(name: str, meaning: str, *, hides: Hides = Hides.NOTHING) -> Variable[str | None]:
    """Return a variable for the address of an HTTP service."""
    return Variable(name=name, kind=ValueKind.URL, meaning=meaning, hides=hides)


def secret(
    name: str, meaning: str, *, kind: ValueKind = ValueKind.SECRET, hides: Hides = Hides.ALL, note: str = ""
) -> Variable[str | None]:
    """Return a variable for a secret, which a file may hold."""
    return Variable(name=name, kind=kind, meaning=meaning, default_note=note, secret=True, hides=hides)


# --- values in messages ------------------------------------------------------------------------------


def quoted(value: str) -> str:
    """Return a wrong value for a message: quoted, on one line, cut to length; never an API key pasted by mistake."""
    if _KEY_SHAPE.search(value):
        return "a value that looks like an API key"
    return repr(value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}…")


def is_text(value: str) -> bool:
    """Return whether a value is valid UTF-8; the interpreter keeps other bytes as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
