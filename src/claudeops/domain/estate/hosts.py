"""The hosts that a manifest or compose file names, in columns, addresses and commands; and the directories.

A host is taken lower case, without user, port and brackets. Wildcards, networks, and what is never asked (metadata and
link-local addresses) are no hosts of an estate, whoever writes them down. The ports that are named with hosts are kept
beside them.

A directory is an absolute path anywhere in a text, but not within an address; a file of YAML, as compose files are,
names the directory that it is in.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.domain.estate import words
from claudeops.domain.estate.strangers import is_loopback
from claudeops.domain.estate.words import word_set
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.structs import replace
from claudeops.text import regex

_URL: Final = regex.Pattern(
    r"""(?i)\b([a-z][a-z0-9+.-]{1,20})://(?:[^\s/?#@`'"<>|]*@)?(\[[^\]\s]*\]|[^\s/?#:`'"<>()|,;\\]+)?(:\d{1,5})?"""
    r"""([/?#][^\s`'"<>|]*)?"""
)
_HOST_PORT: Final = regex.Pattern(
    r"(?i)(?:[\w.+-]+@)?(\[[0-9a-f:.]+\]|[a-z0-9*](?:[a-z0-9._*-]*[a-z0-9])?):(\d{1,5})(?:/\S*)?"
)
_HOST: Final = regex.Pattern(r"(?i)(?:[\w.+-]+@)?(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9])?\.?)")
_IPV6: Final = regex.Pattern(r"(?i)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}")
_NETWORK: Final = regex.Pattern(r"(?i)[0-9a-f.:]+/\d{1,3}")
_USER: Final = regex.Pattern(r"://[^\s/?#@`'\"<>|]*@")
_COLUMN_PORT: Final = regex.Pattern(r"(?i)(\d{1,5})(?:/tcp)?")
_BETWEEN_PORTS: Final = regex.Pattern(r"[\s,;`()]+")
_LEFT_OPEN: Final = regex.Pattern(r"\$\{|\{\{|\$\(|<[a-z_ -]+>|\$[A-Z_]+")
_CODE: Final = regex.Pattern(r"`([^`]+)`")
_TOKENS: Final = regex.Pattern(r"[\s'\"]+")

PORTS: Final[Mapping[str, int]] = {
    "http": 80,
    "ws": 80,
    "https": 443,
    "wss": 443,
    "grpc": 443,
    "ftp": 21,
    "ssh": 22,
    "sftp": 22,
    "telnet": 23,
    "postgres": 5432,
    "postgresql": 5432,
    "mysql": 3306,
    "mariadb": 3306,
    "redis": 6379,
    "rediss": 6379,
    "valkey": 6379,
    "mongodb": 27017,
    "amqp": 5672,
    "amqps": 5671,
    "nats": 4222,
    "kafka": 9092,
    "mqtt": 1883,
    "mqtts": 8883,
    "ldap": 389,
    "ldaps": 636,
    "smtp": 25,
    "smtps": 465,
    "submission": 587,
    "imap": 143,
    "imaps": 993,
    "pop3": 110,
    "pop3s": 995,
    "memcached": 11211,
    "clickhouse": 9000,
    "git": 9418,
    "rsync": 873,
}
"""The port of a URL that names none, by its scheme."""

_LARGEST_PORT: Final = 65535
_ELSEWHERE: Final = regex.Pattern(
    r"(?:^|[^\w.-])(?:ssh|mosh|(?:docker|podman|compose|kubectl|pct|lxc) exec|lxc-attach)\s"
)
"""What follows runs on another host or in a container, where ``localhost`` is not this machine."""

_PROGRAMS: Final[Mapping[str, int]] = {
    "ssh": 22,
    "scp": 22,
    "sftp": 22,
    "mosh": 22,
    "telnet": 23,
    "curl": 80,
    "wget": 80,
    "http": 80,
    "https": 443,
    "xh": 80,
    "psql": 5432,
    "pg_isready": 5432,
    "pg_dump": 5432,
    "mysql": 3306,
    "mysqladmin": 3306,
    "mariadb": 3306,
    "mariadb-admin": 3306,
    "redis-cli": 6379,
    "valkey-cli": 6379,
    "mongosh": 27017,
}
"""The port that a program connects to unless an option says another one."""

_NAMES_PORT: Final = frozenset({"-p", "-P", "--port"})
_PORT_FOLLOWS: Final = frozenset({"nc", "ncat", "telnet"})  # ``nc -z host port``
_NO_PORT: Final = frozenset({"ping", "ping6", "dig", "host", "nslookup", "traceroute"})
_BEFORE: Final = frozenset({"|", "&&", ";", "sudo"})  # a program
_BETWEEN: Final = _BEFORE | {"||", "&"}  # the programs of a command line

_WITH_VALUE: Final = word_set(
    "-p -i -l -o -F -J -L -R -D -b -c -e -m -S -W -w -E -I -O -Q -B -U -d -n -t -q",
)
_ASKS_FIRST: Final = frozenset(
    {"ssh", "ping", "ping6", "nc", "ncat", "telnet", "dig", "host", "nslookup", "traceroute", "mosh"}
)
_NAMES_HOST: Final = frozenset({"-h", "--host", "-connect", "-servername", "-J", "--hostname", "-H"})
_ASKS_URL: Final = frozenset({"curl", "wget", "http", "https", "xh"})
_NO_HOST: Final = word_set(
    "docker podman container compose systemd kubernetes k8s cluster pod helm lxc vm local here everywhere "
    "all both swarm nomad in on the at of host hosts server machine node behind via",
)
_PATH: Final = regex.Pattern(r"""(?m)(?:^|[\s`'"(\[|=:,])((?:/[\w.@+-]+)+)""")
_MOST_DIRECTORIES: Final = 500  # of one manifest
_LONGEST_PATH: Final = 500  # characters
_LINKING: Final = words.word_set("in on the at of via behind host hosts")
_MOST_COMMANDS: Final = 20  # in one text


class FoundHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts in a text, and what stands in place of one and is none."""

    hosts: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()  # sentences
    ports: tuple[tuple[str, int], ...] = ()  # hosts, each with a TCP port that is named with it

    def __add__(self, other: FoundHosts) -> FoundHosts:
        """Return both."""
        return FoundHosts(
            hosts=(*self.hosts, *other.hosts), faults=(*self.faults, *other.faults), ports=(*self.ports, *other.ports)
        )

    def seen_from(self, place: str) -> FoundHosts:
        """Return the same with ``place``, unless it is "", for a machine that calls itself localhost."""
        if not place:
            return self
        ports = tuple((place if is_loopback(name) else name, port) for name, port in self.ports)
        return replace(self, ports=ports)


def plain_host(written: str) -> str:
    """Return a host as it is compared: lower case, without user and brackets."""
    return written.rpartition("@")[2].strip("[]").rstrip(".").lower()


def host(written: str, port: int = 0) -> FoundHosts:
    """Return the one host that a word is, with a port unless that is 0, or why it is none."""
    name = plain_host(written)
    if "*" in name:
        return FoundHosts(faults=(f"{written} is a wildcard, and no host: name the hosts themselves",))
    refused = refuse_host(name)
    if refused is not None:
        remedy = "" if ": " in refused else ": name a host that may be asked, or leave it out"
        return FoundHosts(faults=(f"{refused}{remedy}",))
    if len(name) > words.LONGEST_NAME * 2:
        return FoundHosts(faults=(f"{name[:40]}… is too long for a host: name it shorter",))
    return FoundHosts(hosts=(name,), ports=((name, port),) if 0 < port <= _LARGEST_PORT else ())


def address_in(text: str) -> str:
    """Return the first URL or ``host:port`` in a text, or ""."""
    for found in _URL.finditer(text):
        if found[2] and not _LEFT_OPEN.search(found[0]):
            return found[0].rstrip(".,;:!)")
    return next((word for word in _words(text) if _HOST_PORT.fullmatch(word) and not _is_time(word)), "")


def without_user(text: str) -> str:
    """Return a text whose URLs have no user and password."""
    return _USER.sub("://", text)


def in_address(text: str) -> FoundHosts:
    """Return the hosts of an address or a check: of URLs, ``host:port`` and commands."""
    found = _of_urls(text)
    rest = _URL.sub(" ", text)
    commands = [match[1] for match in _CODE.finditer(rest)][:_MOST_COMMANDS] or [rest]
    for command in commands:
        for name, port in _of_command(command):
            found += host(name, port)
    for word in _words(rest):
        named = _HOST_PORT.fullmatch(word)
        if named is not None and not _is_time(word):
            found += host(named[1], int(named[2]))
    if _ELSEWHERE.search(text):
        found = replace(found, ports=tuple(pair for pair in found.ports if not is_loopback(pair[0])))
    return found


def in_column(text: str) -> FoundHosts:
    """Return the hosts of a column that says where something runs. A word for a platform is no host and no fault."""
    if words.is_nothing(text):
        return FoundHosts()
    found = _of_urls(text)
    if found.hosts or found.faults:
        return found
    for piece in words.fragments(words.linked(text).replace("(", ", ").replace(")", " ")):
        for name in words.names_in(piece) if "/" not in piece else [words.plain(piece)]:
            found += _in_piece(name)
    return found


def in_port_column(text: str, place: str) -> FoundHosts:
    """Return the ports of a column such as ``80, 443/tcp``, as those of the host ``place``."""
    found = map(_COLUMN_PORT.fullmatch, _BETWEEN_PORTS.split(text[: words.LONGEST_TEXT]))
    numbers = (int(port[1]) for port in found if port is not None)
    return FoundHosts(ports=tuple((place, port) for port in numbers if 0 < port <= _LARGEST_PORT))


def _in_piece(piece: str) -> FoundHosts:
    """Return the host in a few words such as ``docker on web1``."""
    pieces = piece.split()
    if len(pieces) != 1:
        after = [pieces[place + 1] for place, word in enumerate(pieces[:-1]) if word.casefold() in {"on", "host", "at"}]
        if after and after[-1].casefold() not in _NO_HOST:
            return _in_piece(after[-1])
        known = any(word.strip("`").casefold() in _NO_HOST - _LINKING for word in pieces)
        return FoundHosts() if known or not pieces else _no_host(piece)
    word = pieces[0]
    if word.casefold() in _NO_HOST:
        return FoundHosts()
    if _NETWORK.fullmatch(word):
        return FoundHosts(faults=(f"{word} is a network, and no host: name the hosts themselves",))
    port = _HOST_PORT.fullmatch(word)
    if port is not None or "*" in word or _HOST.fullmatch(word) or _IPV6.fullmatch(word):
        return host(port[1], int(port[2])) if port is not None else host(word)
    return _no_host(word)


def _no_host(text: str) -> FoundHosts:
    return FoundHosts(faults=(f"{text[: words.LONGEST_NAME]!r} is not a host: write its name or address alone",))


def _of_urls(text: str) -> FoundHosts:
    found = FoundHosts()
    for url in _URL.finditer(text):
        if _LEFT_OPEN.search(text[url.start() : url.end() + 3]):
            found += FoundHosts(
                faults=("this address has a gap to be filled in, such as {{ or ${: write the host out",)
            )
        elif url[2]:
            found += host(url[2], int(url[3][1:]) if url[3] else port_of(url[1]))
    return found


def port_of(scheme: str) -> int:
    """Return the port that a scheme such as ``https``, ``postgresql+psycopg`` or ``git+ssh`` means; 0: not known."""
    names = (scheme.lower(), *reversed(scheme.lower().split("+")))
    return next((PORTS[name] for name in names if name in PORTS), 0)


def _of_command(command: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts that a command line names, each with the port that it is about; 0: none is known."""
    tokens = _TOKENS.split(command.strip())
    for place, word in enumerate(tokens[:-1]):
        following = tokens[place + 1]
        if word in _NAMES_HOST and _is_host(following):
            usual = PORTS["ssh"] if word == "-J" else _port_of_program(tokens, place)
            yield from (_with_port(hop, usual) for hop in following.split(","))
        elif word.startswith("--host="):
            named = word.partition("=")[2]
            yield from [(named, _port_of_program(tokens, place))] if _is_host(named) else []
        elif word in _ASKS_FIRST and (place == 0 or tokens[place - 1] in _BEFORE):
            yield from _first_argument(tokens, place)
        elif word in _ASKS_URL:
            yield from ((_bare(each), _PROGRAMS[word]) for each in tokens[place + 1 :] if _is_bare_address(each))


def _with_port(hop: str, usual: int) -> tuple[str, int]:
    """Return host and port of ``user@host:port``; ``usual``: the port where none is written."""
    name, _, port = hop.rpartition("@")[2].partition(":")
    return name, int(port) if port.isdecimal() else usual


def _first_argument(tokens: list[str], place: int) -> Iterator[tuple[str, int]]:
    skip = False
    for index in range(place + 1, len(tokens)):
        token = tokens[index]
        if skip or token.startswith("-"):
            skip = not skip and token in _WITH_VALUE
            continue
        if _is_host(token):
            port = _port_of_program(tokens, place)
            if tokens[place] in _PORT_FOLLOWS:
                port = _number(tokens[index + 1 : index + 2]) or port
            yield token.rpartition("@")[2], port
        return


def _port_of_program(tokens: Sequence[str], place: int) -> int:
    """Return the port that the program of this place connects to, by an option or by itself; 0: none is known."""
    start = next((index + 1 for index in range(place - 1, -1, -1) if tokens[index] in _BETWEEN), 0)
    end = next((index for index in range(place + 1, len(tokens)) if tokens[index] in _BETWEEN), len(tokens))
    program = posixpath.basename(tokens[start])
    if program in _NO_PORT:
        return 0
    for index in range(start, end):
        if tokens[index] in _NAMES_PORT and (port := _number(tokens[index + 1 : end][:1])):
            return port
        if tokens[index].startswith("--port="):
            return _number([tokens[index].partition("=")[2]])
    return _PROGRAMS.get(program, 0)


def _number(words: Sequence[str]) -> int:
    word = words[0].rstrip(";") if words else ""
    return int(word) if word.isdecimal() and len(word) <= len(str(_LARGEST_PORT)) else 0


def _is_host(word: str) -> bool:
    return (_HOST.fullmatch(word) is not None or _HOST_PORT.fullmatch(word) is not None) and not word.isdecimal()


def _is_bare_address(word: str) -> bool:
    head = word.partition("/")[0]
    return "." in head and "/" in word and _HOST.fullmatch(head) is not None and not head.startswith(".")


def _bare(word: str) -> str:
    return word.partition("/")[0]


def _words(text: str) -> list[str]:
    return [word.strip("`'\"()<>.,;") for word in text.split()]


def _is_time(word: str) -> bool:
    """Whether ``03:00`` is meant, which looks like a host with a port."""
    head, _, tail = word.partition(":")
    return head.isdecimal() and tail.isdecimal()


def directories_in(text: str) -> tuple[str, ...]:
    """Return the directories that a text names, each once."""
    found: dict[str, None] = {}
    for path in _PATH.finditer(text):
        directory = _directory(path[1].rstrip("."))
        if directory and len(found) < _MOST_DIRECTORIES:
            found[directory] = None
    return tuple(found)


def _directory(path: str) -> str:
    if len(path) > _LONGEST_PATH or ".." in path.split("/"):
        return ""
    plain = posixpath.normpath(path)
    plain = posixpath.dirname(plain) if plain.endswith((".yml", ".yaml")) else plain
    return "" if plain == "/" else plain
