"""The files that somebody deploys with agree with each other, and with what claudeops is."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from claudeops.cli.commands import claudeops
from claudeops.cli.doctor.machine import NEEDED, USEFUL
from claudeops.cli.reply import Exit
from claudeops.engine.cell import cell
from claudeops.engine.cell.cell import USER_HOMES
from claudeops.engine.cell.system_calls import FAMILIES, system_call_numbers
from claudeops.engine.system import MOST_DESCRIPTORS
from support.checkout import ROOT
from support.deploy_files import COMPOSE, SERVICE, STOPPING_SECONDS, unit, unknown
from support.dockerfile import DOCKERFILE, instructions, of, stage
from support.settings_world import make_world

ALWAYS_THERE = {"bash", "coreutils", "grep"}  # in every Debian


# --- Dockerfile -----------------------------------------------------------------------------------------


def test_every_file_that_is_copied_is_there_and_goes_into_the_build() -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    let_in = {line[1:] for line in ignore if line.startswith("!")}
    copied = [source for line in of("COPY") if "--from=" not in line for source in line.split()[:-1]]

    assert ignore[0] == "*"  # nothing goes in by accident: no .env, no key, no history
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert set(copied) == let_in


def test_the_base_is_pinned_by_name_and_version() -> None:
    (base,) = [line for line in of("ARG") if line.startswith("BASE=")]

    assert re.fullmatch(r"BASE=docker\.io/library/debian:\d+\.\d+-slim", base)
    stages = [line.split() for line in of("FROM")]
    assert {base for base, _, _ in stages} - {name for _, _, name in stages} == {"${BASE}"}


def test_what_is_built_without_a_target_is_the_smaller_image() -> None:
    assert [line.split()[2] for line in of("FROM")][-1] == "claudeops"
    assert stage("claudeops")[1:] == []
    assert {stage(name)[0][1].split()[0] for name in ("claudeops", "full")} == {"common"}


def test_the_larger_image_ends_as_the_same_user() -> None:
    assert [arguments for name, arguments in stage("full") if name == "USER"] == ["root", "10001:10001"]


def test_the_commit_of_an_image_is_on_its_label() -> None:
    (labels,) = of("LABEL")

    assert "org.opencontainers.image.revision=${REVISION}" in labels
    assert "REVISION=unknown" in of("ARG")


@pytest.mark.parametrize("name", ["common", "full"])
def test_each_image_lists_what_is_in_it_after_the_last_program_has_come(name: str) -> None:
    commands = [arguments for word, arguments in stage(name) if word == "RUN"]
    listed = [number for number, command in enumerate(commands) if "sbom.py >" in command]
    installed = [number for number, command in enumerate(commands) if " install " in f" {command}"]

    assert len(listed) == 1
    assert max(number for number in installed if "apt-get" in commands[number]) < listed[0]


def test_no_address_of_an_index_is_written_down() -> None:
    assert "://" not in "\n".join(arguments for _, arguments in instructions())


def test_everything_that_pip_installs_is_checked_or_our_own() -> None:
    installs = [command for line in of("RUN") for command in line.split(";") if " install --quiet" in command]

    assert len(installs) == 5
    assert [command for command in installs if "--require-hashes" not in command and "--no-index" not in command] == []


def test_the_build_backend_comes_with_all_that_it_needs() -> None:
    (wanted,) = re.findall(r"wanted = /\^\(([^)]+)\)==/", DOCKERFILE)
    needed = {Requirement(line) for line in importlib.metadata.requires("hatchling") or ()}
    names = {need.name for need in needed if need.marker is None or need.marker.evaluate({"python_version": "3.11"})}

    assert set(wanted.split("|")) == {"hatchling", *names}


def test_the_tools_of_the_prompts_are_in_the_image() -> None:
    (installed,) = [
        arguments for name, arguments in stage("common") if name == "RUN" and "apt-get install" in arguments
    ]
    packages = {*NEEDED.values(), *USEFUL.values()} - ALWAYS_THERE

    assert [package for package in ("tini", "bubblewrap", *packages) if package not in installed.split()] == []


def test_it_runs_as_a_user_with_a_fixed_number_who_owns_what_it_writes() -> None:
    (user,) = [arguments for name, arguments in stage("common") if name == "USER"]
    (made,) = [line for line in of("RUN") if "useradd" in line]

    assert user == "10001:10001" == SERVICE["user"]
    assert "--uid 10001" in made
    assert "--gid 10001" in made
    for volume in ("/state", "/results"):
        assert re.search(rf"install -d -o claudeops -g claudeops -m 07[05]0 {volume}\b", made)
    assert of("VOLUME") == ['["/state", "/results", "/repos"]']


def test_every_user_that_a_session_may_have_is_on_the_list_with_the_home_that_it_gets() -> None:
    lines = (ROOT / "deploy" / "claudeops-sessions.conf").read_text(encoding="utf-8").splitlines()
    listed = [line.split() for line in lines if not line.startswith("#")]
    uids = range(cell.FIRST_UID, cell.FIRST_UID + cell.UIDS)

    assert [(kind, int(uid), home) for kind, _, uid, _, home, _ in listed] == [
        ("u", uid, str(cell.listed_home(USER_HOMES, uid))) for uid in uids
    ]
    assert len({name for _, name, *_ in listed}) == cell.UIDS


def test_the_image_has_those_users(tmp_path: Path) -> None:
    (made,) = [line for line in of("RUN") if "claudeops-sessions.conf" in line]
    made = made.replace("/usr/lib/sysusers.d", str(ROOT / "deploy")).replace("/etc/", f"{tmp_path}/")
    subprocess.run(["bash", "-euo", "pipefail", "-c", made], check=True, timeout=240)

    users = [line.split(":") for line in (tmp_path / "passwd").read_text(encoding="utf-8").splitlines()]
    assert users[1] == [
        *("claudeops-session-01", "x", "60601", "60601", ""),
        *("/var/lib/claudeops-sessions/homes/60601", "/usr/sbin/nologin"),
    ]
    assert len(users) == cell.UIDS
    groups = (tmp_path / "group").read_text(encoding="utf-8").splitlines()
    assert groups[1] == "claudeops-session-01:x:60601:"


def test_what_it_starts_exists() -> None:
    assert of("ENTRYPOINT") == ['["/usr/bin/tini", "--", "claudeops"]']
    assert of("CMD") == ['["run"]']
    (check,) = of("HEALTHCHECK")
    assert check.endswith('CMD ["claudeops", "health"]')
    assert {"run", "health"} <= set(claudeops.commands)


def test_schemas_and_prompts_are_where_the_settings_look_for_them() -> None:
    copied = dict(line.split() for line in of("COPY") if "/app/" in line)

    assert copied == {"schemas": "/app/schemas", "prompts": "/app/prompts"}


def test_every_variable_of_the_image_is_a_setting() -> None:
    (image,) = [arguments for name, arguments in stage("common") if name == "ENV"]

    assert unknown(name for name in re.findall(r"(\w+)=", image) if not name.startswith("PYTHON")) == []


def test_the_build_script_is_a_script() -> None:
    script = ROOT / "deploy" / "build-image"

    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", script], check=True, timeout=240)


@pytest.mark.parametrize(
    ("target", "image"),
    [("", "claudeops:latest"), ("full", "claudeops:latest-full"), ("claudeops", "claudeops:latest")],
)
def test_the_build_script_builds_one_target_under_its_name(target: str, image: str, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **({"TARGET": target} if target else {})}
    build = [ROOT / "deploy" / "build-image"]
    done = subprocess.run(build, env=environment, check=True, capture_output=True, text=True, timeout=240)

    words = done.stdout.split()
    assert words[words.index("--tag") + 1] == image
    assert words[words.index("--target") + 1] == (target or "claudeops")
    (revision,) = [word for word in words if word.startswith("REVISION=")]
    assert re.fullmatch(r"REVISION=([0-9a-f]{40}(-dirty)?|unknown)", revision)


def test_the_build_script_refuses_a_target_that_there_is_not() -> None:
    build = [ROOT / "deploy" / "build-image"]
    done = subprocess.run(build, env={"TARGET": "slim"}, check=False, capture_output=True, text=True, timeout=240)

    assert (done.returncode, done.stderr) == (64, "TARGET is claudeops or full, not slim.\n")


# --- compose --------------------------------------------------------------------------------------------


def test_the_root_file_system_is_read_only_and_no_port_is_open() -> None:
    assert SERVICE["read_only"] is True
    assert [mount.partition(":")[0] for mount in SERVICE["tmpfs"]] == ["/tmp"]  # noqa: S108 - in the container
    assert {"ports", "expose", "network_mode", "privileged", "cap_add"} & set(SERVICE) == set()
    assert SERVICE["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in SERVICE["security_opt"]


def test_every_volume_of_the_image_is_mounted_and_what_is_watched_is_read_only() -> None:
    mounts = {line.split(":")[1]: line for line in SERVICE["volumes"]}

    assert sorted(mounts) == ["/repos", "/results", "/state"]
    assert mounts["/repos"].endswith(":ro")
    assert {line.split(":")[0] for line in SERVICE["volumes"] if not line.startswith(".")} == set(COMPOSE["volumes"])


def test_the_key_comes_from_a_file_and_not_from_the_environment() -> None:
    (secret,) = SERVICE["secrets"]

    assert SERVICE["environment"]["ANTHROPIC_API_KEY_FILE"] == f"/run/secrets/{secret}"
    assert "ANTHROPIC_API_KEY" not in SERVICE["environment"]
    assert set(COMPOSE["secrets"]) == {secret}


def test_its_environment_is_one_that_the_daemon_takes(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    key = world.file("anthropic-api-key", "sk-ant-of-the-compose-file\n")

    loaded = world.load({**SERVICE["environment"], "ANTHROPIC_API_KEY_FILE": str(key)})

    assert loaded.settings.access.api_key == "sk-ant-of-the-compose-file"
    assert loaded.settings.ladder.dry_run


def test_compose_waits_longer_than_the_daemon_takes_to_stop() -> None:
    assert int(SERVICE["stop_grace_period"].removesuffix("s")) > STOPPING_SECONDS


def test_what_bubblewrap_needs_is_given_and_nothing_more() -> None:
    given = set(SERVICE["security_opt"]) - {"no-new-privileges:true"}

    assert given == {"systempaths=unconfined", "seccomp=seccomp.json", "apparmor=unconfined"}
    assert SERVICE["environment"]["CLAUDEOPS_ISOLATION"] == "bubblewrap"


def test_the_filter_of_the_container_opens_only_what_the_cell_is_made_with() -> None:
    profile = json.loads((ROOT / "deploy" / "seccomp.json").read_text())
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    of_the_cell = {"clone", "keyctl", "mount", "pivot_root", "umount2", "unshare"}
    asked_about = {"ioctl", "personality", "socket"}  # by their arguments, here or in the cell

    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)
    assert allowed & system_call_numbers("x86_64").keys() == of_the_cell | asked_about
    assert [rule["args"][0]["value"] for rule in profile["syscalls"] if rule["names"] == ["socket"]] == [
        socket.AF_VSOCK
    ]
    assert {"execve", "openat", "prctl", "seccomp", "landlock_restrict_self", "futex", "epoll_pwait2"} <= allowed


def test_the_daemon_may_open_as_many_files_as_it_wants() -> None:
    assert SERVICE["ulimits"]["nofile"] == MOST_DESCRIPTORS
    assert unit()["LimitNOFILE"] == [str(MOST_DESCRIPTORS)]


# --- systemd --------------------------------------------------------------------------------------------


def test_systemd_starts_nothing_again_that_would_fail_again() -> None:
    (prevented,) = unit()["RestartPreventExitStatus"]

    assert {int(number) for number in prevented.split()} == {Exit.USAGE, Exit.CONFIGURATION}


def test_systemd_lets_the_daemon_end_its_own_sessions() -> None:
    assert (unit()["Type"], unit()["KillMode"], unit()["NotifyAccess"]) == (["notify"], ["mixed"], ["main"])
    assert int(unit()["TimeoutStopSec"][0]) > STOPPING_SECONDS


def test_every_variable_of_the_unit_is_a_setting() -> None:
    assert unknown(value.partition("=")[0] for value in unit()["Environment"]) == []


@pytest.mark.parametrize(
    "pattern",
    ["ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "RestrictNamespaces", "PrivateUsers"],
)
def test_nothing_in_the_unit_stops_bubblewrap(pattern: str) -> None:
    assert fnmatch.filter(unit(), pattern) == []
    assert "@mount" in unit()["SystemCallFilter"][0]


def test_the_unit_lets_sessions_have_the_sockets_that_their_filter_lets_them_have() -> None:
    allowed = {getattr(socket, name) for name in unit()["RestrictAddressFamilies"][0].split()}

    assert allowed == set(FAMILIES)


OF_THE_CELL = {
    *("unshare", "clone", "clone3", "mount", "umount2", "pivot_root", "memfd_create", "prctl", "execve"),
    *("keyctl", "setresuid", "setresgid", "setgroups", "prlimit64", "sendmsg", "recvmsg", "bind", "listen"),
    *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
}
"""What launcher, bubblewrap, guardian and the shell of tools ask the kernel for."""


def test_the_unit_allows_the_calls_that_make_a_cell_and_none_of_those_that_end_a_machine() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: systemd)")
    words = unit()["SystemCallFilter"][0].split()
    allowed = {call for word in words for call in (calls_of(word) if word.startswith("@") else {word})}

    assert allowed >= OF_THE_CELL
    assert allowed & {"ptrace", "bpf", "kexec_load", "init_module", "reboot", "swapon", "perf_event_open"} == set()


def calls_of(group: str) -> set[str]:
    """Return the calls of one of systemd's groups, of those within it too."""
    listed = ["systemd-analyze", "--no-pager", "syscall-filter", group]
    shown = subprocess.run(listed, capture_output=True, text=True, check=True, timeout=240).stdout
    words = {line.strip() for line in shown.splitlines()[1:] if line.startswith("    ") and "#" not in line}
    groups = {word for word in words if word.startswith("@")}
    return (words - groups).union(*(calls_of(each) for each in groups))


@pytest.mark.parametrize("name", sorted(file.name for file in (ROOT / "deploy").glob("claudeops*.[st]*")))
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian: systemd)")
    for file in (ROOT / "deploy").glob("claudeops*.[st]*"):  # a timer names its service
        # The daemon itself need not be installed where this is tested.
        text = re.sub(r"(?m)^ExecStart=/opt\S+", "ExecStart=/bin/true", file.read_text(encoding="utf-8"))
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    command = [analyze, "--man=no", "verify", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    ours = [line for line in done.stderr.splitlines() if name in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_unit_of_the_backup_copies_the_database_and_then_removes_old_copies(tmp_path: Path) -> None:
    """Its commands are run as systemd splits and fills them in, with directories and a program of this test."""
    copies, program = tmp_path / "copies", tmp_path / "claudeops"
    copies.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = backup ] && [ $# = 2 ] && echo copy >"$2"\n')
    program.chmod(0o755)
    old, other = copies / "claudeops-2020-01-01T000000Z.db", copies / "notes.txt"
    for file in (old, other):
        file.touch()
        os.utime(file, (0, 0))
    for name in ("ExecStart", "ExecStartPost"):
        (command,) = unit("claudeops-backup.service")[name]
        filled = command.replace("$$", "$").replace("%%", "%").replace("/var/backups/claudeops", str(copies))
        words = shlex.split(filled.replace("/opt/claudeops/bin/claudeops", str(program)))
        subprocess.run(words, env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True, timeout=240)

    (copy,) = {file.name for file in copies.iterdir()} - {other.name}
    assert re.fullmatch(r"claudeops-\d{4}-\d\d-\d\dT\d{6}Z\.db", copy)


def test_the_unit_of_the_backup_may_write_where_it_writes_and_reads_the_settings_of_the_daemon() -> None:
    backup = unit("claudeops-backup.service")

    assert backup["ReadWritePaths"] == ["%S/claudeops /var/backups/claudeops"]
    assert backup["EnvironmentFile"] == unit()["EnvironmentFile"]
    assert set(backup["Environment"]) < set(unit()["Environment"])
