"""The repository of a rehearsal: what an operator would have written down about these services.

The way from a session's stand-in commands to the services: small requests over TCP on loopback.

Not a socket file and no signals: a session may live in namespaces of its own, and loopback is what it shares. A
request is one line ``<token> <command> <count>``, then ``count`` arguments, each ended by a zero byte. The answer is
a line with the exit status, then one line each of output, begun by ``o`` (stdout) or ``e`` (stderr).

Everything that a rehearsal needs beside claudeops itself: services, commands, a repository, a model.
"""

from __future__ import annotations

import hmac
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.rehearsal.commands import COMMANDS, ONLY_WHERE_MISSING
from claudeops.rehearsal.environment import Environment, Running, running_estate
from claudeops.rehearsal.scenario import REPOS, RunsOn, Scenario, build_script
from claudeops.scripted_api.server import MessagesApi, serve
from claudeops.tasks import open_tasks

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


def write_manifest(estate: Environment, repos_dir: Path) -> None:
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


_REQUEST_SECONDS: Final = 30.0  # a restart included
_MOST_BYTES: Final = 65536  # of one argument
_MOST_ARGUMENTS: Final = 200

_STAND_IN: Final = r"""#!/usr/bin/env bash
# Stands in for `{name}` in a rehearsal: hands its arguments to the rehearsal, which looks after small real services.
if ! {{ exec 3<>/dev/tcp/127.0.0.1/{port}; }} 2>/dev/null; then
  echo "{name}: the rehearsal that this command belongs to has ended" >&2
  exit 1
fi
printf '%s %s %s\n' {token} {name} "$#" >&3
if (($#)); then printf '%s\0' "$@" >&3; fi
IFS= read -r status <&3 || status=1
while IFS= read -r line <&3; do
  case $line in
  o*) printf '%s\n' "${{line:1}}" ;;
  e*) printf '%s\n' "${{line:1}}" >&2 ;;
  esac
done
exit "$status"
"""


class CommandRequest(NamedTuple):
    """A request of a stand-in command."""

    command: str
    arguments: tuple[str, ...]


@asynccontextmanager
async def serve_commands(estate: Environment, directory: Path, *, path: str) -> AsyncIterator[None]:
    """Lay the stand-in commands into ``directory`` and carry out what they are given, until the block is left.

    ``directory`` is to stand on the sessions' ``PATH`` in front of ``path``. After the block they say that the
    rehearsal has ended.
    """
    token = secrets.token_hex(16)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def handle(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_REQUEST_SECONDS):
                await _answer(stream, token, estate)

    async with listener, open_tasks() as tasks:
        _lay_out(directory, path=path, port=listener.extra(SocketAttribute.local_port), token=token)  # noqa: S610 - no Django
        tasks.start_soon(listener.serve, handle)
        yield
        tasks.cancel_scope.cancel()


def _lay_out(directory: Path, *, path: str, port: int, token: str) -> None:
    directory.mkdir(parents=True)
    for name in COMMANDS:
        if name in ONLY_WHERE_MISSING and shutil.which(name, path=path) is not None:
            continue
        script = directory / name
        script.write_text(_STAND_IN.format(name=name, port=port, token=token), encoding="utf-8")
        script.chmod(0o755)  # a session may run as another user


async def _answer(stream: SocketStream, token: str, estate: Environment) -> None:
    try:
        asked = await _read(BufferedByteReceiveStream(stream), token)
        if asked is None:
            return
        answer = await COMMANDS[asked.command](estate, asked.arguments)
        lines = [str(answer.status), *(f"o{line}" for line in answer.out), *(f"e{line}" for line in answer.err)]
        await stream.send("".join(f"{line}\n" for line in lines).encode())
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, anyio.EndOfStream):
        return  # whoever asked has gone, or speaks another language


async def _read(stream: BufferedByteReceiveStream, token: str) -> CommandRequest | None:
    head = (await stream.receive_until(b"\n", _MOST_BYTES)).decode(errors="replace").split(" ")
    if len(head) != 3 or not hmac.compare_digest(head[0].encode(), token.encode()):  # noqa: PLR2004 - see the module
        return None
    command, count = head[1], head[2]
    if command not in COMMANDS or not count.isdecimal() or int(count) > _MOST_ARGUMENTS:
        return None
    arguments = [await stream.receive_until(b"\0", _MOST_BYTES) for _ in range(int(count))]
    return CommandRequest(command, tuple(argument.decode(errors="replace") for argument in arguments))


KEY: Final = "rehearsal-key-that-opens-nothing"
"""What the scripted API takes as a key, and nothing else does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Where a rehearsal takes place."""

    estate: Environment
    api: MessagesApi
    repos_dir: Path
    commands_dir: Path  # to stand first on the sessions' PATH
    state_dir: Path  # not made yet
    results_dir: Path  # same


@asynccontextmanager
async def set_up(scenario: Scenario, root: Path, *, path: str, pace_seconds: float = 0) -> AsyncIterator[Stage]:
    """Set everything up below ``root``, an empty directory; when the block is left nothing of it runs any more.

    ``path`` is the ``PATH`` on which sessions find their commands otherwise. Files stay. Raises `RehearsalError` when a
    service does not start.
    """
    repos_dir, commands_dir = root / "repos", root / "commands"
    async with (
        running_estate(scenario, root / "services") as estate,
        serve_commands(estate, commands_dir, path=path),
    ):
        write_manifest(estate, repos_dir)
        values = {**estate.marks(), REPOS: str(repos_dir)}
        script = build_script(scenario, values, pace_seconds=pace_seconds)
        async with serve(script, expected_key=None) as api:
            yield Stage(
                estate=estate,
                api=api,
                repos_dir=repos_dir,
                commands_dir=commands_dir,
                state_dir=root / "state",
                results_dir=root / "results",
            )
