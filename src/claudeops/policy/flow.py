"""Keeps what was read from flowing into what sends: the words and the input of a command that uses the network.

A model may send what it knows to the hosts that its tier may reach; `claudeops.policy.reach` judges that. This
module is about what the model has never seen: the output of a command, a file or a variable that the shell passes to a
program which carries it away. So what is sent, and what is fed to the sender, must be written out in the command.
"""

from __future__ import annotations

from typing import Final

from claudeops.policy.rules import UnclearCommandError
from claudeops.policy.shell.language import Literal, SimpleCommand, shown

_SENDERS: Final = frozenset(
    {"curl", "wget", "nc", "ncat", "netcat", "socat", "telnet", "ftp", "sftp", "grpcurl", "websocat"}
    | {"dig", "delv", "drill", "kdig", "nslookup", "host", "resolvectl", "whois"}
    | {"ping", "ping6", "traceroute", "traceroute6", "tracepath", "mtr"}
    | {"psql", "mysql", "mariadb", "redis-cli", "mongosh", "aws", "gcloud", "az"}
)
_SENDERS_BY_PATH: Final = frozenset({"openssl s_client"})
_PRINTERS: Final = frozenset({"echo", "printf", "true", "false", ":", "sleep", "yes", "seq"})
"""Commands that print only what they are given."""

_EMPTY: Final = "/dev/null"


def refuse_sending(path: str, command: SimpleCommand) -> str | None:
    """Return why a command that sends may not run like this, or None; ``path`` is its name with its subcommand.

    Raises `UnclearCommandError` for unknown words: a person who is asked may know better.
    """
    if path not in _SENDERS_BY_PATH and path.partition(" ")[0] not in _SENDERS:
        return None
    for word in command.argv[1:]:
        if not isinstance(word, Literal):
            raise UnclearCommandError(
                f"{path} may send only what is written out: write the value of {shown(word)[:60]}"
            )
    if path in _SENDERS_BY_PATH and not _is_quiet(command):
        return f"{path} would send what it is fed: add </dev/null"
    return _refuse_input(path, command)


def _is_quiet(command: SimpleCommand) -> bool:
    """Whether a command's input is empty, or an empty line, or the ``Q`` that ends a connection."""
    words = {shown(word).rpartition("/")[2] for feed in command.feeds for word in feed.argv}
    inputs = [each for feed in (*command.feeds, command) for each in feed.redirections if each.operator == "<"]
    empty = all(each.target.text == _EMPTY for each in inputs)
    fed = command.stdin is None or command.stdin.strip() in {"", "Q"}
    return fed and empty and (words <= {"echo", "true", ":", "Q", ""} or bool(inputs))


def refuse_feeding(path: str, command: SimpleCommand) -> str | None:
    """Return why a command's input may not go to another host or into a container, or None."""
    options = {shown(word) for word in command.argv[1:]}
    if path == "ssh":
        reads = "-n" not in options
    elif path.endswith(" exec") and path != "docker compose exec":
        reads = bool(options & {"-i", "-it", "-ti", "--interactive", "--stdin"})
    else:
        reads = True
    return _refuse_input(path, command) if reads else None


def _refuse_input(path: str, command: SimpleCommand) -> str | None:
    inputs = [each for each in command.redirections if each.operator == "<"]
    if any(each.target.text != _EMPTY for each in inputs):
        return f"{path} may not be fed from a file: add </dev/null"
    if inputs or command.stdin is not None or all(map(_prints_literals, command.feeds)):
        return None
    return f"{path} may not be fed what another command prints or what a file holds: add </dev/null"


def _prints_literals(feed: SimpleCommand) -> bool:
    """Whether a command in front of a pipe prints only what is written out in the text."""
    if any(each.operator == "<" and each.target.text != _EMPTY for each in feed.redirections):
        return False
    if not feed.argv:
        return True
    name = feed.name.rpartition("/")[2]
    if name == "cat" and len(feed.argv) == 1:
        return feed.stdin is not None or not feed.piped or all(map(_prints_literals, feed.feeds))
    return name in _PRINTERS and all(isinstance(word, Literal) for word in feed.argv)
