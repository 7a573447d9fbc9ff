"""Which allowed calls are looks, and what they look at.

Settled here:

- A look names what it asks, never what it prints: ``curl -w 'shop %{http_code}' http://photos/`` asks photos. Only
  commands that show the state, the log or the answer of something that runs name it; any other look at the machine is
  a look around.
- A command that only prints, computes or waits looks at nothing, and neither does one that reads the operator's
  repositories or the session's own files.
- A command that asks several services is a look at none of them where its status speaks for only one.
- Where a pipe or ``;`` hides the status, a command is known to have run, not to have worked: that is a look around.
- In a container or on another host ``localhost`` is another machine's, and so is every name: a look's names say where
  it was, like the names of actions (`claudeops.policy.identity`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Final

from claudeops.domain.calls import ToolCall
from claudeops.domain.looks import Address, EvidenceLook, address_of
from claudeops.policy.arguments import CheckContext, services_of
from claudeops.policy.identity import command_parts, whole_name
from claudeops.policy.matching import RuleFit
from claudeops.policy.paths import PathContext
from claudeops.policy.policy import NamedTool
from claudeops.policy.rule_book import FIND, XARGS, RuleMatch
from claudeops.policy.rules import (
    Arguments,
    CommandRule,
    Given,
    RuleRefusedError,
    Wrapper,
    assign_kinds,
    read_arguments,
)
from claudeops.policy.shell.language import Certainty, Literal, SimpleCommand
from claudeops.structs import replace

AROUND: Final = EvidenceLook()
"""A look at the machine, or at something that has no name."""

_FILE_KINDS: Final = frozenset({"file", "listing", "archive", "directory", "own", "repo", "project", "manifest"})
_FILE_TOOLS: Final = {"Read": "file_path", "Grep": "path", "Glob": "path", "LS": "path"}

_LOOKS_AT_NOTHING: Final = frozenset(
    {"pwd", "cd", "sleep", "set", "type", "which", "whereis", "command", "wait", "jobs", "times", "umask"}
    | {
        "true",
        "false",
        "echo",
        "printf",
        "test",
        "[",
        "expr",
        "seq",
        "bc",
        "numfmt",
        "cal",
        "date",
        "tee",
        "locale",
        "getconf",
        "ulimit",
        "tty",
    }
    | {"tr", "awk", "gawk", "mawk", "nawk", "sed", "jq", "yq", "openssl", "git", "pip", "pip3", "java", "promtool"}
    | {"crontab"}
)
"""Programs that look at nothing that runs, when they are given neither a name nor a file."""

_AS_COMMANDS: Final = frozenset({"docker version", "docker context show", "docker compose version", "kubectl version"})
_CLIENTS_OWN: Final = (
    "kubectl explain",
    "kubectl api-",
    "kubectl config",
    "kubectl auth",
    "helm version",
)

_NAMED_BY_ARGUMENTS: Final = frozenset(
    f"{program} {each}"
    for program, subcommands in {
        "systemctl": "status|is-active|show|list-units",
        "docker": "logs|inspect|stats|top|port",
        "docker container": "logs|inspect|stats|top|port",
        "docker service": "logs|inspect|ps",
        "docker stack": "ps|services",
        "docker compose": "ps|logs|top|stats|port",
        "kubectl": "get|describe|logs|wait",
        "kubectl top": "pod|pods|po",
        "kubectl rollout": "status",
        "helm": "status",
        "argocd app": "get",
    }.items()
    for each in subcommands.split("|")
) | frozenset({"service", "rc-service", "supervisorctl", "ping", "ping6", "pm2", "virsh", "monit"})
_ONE_AT_A_TIME: Final = frozenset({"systemctl status", "systemctl is-active"})
"""Commands whose status is 0 when any of several services is up."""

_KINDS_OF_NAMES: Final = {  # the kinds under which a program's actions would name the same thing
    "systemctl": ("unit",),
    "journalctl": ("unit",),
    "service": ("unit",),
    "rc-service": ("unit",),
    "kubectl": ("workload", "pod"),
    "helm": ("release",),
}

_NAMED_BY_OPTIONS: Final = {
    "journalctl": frozenset({"--unit", "--user-unit"}),
    "kubectl events": frozenset({"--for"}),
    "docker ps": frozenset({"--filter"}),
    "docker container ls": frozenset({"--filter"}),
    "docker container list": frozenset({"--filter"}),
    "docker container ps": frozenset({"--filter"}),
    "docker compose ps": frozenset({"--filter"}),
    "kubectl get": frozenset({"--selector"}),
    "kubectl describe": frozenset({"--selector"}),
    "kubectl logs": frozenset({"--selector"}),
    **dict.fromkeys(("kubectl top pod", "kubectl top pods", "kubectl top po"), frozenset({"--selector"})),
}
_TYPE_FIRST: Final = frozenset({"kubectl get", "kubectl describe"})
_RUNNING: Final = frozenset(
    {"pods", "pod", "po", "deployments", "deployment", "deploy", "statefulsets", "statefulset", "sts"}
    | {"daemonsets", "daemonset", "ds", "replicasets", "replicaset", "rs", "all"}
)
"""Types of what runs: a ConfigMap says nothing about the service that has its name."""

_FETCHERS: Final = frozenset({"curl", "wget"})
_KNOCKERS: Final = {  # their options for host and port, and the default port
    "pg_isready": ("-h", "-p", 5432),
    "redis-cli": ("-h", "-p", 6379),
    "mysqladmin": ("-h", "-P", 3306),
    "mariadb-admin": ("-h", "-P", 3306),
}
_NO_ANSWERS: Final = frozenset({"systemctl is-failed"})  # succeeds when the service has failed


def look_of(found: RuleMatch, fits: RuleFit, command: SimpleCommand, place: PathContext) -> EvidenceLook | None:
    """Return what a command that fits a rule looks at, or None."""
    if command.certainty is Certainty.NOTHING or command.repeated:
        return None
    if fits.actions or fits.rule.writes or fits.rule.reading == "words":
        return None
    arguments = replace(fits.arguments, options=(*found.given, *fits.arguments.options))
    look = _look(found, fits.rule, arguments, place)
    if look is None or command.certainty is Certainty.RAN:
        return look and AROUND
    return replace(look, hosts=_hosts(place)) if place.where else look


def look_within(
    found: RuleMatch, wrapper: Wrapper, command: SimpleCommand, place: PathContext, looks: Iterable[EvidenceLook]
) -> tuple[EvidenceLook, ...]:
    """Return what the commands in a wrapper look at, where the wrapper's status speaks for theirs."""
    inner = tuple(looks)
    if command.certainty is Certainty.NOTHING or found.path in {XARGS, FIND}:
        return ()
    if wrapper.elsewhere:
        inner = tuple(
            replace(look, addresses=frozenset(each for each in look.addresses if not each.is_local)) for look in inner
        )
    if wrapper.elsewhere and not wrapper.text:  # into a container, which must be running for that
        inner = (_container(found, wrapper, place), *(replace(look, names=frozenset()) for look in inner))
    return (AROUND,) if inner and command.certainty is Certainty.RAN else inner


def look_of_tool(call: ToolCall, place: PathContext) -> EvidenceLook | None:
    """Return what a call of a built-in tool other than Bash looks at, or None."""
    if call.tool_name == "WebFetch":
        address = address_of(str(call.input.get("url", "")))
        return AROUND if address is None else EvidenceLook(addresses=frozenset({address}))
    key = _FILE_TOOLS.get(call.tool_name)
    path = None if key is None else call.input.get(key)
    return AROUND if isinstance(path, str) and _is_foreign(path, place) else None


def look_of_named(named: NamedTool, given: Mapping[str, object]) -> EvidenceLook | None:
    """Return what a call of an MCP server's tool looks at; None if it changes something.

    Only the server knows which key of the input names a service, so every value that is the whole name of one counts.
    """
    if named.action or named.changes:
        return None
    return EvidenceLook(names=frozenset(value for value in given.values() if isinstance(value, str)))


def _container(found: RuleMatch, wrapper: Wrapper, place: PathContext) -> EvidenceLook:
    own = read_arguments(found.arguments, f"{wrapper.options} {found.shared}", "ordered")
    names = [name for text in _texts(own)[:1] for name in _known_as(found.path, text, place)]
    return _at(names, found.path, (*found.given, *own.options), place)


def _texts(arguments: Arguments) -> list[str]:
    return [word.text for word in arguments.positionals if isinstance(word, Literal)]


def _look(found: RuleMatch, rule: CommandRule, arguments: Arguments, place: PathContext) -> EvidenceLook | None:
    path = found.path
    if path in _NO_ANSWERS or (path == "kubectl wait" and _waits_for_its_end(arguments)):
        return None
    if path in _FETCHERS:
        return _fetched(arguments)
    if (knocked := _knocked(path, arguments)) is not None:
        return EvidenceLook(addresses=frozenset({knocked}))
    names = [name for text in _named(found, arguments) for name in _known_as(path, text, place)]
    if names:
        return _at(names, path, arguments.options, place)
    kinds = assign_kinds(rule.arguments, arguments.positionals) if rule.reading != "git" else []
    files = [word.text for kind, word in kinds if kind in _FILE_KINDS and isinstance(word, Literal)]
    if files:
        return AROUND if any(_is_foreign(path, place) for path in files) else None
    return None if _asks_nobody(path, rule) else AROUND


def _at(names: Iterable[str], path: str, given: Given, place: PathContext) -> EvidenceLook:
    """Return a look at these names in this place: on another host or in another project they mean something else."""
    try:
        where = (*place.where, *command_parts(path, given, place))
        return EvidenceLook(names=frozenset(whole_name(where, name) for name in names))
    except RuleRefusedError:  # it is not clear which one it is
        return AROUND


def _hosts(place: PathContext) -> frozenset[str]:
    """Return the host on which a command runs by ssh, without its port; none in a container there."""
    host, _, port = place.where[-1].partition(":")
    return frozenset({host}) if not port or port.isdigit() else frozenset()


def _asks_nobody(path: str, rule: CommandRule) -> bool:
    """Tell whether a command without a name and without a file looks at nothing outside of itself."""
    if path in {"openssl s_client", "df"}:
        return False
    reads_files = any(kind.rstrip("?*+") in _FILE_KINDS for kind in rule.arguments.split())
    program = path.partition(" ")[0]
    return reads_files or program in _LOOKS_AT_NOTHING or path in _AS_COMMANDS or path.startswith(_CLIENTS_OWN)


def _fetched(arguments: Arguments) -> EvidenceLook:
    given = [(option.names, value) for option, value in arguments.options if value is not None]
    urls = [text for names, text in given if "--url" in names] + _texts(arguments)
    # One server may answer for many services: with a Host header the address does not say which one is asked.
    named = any("--header" in names and text.lower().startswith("host") for names, text in given)
    address = address_of(urls[0]) if len(urls) == 1 and not named else None
    return AROUND if address is None else EvidenceLook(addresses=frozenset({address}))


def _knocked(path: str, arguments: Arguments) -> Address | None:
    """Return the address that a command with a host and a port asks, or None."""
    words = _texts(arguments)
    values = {name: value for option, value in arguments.options if value is not None for name in option.names}
    if path in {"nc", "ncat", "netcat"}:
        host, port = (words[0], words[1]) if len(words) == 2 else ("", "")  # noqa: PLR2004 - HOST PORT, and no range
    elif path == "openssl s_client":
        host, _, port = values.get("-connect", "").rpartition(":")
    elif path in _KNOCKERS:
        of_host, of_port, usual = _KNOCKERS[path]
        host, port = values.get(of_host, ""), values.get(of_port, str(usual))
    else:
        return None
    return address_of(f"{host}:{port}") if host and port.isascii() and port.isdigit() else None


def _named(found: RuleMatch, arguments: Arguments) -> list[str]:
    """Return the names in a command, as written."""
    path = found.path
    words = _texts(arguments) if path in _NAMED_BY_ARGUMENTS else []
    if path in _TYPE_FIRST and words and "/" not in words[0]:
        words = words[1:] if words[0].lower().partition(".")[0] in _RUNNING else []
    if path in _ONE_AT_A_TIME and len(arguments.positionals) != 1:
        words = []
    wanted = _NAMED_BY_OPTIONS.get(path, frozenset())
    for option, value in arguments.options:
        if value is not None and wanted & set(option.names):
            words.append(_filtered(option.names, value))
    return [text for text in words if text]


def _known_as(path: str, text: str, place: PathContext) -> set[str]:
    """Return the names that the actions of the same program would use for something."""
    setting = CheckContext(place=place)
    kinds = _KINDS_OF_NAMES.get(path.partition(" ")[0], ("container",))
    return {name for kind in kinds for name in services_of(kind, text, setting) if name}


def _filtered(names: tuple[str, ...], text: str) -> str:
    """Return the name in ``name=^shop$`` of a filter or ``app=shop`` of a selector, or ""."""
    if "--filter" in names:
        key, _, value = text.partition("=")
        return value.strip("^/$") if key == "name" else ""
    return text.rpartition("=")[2] if "--selector" in names else text


def _waits_for_its_end(arguments: Arguments) -> bool:
    return any("--for" in option.names and (value or "").startswith("delete") for option, value in arguments.options)


def _is_foreign(path: str, place: PathContext) -> bool:
    """Whether a file belongs neither to the operator's repositories nor to the session itself."""
    if not place.local:
        return bool(path)
    if not path.startswith("/"):  # below one of the session's own directories, or an unknown one
        return False
    plain = posixpath.normpath(path)
    scope = place.scope
    own = (scope.repos_dir, scope.workdir, scope.tmpdir, scope.home, "/dev")
    return not any(plain == root or plain.startswith(f"{root.rstrip('/')}/") for root in own)
