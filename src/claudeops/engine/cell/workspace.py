"""The directories that a session lives in: home, configuration, working directory, temporary files, state."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from claudeops.tasks import AbandonedError, Threads, check_abandoned

T = TypeVar("T")

SESSION_FILES: Final = Threads(most=64)
"""Where file work at the start and end of sessions runs. A home or a repository may be on a disk that does not answer;
that then ends the session, not the daemon."""

LOOK_SECONDS: Final = 10.0
"""How long looking at some files, or writing a few small ones, may take."""

MAKE_SECONDS: Final = 60.0
REMOVE_SECONDS: Final = 30.0
"""How long making a workspace may take, the copy of the operator's home included, and removing one."""

_USERS: Final = "session:x:1000:1000::{home}:/bin/bash\nroot:x:0:0::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"
_TOOL_SHELL: Final = Path(__file__).with_name("tool_shell.py")
_GROUP: Final = "session:x:1000:\nroot:x:0:\nnogroup:x:65534:\n"
"""For cells that hide the machine's users: ssh looks up its own user, and finds its keys in the home named here."""


class Workspace(msgspec.Struct, frozen=True):
    """A session's own directories; nothing in them outlives the session."""

    root: Path
    uid: int | None = None  # owner of what the session may write; None: the daemon's user

    @property
    def home(self) -> Path:
        """``HOME``; the CLI keeps its configuration and its transcript below it."""
        return self.root / "home"

    @property
    def workdir(self) -> Path:
        """The working directory, the only place where a session may write."""
        return self.root / "work"

    @property
    def tmpdir(self) -> Path:
        """``TMPDIR``."""
        return self.root / "tmp"

    @property
    def state_dir(self) -> Path:
        """The child's ``CLAUDEOPS_STATE_DIR``: a legacy handoff file would lie here."""
        return self.root / "state"

    @property
    def own(self) -> tuple[Path, ...]:
        """All that the session may write."""
        return (self.home, self.workdir, self.tmpdir, self.state_dir)

    @property
    def memory(self) -> Path:
        """An empty directory, where only the session has its files in memory."""
        return self.root / "memory"

    @property
    def shell(self) -> Path:
        """The shell that keeps the session's tools apart, where there is one."""
        return self.etc / "bash"

    @property
    def hosts(self) -> Path:
        """The names on the session's own network, where it has one."""
        return self.etc / "hosts"

    @property
    def resolver(self) -> Path:
        """Which servers are asked for other names, likewise."""
        return self.etc / "resolv.conf"

    @property
    def agent(self) -> Path:
        """The daemon's own, for the agent that has the session's keys; of it the session sees the socket."""
        return self.root / "agent"

    @property
    def etc(self) -> Path:
        """Files of the daemon that a session sees in ``/etc``; it cannot change them."""
        return self.root / "etc"


def workspace_name(session_id: int) -> str:
    """Return the name of a session's workspace directory."""
    return f"{session_id:06d}"


async def create(
    root: Path, *, template_home: Path | None, uid: int | None = None, without: Collection[Path] = ()
) -> Workspace:
    """Make a workspace at ``root``, its home a copy of ``template_home`` if given; raises `OSError`.

    ``without``: files of ``template_home``, by their paths below it, that are not copied.
    Bounded by `MAKE_SECONDS`. A workspace that is finished after that, or after a cancellation, is removed again.
    It belongs to the daemon's user until `hand_over`. What an earlier run left at ``root`` (by a crash before the
    removal) is removed first. The paths of the workspace contain no links, wherever ``root`` leads.
    """

    def made() -> Workspace:
        try:
            return make(root, template_home=template_home, uid=uid, without=without)
        except AbandonedError:
            _remove(root)
            raise

    return await SESSION_FILES.run(
        made, seconds=MAKE_SECONDS, what=f"making the workspace {root}", undo=lambda late: _remove(late.root)
    )


async def enter(held: ExitStack | AsyncExitStack, context: AbstractContextManager[T]) -> T:
    """Enter a context that accesses the disk, off the event loop; ``held`` leaves it. Raises `OSError`."""
    accesses_none = isinstance(context, nullcontext)
    if accesses_none:
        return held.enter_context(context)
    value = await SESSION_FILES.run(
        context.__enter__,
        seconds=LOOK_SECONDS,
        what="taking a user for the session",
        undo=lambda _late: context.__exit__(None, None, None),
    )
    held.push(context)
    return value


def hand_over(workspace: Workspace, *, passable: Sequence[Path]) -> None:
    """Make a session's user the owner of all that it may write; raises `OSError`. Call it before the session starts.

    ``passable``: the directories above the workspace that this user has to pass.
    """
    uid = -1 if workspace.uid is None else workspace.uid  # -1 changes nothing
    for directory in (*passable, workspace.root):
        directory.chmod(0o711)  # passable, not listable
    for directory in workspace.own:
        for parent, directories, files in os.walk(directory):
            for name in (".", *directories, *files):
                os.chown(os.path.join(parent, name), uid, uid, follow_symlinks=False)  # noqa: PTH118 - as os.walk says it


async def remove(root: Path, *, seconds: float = REMOVE_SECONDS) -> OSError | None:
    """Remove a workspace; return what went wrong, if anything. A root that does not exist counts as removed.

    If it takes longer than ``seconds``, the removal goes on in the background, and a `TimeoutError` is returned.
    """
    try:
        return await SESSION_FILES.run(lambda: _remove(root), seconds=seconds, what=f"removing {root}")
    except TimeoutError as error:
        return error


def make(
    root: Path, *, template_home: Path | None, uid: int | None = None, without: Collection[Path] = ()
) -> Workspace:
    """Do the same as `create`, blocking and without a bound."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True, mode=0o700)
    workspace = Workspace(root.resolve(), uid)
    for directory in (workspace.workdir, workspace.tmpdir, workspace.state_dir, workspace.etc, workspace.agent):
        directory.mkdir(mode=0o700)
    if template_home is None:
        workspace.home.mkdir(mode=0o700)
    else:
        # Links are copied as links, so that nothing outside the operator's directory is pulled in.
        left_out = frozenset(template_home / path for path in without)
        ignored = partial(_not_copied, left_out=left_out)
        shutil.copytree(template_home, workspace.home, symlinks=True, ignore=ignored)
        workspace.home.chmod(0o700)
    (workspace.etc / "nothing").touch()
    (workspace.etc / "passwd").write_text(_USERS.format(home=workspace.home), encoding="utf-8")
    (workspace.etc / "group").write_text(_GROUP, encoding="utf-8")
    return workspace


def write_shell(workspace: Workspace, interpreter: Path | None) -> None:
    """Write the shell of a session's tools, which the interpreter runs; None: there is none. Raises `OSError`."""
    if interpreter is None:
        return
    workspace.etc.chmod(0o711)  # passable, not listable
    workspace.shell.write_text(f"#!{interpreter} -IS\n{_TOOL_SHELL.read_text(encoding='utf-8')}", encoding="utf-8")
    workspace.shell.chmod(0o755)


def _not_copied(directory: str, names: Sequence[str], *, left_out: Collection[Path]) -> list[str]:
    """Return what is left out of a directory: also sockets, pipes and devices; an agent's socket cannot be copied."""
    check_abandoned()
    modes = {name: os.lstat(os.path.join(directory, name)).st_mode for name in names}  # noqa: PTH118 - as copytree says it
    return [
        name
        for name, mode in modes.items()
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)) or Path(directory, name) in left_out
    ]


def _remove(root: Path) -> OSError | None:
    try:
        shutil.rmtree(root)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None
