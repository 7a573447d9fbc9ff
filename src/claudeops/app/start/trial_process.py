"""The process that tries which level of isolation works, and which programs can be run for sessions.

Run as a program (``python -I -m claudeops.app.start.trial_process``) this is that process. Its trials wait for some
eighty others. In the daemon, which loads itself meanwhile, each of these waits would be followed by one for the
interpreter. It starts before the daemon is loaded, so what tries is imported where it is called. Its orders stand on
stdin: a pickle, and later a byte for the programs, which a start need not wait for and which would take its processor
time. Its answers are two pickles on stdout. It begins nothing more once stdin has ended.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, cast

from claudeops.errors import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from claudeops.engine.cell.cell import Cell
    from claudeops.engine.cell.levels import HostContext, Selected
    from claudeops.engine.cell.look_cell import FoundLooks, LookCell

TrialProcess: TypeAlias = "subprocess.Popen[bytes]"

_PROGRAM: Final = (sys.executable, "-I", "-m", "claudeops.app.start.trial_process")
_GO: Final = b"\n"
_ENDED: Final = "it was ended; start claudeops again"


@contextmanager
def begun() -> Iterator[TrialProcess | None]:
    """Hold a process that waits for its order for the length of the block; ``None``: it could not be started."""
    try:
        process = _start()
    except OSError:
        yield None  # `try_isolation` says why, if it fails as well
        return
    with process:
        yield process


def started() -> TrialProcess:
    """Return a process that waits for its order; raises `ConfigurationError` where it cannot be started."""
    try:
        return _start()
    except OSError as error:
        raise _fault(f"it cannot be started ({error.strerror}): mend that") from error


def try_isolation(process: TrialProcess, isolation: str, surroundings: HostContext) -> Selected:
    """Give a process its order and return the level that was chosen; blocks. Raises `ConfigurationError`."""
    orders = cast("IO[bytes]", process.stdin)
    try:
        pickle.dump((isolation, surroundings), orders)
        orders.flush()
    except BrokenPipeError as error:
        raise _fault(_ENDED) from error
    return cast("Selected", _answer(process))


def order_looks(process: TrialProcess) -> None:
    """Have a process that has answered the first order try the programs too."""
    orders = cast("IO[bytes]", process.stdin)
    with suppress(BrokenPipeError):  # `found_looks` says that it has ended
        orders.write(_GO)
        orders.flush()


def found_looks(process: TrialProcess, isolation: Future[Selected]) -> FoundLooks:
    """Return what else a process has found, once it was ordered; blocks until it has ended.

    Raises `ConfigurationError`.
    """
    isolation.result()
    found = cast("FoundLooks", _answer(process))
    process.wait()
    return found


def end(process: TrialProcess, answers: Sequence[Future[Any]]) -> None:
    """Let a process begin nothing more, and wait until it has ended and its answers are read; blocks."""
    with suppress(BrokenPipeError):
        cast("IO[bytes]", process.stdin).close()
    process.wait()
    wait(answers)
    cast("IO[bytes]", process.stdout).close()


def _start() -> TrialProcess:
    # Of a group of its own: Ctrl-C asks the daemon to stop, and a level that it kills would count as broken.
    return subprocess.Popen(_PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603 - this module


def _answer(process: TrialProcess) -> object:
    try:
        answer = pickle.load(cast("IO[bytes]", process.stdout))  # noqa: S301 - of a process of ours
    except (EOFError, pickle.UnpicklingError) as error:
        raise _fault(_ENDED) from error
    if isinstance(answer, ConfigurationError):
        raise answer
    return answer


def _fault(why: str) -> ConfigurationError:
    sentence = f"The process that tries levels of isolation has not answered: {why}."
    return ConfigurationError(sentence, kind=ErrorKind.RUNTIME)


def find_looks(cell: Cell, path: str, *, goes_on: Callable[[], bool] = lambda: True) -> FoundLooks:
    """Try every program that the daemon runs for sessions. Starts processes, and none any more once it is to end."""
    from claudeops.engine.cell.bubblewrap import BubblewrapCell  # noqa: PLC0415 - see above
    from claudeops.engine.cell.git import find_git_cell  # noqa: PLC0415 - see above
    from claudeops.engine.cell.look_cell import FoundLooks  # noqa: PLC0415 - see above
    from claudeops.engine.cell.network import find_network_cells  # noqa: PLC0415 - see above

    with ThreadPoolExecutor(1) as beside:
        git = beside.submit(find_git_cell, cell, path)
        network = find_network_cells(cell, path, goes_on=goes_on) if isinstance(cell, BubblewrapCell) else {}
    tried: dict[str, LookCell | str] = {"git": git.result(), **network}
    return FoundLooks(
        cells={name: found for name, found in tried.items() if not isinstance(found, str)},
        why={name: found for name, found in tried.items() if isinstance(found, str)},
    )


# --- the process ----------------------------------------------------------------------------------------


def main() -> None:
    """Carry out the order that stands on stdin."""
    from claudeops.engine.cell import git, levels, network  # noqa: F401, PLC0415 - before the order comes

    signal.signal(signal.SIGTERM, lambda *_: None)  # sent to all processes of a service: the daemon says when to end
    try:
        isolation, surroundings = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the daemon
    except (EOFError, pickle.UnpicklingError):
        return  # the daemon has ended before it gave one, or in the middle of it
    try:
        chosen = levels.choose(isolation, surroundings)
    except ConfigurationError as error:
        _say(error)
        return
    _say(chosen)
    if sys.stdin.buffer.read(1) == _GO and not _is_to_end():
        _say(find_looks(chosen.cell, surroundings.path, goes_on=lambda: not _is_to_end()))


def _is_to_end() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _say(answer: object) -> None:
    with suppress(BrokenPipeError), open(sys.stdout.fileno(), "wb", closefd=False) as answers:
        pickle.dump(answer, answers)  # unless the daemon has been killed


if __name__ == "__main__":
    gc.disable()  # it ends soon, and its end is waited for
    main()
    os._exit(0)  # nothing is left to be written, and the interpreter takes 20 ms to take itself apart
