"""What the doctor says of probes: which cannot work here and how to mend that, and which services have none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from claudeops.cli.doctor.probes import probes
from claudeops.engine.probes import preconditions
from support.settings_world import World, make_world

pytestmark = pytest.mark.anyio

CASE: Final = cast("DoctorContext", SimpleNamespace())
"""Not looked at by this check."""
MANIFEST: Final = "# Services\n- shop: https://shop.example.org/\n- mailer\n- ledger\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = make_world(tmp_path)
    (made.root / "repos" / "estate" / "CLAUDE-OPS.md").write_text(MANIFEST)
    return made


async def found(world: World, text: str, **environ: str) -> Finding:
    file = world.file("probes.toml", text)
    return await probes(CASE, world.settings(CLAUDEOPS_PROBES_PATH=str(file), **environ))


def declared(name: str, kind: str, more: str) -> str:
    return f'[[probe]]\nname = "{name}"\nkind = "{kind}"\n{more}\n'


SECRETIVE: Final = declared(
    "api", "http", 'url = "https://a.example.org/"\nheaders = { Authorization = "Bearer ${KEY}" }'
)


@pytest.mark.parametrize(
    ("probe", "why", "remedy"),
    [
        (SECRETIVE, "the header Authorization needs KEY", "set it there, or change the header"),
        (declared("box", "docker", 'container = "web"\nsocket = "/none.sock"'), "/none.sock", "mount it"),
        (
            declared("pods", "kubernetes", 'workload = "deployment/web"\nkubeconfig = "/none"'),
            "No such file",
            "name a kubeconfig",
        ),
        (
            declared("page", "command", 'command = "curl -s https://stranger.example/"'),
            "stranger.example is not in the estate",
            "allow this one there",
        ),
    ],
)
async def test_a_probe_that_cannot_work_is_named_with_its_remedy(
    world: World, probe: str, why: str, remedy: str
) -> None:
    works = declared("fine", "tcp", 'host = "127.0.0.1"\nport = 9')
    finding = await found(world, works + probe)

    (line,) = finding.lines
    name = probe.split('"')[1]
    assert finding.status is FindingStatus.WARNING
    assert "1 cannot work here: " in finding.text
    assert line.startswith(f"{name} (probes.toml:6): ")
    assert why in line
    assert remedy in line
    assert "Mend what is listed" in str(finding.remedy)
    assert finding.document is not None
    (told,) = cast("list[dict[str, str]]", finding.document["cannot_work"])
    assert (told["probe"], told["origin"]) == (name, "probes.toml:6")


async def test_what_works_is_no_finding(world: World) -> None:
    repository = world.root / "repos" / "estate" / "CLAUDE-OPS.md"
    repository.write_text("# Services\n- shop: https://shop.example.org/\n")
    probe = SECRETIVE + declared("page", "command", 'command = "curl -s https://shop.example.org/"')
    finding = await found(world, probe, KEY="a-key-of-the-shop")

    assert (finding.status, finding.lines) == (FindingStatus.OK, ())
    assert finding.text == "3 are declared (1 command, 2 http)."


@pytest.mark.parametrize(("tier0", "told"), [("inform", "ledger."), ("gate", "leaves out no round of the estate.")])
async def test_services_without_a_probe_are_named_and_what_that_means_for_the_gate(
    world: World, tier0: str, told: str
) -> None:
    finding = await found(
        world, declared("post", "heartbeat", 'service = "mailer"\nevery = "1h"'), CLAUDEOPS_TIER0=tier0
    )

    assert finding.text.startswith("2 are declared (1 heartbeat, 1 http). Without a probe: ledger")
    assert finding.text.endswith(told)
    assert finding.document is not None
    assert (finding.document["probes"], finding.document["without_probe"]) == (2, ["ledger"])
    assert finding.status is FindingStatus.WARNING


async def test_without_leave_to_ping_and_without_systemd_each_such_probe_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(world.base / "bin"))
    text = "".join(declared(f"ping{number}", "icmp", 'host = "127.0.0.1"') for number in range(150))
    finding = await found(world, text)

    if preconditions.may_ping():
        assert finding.lines == ()
    else:
        assert len(finding.lines) == 101
        assert "net.ipv4.ping_group_range" in finding.lines[0]
        assert finding.lines[-1] == "and 50 more"
        assert finding.document is not None
        assert len(cast("list[object]", finding.document["cannot_work"])) == 150


async def test_a_site_without_a_node_is_named_and_so_is_a_probe_that_can_never_be_down(world: World) -> None:
    two = declared("shop", "tcp", 'host = "127.0.0.1"\nport = 9\nsites = ["main", "dock"]')
    any_of = declared("mail", "tcp", 'host = "127.0.0.1"\nport = 9\nsites = ["main", "dock"]\nquorum = 1')
    finding = await found(world, two + any_of)
    here = await found(world, declared("shop", "tcp", 'host = "127.0.0.1"\nport = 9\nsites = ["main"]'))

    assert finding.status is FindingStatus.WARNING
    assert "No node is known of sites that are to look: dock (shop, mail)." in finding.text
    assert "Fewer sites than have to agree can look, so these are never down: shop." in finding.text
    assert finding.remedy is not None
    assert "Start a node of each site that probes name" in finding.remedy
    assert "to look" not in here.text


async def test_what_another_site_looks_at_need_not_work_here(world: World) -> None:
    remote = declared("box", "docker", 'container = "web"\nsocket = "/none.sock"\nsites = ["dock"]')

    assert (await found(world, remote)).lines == ()
