"""Gathers what a tier's sessions can reach, as they would find it in their cell; `claudeops.wording.access` judges it.

It looks at files and at their permissions, and asks nothing: neither docker nor a cluster nor a host is contacted.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.estate.estate import Estate
from claudeops.domain.estate.strangers import is_loopback
from claudeops.engine.cell.bubblewrap import BubblewrapCell, Mount, MountKind
from claudeops.engine.cell.cell import DOCKER_HOST, Cell, IsolationLevel, SandboxSpec, named_in
from claudeops.engine.cell.reach import Needs, endpoint_of, ssh_text
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.session import mcp_servers
from claudeops.engine.session.context import SessionContext, TierSetup
from claudeops.formats.network.addresses import Endpoint, endpoints_in, endpoints_of_environment
from claudeops.logs import LogEvent
from claudeops.structs import replace
from claudeops.wording.access import PROGRAMS, AccessFacts, DockerAccess, SshFacts, limits_in

_DOCKER_SOCKET: Final = "/var/run/docker.sock"
_UNIX: Final = "unix://"
_MOST_BYTES: Final = 256 * 1024  # of a file of ssh
_DEEPEST_LINK: Final = 10
_ETC_SSH: Final = Path("/etc/ssh")
_READ, _WRITE, _EXECUTE = 0o4, 0o2, 0o1
_SHELL: Final = Path("/bin/sh")


async def access_of(
    context: SessionContext,
    tier: TierSetup,
    workspace: Workspace,
    estate: Estate,
    *,
    mounts: Iterable[Mount] | None = None,
    has_agent: Callable[[], Awaitable[bool]],
) -> tuple[str, ...]:
    """Return what a session of a tier cannot reach of the estate, one sentence each.

    ``mounts``: what it sees, where that is known: to find it out takes as long as all the rest. ``has_agent`` says
    whether an agent of the daemon has keys for it, asked last: it may still be starting.

    Where that cannot be found out in time nothing is said, and a log event tells why.
    """
    sandbox = SandboxSpec(
        workspace=workspace,
        binary=next(iter(context.clis.binaries.values()), _SHELL),
        repos_dir=context.repos_dir,
        path=context.path,
        shown=tier.shown,
    )
    cell, home = context.confinement.cell, workspace.home
    look = partial(gather, cell, sandbox, tier.passed_env, home=home, filtered=tier.docker, mounts=mounts)
    try:
        facts = await SESSION_FILES.run(look, seconds=LOOK_SECONDS, what=f"looking at what {tier.name} can reach")
    except OSError as error:
        context.log.warning(LogEvent.ACCESS_NOT_KNOWN, tier=tier.number, error=str(error))
        return ()
    facts = replace(facts, kubeconfig=facts.kubeconfig or bool(tier.kubeconfigs))
    return limits_in(facts.with_agent() if await has_agent() else facts, estate)


class ModelWay(msgspec.Struct, frozen=True, kw_only=True):
    """How a session connects to its model: through the meter, or by itself."""

    meter: str | None = None  # its URL
    urls: tuple[str, ...] = ()


def needs_of(
    context: SessionContext,
    tier: TierSetup,
    place: tuple[Workspace, Estate],
    way: ModelWay,
    filters: Sequence[Endpoint] = (),
) -> Needs:
    """Return what the list of a session is made of, in its workspace and with what is known of the estate.

    ``filters``: where the daemon's filters listen for it.
    """
    workspace, estate = place
    servers, of_repos = context.mcp.mcp_servers or {}, context.mcp.mcp_of_repos
    endpoints = [endpoint for url in way.urls for endpoint in endpoints_in(url)]
    for name, server in servers.items():
        url, given = server.get("url"), server.get("env")
        named = endpoints_in(url) if isinstance(url, str) else ()
        if name in of_repos:  # their authors do not choose what a session reaches of this machine
            endpoints += [endpoint for endpoint in named if not is_loopback(endpoint[0])]
            continue
        endpoints += named
        if isinstance(given, Mapping):
            endpoints += endpoints_of_environment(
                {key: value for key, value in given.items() if isinstance(value, str)}
            )
        endpoints += [found for word in mcp_servers.texts(server.get("args")) for found in endpoints_in(word)]
    return Needs(
        tier=tier.policy,
        estate=estate,
        environment=tier.unfiltered_env,
        home=workspace.home,
        endpoints=endpoints,
        ours=(*(() if way.meter is None else (endpoint_of(way.meter),)), *filters),
        headers=tier.headers,
    )


def gather(
    cell: Cell,
    sandbox: SandboxSpec,
    environment: Mapping[str, str],
    *,
    home: Path,
    filtered: Path | None = None,
    mounts: Iterable[Mount] | None = None,
    user_home: Path | None = None,
) -> AccessFacts:
    """Return the facts about sessions with this cell, home and environment. Accesses the disk.

    ``filtered``: the socket of docker's engine that they reach through the filter.
    ``user_home``: where ssh looks at level ``none``; by default the home of the daemon's user, whatever ``HOME`` says.
    """
    view = view_of(cell, sandbox, mounts)
    docker, socket = (
        _docker(view, environment.get(DOCKER_HOST, "")) if filtered is None else (_engine(filtered), str(filtered))
    )
    name = os.uname().nodename.lower()
    named = [view.real(path) for path in named_in({"": environment.get("KUBECONFIG", "")})]
    ssh_home = home if cell.level is not IsolationLevel.NONE else user_home or _home_of_daemon()
    return AccessFacts(
        here=frozenset({name, name.partition(".")[0]}),
        docker=docker,
        docker_socket=socket,
        kubeconfig=_mode(home / ".kube" / "config") != 0
        or any(path is not None and view.may(path, _READ) for path in named),
        ssh=_ssh(view, ssh_home, agent="SSH_AUTH_SOCK" in environment, uid=sandbox.workspace.uid),
        missing=tuple(name for name in PROGRAMS if not _is_found(name, view, sandbox.path)),
    )


# --- the view from the cell ---------------------------------------------------------------------------


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a session sees of this machine's files, and as whom."""

    uid: int
    groups: Collection[int]
    is_root: bool = False  # permissions do not hold it
    mounts: Mapping[str, Mount] | None = None
    """By their places, as text: some hundred paths are looked up for each session. None: it sees all of the machine."""

    def real(self, path: Path, *, of_session: Path | None = None) -> Path | None:
        """Return where a path leads on the machine; ``None`` if nothing is there for a session.

        What lies below ``of_session``, a directory of the session's own, can be seen in every cell.
        """
        if of_session is not None and path.is_relative_to(of_session):
            return path if _mode(path) else None
        if self.mounts is None:
            return path.resolve() if _mode(path) else None
        found = self._shown(str(path), self.mounts)
        return None if found is None else Path(found)

    def _shown(self, path: str, mounts: Mapping[str, Mount]) -> str | None:
        for _ in range(_DEEPEST_LINK):
            place = path
            while (mount := mounts.get(place)) is None and place not in {"", "/"}:
                place = place.rpartition("/")[0] or "/"
            if mount is None or mount.kind is MountKind.EMPTY:
                return None
            rest = path[len(place) :]
            if mount.kind is MountKind.LINK:
                path = os.path.join(os.path.dirname(place), mount.source) + rest  # noqa: PTH118, PTH120 - see `mounts`
                continue
            found = f"{mount.source}{rest}"
            try:
                target = os.readlink(found)  # noqa: PTH115 - see `mounts`
            except (OSError, ValueError):  # no link
                return found if os.path.exists(found) else None  # noqa: PTH110 - see `mounts`
            path = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - see `mounts`
        return None

    def may(self, path: Path, right: int) -> bool:
        """Return whether a session has a right (4 read, 2 write, 1 execute) to what lies at a real path."""
        if self.is_root:
            return True
        # Where a mount shows the path, what lies above it on the machine is not in the way.
        above = () if self.mounts is not None else path.parents
        return self._has(path, right) and all(self._has(directory, _EXECUTE) for directory in above)

    def _has(self, path: Path, right: int) -> bool:
        try:
            found = path.stat()
        except OSError:
            return False
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0
        return bool(found.st_mode >> shift & right)


def view_of(cell: Cell, sandbox: SandboxSpec, mounts: Iterable[Mount] | None = None) -> View:
    """Return what the sessions of a cell see; ``mounts``, where they are known already."""
    workspace = sandbox.workspace
    if cell.level is IsolationLevel.USER and workspace.uid is not None:
        return View(uid=workspace.uid, groups=(workspace.uid,))
    uid, groups = os.geteuid(), (os.getegid(), *os.getgroups())
    if not isinstance(cell, BubblewrapCell):
        return View(uid=uid, groups=groups, is_root=uid == 0)
    found = cell.mounts(sandbox) if mounts is None else mounts
    return View(uid=uid, groups=groups, mounts={str(mount.place): mount for mount in found})


# --- single facts -------------------------------------------------------------------------------------


def _docker(view: View, named: str) -> tuple[DockerAccess, str]:
    """Return whether docker can be asked, and by which socket; ``named`` is the tier's ``DOCKER_HOST``."""
    if named and not named.startswith(_UNIX):
        return DockerAccess.ELSEWHERE, named
    path = Path(named.removeprefix(_UNIX) or _DOCKER_SOCKET)
    real = view.real(path)
    if real is None:
        return (DockerAccess.HIDDEN if _mode(path) else DockerAccess.ABSENT), str(path)
    if not stat.S_ISSOCK(_mode(real)):
        return DockerAccess.ABSENT, str(path)
    return (DockerAccess.OPEN if view.may(real, _WRITE) else DockerAccess.REFUSED), str(path)


def _engine(socket: Path) -> DockerAccess:
    """Return whether the daemon, whose filter a session goes through, can ask docker."""
    if not stat.S_ISSOCK(_mode(socket)):
        return DockerAccess.ABSENT
    return DockerAccess.OPEN if os.access(socket, os.W_OK) else DockerAccess.REFUSED


def _ssh(view: View, home: Path, *, agent: bool, uid: int | None) -> SshFacts:
    refusal = ""
    if view.mounts is None and uid is not None and not _is_listed(uid):
        refusal = "this tier's user is on no list of this machine, so ssh refuses to run"
    own = home / ".ssh"
    known = (own / "known_hosts", own / "known_hosts2", _ETC_SSH / "ssh_known_hosts")
    return SshFacts(
        config=ssh_text(home, lambda path: _text(view, path, home)),
        known_hosts="\n".join(_text(view, path, home) for path in known),
        keys=agent or any(True for _ in _keys(own)),
        refusal=refusal,
    )


def _keys(directory: Path) -> Iterator[Path]:
    """Yield the keys that ssh tries by itself; nothing of them is read."""
    yield from (path for path in directory.glob("id_*") if path.suffix != ".pub" and stat.S_ISREG(_mode(path)))


def _text(view: View, path: Path, home: Path) -> str:
    real = view.real(path, of_session=home)
    if real is None or not stat.S_ISREG(_mode(real)):  # opening a pipe would wait for a writer
        return ""
    try:
        with real.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except PermissionError:  # neither can the session read it
        return ""


def _mode(path: Path) -> int:
    """Return the mode of what a path leads to; 0 if there is nothing, or the daemon may not know."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def _is_found(program: str, view: View, path: str) -> bool:
    for directory in path.split(":"):
        real = view.real(Path(directory, program)) if directory.startswith("/") else None
        if real is not None and stat.S_ISREG(_mode(real)) and view.may(real, _EXECUTE):
            return True
    return False


def _home_of_daemon() -> Path:
    """Return the home in the machine's list of users: ssh does not ask the environment."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return Path("/nonexistent")


def _is_listed(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
