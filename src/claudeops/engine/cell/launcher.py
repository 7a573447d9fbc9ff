"""The process that becomes bubblewrap: it takes with it what bubblewrap cannot give a session.

Run by path, with the bare interpreter (``python -I -S launcher.py GROUP KEYCTL COUNTS LIMITS FILTER NETWORK FILES
WORDS WORD…``): it starts in milliseconds and imports nothing of claudeops. The first WORDS words are bubblewrap and its
options, what follows is what runs in it. As it becomes bubblewrap by ``exec``, it is the same process to the daemon,
with its lifeline and its control group.

Without any words it was started ahead, and they come over a socket, which is its standard input: a line with the
descriptors that it is to have, then the length of the rest in eight bytes, then texts that each end with a zero: where
to be, which numbers the descriptors have (with commas), how many variables there are, these, and the words.

With the one word ``many`` it never becomes bubblewrap itself. For each message over its standard input it forks a
process that does, and sends that one's exit status back in four bytes, below zero for a signal. A message is a line
with the descriptors for standard output and error, then as above a length and texts: after how many seconds it is
killed, how many bytes of address space and how many seconds of computing time it may have, and the words.

GROUP is the file by which the session joins a control group, or empty. KEYCTL is the number of that system call on this
kind of machine. COUNTS says what the session's user namespace allows (``name=number,…``, names of ``/proc/sys/user``);
empty: it has none. LIMITS says which resource limits it has (``number=number,…``). FILTER is the filter of system calls
in base 64.

NETWORK is the descriptor of a socket to the daemon, or empty, which leaves the machine's network to the session. Over
it comes what stands on the session's own network, a line each, up to an empty line: ``address ADDRESS``, ``network
ADDRESS/LENGTH``, ``tcp ADDRESS PORT``, ``udp ADDRESS PORT``. For the last two a socket is made there, and goes to the
daemon with the number of its line among those that ask for one; ``.`` ends that. What this machine cannot make, because
it has no IPv6 or because the place is taken, is left out.

FILES is empty, or the descriptor of another socket to the daemon, how many bytes and how many files may be had, and a
directory, separated by commas. A tmpfs is mounted there, in a mount namespace of this process, so that nobody else ever
sees it at that place; the session's own directories are made in it; and the daemon gets a descriptor of it.

One option is the launcher's own: ``--copy FILE PLACE`` puts a copy of a file there, which is quicker than a mount.

Order: the control group first, so that everything is counted; the keyring outside of all namespaces; then the user
namespace with network and files, which are set up while this process may still do so. At its ``exec`` it loses the
capabilities that a new user namespace gives, unless its user is root.

What goes wrong is one line on standard error, and exit status 1, as with bubblewrap itself.
"""

from __future__ import annotations

import _socket  # socket itself takes longer to import than all the rest
import ctypes
import errno
import os
import resource
import sys
from array import array
from binascii import a2b_base64
from struct import pack, unpack_from

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_JOIN_SESSION_KEYRING = 1
_NO_KEYRINGS = (errno.ENOSYS, errno.EPERM)
"""The kernel has none, or a filter above this process keeps it and all that it starts from them."""

_MOST_AT_ONCE = 250  # descriptors in one message; the kernel takes 253
_QUEUE = 64

_NO_SETUID, _NO_DEVICES = 0x2, 0x4  # MS_NOSUID, MS_NODEV
_OWN_DIRECTORIES = ("home", "work", "tmp", "state")  # as in workspace.py

_LOOPBACK = 1  # the index of ``lo`` in every network namespace
_NETLINK_ROUTE = 0
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE = 0x1, 0x4, 0x400
_RTM_NEWLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 20, 24
_IFF_UP = 0x1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_F_NODAD = 1, 2, 0x02
_RTA_DST, _RTA_OIF = 1, 4
_RT_SCOPE_HOST, _TABLE_LOCAL, _BY_ADMINISTRATOR, _LOCAL = 254, 255, 4, 2

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become bubblewrap."""
    if sys.argv[1:] == ["many"]:
        _fork_for_each()
    given, variables = (sys.argv[1:], os.environb) if sys.argv[1:] else _awaited()
    group, keyctl, counts, limits, calls, network, files, words = given[:8]
    options, command = given[8 : 8 + int(words)], given[8 + int(words) :]
    kinds = _CLONE_NEWUSER | (_CLONE_NEWNET if network else 0) | (_CLONE_NEWNS if files else 0)
    step = "its control group"
    try:
        if group:
            _write(group, "0")
        step = "a session keyring of its own"
        _own_keyring(int(keyctl))
        step = "a user namespace with limits of its own"
        if counts:
            _own_namespaces(kinds, _pairs(counts))
        step = "a network of its own"
        if network:
            _own_network(int(network))
        step = "files of its own in memory"
        if files:
            _own_files(*files.split(",", 3))
        step = "resource limits"
        for limit, value in _pairs(limits):
            _lower(int(limit), int(value))
        step = "copies of files"
        copied = _copied(options[1:])
        step = options[0]
        listed = _file("options", b"\0".join(os.fsencode(option) for option in copied) + b"\0")
        filtered = _file("filter", a2b_base64(calls))
        start = [options[0], "--args", str(listed), "--seccomp", str(filtered), "--", *command]
        os.execve(options[0], start, variables)  # noqa: S606 - no shell
    except OSError as error:
        sys.exit(f"{step}: {error.strerror}")


def _awaited() -> tuple[list[str], dict[bytes, bytes]]:
    """Return the words that the daemon sends, and the variables, once this process is where they say."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, os.dup(0))
    held, (place, numbers, count, *rest) = _message(door)  # none: no session after all
    door.close()
    os.chdir(place)
    _renumber(held, [int(number) for number in numbers.split(b",")])
    variables = dict(each.split(b"=", 1) for each in rest[: int(count)])
    return [os.fsdecode(word) for word in rest[int(count) :]], variables


def _fork_for_each() -> None:
    """Return in a process of its own for each message, with its words; here it never returns."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, os.dup(0))
    while True:
        held, texts = _message(door)
        if os.fork() == 0:
            _begin(held, *texts)
            return
        for descriptor in held:
            os.close(descriptor)
        _, status = os.wait()
        door.sendall(pack("=i", os.waitstatus_to_exitcode(status)))


def _begin(held: array[int], seconds: bytes, memory: bytes, computing: bytes, *words: bytes) -> None:
    """Take what the message says for this process, as a shell does before it runs a command."""
    import signal  # noqa: PLC0415 - it takes milliseconds, and a session does without it

    os.setpgid(0, 0)
    signal.alarm(int(seconds))  # it outlives the exec
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *held)):
        os.dup2(descriptor, number)
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, computing)):
        _lower(limit, int(most))
    sys.argv[1:] = [os.fsdecode(word) for word in words]


def _message(door: _socket.socket) -> tuple[array[int], list[bytes]]:
    """Return the descriptors and texts that the daemon sends; ends this process where there are no more."""
    room = _socket.CMSG_SPACE(_MOST_AT_ONCE * array("i").itemsize)
    line, sent, _, _ = door.recvmsg(1, room, _socket.MSG_CMSG_CLOEXEC)
    if not line:
        sys.exit(0)
    held = array("i")
    for _, _, content in sent:
        held.frombytes(content)
    return held, _exactly(door, int.from_bytes(_exactly(door, 8), "big")).split(b"\0")[:-1]


def _exactly(door: _socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length:
        more = door.recv(length - len(text))
        if not more:
            sys.exit(1)  # the daemon has gone
        text += more
    return text


def _renumber(held: array[int], numbers: list[int]) -> None:
    """Give descriptors the numbers that they have in the words; what had one of these is closed."""
    above = max(*held, *numbers) + 1
    for place, descriptor in enumerate(held):  # out of each other's way first
        os.dup2(descriptor, above + place)
        os.close(descriptor)
    for place, number in enumerate(numbers):
        os.dup2(above + place, number)
        os.close(above + place)


def _own_keyring(number: int) -> None:
    """Leave the daemon's session keyring, which every program of a session could read, and leave keys in."""
    if _LIBC.syscall(number, _JOIN_SESSION_KEYRING, None) < 0 and ctypes.get_errno() not in _NO_KEYRINGS:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _own_namespaces(kinds: int, counts: list[tuple[str, str]]) -> None:
    """Enter namespaces, of this one user, and say how many of what it may have; it counts for the daemon's too."""
    user, group = os.geteuid(), os.getegid()
    if _LIBC.unshare(kinds) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _write("/proc/self/setgroups", "deny")  # else nobody but root may write the next line but one
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    for name, most in counts:
        try:
            _write(f"/proc/sys/user/{name}", most)
        except FileNotFoundError:
            continue  # this kernel does not have, or does not count, these


def _own_network(descriptor: int) -> None:
    """Bring up the network with what the daemon lists, and hand it the sockets."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, descriptor)
    routes = _Routes()
    routes.bring_up()
    number, made, numbers = 0, array("i"), []
    for kind, address, *port in _listed(door):
        if kind in {"address", "network"}:
            routes.add(kind, address)
            continue
        bound = _bound(kind, address, int(port[0]))
        if bound >= 0:
            made.append(bound)
            numbers.append(str(number))
        number += 1
        if len(made) == _MOST_AT_ONCE:
            _hand_over(door, numbers, made)
            made, numbers = array("i"), []
    if made:
        _hand_over(door, numbers, made)
    door.send(b".\n")
    door.close()


def _own_files(descriptor: str, most_bytes: str, most_files: str, place: str) -> None:
    """Make the file system of the session's own directories, and hand the daemon a descriptor of it."""
    # Nothing of it is seen outside: mounts go on coming in here, but none goes out of a user namespace of its own
    # (mount_namespaces(7), "Restrictions on mount namespaces").
    options = f"size={most_bytes},nr_inodes={most_files},mode=700"
    words = (b"tmpfs", os.fsencode(place), b"tmpfs", _NO_SETUID | _NO_DEVICES, options.encode())
    if _LIBC.mount(*words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for name in _OWN_DIRECTORIES:
        os.mkdir(f"{place}/{name}", 0o700)  # noqa: PTH102 - pathlib would be a slow import
    made = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, int(descriptor))
    _hand_over(door, ["files"], array("i", (made,)))
    door.close()


def _listed(door: _socket.socket) -> list[list[str]]:
    """Return the words of each line that the daemon sends."""
    text = b""
    while not text.endswith(b"\n\n"):
        more = door.recv(65536)
        if not more:
            raise OSError(errno.EPIPE, "the daemon has gone")
        text += more
    return [line.split() for line in text.decode("ascii").splitlines() if line]


def _hand_over(door: _socket.socket, numbers: list[str], made: array[int]) -> None:
    """Send descriptors, and keep none: a socket that stayed open would accept connections without the daemon."""
    content = f"{','.join(numbers)}\n".encode()
    door.sendmsg([content], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, made)])
    for descriptor in made:
        os.close(descriptor)


def _bound(kind: str, address: str, port: int) -> int:
    """Return the descriptor of a socket at an address, a stream's with a queue; -1 where there can be none."""
    family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
    try:
        made = _socket.socket(family, _socket.SOCK_STREAM if kind == "tcp" else _socket.SOCK_DGRAM)
        if family == _socket.AF_INET6:
            made.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        if kind == "tcp":
            made.listen(_QUEUE)
    except OSError:
        return -1
    return made.detach()


class _Routes:
    """The kernel's table of links, addresses and routes: rtnetlink(7)."""

    def __init__(self) -> None:
        self._kernel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, _NETLINK_ROUTE)

    def bring_up(self) -> None:
        """Bring up the loopback interface, which gives it 127.0.0.1 and, where there is IPv6, ::1."""
        answer = self._send(_RTM_NEWLINK, pack("=BxHiII", 0, 0, _LOOPBACK, _IFF_UP, _IFF_UP))
        if answer:
            raise OSError(answer, os.strerror(answer))

    def add(self, kind: str, text: str) -> None:
        """Make an address or all addresses of a network local; leaves out what cannot be had."""
        address, _, length = text.partition("/")
        family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
        content = _socket.inet_pton(family, address)
        bits = int(length or len(content) * 8)
        if kind == "address":
            head = pack("=BBBBi", family, bits, _IFA_F_NODAD, _RT_SCOPE_HOST, _LOOPBACK)
            self._send(_RTM_NEWADDR, head + _attribute(_IFA_LOCAL, content) + _attribute(_IFA_ADDRESS, content))
        else:
            head = pack("=BBBBBBBBI", family, bits, 0, 0, _TABLE_LOCAL, _BY_ADMINISTRATOR, _RT_SCOPE_HOST, _LOCAL, 0)
            out = _attribute(_RTA_OIF, pack("=i", _LOOPBACK))
            self._send(_RTM_NEWROUTE, head + _attribute(_RTA_DST, content) + out)

    def _send(self, kind: int, content: bytes) -> int:
        """Return the number of the error with which the kernel answers, or 0."""
        flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE
        self._kernel.send(pack("=IHHII", 16 + len(content), kind, flags, 1, 0) + content)
        return -int(unpack_from("=i", self._kernel.recv(4096), 16)[0])


def _attribute(kind: int, content: bytes) -> bytes:
    return pack("=HH", 4 + len(content), kind) + content  # 4 or 16 bytes: nothing to pad


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in text.split(","))]


def _lower(limit: int, value: int) -> None:
    """Set a limit, or leave it where it is lower."""
    soft, hard = (value if held == resource.RLIM_INFINITY else min(value, held) for held in resource.getrlimit(limit))
    resource.setrlimit(limit, (soft, hard))


def _copied(options: list[str]) -> list[str]:
    """Return options with ``--copy FILE PLACE`` as bubblewrap has it: from a descriptor, which it closes."""
    found, given = [], iter(options)
    for option in given:
        if option != "--copy":
            found.append(option)
            continue
        descriptor = os.open(next(given), os.O_RDONLY)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes nothing else
        found += ["--perms", "0444", "--file", str(descriptor)]
    return found


def _file(name: str, content: bytes) -> int:
    """Return the descriptor of a nameless file that bubblewrap reads from its beginning, and closes."""
    descriptor = os.memfd_create(name, 0)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - pathlib would be a slow import
        file.write(text)


if __name__ == "__main__":
    main()
