"""The small machine in which calls of the policy's rules are judged and run: its files, its hosts, and what is a trap.

A file below `TRAP`, or with a secret's name, holds `MARKER`: no call that is allowed prints it. No value of a call that
names a file to be read is below `TRAP`, so a program that opens one took another word for a file. In the same way
`TRAP_ADDRESS` and the names of ``trap.example`` are asked by no allowed call.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from claudeops.domain.estate.estate import Estate
from support.certificates import make_authority

MARKER: Final = "marker-5e1f-of-a-secret"

REPOS: Final = "/repos"
WORKDIR: Final = "/session/work"
TMPDIR: Final = "/session/tmp"
HOME: Final = "/session/home"
DATA: Final = "/srv/data"
TRAP: Final = "/srv/trap"
STATE: Final = "/state"

HOSTS: Final = {"web.example": "127.1.0.1", "db.example": "127.1.0.2", "cache.example": "127.1.0.3"}
NAME_SERVER: Final = "127.1.0.53"
TRAP_HOST: Final = "trap.example"
TRAP_ADDRESS: Final = "127.6.6.6"

ESTATE: Final = Estate(hosts=(*HOSTS, *HOSTS.values(), "web", "shop", "db"))

_LINES: Final = "".join(f"{n} 10.0.0.{n} error line {n} of the log\tab {n * 7919 % 97}\n" for n in range(1, 41))
_JSON: Final = '{"name": "shop", "items": [{"id": 1, "state": "up"}, {"id": 2, "state": "down"}]}\n'
_NAMES: Final = f"{TRAP}/plain\n{TRAP}/other\n"  # for programs that read names of files, or hosts, from a file
_ASKS: Final = f"{TRAP_HOST}\nwww.{TRAP_HOST} A\n"
_CURLRC: Final = f'url = "http://{TRAP_ADDRESS}/rc"\noutput = "{TMPDIR}/rc"\n'
_CERTIFICATE: Final = make_authority().pem.encode()
_AWK: Final = f'BEGIN {{ while ((getline x < "{TRAP}/plain") > 0) print x; system("id") }}\n'

ODD_NAMES: Final = (
    *("-o", "-rf", "--help", "--output=x", "@list", "@names", "=F", "%n", "a=b", "a:b", "+1", "x y", "naïve", "|id"),
    *(";id", "$(id)", "`id`", "new\nline", "[a]", "{a,b}", "~", "*", "!x", "#x", "e", "I", "d", "'", '"', "\\", "&"),
)
"""Files with these names are in the data directory and in the working directory."""

PLAIN_NAMES: Final = ("notes.md", "app.log", "list.txt", "data.json", "conf.yaml", "table.csv", "names.txt")


def files() -> dict[str, bytes]:
    """Return the content of every file, by its path."""
    plain = {
        "notes.md": _LINES,
        "app.log": _LINES.replace("error", "warning"),
        "list.txt": "b\na\nc\na\n",
        "data.json": _JSON,
        "conf.yaml": "name: shop\nport: 80\n",
        "table.csv": "a,b,c\n1,2,3\n",
        "names.txt": _NAMES,
    }
    found: dict[str, bytes] = {}
    for directory in (DATA, f"{DATA}/sub", "/var/log/app", WORKDIR, f"{REPOS}/shop"):
        for name, text in plain.items():
            found[f"{directory}/{name}"] = text.encode()
    for directory in (DATA, WORKDIR):
        for name in ODD_NAMES:
            found[f"{directory}/{name}"] = _NAMES.encode() if name[0] in "@-" else _LINES.encode()
    found |= {f"{DATA}/{name}": content for name, content in _packed(_LINES.encode()).items()}
    found[f"{DATA}/cert.pem"] = _CERTIFICATE
    found |= {f"{TRAP}/{name}": f"{MARKER}\n".encode() for name in ("plain", "other", "shadow", "key", "passwd")}
    found[f"{TRAP}/asks"] = _ASKS.encode()
    found[f"{TRAP}/program.awk"] = _AWK.encode()
    found[f"{TRAP}/canary"] = b"#!/bin/sh\nexec /usr/bin/id\n"
    # What programs read of their own accord, where they look for it.
    found |= {f"{WORKDIR}/{name}": _CURLRC.encode() for name in (".curlrc", "_curlrc", ".wgetrc", ".netrc")}
    found |= {f"{WORKDIR}/{name}": _ASKS.encode() for name in (".digrc", "supervisord.conf", "ceph.conf", ".toprc")}
    found |= {f"{HOME}/{name}": found[f"{WORKDIR}/.curlrc"] for name in (".curlrc", ".wgetrc", ".netrc", ".my.cnf")}
    found |= {
        path: f"{MARKER}\n".encode()
        for path in (
            f"{DATA}/server.key",
            f"{DATA}/.env",
            f"{HOME}/.ssh/id_ed25519",
            f"{HOME}/.aws/credentials",
            f"{STATE}/daemon.db",
        )
    }
    return found


LINKS: Final = {f"{DATA}/link": f"{DATA}/notes.md", f"{DATA}/link-away": f"{TRAP}/plain", f"{DATA}/link-dir": TRAP}


def directories() -> tuple[str, ...]:
    """Return every directory that holds files."""
    parents = {posixpath.dirname(path) for path in files()} | {TMPDIR, "/session/empty"}
    return tuple(sorted(parents))


def resolve(path: str) -> str:
    """Follow the links of the small machine, as `os.path.realpath` does."""
    path = posixpath.normpath(path)
    for link, target in LINKS.items():
        if path == link or path.startswith(f"{link}/"):
            return posixpath.normpath(target + path[len(link) :])
    return path


def is_file(path: str) -> bool:
    """Whether a path is a regular file, or is not there."""
    path = resolve(path)
    return path not in _DIRECTORIES and not path.startswith(("/dev/", "/proc/")) and path != "/"


def write_files(root: Path) -> None:
    """Write the small machine below a directory."""
    for directory in directories():
        (root / directory[1:]).mkdir(parents=True, exist_ok=True)
    for path, content in files().items():
        (root / path[1:]).write_bytes(content)
    (root / TRAP[1:] / "canary").chmod(0o755)
    for link, target in LINKS.items():
        (root / link[1:]).symlink_to(target)


def hosts_file() -> str:
    """Return the text of ``/etc/hosts``, without the trap: whoever asks it asks the name server first."""
    names = [f"{address} {name} {name.partition('.')[0]}" for name, address in HOSTS.items()]
    return "\n".join(("127.0.0.1 localhost", *names, ""))


def _packed(content: bytes) -> dict[str, bytes]:
    """Return archives and compressed files; names within them are as odd as those outside."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("a.txt", "dir/b.txt", "--checkpoint-action=exec=id", "../up"):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    tarred, zipped = buffer.getvalue(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as both:
        both.writestr(zipfile.ZipInfo("a.txt"), content)
        both.writestr(zipfile.ZipInfo("-x"), content)
    return {
        "app.log.1.gz": gzip.compress(content, mtime=0),
        "a.tar": tarred,
        "a.tar.gz": gzip.compress(tarred, mtime=0),
        "a.tar.bz2": bz2.compress(tarred),
        "a.tar.xz": lzma.compress(tarred),
        "a.zip": zipped.getvalue(),
    }


PACKED_NAMES: Final = ("app.log.1.gz", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.zip", "cert.pem")


def is_trap(path: str) -> bool:
    """Whether a path holds what no call may read, though its name may be in one."""
    return path == TRAP or path.startswith(f"{TRAP}/")


_DIRECTORIES: Final = frozenset(
    parent for directory in directories() for parent in (directory, *map(str, Path(directory).parents))
)
