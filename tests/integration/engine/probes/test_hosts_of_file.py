"""The operator's probes file as a part of the estate: what widens the sessions' reach, and what widens nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from claudeops import logs
from claudeops.domain.estate.estate import Estate, ProbedPlaces
from claudeops.engine.estate import EstateReader, Estates
from claudeops.engine.probes.hosts import ProbedHosts

pytestmark = pytest.mark.anyio

PROBE = '[[probe]]\nname = "{name}"\nkind = "tcp"\nhost = "{host}"\nport = 443\n'
LOG = logs.get_logger()


def write(file: Path, *hosts: str, more: str = "") -> None:
    probes = [PROBE.format(name=f"p{number}", host=host) for number, host in enumerate(hosts)]
    file.write_text("\n".join(probes) + more, encoding="utf-8")


def test_hosts_come_and_go_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "probes.toml"
    probed = ProbedHosts(file=file)
    assert probed.read().hosts == ()
    write(file, "a.example.net")
    assert probed.read().hosts == ("a.example.net",)
    write(file, "a.example.net", "b.example.net")
    assert probed.read().hosts == ("a.example.net", "b.example.net")
    file.unlink()
    assert probed.read().hosts == ()


@pytest.mark.parametrize(
    "more",
    [
        "[[probe]",
        PROBE.format(name="p0", host="c.example.net"),  # a name that is taken
        PROBE.format(name="meta", host="169.254.169.254"),
        '[[probe]]\nname = "x"\nkind = "command"\ncommand = "rm -rf /"\n',
    ],
)
def test_a_wrong_file_widens_nothing(tmp_path: Path, more: str) -> None:
    file = tmp_path / "probes.toml"

    def refuse(_command: str) -> str:
        return "it is no look"

    probed = ProbedHosts(file=file, refuse_command=refuse)
    write(file, "b.example.net", "evil.example", more=more)
    assert probed.read().hosts == ()
    write(file, "b.example.net")
    assert probed.read().hosts == ("b.example.net",)
    write(file, "b.example.net", "evil.example", more=more)
    assert probed.read().hosts == ("b.example.net",)
    assert probed.read().hosts == ("b.example.net",)
    assert ProbedHosts(file=file, refuse_command=refuse).read().hosts == ()


async def test_the_estate_has_both_and_each_disk_fails_for_itself(tmp_path: Path) -> None:
    repos, file = tmp_path / "repos", tmp_path / "probes.toml"
    (repos / "good").mkdir(parents=True)
    (repos / "good" / "CLAUDE-OPS.md").write_text("# Services\n- shop (web1): https://shop.example.org/\n")
    write(file, "a.example.net")
    away = {"probes": False, "repos": False}
    reader, hosts = EstateReader(), ProbedHosts(file=file)

    def probed() -> ProbedPlaces:
        if away["probes"]:
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        return hosts.read()

    def manifests(directory: Path) -> Estate:
        if away["repos"]:
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        return reader.read(directory)

    estates = Estates(repos, read=manifests, probed=probed)
    both = await estates.look(LOG)
    assert ("shop.example.org" in both.hosts, both.probed) == (True, ("a.example.net",))
    assert "a.example.net" not in both.hosts  # no manifest names it
    assert (both.ports["shop.example.org"], both.probed_ports) == ((443,), {"a.example.net": (443,)})
    assert await estates.look(LOG) == both
    away |= {"probes": True}
    (repos / "good" / "CLAUDE-OPS.md").write_text("# Services\n- shop (web1): https://shop.example.com/\n")
    known = await estates.look(LOG)
    assert ("shop.example.com" in known.hosts, known.probed) == (True, ("a.example.net",))
    assert known.probed_ports == {"a.example.net": (443,)}
    away |= {"probes": False, "repos": True}
    file.unlink()
    known = await estates.look(LOG)
    assert ("shop.example.com" in known.hosts, known.probed) == (True, ())


async def test_without_repositories_the_operators_hosts_are_known_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "probes.toml", "a.example.net")
    probed = ProbedHosts(file=tmp_path / "probes.toml").read
    found = await Estates(tmp_path / "none", read=EstateReader().read, probed=probed).look(LOG)
    assert (found.probed, found.unread) == (("a.example.net",), False)
