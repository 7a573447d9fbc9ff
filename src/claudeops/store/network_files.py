"""File systems on which SQLite's locks and shared memory do not hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from claudeops.errors import ConfigurationError

MOUNTS: Final = Path("/proc/self/mountinfo")

_NETWORK: Final = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|afs|ncpfs|coda|ceph|lustre|beegfs|glusterfs|gfs2?|ocfs2|davfs"
    r"|fuse\.(sshfs|ceph|glusterfs|davfs2?|s3fs|rclone|gcsfuse|goofys|smbnetfs|curlftpfs|juicefs)"
)
"""Types as ``mountinfo`` names them. Not ``9p``: it is the root of some sandboxes, whose locks are their own."""

_MOUNT_POINT: Final = 4  # which of the fields, from 0
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def refuse_network_file(file: Path, *, mounts: Path = MOUNTS) -> None:
    """Raise `ConfigurationError` for a SQLite file on a network file system; ``file`` is absolute, links resolved.

    Where the mounts cannot be read nothing is refused.
    """
    try:
        listed = mounts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind, where = filesystem_of(file, listed)
    if _NETWORK.fullmatch(kind):
        raise ConfigurationError(
            f"CLAUDEOPS_DATABASE_URL: {file} lies on a network file system ({kind}, mounted at {where}), where SQLite's"
            " locks do not keep two daemons apart: put the file on a local disk, or use PostgreSQL."
        )


def filesystem_of(file: Path, listed: str) -> tuple[str, str]:
    """Return the type and the mount point of the file system that holds ``file``; ``listed`` is a ``mountinfo``.

    Of two mounts on one point the later one is in sight.
    """
    best = ("", "")
    for line in listed.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) <= _MOUNT_POINT or not kinds:
            continue
        where = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[_MOUNT_POINT])
        if file.is_relative_to(where) and len(where) >= len(best[1]):
            best = (kinds[0], where)
    return best
