"""Real sshd on the loopback, with keys of its own: what a session's ssh logs in to."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.ports import kept_port
from support.waiting import PATIENCE_SECONDS, wait_until

ADDRESS: Final = "127.0.0.1"

_SSHD: Final = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
_CONFIG: Final = """
ListenAddress {address}:{port}
HostKey {place}/host
AuthorizedKeysFile {place}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


def needs_ssh() -> None:
    """Skip where OpenSSH is not installed, or runs for no user such as this one, whom the machine does not list."""
    if _SSHD is None or any(shutil.which(name) is None for name in ("ssh", "ssh-add", "ssh-agent", "ssh-keygen")):
        pytest.skip("needs OpenSSH: ssh-agent, and sshd")
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        pytest.skip("ssh runs for no user whom the machine does not list")


def make_key(place: Path, passphrase: str = "", *, kind: str = "ed25519", form: str = "RFC4716") -> str:
    """Make a key at a place, without a comment; return the line that is its public one. Skips as `needs_ssh` does.

    ``form``: of the private one; the default is OpenSSH's own.
    """
    needs_ssh()
    place.parent.mkdir(parents=True, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-m", form, "-f", str(place)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return place.with_name(f"{place.name}.pub").read_text().strip()


def body_of(key: Path) -> str:
    """Return a line of a private key that is nowhere else."""
    return key.read_text().splitlines()[3]


@dataclass(frozen=True, slots=True)
class SshServer:
    """A server that runs."""

    port: int
    host_key: str

    @property
    def known(self) -> str:
        """Its line in a file of known hosts."""
        return f"[{ADDRESS}]:{self.port} {self.host_key}\n"


@contextmanager
def ssh_server(place: Path, authorized: str, says: str, *, options: str = "restrict") -> Iterator[SshServer]:
    """Run a server with a host key of its own, which lets one key in, as the user of the tests, and only ``says``.

    ``options``: of that key, in front of the command.
    """
    needs_ssh()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    host_key = make_key(place / "host")
    (place / "authorized_keys").write_text(f'{options},command="echo {says}" {authorized}\n')
    with kept_port() as port, (place / "log").open("wb") as log:
        (place / "config").write_text(_CONFIG.format(address=ADDRESS, port=port, place=place))
        with subprocess.Popen(
            [str(_SSHD), "-D", "-e", "-f", str(place / "config")], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as server:
            try:
                wait_until(lambda: server.poll() is not None or _answers(port))
                assert server.poll() is None, (place / "log").read_text()
                yield SshServer(port, host_key)
            finally:
                server.terminate()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((ADDRESS, port), PATIENCE_SECONDS) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def user() -> str:
    """Return as whom to log in."""
    return getpass.getuser()
