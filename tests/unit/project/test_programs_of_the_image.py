"""Which programs the images have: those that the prompts teach, and how those come in that Debian lacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from claudeops.cli.doctor.machine import mentioned
from claudeops.engine.cell.bubblewrap import SYSTEM
from support.checkout import ROOT
from support.dockerfile import NET_RAW, of, stage

PROGRAMS: Final = ROOT / "deploy" / "programs"
MODULES: Final = {
    "helm": ("helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm"),
    "compose": ("github.com/docker/compose/v2", "github.com/docker/compose/v2/cmd"),
}
"""By their directory: the module, and the package that is built of it."""

ALWAYS_THERE: Final = {"df", "du", "getent", "ls", "rm", "sh"}
PACKAGES: Final = {
    "curl": "curl",
    "dig": "bind9-dnsutils",
    "git": "git",
    "openssl": "openssl",
    "ping": "iputils-ping",
    "free": "procps",
    "ps": "procps",
    "ss": "iproute2",
    "ssh": "openssh-client",
}
PACKAGES_OF_FULL: Final = {
    "docker": "docker.io",
    "mysqladmin": "default-mysql-client",
    "pg_isready": "postgresql-client",
    "redis-cli": "redis-tools",
}
NOT_OF_DEBIAN: Final = {"helm", "kubectl"}
ELSEWHERE: Final = {"journalctl", "lsof", "nginx", "rabbitmq-diagnostics", "rabbitmqctl", "systemctl"}
"""Run on the machine or in the container that they are about."""

PLUGINS: Final = "/usr/local/lib/docker/cli-plugins"
"""One of the directories in which the client of docker looks for its own."""


def installed(name: str) -> list[str]:
    (command,) = [rest for word, rest in stage(name) if word == "RUN" and "apt-get install" in rest]
    return command.split()


# --- which --------------------------------------------------------------------------------------------------


def test_every_program_that_a_prompt_teaches_is_in_an_image_or_is_run_elsewhere() -> None:
    prompts = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "prompts").rglob("*.md"))]

    assert mentioned(prompts) == {*ALWAYS_THERE, *PACKAGES, *PACKAGES_OF_FULL, *ELSEWHERE, *NOT_OF_DEBIAN}
    assert {*PACKAGES.values()} - {*installed("common")} == set()
    assert {*PACKAGES_OF_FULL.values(), "ansible"} - {*installed("full")} == set()


def test_what_is_no_package_of_debian_is_where_a_session_sees_it() -> None:
    """The cell shows /usr; of what a link there leads to elsewhere, nothing."""
    (copied,) = [rest.split() for word, rest in stage("full") if word == "COPY"]
    (made,) = [rest for word, rest in stage("full") if word == "RUN" and "ln -s" in rest]
    links = [part.split() for part in made.split(";") if "ln -s" in part]

    assert copied == ["--from=programs", "/opt/programs", "/usr/local"]
    assert Path("/usr/local").is_relative_to(SYSTEM[0])
    assert links == [["ln", "-s", "/usr/local/bin/docker-compose", f"{PLUGINS}/docker-compose"]]
    assert f"install -d {PLUGINS};" in made


def test_ping_has_no_capability_on_its_file_so_that_it_starts_without_any(tmp_path: Path) -> None:
    """The step of the Dockerfile is run on a file that has Debian's capability."""
    (made,) = [rest for word, rest in stage("common") if word == "RUN" and "ping" in rest]
    steps = [part.strip() for part in made.split(";") if "/usr/bin/ping" in part]
    ping = tmp_path / "ping"
    ping.write_text("#!/bin/sh\n")
    try:
        os.setxattr(ping, "security.capability", NET_RAW)
    except OSError as error:
        pytest.skip(f"no capability can be put on a file here: {error.strerror}")
    for step in steps:
        subprocess.run(["sh", "-ec", step.replace("/usr/bin/", f"{tmp_path}/")], check=True, timeout=240)

    assert os.listxattr(ping) == []
    assert [(file.name, file.stat().st_mode & 0o7777) for file in tmp_path.iterdir()] == [("ping", 0o755)]


# --- how those come that Debian lacks -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_a_program_is_built_of_one_version_whose_hash_is_written_down(name: str) -> None:
    module, package = MODULES[name]
    wanted, sums = ((PROGRAMS / name / file).read_text(encoding="utf-8") for file in ("go.mod", "go.sum"))
    (version,) = re.findall(rf"^\t{re.escape(module)} (v\S+)", wanted, flags=re.MULTILINE)
    hashed = {tuple(line.split()[:2]) for line in sums.splitlines()}

    assert re.findall(r"^tool (\S+)$", wanted, flags=re.MULTILINE) == [package]
    assert {(module, version), (module, f"{version}/go.mod")} <= hashed
    assert "replace" not in wanted


def test_every_module_of_the_directory_is_built() -> None:
    assert {file.parent.name for file in PROGRAMS.glob("*/go.mod")} == {*MODULES}
    assert "programs/build /opt/programs /opt/go/go/bin/go" in of("RUN")


GO: Final = """\
#!/usr/bin/env bash
echo "$CGO_ENABLED $GOFLAGS $GOTOOLCHAIN|$PWD|$*" >>"$RECORD"
[ -d "$GOMODCACHE" ] || mkdir -p "$GOMODCACHE"
case "$*" in
*Dir*) echo "terms of $5" >"$GOMODCACHE/LICENSE"; chmod a-w "$GOMODCACHE"; echo "$GOMODCACHE" ;;
*client-go) echo v0.37.4 ;;
*Version*) echo "v1.2.3-of-${5%%/*}" ;;
build*) shift 4; touch "$1"; chmod u+w "$GOMODCACHE" ;;
version*) echo "$*" ;;
esac
"""


def test_each_is_stamped_with_its_version_and_comes_with_its_licence(tmp_path: Path) -> None:
    """The script is run with a go that writes down how it is called."""
    go, record, to = tmp_path / "go", tmp_path / "record", tmp_path / "programs"
    go.write_text(GO)
    go.chmod(0o755)
    (to / "bin").mkdir(parents=True)
    bash = shutil.which("bash") or "bash"
    environment = {"PATH": "/usr/bin:/bin", "RECORD": str(record), "TMPDIR": str(tmp_path)}
    subprocess.run([bash, PROGRAMS / "build", to, go], env=environment, check=True, timeout=240)

    lines = [line.split("|") for line in record.read_text().splitlines()]
    built = {Path(where).name: words for _, where, words in lines if words.startswith("build ")}
    assert {flags for flags, _, _ in lines} == {"0 -mod=readonly -trimpath -buildvcs=false local"}
    stamps = [
        "helm.sh/helm/v3/internal/version.version=v1.2.3-of-helm.sh",
        *("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1", "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=37"),
        *("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1", "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37"),
    ]
    assert built == {
        "helm": f"build -ldflags -s -w -X {' -X '.join(stamps)} -o {to}/bin/helm helm.sh/helm/v3/cmd/helm",
        "compose": "build -ldflags -s -w -X github.com/docker/compose/v2/internal.Version=v1.2.3-of-github.com"
        f" -o {to}/bin/docker-compose github.com/docker/compose/v2/cmd",
    }
    licences = {file.parent.name: file.read_text() for file in to.glob("share/doc/*/LICENSE")}
    assert licences == {name: f"terms of {MODULES[name.removeprefix('docker-')][0]}\n" for name in licences}
    assert len(licences) == len(MODULES)
    assert (to / "share" / "go-modules").read_text() == f"version -m {to}/bin/helm {to}/bin/docker-compose\n"
    assert {file.name for file in tmp_path.iterdir()} == {"go", "record", "programs"}
