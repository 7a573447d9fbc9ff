"""Stand-ins for ``docker`` and ``kubectl``.

``docker`` manages the services with ``runs_on = "docker"``; ``kubectl`` those with ``runs_on = "kubernetes"``, each a
deployment with one pod.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from claudeops.rehearsal.commands.answer import (
    CommandArguments,
    CommandOutput,
    age,
    all_on,
    failed,
    find,
    last,
    read,
    table,
)
from claudeops.rehearsal.environment import Environment, Running
from claudeops.rehearsal.scenario import RunsOn

_DOCKER_VALUED: Final = frozenset(
    {"-f", "--format", "--filter", "--tail", "-n", "--since", "--until", "-t", "--time", "--timeout", "-p", "--file"}
)
_FIELD: Final = re.compile(r"\{\{\s*\.([A-Za-z.]+)\s*\}\}")
_DATA: Final = "/data"

_KUBECTL_VALUED: Final = frozenset(
    {"-n", "--namespace", "-o", "--output", "-l", "--selector", "--tail", "--since", "--timeout", "-c", "--context"}
)
_DEPLOYMENTS: Final = frozenset({"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"})
_PODS: Final = frozenset({"pod", "pods", "po"})
_SAFE: Final = str.maketrans("0123456789", "456789bcdf")  # as Kubernetes writes digits, so that no word comes of them


# --- docker ------------------------------------------------------------------------------------------


async def docker(environment: Environment, arguments: tuple[str, ...]) -> CommandOutput:  # noqa: PLR0911 - one case for each command
    """Run one docker command."""
    head = [word for word in arguments if not word.startswith("-")][:1]
    if head == ["exec"]:
        return _execute(environment, arguments[arguments.index("exec") + 1 :])
    given = read(arguments, valued=_DOCKER_VALUED)
    words = given.words[1:] if given.words[:1] in {("container",), ("compose",)} else given.words
    match words:
        case ["ps" | "ls", *_]:
            return _docker_listed(environment, given)
        case ["logs", name]:
            return _logs(environment, name, given)
        case ["inspect", *names] if names:
            return _inspected(environment, names, given.get("-f", "--format") or "{{.Name}} {{.State.Status}}")
        case ["restart" | "start" | "stop" | "up" as verb, *names] if names:
            return await _changed(environment, verb, names)
        case ["version", *_]:
            return CommandOutput(out=["Docker, as far as this rehearsal needs it"])
        case _:
            return failed(f"docker: this rehearsal knows no '{' '.join(arguments) or 'docker'}'")


def _docker_listed(environment: Environment, given: CommandArguments) -> CommandOutput:
    services = [
        running
        for running in all_on(environment, RunsOn.DOCKER)
        if running.is_running or given.get("-a", "--all") is not None or "-aq" in given.options
    ]
    if (template := given.get("--format")) is not None:
        return CommandOutput(out=[_formatted(template, running) for running in services])
    rows = [["CONTAINER ID", "IMAGE", "STATUS", "PORTS", "NAMES"]]
    rows += [
        [_id(running), _image(running), _status(running), f"127.0.0.1:{running.port}->80/tcp", running.name]
        for running in services
    ]
    return CommandOutput(out=table(rows))


def _logs(environment: Environment, name: str, given: CommandArguments) -> CommandOutput:
    running = find(environment, name, RunsOn.DOCKER)
    if running is None:
        return _unknown(name)
    return CommandOutput(out=last(running.log_lines(), given.get("--tail", "-n")))


def _inspected(environment: Environment, names: Sequence[str], template: str) -> CommandOutput:
    out, err = [], []
    for name in names:
        running = find(environment, name, RunsOn.DOCKER)
        if running is None:
            err.append(f"Error: No such object: {name}")
        else:
            out.append(_formatted(template, running))
    return CommandOutput(out=out, err=err, status=1 if err else 0)


async def _changed(environment: Environment, verb: str, names: Sequence[str]) -> CommandOutput:
    out = []
    for name in names:
        running = find(environment, name, RunsOn.DOCKER)
        if running is None:
            return _unknown(name)
        if verb == "up":
            await running.redeploy()
        elif verb == "stop":
            await running.stop()
        elif verb == "restart" or not running.is_running:
            await running.restart()
        out.append(name)
    return CommandOutput(out=out)


def _execute(environment: Environment, arguments: Sequence[str]) -> CommandOutput:
    """Run one of the few commands that look at a container's disk."""
    words = [word for word in arguments if not word.startswith("-")]
    running = find(environment, words[0] if words else "", RunsOn.DOCKER)
    if running is None:
        return _unknown(words[0] if words else "")
    if not running.is_running:
        return failed(f"Error response from daemon: container {running.name} is not running")
    match words[1:]:
        case ["df", *_]:
            return CommandOutput(out=_free(running))
        case ["du" | "ls", *_] if running.data is not None:
            files = sorted((entry.name, entry.stat().st_size) for entry in running.data.iterdir())
            return CommandOutput(out=[f"{size // 1024}K\t{_DATA}/{name}" for name, size in files])
        case _:
            return failed("this rehearsal's containers know df, du and ls of /data, and nothing else", status=126)


def _free(running: Running) -> list[str]:
    size, used = running.service.disk_kib or 0, running.used_kib()
    if not size:
        return table([["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"]])
    share = min(100, -(-used * 100 // size))
    row = [f"{running.name}-data", f"{size}K", f"{used}K", f"{max(0, size - used)}K", f"{share}%", _DATA]
    return table([["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"], row])


def _formatted(template: str, running: Running) -> str:
    values = {
        "Name": f"/{running.name}",
        "Names": running.name,
        "ID": _id(running),
        "Image": _image(running),
        "Config.Image": _image(running),
        "Status": _status(running),
        "State": "running" if running.is_running else "exited",
        "State.Status": "running" if running.is_running else "exited",
        "State.ExitCode": "0" if running.is_running else "1",
        "State.StartedAt": running.started_at.isoformat(),
        "RestartCount": str(running.restarts),
    }
    return _FIELD.sub(lambda found: values.get(found[1], "<no value>"), template)


def _status(running: Running) -> str:
    return f"Up {age(running.started_at)}" if running.is_running else f"Exited (1) {age(running.started_at)} ago"


def _image(running: Running) -> str:
    return f"example/{running.name}:{running.version}"


def _id(running: Running) -> str:
    return hashlib.sha256(running.name.encode()).hexdigest()[:12]


def _unknown(name: str) -> CommandOutput:
    return failed(f"Error response from daemon: No such container: {name}")


# --- kubectl -----------------------------------------------------------------------------------------


async def kubectl(environment: Environment, arguments: tuple[str, ...]) -> CommandOutput:  # noqa: PLR0911 - one case for each command
    """Run one kubectl command."""
    given = read(arguments, valued=_KUBECTL_VALUED)
    match given.words:
        case ["get", kind, *names] if kind in _PODS | _DEPLOYMENTS:
            return _kubectl_listed(environment, kind, names)
        case ["get", "nodes"]:
            return CommandOutput(out=table([["NAME", "STATUS", "ROLES"], ["rehearsal", "Ready", "control-plane"]]))
        case ["describe", *target] if (running := _target(environment, target)) is not None:
            return CommandOutput(out=_described(running))
        case ["logs", *target] if (running := _target(environment, target)) is not None:
            return CommandOutput(out=last(running.log_lines(), given.get("--tail")))
        case ["rollout", verb, *target] if (running := _target(environment, target)) is not None:
            return await _rolled_out(verb, running)
        case ["get" | "describe" | "logs" | "rollout", *rest]:
            return failed(f'Error from server (NotFound): "{" ".join(rest)}" not found')
        case _:
            return failed(f"error: this rehearsal knows no '{' '.join(arguments) or 'kubectl'}'")


def _kubectl_listed(environment: Environment, kind: str, names: list[str]) -> CommandOutput:
    services = all_on(environment, RunsOn.KUBERNETES)
    if kind in _PODS:
        rows = [["NAME", "READY", "STATUS", "RESTARTS", "AGE"]]
        rows += [
            [_pod(running), *_pod_state(running), str(running.restarts), age(running.started_at)]
            for running in services
            if not names or _pod(running) in names
        ]
    else:
        rows = [["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]]
        rows += [
            [running.name, _pod_state(running)[0], "1", _pod_state(running)[0][0], age(running.started_at)]
            for running in services
            if not names or running.name in names
        ]
    return CommandOutput(out=table(rows)) if len(rows) > 1 else failed("No resources found")


def _described(running: Running) -> list[str]:
    return [
        f"Name:   {running.name}",
        f"Pod:    {_pod(running)}",
        f"Image:  example/{running.name}:{running.version}",
        f"Status: {_pod_state(running)[1]}",
    ]


async def _rolled_out(verb: str, running: Running) -> CommandOutput:
    match verb:
        case "restart":
            await running.restart()
            return CommandOutput(out=[f"deployment.apps/{running.name} restarted"])
        case "undo":
            await running.redeploy()
            return CommandOutput(out=[f"deployment.apps/{running.name} rolled back"])
        case "status" if running.is_running:
            return CommandOutput(out=[f'deployment "{running.name}" successfully rolled out'])
        case "status":
            return failed(f'error: deployment "{running.name}" exceeded its progress deadline')
        case "history":
            rows = [["REVISION", "IMAGE"]]
            rows += [[str(n), f"example/{running.name}:{v}"] for n, v in enumerate(running.deployments, start=1)]
            return CommandOutput(out=[f"deployment.apps/{running.name}", *table(rows)])
        case _:
            return failed(f"error: unknown command '{verb}'")


def _target(environment: Environment, target: list[str]) -> Running | None:
    """Return the service meant by ``deployment/web``, ``deployment web``, ``pod NAME`` or ``NAME``."""
    name = target[-1].rpartition("/")[2] if target else ""
    named = find(environment, name, RunsOn.KUBERNETES)
    return named or next((found for found in all_on(environment, RunsOn.KUBERNETES) if _pod(found) == name), None)


def _pod_state(running: Running) -> tuple[str, str]:
    return ("1/1", "Running") if running.is_running else ("0/1", "CrashLoopBackOff")


def _pod(running: Running) -> str:
    revision = int(hashlib.sha256(f"{running.name}/{len(running.deployments)}".encode()).hexdigest(), 16)
    digits = f"{str(revision)[:13]}{running.restarts % 10}".translate(_SAFE)
    return f"{running.name}-{digits[:9]}-{digits[9:]}"
