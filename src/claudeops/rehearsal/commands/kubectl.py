"""``kubectl`` over the services that say ``runs_on = "kubernetes"``: one deployment with one pod each."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from claudeops.rehearsal.commands.answer import Answer, age, all_on, failed, find, last, read, table
from claudeops.rehearsal.scenario import RunsOn

if TYPE_CHECKING:
    from claudeops.rehearsal.estate import Estate, Running

_VALUED: Final = frozenset(
    {"-n", "--namespace", "-o", "--output", "-l", "--selector", "--tail", "--since", "--timeout", "-c", "--context"}
)
_DEPLOYMENTS: Final = frozenset({"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"})
_PODS: Final = frozenset({"pod", "pods", "po"})


async def kubectl(estate: Estate, arguments: tuple[str, ...]) -> Answer:  # noqa: PLR0911 - a case, a command
    """Carry out one kubectl command."""
    given = read(arguments, valued=_VALUED)
    match given.words:
        case ["get", kind, *names] if kind in _PODS | _DEPLOYMENTS:
            return _listed(estate, kind, names)
        case ["get", "nodes"]:
            return Answer(out=table([["NAME", "STATUS", "ROLES"], ["rehearsal", "Ready", "control-plane"]]))
        case ["describe", *target] if (running := _target(estate, target)) is not None:
            return Answer(out=_described(running))
        case ["logs", *target] if (running := _target(estate, target)) is not None:
            return Answer(out=last(running.log_lines(), given.get("--tail")))
        case ["rollout", verb, *target] if (running := _target(estate, target)) is not None:
            return await _rolled_out(verb, running)
        case ["get" | "describe" | "logs" | "rollout", *rest]:
            return failed(f'Error from server (NotFound): "{" ".join(rest)}" not found')
        case _:
            return failed(f"error: this rehearsal knows no '{' '.join(arguments) or 'kubectl'}'")


def _listed(estate: Estate, kind: str, names: list[str]) -> Answer:
    services = all_on(estate, RunsOn.KUBERNETES)
    if kind in _PODS:
        rows = [["NAME", "READY", "STATUS", "RESTARTS", "AGE"]]
        rows += [
            [_pod(running), *_standing(running), str(running.restarts), age(running.started_at)]
            for running in services
            if not names or _pod(running) in names
        ]
    else:
        rows = [["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]]
        rows += [
            [running.name, _standing(running)[0], "1", _standing(running)[0][0], age(running.started_at)]
            for running in services
            if not names or running.name in names
        ]
    return Answer(out=table(rows)) if len(rows) > 1 else failed("No resources found")


def _described(running: Running) -> list[str]:
    return [
        f"Name:   {running.name}",
        f"Pod:    {_pod(running)}",
        f"Image:  example/{running.name}:{running.version}",
        f"Status: {_standing(running)[1]}",
    ]


async def _rolled_out(verb: str, running: Running) -> Answer:
    match verb:
        case "restart":
            await running.restart()
            return Answer(out=[f"deployment.apps/{running.name} restarted"])
        case "undo":
            await running.redeploy()
            return Answer(out=[f"deployment.apps/{running.name} rolled back"])
        case "status" if running.is_running:
            return Answer(out=[f'deployment "{running.name}" successfully rolled out'])
        case "status":
            return failed(f'error: deployment "{running.name}" exceeded its progress deadline')
        case "history":
            rows = [["REVISION", "IMAGE"]]
            rows += [[str(n), f"example/{running.name}:{v}"] for n, v in enumerate(running.deployments, start=1)]
            return Answer(out=[f"deployment.apps/{running.name}", *table(rows)])
        case _:
            return failed(f"error: unknown command '{verb}'")


def _target(estate: Estate, target: list[str]) -> Running | None:
    """Return the service that ``deployment/web``, ``deployment web``, ``pod NAME`` or ``NAME`` means."""
    name = target[-1].rpartition("/")[2] if target else ""
    named = find(estate, name, RunsOn.KUBERNETES)
    return named or next((found for found in all_on(estate, RunsOn.KUBERNETES) if _pod(found) == name), None)


def _standing(running: Running) -> tuple[str, str]:
    return ("1/1", "Running") if running.is_running else ("0/1", "CrashLoopBackOff")


def _pod(running: Running) -> str:
    revision = hashlib.sha256(f"{running.name}/{len(running.deployments)}".encode()).hexdigest()
    return f"{running.name}-{revision[:9]}-{revision[9:13]}{running.restarts % 10}"
