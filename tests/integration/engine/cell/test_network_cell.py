"""Real programs in the cell of looks at the network: they see the machine's network, and nothing else of it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from claudeops.app.start.trial_process import find_looks
from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import LAUNCHER, BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel, PlainCell
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.look_cell import Program, find_program, run_trial, trials
from claudeops.engine.cell.network import NO_ICMP, NO_OWNERS, NetworkCell, find_network_cells
from claudeops.policy.programs.network import PROGRAMS
from claudeops.structs import replace
from support.levels import PATH, needs
from support.waiting import PATIENCE_SECONDS

EVERYWHERE = f"{PATH}:/usr/sbin:/sbin"  # ifconfig and the like
ROUTED = ("traceroute -n 127.0.0.1", "tracepath -n 127.0.0.1", "mtr -r -n -c 1 -G 1 127.0.0.1")


@pytest.fixture(scope="module")
def bubblewrap() -> BubblewrapCell:
    needs(IsolationLevel.BUBBLEWRAP)
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(found, BubblewrapCell), found
    return found


@pytest.fixture(scope="module")
def cells(bubblewrap: BubblewrapCell) -> Mapping[str, NetworkCell | str]:
    return find_network_cells(bubblewrap, EVERYWHERE)


def cell_of(cells: Mapping[str, NetworkCell | str], name: str) -> NetworkCell:
    """Return the cell of a program, or skip with the reason why there is none."""
    found = cells.get(name, f"{name} is not installed")
    if isinstance(found, str):
        assert name not in cells or (found == NO_ICMP and not _may_send()), found
        pytest.skip(found)
    return found


def _may_send() -> bool:
    """Return whether this user is root with CAP_NET_RAW, and therefore needs no leave of the kernel."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    rights = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(int(rights, 16) >> 13 & 1)


def run(cell: NetworkCell, text: str) -> tuple[int, str, str]:
    """Return the exit status of a look, its output, and the sentence about it."""
    program, *arguments = text.split()
    call = LookCall(program=program, arguments=tuple(arguments))
    done = subprocess.run(
        cell.command(call), env={}, capture_output=True, timeout=PATIENCE_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, done.stdout.decode(), cell.sentence(call, done.returncode, done.stderr)


def with_program(bubblewrap: BubblewrapCell, name: str, *, sends: bool = False) -> NetworkCell:
    """Return a cell with another program in it, which says what it sees."""
    program = find_program(name, EVERYWHERE)
    assert isinstance(program, Program), program
    return NetworkCell(bubblewrap=bubblewrap, programs=(program,), sends=sends, as_root=os.geteuid() == 0)


@pytest.mark.parametrize("program", ["nc", "ncat"])
def test_a_knock_finds_an_open_port_open_and_a_closed_one_closed(
    cells: Mapping[str, NetworkCell | str], program: str
) -> None:
    cell = cell_of(cells, program)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nothing listens there
        opened, closed = (one.getsockname()[1] for one in (listener, silent))
        status, _, said = run(cell, f"{program} -z -v -w 9 127.0.0.1 {opened}")
        assert (status, str(opened) in said) == (0, True)
        status, _, said = run(cell, f"{program} -z -v -w 9 127.0.0.1 {closed}")
        assert status != 0
        assert "refused" in said


@pytest.mark.parametrize("look", ["ss -n -t -l", "ss -n -t -l -p", "netstat -n -t -l"])
def test_a_listener_of_the_machine_is_shown(cells: Mapping[str, NetworkCell | str], look: str) -> None:
    cell = cell_of(cells, look.split(maxsplit=1)[0])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        status, shown, _ = run(cell, look)
    assert (status, f"127.0.0.1:{port} " in shown) == (0, True)


def test_whose_a_socket_is_is_said_not_to_be_shown(cells: Mapping[str, NetworkCell | str]) -> None:
    cell = cell_of(cells, "ss")
    status, shown, says = run(cell, "ss -n -t -l -p")
    assert (status, "users:" in shown, says) == (0, False, NO_OWNERS)
    assert run(cell, "ss -n -t -l")[2] == ""


@pytest.mark.parametrize("look", ["ip -brief addr", "ifconfig -a", "netstat -n -i", "hostname -I"])
def test_interfaces_are_those_of_the_machine(cells: Mapping[str, NetworkCell | str], look: str) -> None:
    status, shown, says = run(cell_of(cells, look.split(maxsplit=1)[0]), look)
    expected = [name for _, name in socket.if_nameindex() if name == "lo"]
    assert (status, says, look == "hostname -I" or all(name in shown for name in expected)) == (0, "", True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_ping_sends_and_knows_names(cells: Mapping[str, NetworkCell | str], host: str) -> None:
    status, shown, says = run(cell_of(cells, "ping"), f"ping -c 1 -- {host}")
    assert (status, " 0% packet loss" in shown, says) == (0, True, "")


def test_a_name_that_nobody_knows_is_said_to_be_unknown(cells: Mapping[str, NetworkCell | str]) -> None:
    status, shown, says = run(cell_of(cells, "ping"), "ping -c 1 -- no-such-host.invalid")
    assert (status, shown) == (2, "")
    assert says.startswith("no-such-host.invalid: ")


@pytest.mark.parametrize("look", ROUTED)
def test_routes_are_found(cells: Mapping[str, NetworkCell | str], look: str) -> None:
    status, shown, says = run(cell_of(cells, look.split(maxsplit=1)[0]), look)
    assert (status, says, "127.0.0.1" in shown.splitlines()[-1] or "reached" in shown) == (0, "", True)


def test_what_a_program_says_where_it_fails_is_one_printable_line_of_bounded_length(
    cells: Mapping[str, NetworkCell | str],
) -> None:
    cell = cell_of(cells, "ip")
    assert run(cell, "ip link show dev gone") == (1, "", 'Device "gone" does not exist.')
    call = LookCall(program="ip", arguments=())
    assert (
        cell.sentence(call, 1, b"/usr/bin/ip: one\n\nip: \x1b[2Jtwo\xff\n") == "one; ?[2Jtwo\N{REPLACEMENT CHARACTER}"
    )
    assert len(cell.sentence(call, 1, b"x" * 5000)) < 500
    assert cell.sentence(call, 0, b"warning") == ""


@pytest.mark.parametrize("sends", [False, True])
def test_a_program_in_the_cell_sees_no_file_of_the_machine(
    bubblewrap: BubblewrapCell, tmp_path: Path, sends: bool
) -> None:
    cell = with_program(bubblewrap, "ls", sends=sends)
    status, shown, _ = run(cell, "ls /")
    own = {"dev", "etc", "lib", "lib64", "usr", "bin"} | (set() if sends else {"proc"})
    assert (status, set(shown.split()) - own) == (0, set())
    names = {"hosts", "resolv.conf", "nsswitch.conf", "services", "protocols", "host.conf", "gai.conf"}
    assert set(run(cell, "ls /etc")[1].split()) <= names
    for place in (str(tmp_path), "/etc/passwd", "/root", "/home", "/var", "/sys", "/proc/1/root/etc/passwd"):
        assert run(cell, f"ls -d {place}")[0] != 0, place
    assert run(cell, "ls /dev")[1].split() == ["null"]


def test_a_program_in_the_cell_sees_no_process_of_the_machine_and_changes_nothing(bubblewrap: BubblewrapCell) -> None:
    processes = [name for name in run(with_program(bubblewrap, "ls"), "ls /proc")[1].split() if name.isdigit()]
    assert len(processes) <= 3
    writes = with_program(bubblewrap, "tee")  # of nothing
    for place in ("/proc/sys/kernel/core_pattern", "/proc/self/comm", "/etc/hosts", "/new", "/dev/new", "/usr/new"):
        status, _, says = run(writes, f"tee -a {place}")
        assert (status, "Read-only file system" in says or "Permission denied" in says) == (1, True), says


@pytest.mark.parametrize("sends", [False, True])
def test_a_program_in_the_cell_has_no_right_but_the_one_it_needs(bubblewrap: BubblewrapCell, sends: bool) -> None:
    cell = with_program(bubblewrap, "setpriv", sends=sends)
    _, shown, _ = run(cell, "setpriv --dump")
    rights = "net_raw" if sends and os.geteuid() == 0 else "[none]"
    assert f"Ambient capabilities: {rights}\n" in shown
    assert "no_new_privs: 1\n" in shown
    status, _, says = run(cell, f"setpriv --reuid 1 {cell.program} --dump")
    assert (status == 0, "not permitted" in says or "Invalid argument" in says) == (False, True), says
    if not sends:
        _, shown, _ = run(with_program(bubblewrap, "cat"), "cat /proc/self/status")
        assert "CapEff:\t0000000000000000\n" in shown
        assert "CapPrm:\t0000000000000000\n" in shown
        assert "Seccomp:\t2\n" in shown


def test_where_the_kernel_forbids_icmp_the_reason_names_the_remedy(
    bubblewrap: BubblewrapCell, cells: Mapping[str, NetworkCell | str]
) -> None:
    """Without the rights of root it takes the kernel's leave, which this machine may give."""
    ping = find_program("ping", EVERYWHERE)
    if ping is None:
        pytest.skip("ping is not installed")
    assert isinstance(ping, Program), ping
    status, _, says = run(
        NetworkCell(bubblewrap=bubblewrap, programs=(ping,), sends=True, as_root=False), "ping -c 1 -- 127.0.0.1"
    )
    if status == 0:
        pytest.skip("this machine's kernel lets everybody send echo requests")
    assert "not permitted" in says
    assert os.geteuid() == 0 or cells["ping"] == NO_ICMP
    assert "ping_group_range" in NO_ICMP


def test_what_is_not_installed_is_not_there_and_what_does_not_work_says_why(
    bubblewrap: BubblewrapCell, tmp_path: Path
) -> None:
    assert find_network_cells(bubblewrap, str(tmp_path)) == {}
    for name in ("ldd", "false"):
        program = shutil.which(name, path=PATH)
        assert program is not None
        (tmp_path / ("ss" if name == "false" else name)).symlink_to(program)
    found = find_network_cells(bubblewrap, str(tmp_path))
    assert found == {"ss": "ss does not work in a cell of its own: exit status 1"}


def test_a_programs_libraries_are_those_that_ldd_finds() -> None:
    installed = {name: found for name in (*PROGRAMS, "git") if (found := find_program(name, EVERYWHERE)) is not None}
    for name, found in installed.items():
        assert isinstance(found, Program), name
        listed = subprocess.run(["ldd", found.path.resolve()], capture_output=True, text=True, check=True).stdout
        assert [str(library) for library in found.libraries] == re.findall(r"(/\S+) \(0x", listed), name


def test_what_names_no_loader_is_left_to_ldd_and_is_not_run_itself(tmp_path: Path) -> None:
    git = shutil.which("git", path=PATH)
    assert git is not None
    (tmp_path / "git").symlink_to(git)
    broken = Path(git).resolve().read_bytes()[:200]
    for name, content in {
        "script": b"#!/bin/sh\ntouch " + bytes(tmp_path / "run"),
        "broken": broken,
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    assert isinstance(find_program("git", str(tmp_path)), Program)  # without ldd
    for name in ("script", "broken", "empty"):
        assert find_program(name, str(tmp_path)) == "there is no ldd on PATH", name
        said = find_program(name, f"{tmp_path}:{PATH}")
        assert isinstance(said, str), name
        assert said.startswith(f"the libraries of {name} are not known: "), said
    assert not (tmp_path / "run").exists()


def test_what_is_tried_has_what_a_look_has_and_is_bounded_like_one(bubblewrap: BubblewrapCell) -> None:
    bash = with_program(bubblewrap, "bash")
    says = "ulimit -v; ulimit -t; ulimit -c; ulimit -Ha; pwd; export; echo $$ $- /proc/self/fd/*; read -r && echo read"
    shown = LookCall(program="bash", arguments=("-c", f"{says}; echo over; echo and this >&2"))
    with trials() as run_many:
        tried = run_many(bash.launched(shown), bash.memory_mb, bash.cpu_seconds)
        assert tried == run_trial(bash.command(shown))
        assert "1048576\n10\n0\n" in tried
        assert tried.endswith("over\n")


def test_a_trial_that_fails_or_hangs_says_so_and_the_next_one_goes_well(
    bubblewrap: BubblewrapCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudeops.engine.cell.look_cell._TRIAL_SECONDS", 0.5)
    bash = with_program(bubblewrap, "bash")
    with trials() as run_many:

        def tried(script: str) -> str:
            command = bash.launched(LookCall(program="bash", arguments=("-c", script)))
            return run_many(command, 1024, 10)

        with pytest.raises(subprocess.CalledProcessError) as failed:
            tried("echo printed; echo said >&2; exit 3")
        assert (failed.value.returncode, failed.value.stdout, failed.value.stderr) == (3, "printed\n", "said\n")
        with pytest.raises(subprocess.TimeoutExpired):
            tried("kill -STOP $$")
        assert tried("echo next") == "next\n"


def test_all_programs_are_tried_by_two_launchers(bubblewrap: BubblewrapCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher takes longer to start than a trial, and a start of the daemon waits for all trials."""
    started: list[tuple[str, ...]] = []
    popen = subprocess.Popen

    class Counted(popen):  # type: ignore[misc, valid-type]  # the names that subprocess itself looks up
        def __init__(self, command: Sequence[str], *args: object, **kwargs: object) -> None:
            started.append(tuple(command))
            super().__init__(command, *args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    found = find_network_cells(bubblewrap, EVERYWHERE)
    works = [name for name, each in found.items() if isinstance(each, NetworkCell)]
    assert len(works) > 2
    assert [command for command in started if set(LAUNCHER) <= set(command)] == [(*LAUNCHER, "many")] * 2


def test_the_daemon_knows_for_each_program_whether_it_works(bubblewrap: BubblewrapCell) -> None:
    found = find_looks(bubblewrap, EVERYWHERE)
    assert set(found.known()) <= {"git", *PROGRAMS}
    assert {name for name, why in found.known().items() if not why} == set(found.cells)
    assert find_looks(PlainCell(), EVERYWHERE).known() == {}


def test_a_look_shares_the_machines_network_and_has_no_processes_in_common(bubblewrap: BubblewrapCell) -> None:
    words = replace(with_program(bubblewrap, "ls"), as_root=False).command(LookCall(program="ls", arguments=()))
    assert "--unshare-net" not in words
    assert {"--unshare-pid", "--unshare-user", "--unshare-ipc"} <= set(words)
