"""Which service an action is about: its name, and where it runs.

A service that runs plainly on this machine has its name alone: ``web``. What lies between the session and a service
is put in front of the name, one part for each step, so that two services that share a name never count as one::

    web1/web                          on another host, by ssh; web1:2222/web at another port; a/b/web through a
    project:media/web                 in a compose project: -p, or the directory of the compose file
    namespace:media/web               in a namespace of the cluster, or of nerdctl
    context:prod/namespace:media/web  in another cluster
    container:app/worker              in a container or pod
    user:ops/web                      a unit of a user
    engine:prod/web                   of another container engine

Hosts are compared as written, in lower case; whether two names mean the same host cannot be known here. A name with two
readings is two services (a pod's), or may be looked at and not acted on (what could be the beginning of an id).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

from claudeops.domain.estate.service_names import ServiceNames
from claudeops.domain.estate.strangers import Stranger
from claudeops.policy import paths
from claudeops.policy.paths import PathContext
from claudeops.policy.rule_book import RuleMatch
from claudeops.policy.rules import Arguments, Given, Option, RuleRefusedError
from claudeops.policy.shell.language import shown
from claudeops.structs import replace
from claudeops.text import regex

LONGEST: Final = 255  # characters of a whole name; a column holds no more, and cutting could merge two services

_LOCAL: Final = regex.Pattern(r"localhost(?:\.localdomain)?|127(?:\.\d{1,3}){3}|\[::1\]")
_CLUSTER_TOOLS: Final = frozenset({"kubectl", "helm", "flux", "argocd", "oc"})
_USUAL_PORTS: Final = frozenset({"", "22"})
_REPLICASETS: Final = frozenset({"replicasets", "replicaset", "rs", "jobs", "job"})
_PODS: Final = frozenset({"", "pods", "pod", "po"})
_BY_ID: Final = frozenset({"docker exec", "docker container exec"})

_GENERATED: Final = regex.Pattern(r"(.+)-[bcdfghjklmnpqrstvwxz0-9]{5}")  # Kubernetes' own alphabet
_HASH: Final = regex.Pattern(r"(.+)-[bcdf4-9]{8,10}")  # of a template: decimal digits, written in these letters
_MAYBE: Final = regex.Pattern(r"(.+)-(?:[bcdf4-9]{1,7}|\d{1,10})")  # a short hash, a CronJob's minutes, or a name
_ORDINAL: Final = regex.Pattern(r"(.+)-\d{1,4}")  # of a StatefulSet's pod
_CONTAINER_ID: Final = regex.Pattern(r"[0-9a-f]{1,64}")  # or the beginning of one


def command_parts(path: str, given: Given, place: PathContext) -> tuple[str, ...]:
    """Return where a command's services are, relative to where it runs. Raises `RuleRefusedError` when in doubt."""
    tool = path.partition(" ")[0]
    if tool in _CLUSTER_TOOLS:
        if any({"-A", "--all-namespaces"} & set(option.names) for option, _ in given):
            raise RuleRefusedError("name one namespace: an action is about one service")
        return (
            *_part("context", _only(given, "--context", "--kube-context")),
            *_part("namespace", _only(given, "--namespace")),
        )
    if tool == "systemctl" and any("--user" in option.names for option, _ in given):
        return (f"user:{place.user or 'self'}",)
    if tool != "docker":
        return _part("machine", _only(given, "--machine")) + _part("engine", _only(given, "--host"))
    engine = _part("engine", _only(given, "--context", "--connection")) + _part("engine", _only(given, "--host"))
    engine += _part("namespace", _only(given, "--namespace"))
    if path.startswith("docker compose "):
        return (*engine, *_part("project", _project(given, place)))
    return engine


def wrapper_parts(path: str, arguments: Arguments, given: Given, place: PathContext) -> tuple[str, ...]:
    """Return where a wrapper's inner command runs, relative to where the wrapper itself runs."""
    options = (*given, *arguments.options)
    named = shown(arguments.positionals[0]) if arguments.positionals else ""
    if path == "ssh":
        jump = _only(options, "-J")
        port = _only(options, "-p")
        way = (*_host(jump or "localhost", ""), *_host(named, port))
        return way[1:] if way[:1] == place.where[-1:] else way  # from a host to itself
    if path == "lxc-attach":
        named = _only(options, "--name")
        if not named:
            raise RuleRefusedError("name the container: lxc-attach --name=NAME -- COMMAND")
        return _part("container", named)
    if path.endswith(" exec"):
        if "/" in named and not path.startswith("kubectl"):  # the client takes ``x/../db`` for db
            raise RuleRefusedError(f"{named!r} is not a plain container name")
        owner = _workload(named) if path.startswith("kubectl") else named
        return (*command_parts(path, options, place), *_part("container", owner))
    return ()


def uncertainty(found: RuleMatch, arguments: Arguments, place: PathContext) -> str:
    """Return why an action within a wrapper could be one on another service than it says, or ""."""
    named = shown(arguments.positionals[0]) if arguments.positionals else ""
    if found.path in _BY_ID:
        return refuse_id(named, place.services, f"docker compose -p PROJECT exec {named}") or ""
    if found.path == "docker compose exec":
        return refuse_project(found, place) or ""
    return ""


def refuse_id(name: str, services: ServiceNames, instead: str) -> str | None:
    """Return why a name may not be given to an engine that also knows its containers by the beginnings of ids."""
    if not _CONTAINER_ID.fullmatch(name) or services.knows(name):
        return None
    return f"{name} could be the beginning of a container's id: name it in a CLAUDE-OPS.md, or write {instead}"


def pod_owners(name: str) -> tuple[str, ...]:
    """Return what a pod may belong to, by its name: two where its end could be a hash and part of a name as well."""
    generated = _GENERATED.fullmatch(name)
    if generated:
        return _template_owners(generated[1])
    ordinal = _ORDINAL.fullmatch(name)
    return (ordinal[1],) if ordinal else (name,)


def _template_owners(name: str) -> tuple[str, ...]:
    """Return what made a ReplicaSet or Job of this name, or a DaemonSet itself."""
    certain, maybe = _HASH.fullmatch(name), _MAYBE.fullmatch(name)
    if certain:
        return (certain[1],)
    return (name, maybe[1]) if maybe else (name,)


def _workload(named: str) -> str:
    """Return what the pod belongs to in which ``kubectl exec`` runs a command."""
    kind, _, name = named.rpartition("/")
    kind = kind.lower().partition(".")[0]
    owners = pod_owners(name) if kind in _PODS else _template_owners(name) if kind in _REPLICASETS else (name,)
    if len(owners) > 1:
        raise RuleRefusedError(f"{named} could be a pod of {' or of '.join(owners)}: write deployment/NAME")
    return owners[0]


def wrapper_user(path: str, arguments: Arguments) -> str | None:
    """Return the user as whom a wrapper runs its command, or None when the user stays the same."""
    if path == "ssh":
        user, _, host = (shown(arguments.positionals[0]) if arguments.positionals else "").rpartition("@")
        return user or _only(arguments.options, "-l") or (None if _LOCAL.fullmatch(host) else "")
    return _only(arguments.options, "--user", "-u") or "root" if path in {"sudo", "doas"} else None


def whole_name(where: Iterable[str], service: str) -> str:
    """Return the name that a service is counted by. Raises `RuleRefusedError` for one that is too long for a column."""
    name = "/".join((*where, service))
    if len(name) > LONGEST:
        raise RuleRefusedError(f"{name[:80]}…: no service has so long a name")
    return name


def plain_name(name: str) -> str:
    """Return a service's name without where it runs."""
    return name.rpartition("/")[2]


def _part(kind: str, value: str) -> tuple[str, ...]:
    return (f"{kind}:{value}",) if value else ()


def _only(given: Given, *names: str) -> str:
    """Return the value of an option, or "". Several different values are refused: programs differ on which counts."""
    texts = {value for option, value in given if value is not None and set(names) & set(option.names)}
    if len(texts) > 1:
        raise RuleRefusedError(f"give {names[0]} once: it says which service is meant")
    return texts.pop() if texts else ""


def _host(target: str, port: str) -> tuple[str, ...]:
    host = target.rpartition("@")[2].lower().rstrip(".")
    if port in _USUAL_PORTS:
        return () if _LOCAL.fullmatch(host) else (host,)
    return (f"{host}:{port}",)


def _project(given: Given, place: PathContext) -> str:
    """Return the name of a compose project as compose determines it, or "" where it is known only at run time."""
    named = _only(given, "--project-name")
    if named:
        return named
    directory = _only(given, "--project-directory")
    files = [value for option, value in given if value is not None and "--file" in option.names]
    if not directory and files:
        directory = posixpath.dirname(files[0])
    if not directory.startswith("/"):
        directory = posixpath.join(place.cwd, directory) if place.cwd is not None else directory
    last = posixpath.basename(posixpath.normpath(directory)) if directory else ""
    return "".join(
        letter for letter in last.lower() if letter.isascii() and (letter.isalnum() or letter in "_-")
    ).lstrip("_-")


# --- where compose acts ---------------------------------------------------------------------------------

# A project is what its files say, and its name is its directory's: a compose file that somebody has laid anywhere would
# be whatever service its author calls it. What runs names its files or its directory by an absolute path, because
# compose otherwise takes the files of a directory above, and the project's name with them.

_FILE, _DIRECTORY, _NAME = "--file", "--project-directory", "--project-name"
_BY_FILES: Final = ("docker compose up", "docker compose pull")
"""What needs a project's files; everything else finds its containers by the labels with the project's name."""

_IN_DIRECTORY: Final = Option((_DIRECTORY,), "project")


def located(found: RuleMatch, place: PathContext) -> RuleMatch:
    """Return a command with its project's directory written out where nothing but the working directory says it."""
    if place.cwd is None or not _depends_on_directory(found):
        return found
    *groups, (given, subcommand) = found.steps
    return replace(found, steps=(*groups, ((*given, (_IN_DIRECTORY, place.cwd)), subcommand)))


def refuse_project(found: RuleMatch, place: PathContext) -> str | None:
    """Return why compose may not act on a project, or None; a `Stranger` where only nothing names its directory."""
    if _depends_on_directory(found):
        if found.path in _BY_FILES:
            return "it is not known where this runs: name the project's file by --file, or cd to its directory"
        return "name the project with -p" + ("" if found.path.endswith(" exec") else ", or cd to its directory")
    reasons = [_refuse_directory(path, place) for path in _directories(found)]
    certain = (reason for reason in reasons if reason and not isinstance(reason, Stranger))
    return next(certain, None) or next(filter(None, reasons), None)


def _depends_on_directory(found: RuleMatch) -> bool:
    named = bool(list(_values(found, _NAME))) and found.path not in _BY_FILES
    return not named and not any(True for _ in _directories(found))


def _directories(found: RuleMatch) -> Iterator[str]:
    """Yield the project's directory, and those of its files."""
    yield from _values(found, _DIRECTORY)
    yield from (posixpath.dirname(path) or "." for path in _values(found, _FILE))


def _values(found: RuleMatch, name: str) -> Iterator[str]:
    return (value for option, value in found.given if value is not None and name in option.names)


def _refuse_directory(text: str, place: PathContext) -> str | None:
    path = paths.absolute(text, place)
    if path is None:
        return f"{text}: write the absolute path, or cd to the project's directory"
    if (reason := paths.project(path, place)) is not None:
        return reason
    if place.local and paths.in_repositories(path, place):
        return None
    if paths.is_within(path, place.scope.estate.directories, place):
        return None
    return Stranger(
        f"{path} is neither in the repositories nor named by a manifest: name the compose project's directory in a "
        "CLAUDE-OPS.md below the repositories directory"
    )
