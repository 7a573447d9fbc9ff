"""``claudeops`` as a process that is forked from one that has imported it: milliseconds instead of a second and a half.

A forked process has its own environment, directory, descriptors and signals and ends as Python does; it is a child of
the server, not of the test. What looks at ``/proc/PID/environ`` or ``cmdline``, at a locale, or at the first moments of
a start takes a real process. There is one server for each process of the tests; it ends with it.

Run as a program (``python -m support.forks FD``) this is the server: one thread, no event loop. An order is one message
on the socket, JSON with three descriptors: where its answers go, stdout and stderr. The answers are two lines, the pid
and the exit status as `os.waitstatus_to_exitcode` has it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import anyio
import psutil
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from support.waiting import LOOK_SECONDS, PATIENCE_SECONDS

_MOST_BYTES: Final = 128 * 1024  # of an order
_REAL_ONLY: Final = ("LANG", "LC_", "LD_", "PYTHON")
"""Variables that count when an interpreter starts: a process that is given one cannot be forked."""

_PYTHON: Final = {"PYTHONWARNINGS": "error"}  # of the server, so that forked processes may have it
_LOCALE: Final = {"LC_CTYPE": "C.UTF-8"}  # Python sets it at its start where no locale is named (PEP 538)

# Loaded by processes of their own alone, with libraries that daemons and commands do without.
_OTHERS: Final = ("claudeops.notify.courier", "claudeops.notify.slack_socket", "claudeops.engine.cell.guardian")
_LATE: Final = (
    *("alembic.command", "alembic.script", "anyio._backends._asyncio", "apscheduler.schedulers.asyncio", "httpcore2"),
    *("rich.console", "rich.progress", "rich.table", "sqlalchemy.dialects.sqlite.pysqlite", "uvicorn.loops.asyncio"),
    *("rich.columns", "rich.traceback", "structlog", "structlog.dev", "structlog.stdlib", "encodings.idna"),
    *("apscheduler.executors.asyncio", "truststore", "uvicorn.lifespan.off", "uvicorn.protocols.http.h11_impl"),
    *("psycopg", "sqlalchemy.dialects.postgresql.psycopg"),
)
"""What daemons and commands import late, each of them."""


# --- the test's side ------------------------------------------------------------------------------------


class Forked(Process):
    """A forked process, as anyio has processes; its stdout and stderr are files of the caller's."""

    def __init__(self, pid: int, answers: socket.socket) -> None:
        self._pid = pid
        self._answers = answers
        self._unread = b""
        self._status: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        if self._status is None and self._answers.fileno() >= 0:
            with suppress(BlockingIOError):
                while b"\n" not in self._unread:
                    if not (piece := self._answers.recv(64)):
                        raise RuntimeError(f"the server of forked processes has ended before {self._pid}")
                    self._unread += piece
                self._status = int(self._unread)
        return self._status

    async def wait(self) -> int:
        while (status := self.returncode) is None:
            try:
                await anyio.wait_readable(self._answers)
            except anyio.BusyResourceError:  # somebody else waits, too
                await anyio.sleep(LOOK_SECONDS)
        return status

    def send_signal(self, signal: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def aclose(self) -> None:
        try:
            await self.wait()
        except BaseException:
            self.kill()
            with anyio.CancelScope(shield=True):
                await self.wait()
            raise
        finally:
            self._answers.close()

    @property
    def stdin(self) -> ByteSendStream | None:
        return None

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return None

    @property
    def stderr(self) -> ByteReceiveStream | None:
        return None


def allow() -> None:
    """Let processes be forked. Tests say so; benchmarks do not, for they measure starts and memory of real ones."""
    _Server.is_allowed = True


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a process may be forked, and is the same with this environment as one that is started."""
    if not _Server.is_allowed:
        return False
    return not any(name.startswith(_REAL_ONLY) and _PYTHON.get(name) != value for name, value in environment.items())


def fork(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdout: IO[bytes], stderr: IO[bytes] | None = None
) -> Forked:
    """Start ``claudeops`` with arguments; stdin is empty, stderr goes to ``stdout`` unless it has a file of its own."""
    order = json.dumps({"arguments": list(arguments), "environment": dict(env), "directory": str(cwd)}).encode()
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = [theirs.fileno(), stdout.fileno(), (stderr or stdout).fileno()]
        try:
            socket.send_fds(_Server.connection(), [order], descriptors)
        except BrokenPipeError:
            ours.close()
            raise RuntimeError(_Server.last_words()) from None
    ours.settimeout(PATIENCE_SECONDS)
    pid = b""
    while not pid.endswith(b"\n"):
        if not (piece := ours.recv(1)):
            raise RuntimeError(_Server.last_words())
        pid += piece
    ours.setblocking(False)  # noqa: FBT003 - the standard library's way
    return Forked(int(pid), ours)


async def run_forked(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[bytes]:
    """Run ``claudeops`` to its end; when the caller is cancelled it is killed."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        async with fork(arguments, env=env, cwd=cwd, stdout=stdout, stderr=stderr) as process:
            status = await process.wait()
        return subprocess.CompletedProcess(list(arguments), status, _content(stdout), _content(stderr))


def processes_below() -> list[psutil.Process]:
    """Return every process below this one but the server, which is no leftover of a test."""
    server = None if _Server.process is None else _Server.process.pid
    return [child for child in psutil.Process().children(recursive=True) if child.pid != server]


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


class _Server:
    is_allowed = False
    process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None
    _errors: IO[bytes] | None = None

    @classmethod
    def last_words(cls) -> str:
        """Return how the server has ended."""
        status = None if cls.process is None else cls.process.wait(PATIENCE_SECONDS)
        said = b"" if cls._errors is None else _content(cls._errors)
        return f"the server of forked processes has ended with status {status}: {said.decode(errors='replace')[-2000:]}"

    @classmethod
    def connection(cls) -> socket.socket:
        """Return the socket to the server, which is started for the first who wants it."""
        if cls._socket is None:
            cls._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            tests = Path(__file__).parents[1]
            cls._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the server; what a test prints is captured
            with theirs:
                cls.process = subprocess.Popen(
                    [sys.executable, "-m", "support.forks", str(theirs.fileno())],
                    env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tests), "HOME": "/nonexistent", **_PYTHON},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stderr=cls._errors,
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(cls.end)
        return cls._socket

    @classmethod
    def end(cls) -> None:
        """End the server, which ends at the end of its orders."""
        if cls._socket is not None and cls.process is not None:
            cls._socket.close()
            cls.process.wait(PATIENCE_SECONDS)
            if cls._errors is not None:
                cls._errors.close()


# --- the server -----------------------------------------------------------------------------------------


def serve(orders: socket.socket) -> None:
    """Fork a process for each order, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end the server
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    _import_all()
    gc.collect()
    gc.freeze()
    running: dict[int, int] = {}  # where the answers go, by pid
    while True:
        readable = select.select([orders.fileno(), ended], [], [])[0]
        if ended in readable:
            os.read(ended, 4096)
            _reap(running)
        if orders.fileno() in readable:
            message, descriptors, _, _ = socket.recv_fds(orders, _MOST_BYTES, 3)
            if not message:
                break
            answers, *outputs = descriptors
            pid = os.fork()
            if pid == 0:
                _be(json.loads(message), outputs)
            for output in outputs:
                os.close(output)
            running[pid] = answers
            os.write(answers, b"%d\n" % pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass  # the wake-up descriptor says it


def _reap(running: dict[int, int]) -> None:
    for pid, answers in list(running.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with suppress(BrokenPipeError):
                os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(answers)
            del running[pid]


def _import_all() -> None:
    import claudeops  # noqa: PLC0415 - by the server alone

    for module in pkgutil.walk_packages(claudeops.__path__, "claudeops."):
        if not module.name.startswith(_OTHERS) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    from claudeops.settings import load_settings  # noqa: PLC0415 - as above

    # The default policy's expressions are compiled once for each process, and cached.
    with tempfile.TemporaryDirectory() as empty:
        load_settings({"PATH": os.environ["PATH"]}, cwd=Path(empty))


def _be(order: Mapping[str, Any], outputs: Sequence[int]) -> None:
    """Become the process that was ordered; ends as the interpreter does."""
    status = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for place, descriptor in enumerate((nothing, *outputs)):
            os.dup2(descriptor, place)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208 - names, not paths
        os.environ.clear()
        os.environ.update(_LOCALE | order["environment"])
        time.tzset()
        os.chdir(order["directory"])
        sys.path[0] = order["directory"]
        sys.argv = ["claudeops", *order["arguments"]]
        _open_streams()
        status = _main()
    except BaseException:  # noqa: BLE001 - as the interpreter
        traceback.print_exc()
        status = 1
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _open_streams() -> None:
    """Open the three streams as the interpreter does at its start."""
    errors = sys.stdout.errors
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors=errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors=errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _main() -> int:
    from claudeops.cli.main import main  # noqa: PLC0415 - by a forked process alone

    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return status


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as the_orders:
        serve(the_orders)
