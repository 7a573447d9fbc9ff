"""The repository of a rehearsal: what an operator would have written down about these services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.rehearsal.scenario import RunsOn

if TYPE_CHECKING:
    from pathlib import Path

    from claudeops.rehearsal.estate import Estate, Running

REPOSITORY: Final = "estate"
FILE: Final = "CLAUDE-OPS.md"

_WHERE: Final = {
    RunsOn.DOCKER: "docker container `{name}`",
    RunsOn.KUBERNETES: "Kubernetes deployment `{name}` in the namespace `default`",
    RunsOn.SYSTEMD: "systemd unit `{name}.service`",
}
_RESTART: Final = {
    RunsOn.DOCKER: "docker restart {name}",
    RunsOn.KUBERNETES: "kubectl rollout restart deployment/{name}",
    RunsOn.SYSTEMD: "systemctl restart {name}",
}
_REDEPLOY: Final = {RunsOn.KUBERNETES: "kubectl rollout undo deployment/{name}"}


def write_manifest(estate: Estate, repos_dir: Path) -> None:
    """Write the repository that describes the estate."""
    repository = repos_dir / REPOSITORY
    repository.mkdir(parents=True)
    sections = ["# Services of this estate", *(_section(running) for running in estate.services.values())]
    (repository / FILE).write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _section(running: Running) -> str:
    kind = running.service.runs_on
    lines = [
        f"## {running.name}",
        "",
        f"- Runs as: {_WHERE[kind].format(name=running.name)}",
        f"- Check: {running.url} answers 200 and says: {running.service.answers}",
        f"- Restart, which is safe: `{_RESTART[kind].format(name=running.name)}`",
    ]
    if kind in _REDEPLOY:
        lines.append(f"- Back to the last version that worked: `{_REDEPLOY[kind].format(name=running.name)}`")
    if running.service.disk_kib is not None:
        lines.append(f"- Data: /data in the container, {running.service.disk_kib} KiB; it belongs to people")
    if running.service.tls:
        lines.append("- Certificate: renewed by people; fewer than 21 days left is a warning")
    if running.service.note:
        lines.append(f"- {running.service.note}")
    return "\n".join(lines)
