"""What the gate grants of docker: a change that an allowed command makes, once, and no other."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.gate.docker_grants import DockerChange, Execution, Grant, fits
from claudeops.domain.gate.granted import GRANT_SECONDS, Grants
from support.policy_cases import judged

LABELS = {
    "com.docker.compose.project": "media",
    "com.docker.compose.service": "web",
    "com.docker.compose.container-number": "2",
    "com.docker.compose.project.working_dir": "/repos/media",
}


def grants(command: str, *, tier: int = 2) -> tuple[Grant, ...]:
    verdict = judged(command, tier=tier)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    return tuple(grant for grant in verdict.grants if isinstance(grant, Grant))


def execution(*command: str, **given: object) -> Execution:
    return Execution(command=command, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "granted"),
    [
        ("docker restart web-1", [Grant(call="", verb="restart", container="web-1")]),
        (
            "timeout 60 docker container restart -t 5 --signal HUP web-1 && docker unpause api-1",
            [
                Grant(call="", verb="restart", container="web-1", signal="HUP"),
                Grant(call="", verb="unpause", container="api-1"),
            ],
        ),
        (
            "docker compose -p media restart web",
            [Grant(call="", verb="restart", service="web", project="media")],
        ),
        (
            "cd /repos/media && docker compose start web",
            [Grant(call="", verb="start", service="web", directory="/repos/media")],
        ),
        (
            "docker compose -f /repos/media/compose.yml restart web",
            [Grant(call="", verb="restart", service="web", directory="/repos/media")],
        ),
        (
            "docker exec -u www -w /srv web-1 cat /etc/hosts",
            [
                Grant(
                    call="",
                    verb="exec",
                    container="web-1",
                    execution=execution("cat", "--", "/etc/hosts", user="www", directory="/srv"),
                )
            ],
        ),
        (
            "for c in web-1 api-1; do docker exec $c uptime; done",
            [
                Grant(call="", verb="exec", container="web-1", execution=execution("uptime")),
                Grant(call="", verb="exec", container="api-1", execution=execution("uptime")),
            ],
        ),
        (
            "echo x | docker exec -i web-1 cat",
            [Grant(call="", verb="exec", container="web-1", execution=execution("cat", takes_input=True))],
        ),
        (
            "docker compose -p media exec --index 2 web uptime",
            [
                Grant(
                    call="",
                    verb="exec",
                    service="web",
                    number="2",
                    project="media",
                    execution=execution("uptime", takes_input=True),
                )
            ],
        ),
        ("docker ps -a", []),
        ("docker logs --tail 5 web-1", []),
    ],
)
def test_an_allowed_command_grants_what_it_changes_and_nothing_else(command: str, granted: list[Grant]) -> None:
    assert [fits_all(grant) for grant in grants(command)] == [fits_all(grant) for grant in granted]


def fits_all(grant: Grant) -> tuple[object, ...]:
    return (
        grant.verb,
        grant.container,
        grant.service,
        grant.number,
        grant.project,
        grant.directory,
        grant.signal,
        grant.execution,
    )


def test_what_runs_elsewhere_grants_nothing_here() -> None:
    assert grants("ssh db1 docker restart web-1") == ()


def test_a_refused_command_grants_nothing() -> None:
    assert judged("docker rm -f web-1", tier=3).grants == ()


def change(verb: str = "restart", **given: object) -> DockerChange:
    whole: dict[str, object] = {"named": "web-1", "id": "a" * 64, "name": "web-1", **given}
    return DockerChange(verb=verb, **whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("granted", "changed", "is_it"),
    [
        (Grant(call="1", verb="restart", container="web-1"), change(), True),
        (Grant(call="1", verb="restart", container="web-1"), change(named="a" * 64), True),
        (Grant(call="1", verb="restart", container="web-1"), change("stop"), False),
        (Grant(call="1", verb="restart", container="web-1"), change(signal="KILL"), False),
        (Grant(call="1", verb="restart", container="web-1"), change(named="db-1", name="db-1"), False),
        (Grant(call="1", verb="restart", service="web", project="media"), change(labels=LABELS), True),
        (Grant(call="1", verb="restart", service="web", project="other"), change(labels=LABELS), False),
        (Grant(call="1", verb="restart", service="db", project="media"), change(labels=LABELS), False),
        (Grant(call="1", verb="restart", service="web", project="media"), change(), False),
        (Grant(call="1", verb="restart", service="web", directory="/repos/media/"), change(labels=LABELS), True),
        (Grant(call="1", verb="restart", service="web", directory="/repos"), change(labels=LABELS), False),
        (Grant(call="1", verb="restart", service="web"), change(labels=LABELS), False),
        (Grant(call="1", verb="restart", service="web"), change(), False),
        (Grant(call="1", verb="restart", service="web", project="media", number="1"), change(labels=LABELS), False),
        (Grant(call="1", verb="restart", service="web", project="media", number="2"), change(labels=LABELS), True),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls")),
            change("exec", execution=execution("ls")),
            True,
        ),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls")),
            change("exec", execution=execution("ls", "-l")),
            False,
        ),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls")),
            change("exec", execution=execution("ls", takes_input=True)),
            False,
        ),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls", takes_input=True)),
            change("exec", execution=execution("ls")),
            True,
        ),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls")),
            change("exec", execution=execution("ls", user="root")),
            False,
        ),
        (
            Grant(call="1", verb="exec", container="web-1", execution=execution("ls")),
            change("exec", execution=execution("ls", environment=("LD_PRELOAD=x",))),
            False,
        ),
    ],
)
def test_a_change_is_what_was_granted_in_every_part(granted: Grant, changed: DockerChange, is_it: bool) -> None:
    assert fits(granted, changed) is is_it


def test_a_grant_is_used_once_and_ends_with_its_call() -> None:
    held = Grants()
    held.admit([Grant(call="1", verb="restart", container="web-1"), Grant(call="2", verb="stop", container="web-1")])
    assert held.take(change()) is not None
    assert held.take(change()) is None
    held.forget("2")
    assert held.take(change("stop")) is None


def test_a_container_that_was_made_anew_is_not_restarted_with_the_same_grant() -> None:
    held = Grants()
    held.admit([Grant(call="1", verb="restart", container="web-1")])
    assert held.take(change()) is not None
    assert held.take(change(id="b" * 64)) is None


def test_each_container_of_a_service_is_restarted_once() -> None:
    held = Grants()
    held.admit([Grant(call="1", verb="restart", service="web", project="media")])
    assert held.take(change(labels=LABELS)) is not None
    assert held.take(change(labels=LABELS, id="b" * 64)) is not None
    assert held.take(change(labels=LABELS)) is None


def test_two_equal_commands_in_one_call_are_two_grants() -> None:
    held = Grants()
    held.admit(grants("docker exec web-1 uptime; docker exec web-1 uptime"))
    asked = change("exec", execution=execution("uptime"))
    assert [held.take(asked) is not None for _ in range(3)] == [True, True, False]


def test_a_grant_of_which_nothing_came_is_used_again() -> None:
    held = Grants()
    held.admit([Grant(call="1", verb="restart", container="web-1")])
    taken = held.take(change())
    assert taken is not None
    held.give_back(taken, change())
    assert held.take(change()) is not None


def test_a_grant_whose_verdict_has_grown_too_old_is_not_used() -> None:
    seconds = [100.0]
    held = Grants(since_boot=lambda: seconds[0])
    held.admit([Grant(call="1", verb="restart", container="web-1"), Grant(call="1", verb="stop", container="web-1")])
    seconds[0] += GRANT_SECONDS
    assert held.take(change()) is not None

    seconds[0] += 1
    assert held.take(change("stop")) is None
