"""The cell in a container, with what the compose file gives it, under a real engine: it holds, or it says why not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import ROOT
from support.docker_engine import Engine, running_engine
from support.dockerfile import NET_RAW

SERVICE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["claudeops"]
SECCOMP = ROOT / "deploy" / "seccomp.json"
PYTHON = "/usr/bin/python3"

# The trial of the level is what looks for the holes; what it finds open it names.
TRIAL = """
from claudeops.engine.cell.levels import HostContext, IsolationLevel, try_level
found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path="/usr/bin:/bin"))
print(found if isinstance(found, str) else ("holds", found.has_network, found.keeps_tools_apart))
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    # A socket's path is short, and the directories of pytest are not.
    with running_engine(tmp_path_factory.mktemp("d")) as running:
        yield running


def as_composed(*, security: list[str] | None = None) -> list[str]:
    """Return the options of `docker run` for what the compose file says; others' security where given."""
    given = _options() if security is None else security
    return [
        *("--user", SERVICE["user"], "--read-only", f"--pids-limit={SERVICE['pids_limit']}"),
        *(word for name in SERVICE["cap_drop"] for word in ("--cap-drop", name)),
        *(word for place in SERVICE["tmpfs"] for word in ("--tmpfs", place)),
        *(word for option in given for word in ("--security-opt", option)),
    ]


def _options() -> list[str]:
    # AppArmor is a host's that has it; naming it elsewhere is an error.
    options = (option for option in SERVICE["security_opt"] if not option.startswith("apparmor="))
    return [option.replace("seccomp.json", str(SECCOMP)) for option in options]


def test_the_whole_cell_holds_with_what_the_compose_file_gives(engine: Engine) -> None:
    printed = engine.run(as_composed(), PYTHON, "-c", TRIAL)
    assert printed.strip() in {"('holds', True, True)", "('holds', True, False)"}, printed


@pytest.mark.parametrize("without", ["seccomp", "systempaths"])
def test_with_the_engines_own_filter_or_masks_it_says_what_is_forbidden(engine: Engine, without: str) -> None:
    kept = [option for option in _options() if not option.startswith(without)]
    printed = engine.run(as_composed(security=kept), PYTHON, "-c", TRIAL)
    assert "bubblewrap does not work here" in printed, printed
    assert "a user namespace with limits of its own: " in printed


def test_the_filter_leaves_a_container_without_what_is_only_for_the_cell(engine: Engine, tmp_path: Path) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(
        "import ctypes, errno, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for number in (321, 323, 101, 425, 308):\n"  # bpf, userfaultfd, ptrace, io_uring_setup, setns
        "    ctypes.set_errno(0)\n"
        "    libc.syscall(number, -1, 0, 0, 0)\n"
        "    print(errno.errorcode.get(ctypes.get_errno()))\n"
        "try:\n    socket.socket(40, socket.SOCK_STREAM)\n"
        "except OSError as error:\n    print(errno.errorcode[error.errno])\n"
    )
    printed = engine.run([*as_composed(), "-v", f"{calls}:/run/calls.py:ro"], PYTHON, "/run/calls.py")
    assert printed.split() == ["EPERM"] * 6, printed


def test_ping_works_without_any_capability_unless_its_file_has_one(engine: Engine, tmp_path: Path) -> None:
    """The image has such a copy of Debian's program (Dockerfile)."""
    found = shutil.which("ping")
    if found is None:
        pytest.skip("needs ping (Debian: iputils-ping)")
    ping = tmp_path / "ping"
    shutil.copyfile(found, ping)
    ping.chmod(0o755)
    options = [*as_composed(), "-v", f"{tmp_path}:/run:ro"]
    printed = engine.run(options, "/run/ping", "-c", "1", "-W", "5", "127.0.0.1")
    assert "1 received" in printed, printed

    try:
        os.setxattr(ping, "security.capability", NET_RAW)
    except OSError as error:
        pytest.skip(f"no capability can be put on a file here: {error.strerror}")
    assert "operation not permitted" in engine.run(options, "/run/ping", "-c", "1", "127.0.0.1")
