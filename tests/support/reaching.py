"""A program that tries to reach what it was not given, and says what it reached; for any place: in a cell, or outside.

Run by its text, with the bare interpreter (``python -I -S -c TEXT MODE …``), so that no file of the project has to be
shown to it. ``cli SHELL``: be a CLI that holds a secret; start a server and a tool by the shell, as a CLI does; try
everything in both places, the CLI's and the tool's. ``tool``: only try. ``hold MARK``: hold a secret until standard
input ends. ``keyed … COMMAND…``: become a command with a session keyring that holds a secret.

What to try comes as JSON on standard input: names, each with an act of this program and its words. What came of it goes
to standard output: for each name ``reached``, or why not. Each act runs in a process of its own, so that what works
does not spoil the next; and each is of a form that changes nothing on the machine, also where root does it outside.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

REACHED = "reached"
SECRET = "SECRET_OF_THE_PROCESS"
SERVERS = "SECRET_OF_THE_SERVER"
SECONDS = 20.0  # of one act; only a hang reaches it
OF_SESSION = -3  # KEY_SPEC_SESSION_KEYRING
REFUSED = {errno.EPERM, errno.ENOSYS}
OWN_PLACE = {"self": os.getpid, "parent": os.getppid}

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

Tries = Mapping[str, Sequence[Any]]


class NotReachedError(Exception):
    """What was tried came to nothing, without an error of the kernel."""


def kernel(answer: int) -> int:
    """Return what a call answered, or raise its error."""
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def system_call(number: int, *words: object) -> int:
    """Make a system call, with whole words."""
    ctypes.set_errno(0)
    return kernel(LIBC.syscall(number, *(ctypes.c_long(word) if isinstance(word, int) else word for word in words)))


def holds(content: bytes, secret: str) -> None:
    """Raise unless the content holds a secret; every content holds "" if there is any."""
    if not content or secret.encode() not in content:
        raise NotReachedError("something else" if content else "nothing")


def content_of(path: str, most: int = 1 << 20) -> bytes:
    """Return the first part of a file."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib would be a slow import
        return file.read(most)


# --- the network, sockets ------------------------------------------------------------------------------


def stream(address: str, port: int) -> None:
    """Connect, and hear what is said there."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as mine:
        mine.settimeout(SECONDS / 2)
        mine.connect((address, port))
        holds(mine.recv(99), "")


def datagram(address: str, port: int) -> None:
    """Send a datagram, and hear the answer."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.settimeout(SECONDS / 2)
        mine.connect((address, port))
        mine.send(b"hello")
        holds(mine.recv(99), "")


def socket_file(path: str) -> None:
    """Connect to a socket that is a file; one whose name begins with @ is abstract."""
    with socket.socket(socket.AF_UNIX) as mine:
        mine.settimeout(SECONDS / 2)
        mine.connect("\0" + path[1:] if path.startswith("@") else path)


def family(*numbers: int) -> None:
    """Make, and never connect, a socket of each family, until one is no unknown family to the kernel."""
    for number in numbers:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(number, kind).close()
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    continue
            return
    raise OSError(errno.EAFNOSUPPORT, "")


def packets() -> None:
    """Make a socket that sends packets of its own making."""
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def change_network() -> None:
    """Ask the kernel to change an interface that there is not: it looks at the right to do so first."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as routes:
        body = struct.pack("=BxHiII", 0, 0, 0x7FFFFFFF, 0, 0)
        routes.send(struct.pack("=IHHII", 16 + len(body), 16, 0x5, 1, 0) + body)  # RTM_NEWLINK
        answer = -struct.unpack_from("=i", routes.recv(4096), 16)[0]
    if answer == errno.EPERM:
        raise OSError(answer, "")


# --- files -----------------------------------------------------------------------------------------------


def read(path: str, secret: str = "") -> None:
    """Read a file."""
    holds(content_of(path), secret)


def writable(*paths: str) -> None:
    """Ask, for each path, whether it could be written. Nothing is: it could be a file of the machine's."""
    for path in paths:
        if os.access(path, os.W_OK):
            return
    raise NotReachedError("read-only, or not there")


def device(*paths: str) -> None:
    """Open a device, for reading."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        return
    raise NotReachedError("closed, or not there")


def environment_of_another(pid: str, own: str) -> None:
    """Read the environment of a process, unless it is one that holds this session's own."""
    if own.encode() in content_of(f"/proc/{pid}/environ"):
        raise NotReachedError("it is one's own")


def big_nameless_file(directory: str, size: int) -> None:
    """Write a file that has no name, with more in it than a session's file may have; raise the bound first."""
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = os.open(directory.replace("~", os.environ["HOME"]), os.O_TMPFILE | os.O_RDWR, 0o600)
    part = bytes(1 << 16)
    for _ in range(0, size, len(part)):
        os.write(file, part)
    if os.fstat(file).st_size < size:
        raise NotReachedError("not all of it")


def shared_memory(key: int, secret: str) -> None:
    """Read what another process has put into a segment of System V."""
    LIBC.shmat.restype = ctypes.c_void_p
    segment = kernel(LIBC.shmget(key, 0, 0))
    place = LIBC.shmat(segment, None, 0o10000)  # SHM_RDONLY
    if place in {None, ctypes.c_void_p(-1).value}:
        raise OSError(ctypes.get_errno(), "")
    holds(ctypes.string_at(place, len(secret)), secret)


# --- keys ------------------------------------------------------------------------------------------------


def find_key(keyctl: int, description: str, secret: str) -> None:
    """Find a key in the session keyring, and read it."""
    read_key(keyctl, system_call(keyctl, 10, OF_SESSION, b"user", description.encode(), 0), secret)


def read_key(keyctl: int, number: int, secret: str) -> None:
    """Read a key by its number."""
    space = ctypes.create_string_buffer(99)
    size = system_call(keyctl, 11, number, ctypes.byref(space), ctypes.c_size_t(99))
    holds(space.raw[:size], secret)


def request_key(number: int, description: str) -> None:
    """Ask the kernel for a key; without a place for it, no program of the machine is started."""
    system_call(number, b"user", description.encode(), None, 0)


def leave_key(number: int, description: str) -> None:
    """Leave a key for whoever comes next."""
    system_call(number, b"user", description.encode(), b"left", ctypes.c_size_t(4), OF_SESSION)


# --- system calls ----------------------------------------------------------------------------------------


def call(number: int, *words: object) -> None:
    """Make a call; whatever the kernel says about its words, it was reached."""
    try:
        system_call(number, *(OWN_PLACE[word]() if isinstance(word, str) else word for word in words))
    except OSError as error:
        if error.errno in REFUSED:
            raise


def new_namespace(unshare: int, kinds: int) -> None:
    """Enter namespaces of one's own."""
    system_call(unshare, kinds)


def foreign_call() -> None:
    """Ask for the pid by the numbers of a 32-bit program: ``mov eax, 20; int 0x80; ret``."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(bytes.fromhex("b814000000cd80c3"))
    run = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    if run() != os.getpid():
        raise OSError(errno.ENOSYS, "")


def type_into_terminal(ioctl: int, request: int) -> None:
    """Ask what is no terminal to take a letter as typed: who may not ask hears of no terminal."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        system_call(ioctl, nothing, request, 0)
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise


# --- other processes -------------------------------------------------------------------------------------


def memory(pid: int, address: int, secret: str) -> None:
    """Read a process's memory as a file."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:  # noqa: PTH123 - as above
        file.seek(address)
        holds(file.read(len(secret)), secret)


def memory_by_call(number: int, pid: int, address: int, secret: str) -> None:
    """Read a process's memory by ``process_vm_readv``."""
    space = ctypes.create_string_buffer(len(secret))
    ours = struct.pack("QQ", ctypes.addressof(space), len(secret))
    theirs = struct.pack("QQ", address, len(secret))
    system_call(number, pid, ours, 1, theirs, 1, 0)
    holds(space.raw, secret)


def opened(pid: int, mark: str) -> None:
    """Open what a process has open."""
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - as above
        path = f"/proc/{pid}/fd/{name}"
        if mark in os.readlink(path):  # noqa: PTH115 - as above
            holds(content_of(path), "")
            return
    raise NotReachedError("something else")


def place_of(pid: int, mark: str) -> None:
    """See where a process works."""
    holds(os.readlink(f"/proc/{pid}/cwd").encode(), mark)  # noqa: PTH115 - as above


def arguments(pid: int, mark: str) -> None:
    """Read the arguments of a process."""
    holds(content_of(f"/proc/{pid}/cmdline"), mark)


def hear(pid: int, mark: str) -> None:
    """Ask whether a signal would arrive at a process; none is sent."""
    os.kill(pid, 0)
    arguments(pid, mark)  # in a cell another process may have its number


# --- limits ----------------------------------------------------------------------------------------------


def descriptors() -> None:
    """Look for descriptors beside the standard streams."""
    with os.scandir("/proc/self/fd") as entries:
        found = [os.readlink(entry.path) for entry in entries if int(entry.name) > 2]  # noqa: PTH115 - as above
    # The listing's own, and the pipe over which this act answers.
    extra = [link for link in found if not link.endswith("/fd") and link != ANSWERS]
    if not extra:
        raise NotReachedError("none")


def watches(count: int) -> None:
    """Take so many of the inotify instances of a user."""
    for _ in range(count):
        kernel(LIBC.inotify_init1(0))


def lock_memory(size: int) -> None:
    """Lock memory."""
    space = mmap.mmap(-1, size)
    kernel(LIBC.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(space))), ctypes.c_size_t(size)))


def nicer() -> None:
    """Take precedence over other processes, for the rest of this one."""
    os.nice(-1)


def real_time() -> None:
    """Take precedence over everything, for the rest of this process."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def core_files() -> None:
    """Have the kernel write this process's memory where it dies."""
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


def many_descriptors(number: int) -> None:
    """Have more descriptors than a session."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


# --- all of it -------------------------------------------------------------------------------------------

ACTS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        *(stream, datagram, socket_file, family, packets, change_network),
        *(read, writable, device, environment_of_another, big_nameless_file, shared_memory),
        *(find_key, read_key, request_key, leave_key),
        *(call, new_namespace, foreign_call, type_into_terminal),
        *(memory, memory_by_call, opened, place_of, arguments, hear),
        *(descriptors, watches, lock_memory, nicer, real_time, core_files, many_descriptors),
    )
}
ANSWERS = ""


def tried(act: str, *words: object) -> str:
    """Return what an act comes to, in a process of its own."""
    global ANSWERS  # noqa: PLW0603 - one act looks for descriptors that are not this program's
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()  # no terminal
        signal.alarm(int(SECONDS))
        ANSWERS = os.readlink(f"/proc/self/fd/{writing}")  # noqa: PTH115 - as above
        try:
            ACTS[act](*words)
            answer = REACHED
        except OSError as error:
            answer = errno.errorcode.get(error.errno or 0, str(error))
        except (NotReachedError, ValueError) as error:
            answer = str(error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the others are still to be tried
            answer = f"broken: {error!r}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said or f"ended by {status}"


def try_all(tries: Tries) -> dict[str, str]:
    """Return what each comes to."""
    return {name: tried(*words) for name, words in tries.items()}


def say(line: str) -> None:
    """Write a line to standard output, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def program(*words: str) -> list[str]:
    """Return the command line of this program, in another mode."""
    return [sys.executable, "-I", "-S", "-c", sys.orig_argv[4], *words]


def looks_into(whose: str, readv: int, process: tuple[int, int], secret: str, mark: str) -> dict[str, Sequence[Any]]:
    """Return the acts that look into a process of the session: its pid, and where its secret lies in its memory."""
    pid, address = process
    return {
        f"memory of {whose}": ("memory", pid, address, secret),
        f"memory by call of {whose}": ("memory_by_call", readv, pid, address, secret),
        f"environment of {whose}": ("read", f"/proc/{pid}/environ", secret),
        f"map of {whose}": ("read", f"/proc/{pid}/maps", "heap"),
        f"place of {whose}": ("place_of", pid, ""),
        f"descriptors of {whose}": ("opened", pid, mark),
        f"signals of {whose}": ("hear", pid, ""),
    }


def be_a_cli(shell: str) -> None:
    """Try everything; then start a server and a tool by the shell, and have the tool try it."""
    given = json.load(sys.stdin)
    found = {"cli": try_all(given["tries"])}
    secret = ctypes.create_string_buffer(os.environ[SECRET].encode())
    file = os.open(os.path.join(os.environ["HOME"], "of-the-cli"), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118 - as above
    os.write(file, b"of the CLI")
    through = [shell, "-c", 'exec "$@"', "sh"]
    for_all = {name: value for name, value in os.environ.items() if name not in {SECRET, SERVERS}}
    server = subprocess.Popen(
        [*through, *program("hold", "server")],
        env={**for_all, SECRET: os.environ[SERVERS]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        pid, address = map(int, server.stdout.readline().split())
        own, readv = (os.getpid(), ctypes.addressof(secret)), given["readv"]
        beside = {
            **looks_into("the CLI", readv, own, os.environ[SECRET], "of-the-cli"),
            **looks_into("a server", readv, (pid, address), os.environ[SERVERS], "of-server"),
        }
        tool = subprocess.run(
            [*through, *program("tool")],
            input=json.dumps({**given["tries"], **beside}),
            env=for_all,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found["tool"] = json.loads(tool.stdout)
        server.stdin.close()
    say(json.dumps(found))


def hold(mark: str) -> None:
    """Hold the secret of the environment in memory too, and a file open, until standard input ends."""
    secret = ctypes.create_string_buffer(os.environ[SECRET].encode())
    file = os.path.join(os.environ["HOME"], f"of-{mark}")  # noqa: PTH118 - as above
    os.write(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), os.environ[SECRET].encode())
    say(f"{os.getpid()} {ctypes.addressof(secret)}")
    sys.stdin.read()


def be_keyed(add_key: str, keyctl: str, description: str, secret: str, *command: str) -> None:
    """Become a command with a session keyring that has a secret in it; print the key's number first."""
    system_call(int(keyctl), 1, None)  # a keyring of its own, or the test would leave the key
    words = (b"user", description.encode(), secret.encode(), ctypes.c_size_t(len(secret)), OF_SESSION)
    say(str(system_call(int(add_key), *words)))
    os.execv(command[0], command)  # noqa: S606 - no shell


def main(mode: str, *words: str) -> None:
    """Do what the mode says."""
    if mode == "tool":
        say(json.dumps(try_all(json.load(sys.stdin))))
    elif mode == "cli":
        be_a_cli(*words)
    elif mode == "hold":
        hold(*words)
    else:
        be_keyed(*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
