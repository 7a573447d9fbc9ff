"""A rehearsal's services are real: they answer, fail, are restarted by real commands, and never outlive it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.domain.probes.probe import HttpLook, TcpLook
from claudeops.errors import RehearsalError
from claudeops.formats.probes.declaration import read_probes
from claudeops.rehearsal.course import Course
from claudeops.rehearsal.environment import get_status
from claudeops.rehearsal.scenario import ExpiredCertificate, ServiceState, Silent, Stopped
from claudeops.rehearsal.scenario_file import scenario_of
from claudeops.rehearsal.stage import Stage, set_up
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

PATH = "/usr/bin:/bin"
STEPS = {"tiers": {"1": {"steps": [{"report": {"summary": "x"}}]}}, "expect": {"decision": "healthy", "tiers": [1]}}


@asynccontextmanager
async def stage(
    root: Path, services: dict[str, dict[str, object]], faults: Sequence[Mapping[str, object]] = (), *, path: str = PATH
) -> AsyncIterator[Stage]:
    document = {"title": "t", "services": services, "faults": list(faults), **STEPS}
    async with set_up(scenario_of(document), root, path=path) as standing:
        yield standing


async def run(standing: Stage, command: str) -> tuple[int, str, str]:
    """Run a command as a session would: with the rehearsal's commands first on PATH, and nothing of the tests."""
    done = await anyio.run_process(
        ["bash", "-c", command], env={"PATH": f"{standing.commands_dir}:{PATH}"}, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def pid_of(standing: Stage, name: str) -> int | None:
    process = standing.environment.services[name].process
    return None if process is None else process.pid


async def test_a_stopped_service_refuses_until_a_command_restarts_it_on_the_same_port(tmp_path: Path) -> None:
    fault = {"service": "web", "kind": "stopped", "log": ["out of memory"]}
    async with stage(tmp_path, {"web": {"answers": "hello"}, "other": {}}, [fault]) as standing:
        web = standing.environment.services["web"]
        assert await standing.environment.states() == {"web": ServiceState.DOWN, "other": ServiceState.UP}
        assert "out of memory" in (await run(standing, "docker logs --tail 5 web"))[1]
        assert (await run(standing, "docker inspect --format '{{.State.Status}}' web"))[1] == "exited\n"
        url = web.url
        assert await run(standing, "docker restart web") == (0, "web\n", "")
        assert await standing.environment.states() == {"web": ServiceState.UP, "other": ServiceState.UP}
        assert (web.url, await get_status(url)) == (url, 200)
        assert (await run(standing, "docker inspect --format '{{.State.Status}} {{.RestartCount}}' web"))[
            1
        ] == "running 1\n"


async def test_a_restart_really_is_a_new_process_and_the_old_one_is_gone(tmp_path: Path) -> None:
    async with stage(tmp_path, {"web": {}}) as standing:
        before = pid_of(standing, "web")
        await run(standing, "docker restart web")
        after = pid_of(standing, "web")
        assert before is not None
        assert after not in (None, before)
        assert not psutil.pid_exists(before)


async def test_only_a_redeployment_cures_what_was_deployed(tmp_path: Path) -> None:
    fault = {"service": "pay", "kind": "failing", "status": 502, "cured_by": "redeployment"}
    async with stage(tmp_path, {"pay": {"runs_on": "kubernetes"}}, [fault]) as standing:
        url = standing.environment.services["pay"].url
        assert await get_status(url) == 502
        assert "restarted" in (await run(standing, "kubectl rollout restart deployment/pay"))[1]
        assert await get_status(url) == 502
        history = (await run(standing, "kubectl rollout history deployment/pay"))[1]
        assert history.count("example/pay") == 2
        assert "rolled back" in (await run(standing, "kubectl rollout undo deployment/pay"))[1]
        assert await get_status(url) == 200
        pod = (await run(standing, "kubectl get pods"))[1].splitlines()[1].split()[0]
        assert "pay is up" in (await run(standing, f"kubectl logs {pod} --tail=5"))[1]


async def test_a_flapping_service_fails_every_other_time(tmp_path: Path) -> None:
    fault = {"service": "find", "kind": "failing", "status": 503, "every": 2, "log": ["pool exhausted"]}
    async with stage(tmp_path, {"find": {"runs_on": "systemd"}}, [fault]) as standing:
        url = standing.environment.services["find"].url
        assert [await get_status(url) for _ in range(4)] == [503, 200, 503, 200]
        assert (await run(standing, "journalctl -u find -n 20 --no-pager"))[1].count("pool exhausted") == 2
        assert await run(standing, "systemctl is-active find") == (0, "active\n", "")
        await run(standing, "systemctl restart find.service")
        assert [await get_status(url) for _ in range(2)] == [200, 200]


async def test_a_full_disk_is_measured_not_claimed(tmp_path: Path) -> None:
    fault = {"service": "box", "kind": "disk-full", "file": "cache.bin"}
    async with stage(tmp_path, {"box": {"disk_kib": 256}}, [fault]) as standing:
        box = standing.environment.services["box"]
        assert await get_status(box.url) == 507
        assert " 100% " in (await run(standing, "docker exec box df -h /data"))[1]
        assert "/data/cache.bin" in (await run(standing, "docker exec box du -a /data"))[1]
        assert box.data is not None
        (box.data / "cache.bin").unlink()
        assert await get_status(box.url) == 200
        assert " 25% " in (await run(standing, "docker exec box df -h /data"))[1]
        assert (await run(standing, "docker exec box rm /data/photos.db"))[0] == 126


async def test_a_certificate_is_valid_for_as_long_as_the_scenario_says(tmp_path: Path) -> None:
    async with stage(tmp_path, {"site": {"tls": True, "certificate_days": 12}}) as standing:
        site = standing.environment.services["site"]
        assert await get_status(site.url) == 200
        shown = f"openssl s_client -connect 127.0.0.1:{site.port} </dev/null 2>/dev/null | openssl x509 -noout"
        for days, sentence in ((11, "will not expire"), (13, "will expire")):
            _, seen, _ = await run(standing, f"{shown} -checkend {days * 86400}")
            assert sentence in seen


async def test_a_service_answers_503_for_as_long_as_one_that_it_needs_does_not(tmp_path: Path) -> None:
    fault = {"service": "db", "kind": "stopped"}
    async with stage(tmp_path, {"db": {}, "shop": {"needs": ["db"]}}, [fault]) as standing:
        assert await standing.environment.states() == {"db": ServiceState.DOWN, "shop": ServiceState.FAILING}
        assert "ERROR db does not answer" in (await run(standing, "docker logs --tail 3 shop"))[1]
        await run(standing, "docker restart db")
        assert await standing.environment.states() == {"db": ServiceState.UP, "shop": ServiceState.UP}


async def test_a_fault_that_comes_later_goes_and_comes_again_until_it_is_cured(tmp_path: Path) -> None:
    later: dict[str, object] = {"after_seconds": 1, "lasts_seconds": 1, "times": 9, "log": ["out of memory"]}
    fault = Stopped(service="web", after_seconds=1, lasts_seconds=1, times=9, log=("out of memory",))
    async with stage(tmp_path, {"web": {}}, [{"service": "web", "kind": "stopped", **later}]) as standing:
        web = standing.environment.services["web"]
        assert await standing.environment.states() == {"web": ServiceState.UP}
        before = datetime.now(UTC)
        began_at = await web.strike(fault)
        assert began_at is not None
        assert began_at >= before
        assert await standing.environment.states() == {"web": ServiceState.DOWN}
        assert await web.recover(fault)
        assert await standing.environment.states() == {"web": ServiceState.UP}
        assert await web.strike(fault, again=True) is not None
        assert await web.recover(fault)
        await run(standing, "docker restart web")
        assert await web.strike(fault, again=True) is None
        assert not await web.recover(fault)
        assert await standing.environment.states() == {"web": ServiceState.UP}
        assert web.restarts == 1


async def test_a_service_shows_an_expired_certificate_until_it_is_restarted(tmp_path: Path) -> None:
    async with stage(tmp_path, {"site": {"tls": True}}) as standing:
        site = standing.environment.services["site"]
        shown = f"openssl s_client -connect 127.0.0.1:{site.port} </dev/null 2>/dev/null | openssl x509 -noout"
        await site.strike(ExpiredCertificate(service="site", log=("not loaded",)))
        assert "will expire" in (await run(standing, f"{shown} -checkend 0"))[1]
        assert site.log_lines()[-2].endswith("not loaded")
        await run(standing, "docker restart site")
        assert "will not expire" in (await run(standing, f"{shown} -checkend 0"))[1]


async def test_a_silent_service_runs_on_as_the_same_process_and_only_stops_beating(tmp_path: Path) -> None:
    async with stage(tmp_path, {"job": {"runs_on": "systemd"}}) as standing:
        job, before = standing.environment.services["job"], pid_of(standing, "job")
        assert job.beats
        await job.strike(Silent(service="job"))
        assert (job.beats, pid_of(standing, "job")) == (False, before)
        assert await standing.environment.states() == {"job": ServiceState.UP}
        await run(standing, "systemctl restart job")
        assert job.beats


async def test_what_comes_and_goes_waits_for_what_the_probes_see(tmp_path: Path) -> None:
    fault = Stopped(service="web", after_seconds=0, lasts_seconds=0, times=3)
    seen: list[tuple[bool, ServiceState]] = []
    async with stage(tmp_path, {"web": {}}) as standing:

        async def until_seen(service: str, *, unwell: bool) -> None:
            seen.append((unwell, (await standing.environment.states())[service]))

        course = Course(environment=standing.environment, faults=[fault], until_seen=until_seen)
        await course.run()
    assert course.is_over
    assert [struck.service for struck in course.struck] == ["web"] * 3
    assert seen == [(True, ServiceState.DOWN), (False, ServiceState.UP)] * 3


async def test_probes_of_a_scenario_are_a_file_that_the_daemon_reads(tmp_path: Path) -> None:
    probe = {
        "name": "web",
        "kind": "http",
        "url": "{{web.url}}",
        "json": {"/a": 'x "y"'},
        "status": [200],
        "verify": False,
    }
    port = {"name": "other", "kind": "tcp", "host": "127.0.0.1", "port": "{{other.port}}"}
    document = {"title": "t", "services": {"web": {}, "other": {}}, **STEPS}
    probes = {"defaults": {"interval": "2s"}, "probe": [probe, port]}
    async with set_up(scenario_of({**document, "probes": probes}), tmp_path / "with", path=PATH) as standing:
        text = standing.probes_path.read_text(encoding="utf-8")
        web, other = read_probes(text, file="probes.toml").probes
        assert isinstance(web.look, HttpLook)
        assert (web.interval, web.look.url) == (2, standing.environment.services["web"].url)
        assert (web.look.json, web.look.status, web.look.verify) == ({"/a": 'x "y"'}, (200,), False)
        assert isinstance(other.look, TcpLook)
        assert other.look.port == standing.environment.services["other"].port
    async with set_up(scenario_of(document), tmp_path / "without", path=PATH) as standing:
        text = standing.probes_path.read_text(encoding="utf-8")
        assert [(each.name, each.silenced) for each in read_probes(text, file="probes.toml").probes] == [
            ("web", True),
            ("other", True),
        ]


async def test_a_machine_without_curl_gets_one_that_answers_like_the_real_one(tmp_path: Path) -> None:
    fault: dict[str, object] = {"service": "bad", "kind": "failing", "status": 502}
    services: dict[str, dict[str, object]] = {
        "web": {"answers": "hello"},
        "site": {"tls": True, "certificate_days": 12},
        "bad": {},
        "gone": {},
    }
    faults: list[dict[str, object]] = [fault, {"service": "gone", "kind": "stopped"}]
    async with stage(tmp_path / "with", services, faults) as standing:
        assert not (standing.commands_dir / "curl").exists()
    async with stage(tmp_path / "without", services, faults, path=str(tmp_path)) as standing:
        ours = standing.commands_dir / "curl"
        urls = {name: running.url for name, running in standing.environment.services.items()}
        for arguments in (
            f"-sS -w ' web %{{http_code}}\\n' --max-time 5 {urls['web']}",
            f"-sS -o /dev/null -w '%{{http_code}}\\n' --max-time 5 {urls['bad']}",
            f"-sS -o /dev/null -w '%{{http_code}}\\n' --max-time 5 {urls['gone']}",
            f"-sSk -o /dev/null -w '%{{http_code}}\\n' {urls['site']}",
            f"-sS {urls['site']}",
        ):
            real, mine = await run(standing, f"/usr/bin/curl {arguments}"), await run(standing, f"{ours} {arguments}")
            assert (mine[0], mine[1]) == (real[0], real[1]), arguments
        shown = "-sSkv -o /dev/null " + urls["site"]
        said = [(await run(standing, f"{curl} {shown}"))[2] for curl in ("/usr/bin/curl", ours)]
        days = [re.findall("expire date: (.*)", text) for text in said]
        assert days[0] == days[1] != []
        refused = await run(standing, f"{ours} -s http://127.0.0.1:1/")
        assert (refused[0], "one of its services only" in refused[2]) == (2, True)


UNKNOWN = {
    "docker rm -f web": "knows no 'rm -f web'",
    "docker restart nothere": "No such container: nothere",
    "docker restart unit": "No such container: unit",
    "kubectl delete pod web": "knows no 'delete pod web'",
    "kubectl logs nothere": "not found",
    "systemctl mask unit": "knows no 'mask unit'",
    "systemctl restart web": "not found",
}


async def test_what_a_stand_in_does_not_know_it_refuses_and_says_so(tmp_path: Path) -> None:
    async with stage(tmp_path, {"web": {}, "unit": {"runs_on": "systemd"}}) as standing:
        for command, complaint in UNKNOWN.items():
            status, out, err = await run(standing, command)
            assert (status != 0, out) == (True, ""), command
            assert complaint in err, command
        assert set((await standing.environment.states()).values()) == {ServiceState.UP}


async def test_nobody_without_the_token_gives_orders(tmp_path: Path) -> None:
    async with stage(tmp_path, {"web": {}}) as standing:
        before = pid_of(standing, "web")
        script = (standing.commands_dir / "docker").read_text(encoding="utf-8")
        token = script.split("printf '%s %s %s\\n' ")[1].split(" ")[0]
        forged = tmp_path / "docker"
        forged.write_text(script.replace(token, "0" * len(token)), encoding="utf-8")
        done = await anyio.run_process(["bash", str(forged), "restart", "web"], check=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert pid_of(standing, "web") == before


async def test_after_the_rehearsal_its_commands_say_so_and_no_process_is_left(tmp_path: Path) -> None:
    async with stage(tmp_path, {"web": {}, "other": {}}) as standing:
        pids = [pid_of(standing, name) for name in standing.environment.services]
    status, _, err = await run(standing, "docker restart web")
    assert (status, "the rehearsal that this command belongs to has ended" in err) == (1, True)
    assert not [pid for pid in pids if pid is not None and psutil.pid_exists(pid)]


async def test_services_end_when_what_uses_them_fails(tmp_path: Path) -> None:
    pids: list[int | None] = []

    async def use() -> None:
        async with stage(tmp_path, {"web": {}}) as standing:
            pids.append(pid_of(standing, "web"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    assert not [pid for pid in pids if pid is not None and psutil.pid_exists(pid)]


async def test_a_service_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RehearsalError, match="The service web of the rehearsal did not start: it printed nothing"):
        async with stage(tmp_path, {"web": {}}):
            pass


HOLDER = """
import anyio, sys
from pathlib import Path
from claudeops.rehearsal.scenario_file import find
from claudeops.rehearsal.stage import set_up
async def main():
    async with set_up(find("healthy-estate", cwd=Path("/")).scenario, Path(sys.argv[1]), path="/bin") as standing:
        print(*(running.process.pid for running in standing.environment.services.values()), flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


def test_services_end_with_a_rehearsal_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "root")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        services = [psutil.Process(int(pid)) for pid in holder.stdout.readline().split()]
        assert len(services) == 4
        os.kill(holder.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(services, timeout=PATIENCE_SECONDS)
    assert alive == []
