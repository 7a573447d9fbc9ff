"""Debian's real dockerd in mount and network namespaces of its own, and a container that has this machine's programs.

The engine has no bridge, no rules in a firewall and its own directories, and ends with its test. Its one image is
empty: programs, libraries and this project are mounted from the machine, read-only.
"""

from __future__ import annotations

import io
import os
import shutil
import site
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.checkout import ROOT
from support.waiting import PATIENCE_SECONDS, wait_until

IMAGE = "bare:1"
_DIRECTORIES = ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "app", "repos")
_MERGED = ("bin", "sbin", "lib", "lib64")  # links into /usr on Debian


@dataclass(frozen=True)
class Engine:
    """A running dockerd."""

    socket: Path
    data: Path

    def docker(self, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{self.socket}", "HOME": str(self.data)}
        seconds = PATIENCE_SECONDS * 4
        return subprocess.run(
            ["docker", *words], env=environment, input=stdin, capture_output=True, check=False, timeout=seconds
        )

    def run(self, options: Sequence[str], *command: str) -> str:
        """Return what a command prints in a container with options, both streams."""
        shared = {"/usr": "/usr", "/etc": "/etc", str(ROOT): "/app", sys.base_prefix: sys.base_prefix}
        mounts = [word for source, place in shared.items() for word in ("-v", f"{source}:{place}:ro")]
        packages = [path for path in site.getsitepackages() if Path(path).is_dir()]
        mounts += [word for path in packages for word in ("-v", f"{path}:{path}:ro")]
        found = ":".join(["/app/src", *packages])
        environment = [f"PYTHONPATH={found}", "PYTHONDONTWRITEBYTECODE=1", "PATH=/usr/bin:/bin", "HOME=/tmp"]
        variables = [word for value in environment for word in ("-e", value)]
        done = self.docker("run", "--rm", "--network=none", *options, *mounts, *variables, IMAGE, *command)
        return (done.stdout + done.stderr).decode()


@contextmanager
def running_engine(directory: Path) -> Iterator[Engine]:
    """Run an engine below a directory; skips the test where that is not possible."""
    for program in ("dockerd", "docker", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: docker.io)")
    if os.geteuid() != 0:
        pytest.skip("only root can start dockerd")
    engine = Engine(directory / "sock", directory)
    words = [
        *("dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        *("--storage-driver=vfs", f"--data-root={directory}/data", f"--exec-root={directory}/exec"),
        *(f"--pidfile={directory}/pid", f"--host=unix://{engine.socket}"),
    ]
    alone = 'mount --make-rprivate / && ip link set lo up && exec "$@"'
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", alone, "sh", *words], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: daemon.poll() is not None or engine.docker("version").returncode == 0)
        if daemon.poll() is not None:
            pytest.skip(f"dockerd does not start here: {(directory / 'log').read_text().strip().splitlines()[-1]}")
        imported = engine.docker("import", "-", IMAGE, stdin=_image())
        assert imported.returncode == 0, imported.stderr
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_SECONDS)


def _image() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as image:
        for name in _DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            image.addfile(entry)
        for name in _MERGED:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            image.addfile(entry)
    return content.getvalue()
