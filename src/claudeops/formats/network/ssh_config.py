"""An ssh configuration (ssh_config(5)), as far as it says which hosts it is for and where a connection to one goes.

For each keyword the first value counts. What only ssh can know (included files, most conditions of ``Match``) is left
out, and the configuration is then not whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from glob import escape, has_magic
from typing import Final

import msgspec

from claudeops.domain.estate import hosts
from claudeops.domain.estate.hosts import PORTS
from claudeops.text import glob, regex

_NOT_WHOLE: Final = frozenset({"include", "match", "userknownhostsfile", "knownhostscommand"})
_MOST_HOPS: Final = 16  # of one connection
_LARGEST_PORT: Final = 65535
_PATTERN: Final = frozenset("*?!")
_AGENT: Final = "SSH_AUTH_SOCK"
_BLANK: Final = " \t"
_ENDS_OF_KEYWORD: Final = str.maketrans("\t=", "  ")
_COMMANDS: Final = frozenset({"proxycommand", "localcommand", "remotecommand"})  # a # in them is theirs
_HOME: Final = ("~/", "%d/", "${HOME}/")
_TOKEN: Final = regex.Pattern(r"%[A-Za-z]|\$\{[^}]*\}")


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """What an ssh configuration says about some hosts."""

    patterns: tuple[str, ...]
    options: dict[str, str]  # by keyword in lower case; the first value counts

    def matches(self, host: str) -> bool:
        plain = [pattern for pattern in self.patterns if not pattern.startswith("!")]
        unwanted = [pattern[1:] for pattern in self.patterns if pattern.startswith("!")]
        return any_matches(host, plain) and not any_matches(host, unwanted)

    @property
    def is_for_all(self) -> bool:
        return "*" in self.patterns


class SshConfig:
    """A configuration that was read."""

    def __init__(self, text: str) -> None:
        self.is_whole = True  # nothing is included or depends on what only ssh knows
        self._blocks = list(self._read(text))

    def _read(self, text: str) -> Iterator[_Block]:
        block = _Block(patterns=("*",), options={})
        yield block
        for line in text.split("\n"):
            keyword, value = option_in(line)
            self.is_whole &= keyword not in _NOT_WHOLE
            if keyword in {"host", "match"}:
                patterns = value.lower().split() if keyword == "host" else _condition(value)
                block = _Block(patterns=tuple(patterns), options={})
                yield block
            elif keyword and keyword not in _NOT_WHOLE and not keyword.startswith("#"):
                block.options.setdefault(keyword, value)

    def names_key(self) -> bool:
        """Whether it names a key or an agent for some host."""
        return any("identityfile" in block.options or "identityagent" in block.options for block in self._blocks)

    def names_other_agent(self) -> bool:
        """Whether it has ssh use none of the keys of the agent that its environment names, for some host."""
        named = (block.options.get("identityagent", _AGENT) for block in self._blocks)
        return any(name.lstrip("$") != _AGENT for name in named)

    def has_entry(self, host: str) -> bool:
        """Whether some block is about this host, and not about all of them."""
        return any(
            (block.matches(host) and not block.is_for_all) or block.options.get("hostname", "").lower() == host
            for block in self._blocks
        )

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that it has entries for, without patterns."""
        named = (pattern for block in self._blocks for pattern in block.patterns)
        return tuple(dict.fromkeys(name for name in named if not _PATTERN & {*name}))

    def aliases(self, hosts: Iterable[str]) -> Iterator[tuple[str, tuple[str, int]]]:
        """Yield the names under which it looks up the keys of hosts, each with where it connects to for it."""
        for host in dict.fromkeys(hosts):
            if alias := self.option(host, "hostkeyalias").lower():
                yield alias, self._end(host, 0)

    def option(self, host: str, keyword: str) -> str:
        """Return the value of a keyword for a host, "" where it has none."""
        found = (block.options[keyword] for block in self._blocks if keyword in block.options and block.matches(host))
        return next(found, "")

    def route(self, host: str) -> tuple[tuple[str, int], ...]:
        """Return where ``ssh HOST`` connects to: hosts and ports, the host's own and those of its jump hosts."""
        found: dict[tuple[str, int], None] = {}
        waiting = [(host, 0)]
        while waiting and len(found) < _MOST_HOPS:
            name, port = waiting.pop(0)
            hop = self._end(name, port)
            if hop not in found:
                found[hop] = None
                waiting += self._jumps(name)
        return tuple(found)

    def _end(self, host: str, port: int) -> tuple[str, int]:
        real = self.option(host, "hostname").replace("%%", "\0").replace("%h", host).replace("\0", "%")
        return hosts.plain_host(real or host), port or _port(self.option(host, "port")) or PORTS["ssh"]

    def _jumps(self, host: str) -> list[tuple[str, int]]:
        jump = self.option(host, "proxyjump")
        if jump.lower() == "none":
            return []
        if jump:
            return [_hop(each.strip()) for each in jump.split(",") if each.strip()]
        command = hosts.in_address(self.option(host, "proxycommand"))
        ports = dict(command.ports)
        return [(name, ports.get(name, 0)) for name in command.hosts]


def option_in(line: str) -> tuple[str, str]:
    """Return the keyword of a line, in lower case, and its value without quotes; "" for what it has not."""
    text = line.strip()
    end = len(text.translate(_ENDS_OF_KEYWORD).partition(" ")[0])
    keyword, value = text[:end].lower(), text[end:].lstrip(_BLANK).removeprefix("=").strip(_BLANK)
    if value.startswith('"') and '"' in value[1:]:
        inside, _, behind = value[1:].partition('"')
        return keyword, inside if not behind or behind.lstrip(_BLANK).startswith("#") else value.strip('"')
    if keyword not in _COMMANDS:
        value = value.replace("\t#", " #").partition(" #")[0].rstrip(_BLANK)
    return keyword, value.strip('"')


def identity_files(text: str) -> tuple[str, ...]:
    """Return which files a configuration names as keys, whatever hosts they are for, as globs of the shell.

    Relative ones are below the home. What only ssh knows at a connection, such as the host's name, counts as anything.
    """
    values = [value for keyword, value in map(option_in, text.split("\n")) if keyword == "identityfile"]
    return tuple(dict.fromkeys(found for value in values if (found := _file_glob(value))))


def known_hosts_files(text: str) -> tuple[str, ...]:
    """Return which files of known hosts a configuration names, as `identity_files` does, but none by a pattern."""
    values = [value for keyword, value in map(option_in, text.split("\n")) if keyword == "userknownhostsfile"]
    globs = (_file_glob(word.strip('"')) for value in values for word in value.split())
    return tuple(dict.fromkeys(found for found in globs if found and not has_magic(found)))


def any_matches(host: str, patterns: Iterable[str]) -> bool:
    """Whether some pattern of ssh matches: brackets stand for themselves there, as in ``[host]:port``."""
    return any(glob.matches(host, pattern.replace("[", "[[]")) for pattern in patterns)


def _file_glob(value: str) -> str:
    """Return the glob of a file that is named; "" where it depends on the directory that ssh is started in."""
    start = next((start for start in _HOME if value.startswith(start)), "")
    if not start and not value.startswith("/"):
        return ""
    value = value[len(start) :].lstrip("/") if start else value
    return _TOKEN.sub("*", escape(value.replace("%%", "\0"))).replace("\0", "%")


def _condition(value: str) -> list[str]:
    """Return the patterns of a ``Match`` that asks for the host alone; of any other none, so that it is for no host."""
    words = value.lower().split()
    if words == ["all"]:
        return ["*"]
    if len(words) == 2 and words[0] in {"host", "originalhost"}:  # noqa: PLR2004 - criterion and patterns
        return words[1].split(",")
    return []


def _hop(written: str) -> tuple[str, int]:
    """Return host and port of ``user@host:port`` and ``ssh://…``; 0: it names no port."""
    place = written.removeprefix("ssh://").rstrip("/").rpartition("@")[2]
    if place.startswith("["):
        name, _, rest = place[1:].partition("]")
        return name.lower(), _port(rest.removeprefix(":"))
    name, _, rest = place.partition(":")
    return name.lower(), _port(rest)


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) <= len(str(_LARGEST_PORT)) else 0
    return number if number <= _LARGEST_PORT else 0
