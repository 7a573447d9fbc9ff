"""What sessions can be run in, tried once for all daemons of a zygote instead of by eighty processes for each of them.

The daemon asks a process as always, and waits for its answers: a fork that knows them. What was found holds for the
whole machine, but for the paths that no session may see, which are those of the daemon that asks.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO, TypeVar, cast

from claudeops.app.start.trial import surroundings
from claudeops.app.start.trial_process import TrialProcess, end, order_looks, started, try_isolation
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.git import GitCell
from claudeops.engine.cell.levels import HostContext, Selected
from claudeops.engine.cell.look_cell import FoundLooks, LookCell
from claudeops.engine.cell.network import NetworkCell
from claudeops.settings import load_settings
from claudeops.structs import replace

T = TypeVar("T")


@dataclass(frozen=True)
class Found:
    """The two answers of a process that has tried."""

    isolation: Selected
    looks: FoundLooks

    def seen_from(self, asking: HostContext) -> Found:
        """Return what a daemon would have found."""
        looks = {name: _look_hiding(cell, asking) for name, cell in self.looks.cells.items()}
        return Found(
            replace(self.isolation, cell=_hiding(self.isolation.cell, asking)), replace(self.looks, cells=looks)
        )


@dataclass
class Tried:
    """What was found, by what it was tried with."""

    _found: dict[tuple[object, ...], Found] = field(default_factory=dict)

    def of(self, environment: dict[str, str]) -> Found:
        """Return what a daemon with this environment finds; tries it where nobody has. Blocks for a second then."""
        settings = load_settings(environment, cwd=Path.cwd()).settings
        asking, isolation = surroundings(settings), settings.cell.isolation
        key = (isolation, asking.path, asking.binaries, asking.shares_network)
        if key not in self._found:
            self._found[key] = _try(isolation, asking)
        return self._found[key]


def _try(isolation: str, asking: HostContext) -> Found:
    process = started()
    try:
        chosen = try_isolation(process, isolation, asking)
        order_looks(process)
        looks = cast("FoundLooks", pickle.load(cast("IO[bytes]", process.stdout)))  # noqa: S301 - of a process of ours
    finally:
        end(process, ())
    return Found(chosen, looks)


class Knowing:
    """A process that has nothing to try any more: what a daemon uses of a `TrialProcess`.

    Made where there is one thread alone.
    """

    def __init__(self, found: Found) -> None:
        self._turn = Lock()
        orders, stdin = os.pipe()
        stdout, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(stdin)
            os.close(stdout)
            _answer(found, orders, answers)
        os.close(orders)
        os.close(answers)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")

    def wait(self) -> None:
        """Wait for its end, however often, and on several threads: a daemon that is stopped early does both."""
        with self._turn:
            if self.pid:
                os.waitpid(self.pid, 0)
                self.pid = 0

    def as_process(self) -> TrialProcess:
        """Return it as what starts a daemon has it."""
        return cast("TrialProcess", self)


def _answer(found: Found, orders: int, answers: int) -> None:
    """Be the process, to its end."""
    try:
        with os.fdopen(orders, "rb") as stdin, os.fdopen(answers, "wb") as stdout:
            _, asking = pickle.load(stdin)  # noqa: S301 - of the daemon
            known = found.seen_from(asking)
            for each in (known.isolation, known.looks):
                pickle.dump(each, stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        pass  # the daemon has died
    finally:
        os._exit(0)


def _hiding(cell: T, asking: HostContext) -> T:
    return replace(cell, hidden=asking.hidden) if isinstance(cell, BubblewrapCell) else cell


def _look_hiding(cell: LookCell, asking: HostContext) -> LookCell:
    assert isinstance(cell, GitCell | NetworkCell)
    return replace(cell, bubblewrap=_hiding(cell.bubblewrap, asking))
