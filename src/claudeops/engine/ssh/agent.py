"""The agent that holds the keys of a session: OpenSSH's own, outside of the session's cell and in one of its own.

It gets each key with the hosts for which it may be used (ssh-add(1), "destination constraints"), and signs nothing
else: not for another host, and no other data. The session has its socket. The agent sees the system's programs, the
keys while they are added, and no network. It ends with the script that adds the keys and then waits for the end of its
input: of the session, or of the daemon, whose death bubblewrap notices too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import STDOUT
from typing import Final, TypeVar

import anyio
import msgspec
from anyio.abc import Process

from claudeops.domain.network.destination import Destination
from claudeops.engine.cell.bubblewrap import BubblewrapCell, program_mounts
from claudeops.engine.cell.cell import BASH
from claudeops.engine.cell.reach import ssh_text
from claudeops.engine.cell.system_calls import filter_file
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.process.leaders import end_leader, open_leader
from claudeops.engine.process.tree import await_end, tree_of
from claudeops.engine.ssh.keys import SshKey, TemplateKeys
from claudeops.files import read_text
from claudeops.formats.network.key_scope import KeyScope, key_scope
from claudeops.formats.network.ssh_config import known_hosts_files
from claudeops.logs import LogEvent, Logger
from claudeops.structs import replace
from claudeops.tasks import Threads

T = TypeVar("T")

MOST_KEYS: Final = 16
MOST_NAMED: Final = 20
"""Keys, or hosts, that the log names."""
NO_HOST: Final = "the key of none of the hosts that it may be used for is among the known hosts"
NO_AGENT: Final = "there is no agent for it: ssh-agent and ssh-add are OpenSSH's, of version 8.9 or newer"
TOO_MANY: Final = f"only {MOST_KEYS} keys are added"
ELSEWHERE: Final = "it lies outside of the tier's directory, where no session can use it: copy it in there"

_START_SECONDS: Final = 20.0
_END_SECONDS: Final = 2.0
_MOST_SAID: Final = 1024 * 1024  # bytes
_MEMORY_KB: Final = 256 * 1024  # of address space
_CPU_SECONDS: Final = 600  # for all that the session has it sign
_DESCRIPTORS: Final = 1024  # connections of the session, above all
_PROCESSES: Final = Threads(most=32)
_PLACE: Final = "/run/claudeops"
_SOCKET: Final = "ssh-agent.sock"
_KEYS: Final = "keys"
_CERTIFICATE: Final = "-cert.pub"
_WAITS: Final = "ready"
_READY: Final = f"{_WAITS}\n".encode()
_KNOWN_HOSTS: Final = (".ssh/known_hosts", ".ssh/known_hosts2")
_OF_THE_MACHINE: Final = "/etc/ssh/ssh_known_hosts"
_MOST_FILES: Final = 20  # of known hosts, that the configuration names

_ALONE: Final = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session"),
)
_BOUNDED: Final = f'ulimit -c 0; ulimit -n {_DESCRIPTORS}; ulimit -v {_MEMORY_KB}; ulimit -t {_CPU_SECONDS}; exec "$@"'
# The empty list: a session may name no library (PKCS#11, FIDO) that the agent would load.
_AGENT: Final = ("ssh-agent", "-P", "", "-a", f"{_PLACE}/{_SOCKET}")
# It waits for the keys, so that the agent starts while these are prepared. All are added at once: each program costs
# milliseconds of the session's start. Of a ``.pem`` the public key is not known; certificates have longer names.
_SCRIPT: Final = r"""
shopt -s nullglob
read -r _ || exit
hosts=()
while read -r host; do hosts+=(-h "$host"); done <hosts
ssh-add -H known_hosts "${hosts[@]}" keys/??.??? 2>&1 </dev/null
for key in keys/*.pem; do
    echo "public $key $(ssh-keygen -y -P '' -f "$key" 2>/dev/null </dev/null)"
done
echo ready
read -r _
"""
_NAMED: Final = re.compile(r"keys/(\d\d)\.(?:key|pem)(?![-\w])")
_ADDED: Final = "Identity added: "
_PUBLIC: Final = "public "


class SkippedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that the agent does not have."""

    name: str
    reason: str  # with the remedy, where there is one


class SshAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of one session."""

    socket: Path | None = None  # None: it has no key, and does not run
    keys: tuple[str, ...] = ()  # in it, by the names under which ssh knows them
    left: tuple[SkippedKey, ...] = ()
    scope: KeyScope = msgspec.field(default_factory=KeyScope)


@asynccontextmanager
async def open_agent(
    cell: BubblewrapCell,
    workspace: Workspace,
    keys: TemplateKeys,
    listing: Callable[[], Awaitable[Sequence[Destination]]],
    log: Logger,
) -> AsyncIterator[SshAgent]:
    """Hold an agent with keys for the length of the block, and put what is public of them into the session's home.

    ``listing`` returns the list of the session, and is awaited while the agent starts. What keeps a key out of it is an
    event; raises `OSError` when a disk does not answer.
    """
    usable, left = _sorted_out(keys)
    if not usable:
        yield _noted(SshAgent(left=left), log)
        return
    async with _started(cell, workspace) as process:
        prepare = partial(_prepare, workspace, keys.home, usable, await listing())
        scope = await SESSION_FILES.run(prepare, seconds=LOOK_SECONDS, what="preparing the agent of a session")
        agent, public = SshAgent(left=_all_left(usable, NO_HOST)), dict[Path, str]()
        if scope.hosts:
            agent, public = understood(await _said(process), usable)
            finish = partial(_finish, workspace, public)
            await SESSION_FILES.run(finish, seconds=LOOK_SECONDS, what="writing the public keys of a session")
        if agent.keys:
            agent = replace(agent, socket=workspace.agent / _SOCKET)
        else:
            await _end(process)
        yield _noted(replace(agent, left=(*agent.left, *left), scope=scope), log)


@asynccontextmanager
async def _started(cell: BubblewrapCell, workspace: Workspace) -> AsyncIterator[Process]:
    """Hold an agent without keys for the length of the block; its script waits for a word."""
    look = partial(_mounts, workspace)
    mounts = await SESSION_FILES.run(look, seconds=LOOK_SECONDS, what="looking at what an agent may see")
    with filter_file() as calls:
        process = await open_leader(_command(cell, mounts, calls), stderr=STDOUT, pass_fds=(calls,))
    try:
        yield process
    finally:
        await _end(process)


def _sorted_out(keys: TemplateKeys) -> tuple[tuple[SshKey, ...], tuple[SkippedKey, ...]]:
    """Return which keys can be added, and why not the others."""
    usable = [key for key in keys.found if not key.key.is_locked]
    left = [SkippedKey(name=str(key.name), reason=locked(str(key.name))) for key in keys.found if key.key.is_locked]
    left += [SkippedKey(name=str(key.name), reason=TOO_MANY) for key in usable[MOST_KEYS:]]
    left += [SkippedKey(name=name, reason=ELSEWHERE) for name in keys.outside]
    return tuple(usable[:MOST_KEYS]), tuple(left)


async def _said(process: Process) -> list[str]:
    """Have the script add the keys; return its lines, until it waits or has ended, no longer than `_START_SECONDS`."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both were asked for as pipes")
    said = b""
    with anyio.move_on_after(_START_SECONDS), suppress(anyio.EndOfStream):
        with suppress(anyio.BrokenResourceError):  # it has ended: its last words say why
            await process.stdin.send(b"go\n")
        while not said.endswith(_READY) and len(said) < _MOST_SAID:
            said += await process.stdout.receive()
    return said.decode(errors="replace").splitlines()


async def _end(process: Process) -> None:
    """End the agent with everything in its cell: by the end of its input, or else by force."""
    if process.returncode is not None:
        await end_leader(process)
        return
    with anyio.CancelScope(shield=True):
        # bubblewrap itself may be gone a moment before all that it holds is.
        tree = await _looked(partial(tree_of, process.pid))
        with anyio.move_on_after(_END_SECONDS), suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            if process.stdin is not None:
                await process.stdin.aclose()
            await process.wait()
        await end_leader(process)
        await _looked(partial(await_end, tree or (), _END_SECONDS))


async def _looked(look: Callable[[], T]) -> T | None:
    """Return what a look at processes finds; None where it takes too long."""
    with suppress(TimeoutError):
        return await _PROCESSES.run(look, seconds=_END_SECONDS * 2, what="looking at the agent of a session")
    return None


# --- what it is given ---------------------------------------------------------------------------------


def _prepare(workspace: Workspace, template: Path, keys: tuple[SshKey, ...], listed: Sequence[Destination]) -> KeyScope:
    """Write the keys and their hosts to where the agent's cell sees them, if there are hosts."""
    home, place, config = workspace.home, workspace.agent, ssh_text(workspace.home, read_text)
    files = (*_KNOWN_HOSTS, *known_hosts_files(config)[:_MOST_FILES], _OF_THE_MACHINE)
    known = "\n".join(read_text(home / name) for name in files)
    scope = key_scope(tuple(listed), config=config, known_hosts=known)
    if not scope.hosts:
        return scope
    (place / "hosts").write_text("".join(f"{host}\n" for host in scope.hosts), encoding="utf-8")
    (place / "known_hosts").write_text(scope.known_hosts, encoding="utf-8")
    (place / _KEYS).mkdir(mode=0o700)
    for number, key in enumerate(keys):
        is_known = key.key.public is not None or os.path.lexists(home / f"{key.name}.pub")
        copied = place / _KEYS / f"{number:02}.{'key' if is_known else 'pem'}"
        shutil.copyfile(template / key.file, copied)
        copied.chmod(0o600)
        certificate = template / f"{key.name}{_CERTIFICATE}"
        if certificate.is_file():  # ssh-add finds it beside the key
            shutil.copyfile(certificate, f"{copied}{_CERTIFICATE}")
    return scope


def _mounts(workspace: Workspace) -> tuple[str, ...]:
    users = (word for name in ("passwd", "group") for word in ("--ro-bind", str(workspace.etc / name), f"/etc/{name}"))
    programs = (word for mount in program_mounts() for word in mount.arguments())
    return (*programs, *users, "--bind", str(workspace.agent), _PLACE)


def _command(cell: BubblewrapCell, mounts: Sequence[str], calls: int) -> tuple[str, ...]:
    options = (
        *_ALONE,
        *mounts,
        *("--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", _PLACE),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LC_ALL", "C"),
    )
    script = (*_AGENT, str(BASH), "-c", _SCRIPT)
    return cell.bare(options, (str(BASH), "-c", _BOUNDED, "bash", *script), calls=calls)


def _finish(workspace: Workspace, public: Mapping[Path, str]) -> None:
    """Remove the keys, which are in the agent's memory now; write the public ones that are not there."""
    shutil.rmtree(workspace.agent / _KEYS)
    for name, text in public.items():
        place = workspace.home / f"{name}.pub"
        if place.parent.resolve().is_relative_to(workspace.home) and not os.path.lexists(place):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.write_text(f"{text}\n", encoding="utf-8")


# --- what it says -------------------------------------------------------------------------------------


def understood(said: Sequence[str], keys: Sequence[SshKey]) -> tuple[SshAgent, dict[Path, str]]:
    """Return what the script's lines mean, without the socket, and the public keys of those that it added."""
    public: dict[int, str] = {}
    reasons: dict[int, str] = {}
    added: set[int] = set()
    for line in said:
        if (named := _NAMED.search(line)) is None or (number := int(named[1])) >= len(keys):
            continue
        if line.startswith(_PUBLIC):
            public[number] = line[named.end() :].strip()
        elif line.startswith(_ADDED):
            added.add(number)
        else:
            reasons.setdefault(number, _NAMED.sub(str(keys[number].name), line))
    if not said or said[-1] != _WAITS or not (added or reasons):
        return SshAgent(left=_all_left(keys, f"{NO_AGENT} ({said[0]})" if said else NO_AGENT)), {}
    names = [str(key.name) for key in keys]
    left = [
        SkippedKey(name=name, reason=reason_for(reasons.get(number, ""), name))
        for number, name in enumerate(names)
        if number not in added
    ]
    agent = SshAgent(keys=tuple(names[number] for number in sorted(added)), left=tuple(left))
    found = {keys[number].name: keys[number].key.public or public.get(number, "") for number in sorted(added)}
    return agent, {name: text for name, text in found.items() if text}


def reason_for(said: str, name: str) -> str:
    """Return why a key was not added, from the words of ssh-add."""
    if "passphrase" in said:
        return locked(name)
    return said.rpartition('": ')[2] or "ssh-add says nothing"


def locked(name: str) -> str:
    """Return why a key with a passphrase is not added."""
    return f"it has a passphrase, which cannot be typed in here: make one without (ssh-keygen -p -N '' -f {name})"


def _all_left(keys: Sequence[SshKey], reason: str) -> tuple[SkippedKey, ...]:
    return tuple(SkippedKey(name=str(key.name), reason=reason) for key in keys)


def _noted(agent: SshAgent, log: Logger) -> SshAgent:
    """Log what the agent has, and what it has not."""
    log.info(
        LogEvent.KEYS_IN_AGENT,
        keys=agent.keys,
        hosts=len(agent.scope.hosts),
        unknown=agent.scope.unknown[:MOST_NAMED],
        left_out=agent.scope.left_out[:MOST_NAMED],
    )
    for key in agent.left[:MOST_NAMED]:
        log.warning(LogEvent.KEY_NOT_IN_AGENT, key=key.name, reason=key.reason)
    return agent
