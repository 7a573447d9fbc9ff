"""A cell in which calls are executed under strace, and what strace saw of each.

The cell has the machine's programs, the files of `support.rule_world`, a loopback of its own, no capabilities, and
nothing that can be written but its temporary directories; ``/proc/sys`` is read-only, since without capabilities, too,
root may write there. Calls run side by side, each under a strace of its own: some of them wait.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support import rule_world as world

PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
STAND_INS: Final = "/opt/bin"
"""Programs that are not installed are found here: `true`, by their names. What they are given is seen by strace."""

_ENVIRONMENT: Final = {
    "PATH": f"{PATH}:{STAND_INS}",
    "HOME": "/session/empty",
    "TMPDIR": world.TMPDIR,
    "LC_ALL": "C",
    "TERM": "dumb",
    "PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
}
_CALL_SECONDS: Final = 3
_BATCH_SECONDS: Final = 900.0
_AT_A_TIME: Final = 8
_MOST_BLOCKS: Final = 8_192  # of 512 bytes, in what a call prints
_LOOKS: Final = "open,openat,openat2,execve,execveat,connect,bind,listen,sendto,sendmsg,sendmmsg,?creat"
_CHANGES: Final = (
    "unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,mknod,mknodat,"
    "chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,truncate,ftruncate,utime,utimes,utimensat,setxattr,lsetxattr,"
    "fsetxattr,removexattr,mount,umount2,pivot_root,chroot,settimeofday,clock_settime,adjtimex,clock_adjtime,"
    "sethostname,setdomainname,swapon,swapoff,reboot,kexec_load,init_module,finit_module,delete_module,kill,tkill,"
    "tgkill,setpriority,sched_setaffinity,quotactl,acct,syslog,ptrace,process_vm_readv,process_vm_writev,bpf"
)
_STRACE: Final = ("strace", "-f", "-qq", "-xx", "-v", "-y", "-s", "65536", "-e", "signal=none", "--seccomp-bpf")

_RUN: Final = f"""#!/bin/sh
ulimit -f {_MOST_BLOCKS}
trap "" XFSZ
timeout -s KILL {_CALL_SECONDS} {" ".join(_STRACE)} -e 'trace={_LOOKS},{_CHANGES}' -o "/seen/$1.trace" \\
    /bin/bash --norc --noprofile "/calls/$1" </dev/null >"/seen/$1.out" 2>&1
[ $? -ne {128 + signal.SIGKILL} ] || : >"/seen/$1.cut"
exit 0  # xargs ends with the first that was killed
"""
_LINE: Final = re.compile(r"(?:\d+ +)?(?P<name>\w+)\((?P<rest>.*)")
_NO_NUMBER: Final = "syscall_0xffffffff"
_STRING: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_HEX: Final = re.compile(r"(?:\\x[0-9a-f]{2})+")
_EXECUTED: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)", \[((?:"(?:\\x[0-9a-f]{2})*"(?:, )?)*)\]')
_OPENED: Final = re.compile(
    r'(?:(?:AT_FDCWD|\d+)<(?P<at>[^>]*)>, )?"(?P<path>(?:\\x[0-9a-f]{2})*)", (?P<flags>\{flags=[^}]*\}|[A-Z0-9_|]+)'
    r".*?(?:= \d+<(?P<found>[^>]*)>)?$"
)
_WRITING: Final = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE")
_ADDRESS: Final = re.compile(
    r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"((?:\\x[0-9a-f]{2})*)"'
)
_SOCKET: Final = re.compile(r'sa_family=AF_UNIX, sun_path=@?"((?:\\x[0-9a-f]{2})*)"')
_CHANGED_BY_NETLINK: Final = re.compile(r"nlmsg_type=(RTM_(?:NEW|DEL|SET)\w+)|nlmsg_flags=[A-Z_|]*(NLM_F_CREATE)")
_TRAP_LOOKED_UP: Final = "\\x04" + "".join(f"\\x{ord(each):02x}" for each in "trap")  # in a question of the DNS
_ABSENT: Final = "ENOENT (No such file or directory)"
_CLOCK_READ: Final = re.compile(r"modes=0[,}]")


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A file that was opened, or would have been if it were there."""

    path: str  # as given, absolute
    found: str  # where its links lead; "" = it could not be opened
    writing: bool
    directory: bool


@dataclass(kw_only=True)
class Seen:
    """What one call did."""

    executed: list[tuple[str, ...]] = field(default_factory=list)  # path and arguments
    opened: list[Opened] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)  # calls of the kernel that change something
    connected: list[tuple[str, int]] = field(default_factory=list)  # addresses with ports
    sockets: list[str] = field(default_factory=list)  # that it connected to, by their paths
    printed: bytes = b""
    cut: bool = False  # it took too long, and was killed


def cell_fault() -> str | None:
    """Return why nothing can be run here, or None."""
    missing = [name for name in ("bwrap", "strace", "bash", "timeout", "xargs") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    tried = run(["/bin/true a"])
    if isinstance(tried, str):
        return tried
    return (
        None if tried[0].executed == [("/bin/true", "/bin/true", "a")] else f"strace sees nothing in the cell: {tried}"
    )


def installed(name: str) -> str | None:
    """Return where the cell has a program, or None."""
    return shutil.which(name, path=PATH)


def run(texts: Sequence[str], *, stand_ins: Sequence[str] = ()) -> list[Seen] | str:
    """Execute texts with bash, and return what each did; a text says why the cell could not be made."""
    with tempfile.TemporaryDirectory(prefix="rule-cell-") as directory:
        root = Path(directory)
        _lay_out(root, texts, stand_ins)
        done = subprocess.run(
            [*_cell(root), "xargs", "-P", str(_AT_A_TIME), "-n", "1", "-a", "/calls/all", "/bin/sh", "/calls/run"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BATCH_SECONDS,
        )
        traces = [root / "seen" / f"{number}.trace" for number in range(len(texts))]
        if not all(trace.exists() for trace in traces):
            return f"the cell could not be made: {done.stderr.strip()[:300]}"
        return [_seen(trace) for trace in traces]


def _seen(trace: Path) -> Seen:
    seen = read_trace(trace.read_text(encoding="ascii"), trace.with_suffix(".out").read_bytes())
    seen.cut = trace.with_suffix(".cut").exists()
    return seen


def read_trace(trace: str, printed: bytes = b"") -> Seen:
    """Return what strace wrote down about one call; its first program, bash itself, is left out.

    Of a call that was ended, or filled its trace, the last line may have no end, and what it lacks would change it. A
    system call of which strace let go at that moment may have lost its number: no kernel does anything for a negative
    one.
    """
    seen = Seen(printed=printed)
    for line in trace[: trace.rfind("\n") + 1].splitlines():
        found = _LINE.fullmatch(line)
        if found is not None and not found["name"].startswith(_NO_NUMBER):
            _note(found["name"], found["rest"], seen)
    seen.executed = seen.executed[1:]
    return seen


def _note(name: str, rest: str, seen: Seen) -> None:
    if name in {"execve", "execveat"}:
        executed = _EXECUTED.search(rest)
        if executed is not None and not rest.endswith(_ABSENT):  # what a shell tries along its PATH
            seen.executed.append((_text(executed[1]), *map(_text, _STRING.findall(executed[2]))))
    elif name in {"open", "openat", "openat2", "creat"}:
        _note_open(rest, seen, writing=name == "creat")
    elif name in {"connect", "bind", "sendto", "sendmsg", "sendmmsg"}:
        seen.connected += [(_text(address), int(port)) for port, address in _ADDRESS.findall(rest) if name != "bind"]
        seen.sockets += [_text(path) for path in _SOCKET.findall(rest) if name != "bind"]
        seen.connected += [(world.TRAP_HOST, 53)] if _TRAP_LOOKED_UP in rest else []
        seen.changed += [f"{name} {kind or flag}" for kind, flag in _CHANGED_BY_NETLINK.findall(rest)]
    elif not (name in {"adjtimex", "clock_adjtime"} and _CLOCK_READ.search(rest)):
        seen.changed.append(f"{name}({_HEX.sub(lambda found: _text(found[0]), rest)[:200]}")


def _note_open(rest: str, seen: Seen, *, writing: bool) -> None:
    opened = _OPENED.search(rest)
    if opened is None:
        return
    path = posixpath.normpath(posixpath.join(_text(opened["at"] or ""), _text(opened["path"])))
    flags = opened["flags"]
    seen.opened.append(
        Opened(
            path=path,
            found=_text(opened["found"] or ""),
            writing=writing or _WRITING.search(flags) is not None,
            directory="O_DIRECTORY" in flags or "O_PATH" in flags,
        )
    )


def _text(escaped: str) -> str:
    return bytes.fromhex(escaped.replace("\\x", "")).decode(errors="surrogateescape")


# --- the cell ---------------------------------------------------------------------------------------------


def _lay_out(root: Path, texts: Sequence[str], stand_ins: Sequence[str]) -> None:
    world.write_files(root)
    for name in ("calls", "seen", "etc", "opt/bin", "var/log"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (root / "calls" / str(number)).write_text(text, encoding="utf-8", errors="surrogateescape")
    (root / "calls" / "all").write_text("".join(f"{number}\n" for number in range(len(texts))), encoding="ascii")
    (root / "calls" / "run").write_text(_RUN, encoding="ascii")
    (root / "etc" / "hosts").write_text(world.hosts_file(), encoding="ascii")
    (root / "etc" / "resolv.conf").write_text(
        f"nameserver {world.NAME_SERVER}\noptions timeout:1 attempts:1\n", encoding="ascii"
    )
    (root / "etc" / "shadow").write_text(f"root:{world.MARKER}:1::::::\n", encoding="ascii")
    for name in stand_ins:
        (root / "opt" / "bin" / name).symlink_to("/usr/bin/true")


def _cell(root: Path) -> list[str]:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "cell"]
    words += ["--clearenv", *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value))]
    for name in ("usr", "etc", "bin", "sbin", "lib", "lib64", "lib32"):
        path = f"/{name}"
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    words += [
        "--tmpfs",
        "/usr/local",
        "--remount-ro",
        "/usr/local",
        "--proc",
        "/proc",
        "--ro-bind",
        "/proc/sys",
        "/proc/sys",
    ]
    words += ["--dev", "/dev", "--ro-bind", "/sys", "/sys"]
    for path in ("/tmp", "/run", "/var/tmp", "/var/cache", "/root"):  # noqa: S108 - the cell's own
        words += ["--tmpfs", path]
    words += ["--symlink", "/run", "/var/run", *_bound("/var/lib", "/var/lib")]
    for path in ("/repos", "/session", "/srv", "/state", "/calls", "/opt", "/var/log"):
        words += ["--ro-bind", str(root) + path, path]
    for path in ("hosts", "resolv.conf", "shadow"):
        if Path(f"/etc/{path}").is_file() and not Path(f"/etc/{path}").is_symlink():
            words += ["--ro-bind", str(root / "etc" / path), f"/etc/{path}"]
    return [*words, "--tmpfs", world.TMPDIR, "--bind", str(root / "seen"), "/seen", "--chdir", world.WORKDIR]


def _bound(source: str, target: str) -> Iterator[str]:
    """Bind what some programs look at: which packages are installed."""
    for name in ("dpkg", "apt", "rpm", "snapd", "alternatives"):
        if Path(source, name).is_dir():
            yield from ("--ro-bind", f"{source}/{name}", f"{target}/{name}")
