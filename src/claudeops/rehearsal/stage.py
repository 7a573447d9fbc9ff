"""Sets up all that a rehearsal needs besides claudeops itself: services, stand-in commands, a repository, a model.

The stand-in commands of a session reach the services through small requests over TCP on loopback, not through a socket
file or signals: a session may live in namespaces of its own, and loopback is what it shares. A request is one line
``<token> <command> <count>``, then ``count`` arguments, each ended by a zero byte. The answer is a line with the exit
status, then the lines of output, each after an ``o`` (stdout) or ``e`` (stderr).
"""

from __future__ import annotations

import hmac
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from claudeops.rehearsal.chat import PlayedChat, playing
from claudeops.rehearsal.commands import COMMANDS, ONLY_WHERE_MISSING
from claudeops.rehearsal.environment import Environment, Running, running_environment
from claudeops.rehearsal.probes_file import probes_text
from claudeops.rehearsal.scenario import REPOS, RunsOn, Scenario, build_script
from claudeops.scripted_api.server import MessagesApi, serve
from claudeops.tasks import open_tasks

KEY: Final = "rehearsal-key-that-opens-nothing"
"""The API key of the sessions; only the scripted API accepts it."""

REPOSITORY: Final = "estate"
FILE: Final = "CLAUDE-OPS.md"
PROBES: Final = "probes.toml"

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

_REQUEST_SECONDS: Final = 30.0  # including a restart
_MOST_BYTES: Final = 65536  # of one argument
_MOST_ARGUMENTS: Final = 200

_STAND_IN: Final = r"""#!/usr/bin/env bash
# Stands in for `{name}` in a rehearsal: passes its arguments on to the rehearsal, which manages small services.
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


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal gets in place of the real world."""

    environment: Environment
    api: MessagesApi
    repos_dir: Path
    probes_path: Path
    commands_dir: Path  # goes first on the sessions' PATH
    commands_url: str  # where these commands connect to
    state_dir: Path  # not created yet
    results_dir: Path  # same
    chat: PlayedChat | None = None  # None: nobody is there to be asked


@asynccontextmanager
async def set_up(scenario: Scenario, root: Path, *, path: str, pace_seconds: float = 0) -> AsyncIterator[Stage]:
    """Set everything up below ``root``, an empty directory; all of it stops when the block is left, but files stay.

    ``path`` is the ``PATH`` on which sessions find their other commands. Raises `RehearsalError` when a service
    does not start.
    """
    repos_dir, commands_dir = root / "repos", root / "commands"
    async with (
        running_environment(scenario, root / "services") as environment,
        serve_commands(environment, commands_dir, path=path) as commands_url,
    ):
        write_manifest(environment, repos_dir)
        values = {**environment.placeholders(), REPOS: str(repos_dir)}
        probes_path = root / PROBES
        probes_path.write_text(probes_text(scenario, environment.placeholders()), encoding="utf-8")
        script = build_script(scenario, values, pace_seconds=pace_seconds)
        async with serve(script, expected_key=None) as api, playing(scenario.chat) as chat:
            yield Stage(
                environment=environment,
                api=api,
                repos_dir=repos_dir,
                probes_path=probes_path,
                commands_dir=commands_dir,
                commands_url=commands_url,
                state_dir=root / "state",
                results_dir=root / "results",
                chat=chat,
            )


# --- the repository ----------------------------------------------------------------------------------


def write_manifest(environment: Environment, repos_dir: Path) -> None:
    """Write the repository that describes the services, as an operator would."""
    repository = repos_dir / REPOSITORY
    repository.mkdir(parents=True)
    sections = ["# Services of this estate", *(_section(running) for running in environment.services.values())]
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
    if running.service.needs:
        lines.append(f"- Depends on: {', '.join(running.service.needs)}")
    if running.service.note:
        lines.append(f"- {running.service.note}")
    return "\n".join(lines)


# --- stand-in commands -------------------------------------------------------------------------------


class CommandRequest(NamedTuple):
    """A request from a stand-in command."""

    command: str
    arguments: tuple[str, ...]


@asynccontextmanager
async def serve_commands(environment: Environment, directory: Path, *, path: str) -> AsyncIterator[str]:
    """Write the stand-in commands to ``directory`` and run what they are given, until the block is left.

    Yields the URL that they connect to, for the list of what sessions reach.

    ``directory`` goes before ``path`` on the sessions' ``PATH``. After the block the commands report that the rehearsal
    has ended.
    """
    token = secrets.token_hex(16)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def handle(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(_REQUEST_SECONDS):
                await _answer(stream, token, environment)

    async with listener, open_tasks() as tasks:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django
        _write_stand_ins(directory, path=path, port=port, token=token)
        tasks.start_soon(listener.serve, handle)
        yield f"tcp://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


def _write_stand_ins(directory: Path, *, path: str, port: int, token: str) -> None:
    directory.mkdir(parents=True)
    for name in COMMANDS:
        if name in ONLY_WHERE_MISSING and shutil.which(name, path=path) is not None:
            continue
        script = directory / name
        script.write_text(_STAND_IN.format(name=name, port=port, token=token), encoding="utf-8")
        script.chmod(0o755)  # a session may run as another user


async def _answer(stream: SocketStream, token: str, environment: Environment) -> None:
    try:
        request = await _read(BufferedByteReceiveStream(stream), token)
        if request is None:
            return
        answer = await COMMANDS[request.command](environment, request.arguments)
        lines = [str(answer.status), *(f"o{line}" for line in answer.out), *(f"e{line}" for line in answer.err)]
        await stream.send("".join(f"{line}\n" for line in lines).encode())
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, anyio.EndOfStream):
        return  # the client has gone, or speaks another protocol


async def _read(stream: BufferedByteReceiveStream, token: str) -> CommandRequest | None:
    head = (await stream.receive_until(b"\n", _MOST_BYTES)).decode(errors="replace").split(" ")
    if len(head) != 3 or not hmac.compare_digest(head[0].encode(), token.encode()):  # noqa: PLR2004 - see the module
        return None
    command, count = head[1], head[2]
    if command not in COMMANDS or not count.isdecimal() or int(count) > _MOST_ARGUMENTS:
        return None
    arguments = [await stream.receive_until(b"\0", _MOST_BYTES) for _ in range(int(count))]
    return CommandRequest(command, tuple(argument.decode(errors="replace") for argument in arguments))
