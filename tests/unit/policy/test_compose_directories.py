"""Compose acts only where the manifests or the repositories say that a project is, and on that project."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate.estate import Estate, Manifest
from claudeops.policy.tiers import judge, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE, judged

ALLOW, ASK, DENY = VerdictKind.ALLOW, VerdictKind.ASK, VerdictKind.DENY
NAMED = replace(SCOPE.estate, manifests=(Manifest(repository="media", directories=("/srv/media", "/opt/stacks")),))
LINKS = {"/repos/link": "/home/someone", "/srv/link": "/srv/media", "/opt/stacks/link": "/home/someone"}
UNNAMED = "/srv/other is neither in the repositories nor named by a manifest"


def resolve(path: str) -> str:
    link = next((link for link in LINKS if path == link or path.startswith(f"{link}/")), None)
    return path if link is None else LINKS[link] + path[len(link) :]


def at(command: str, tier: int = 3, *, cwd: str = "", estate: Estate = NAMED) -> Verdict:
    call = ToolCall(tool_use_id="t", tool_name="Bash", input={"command": command}, cwd=cwd)
    return judge(call, tier=tier_policy(POLICY, tier), scope=replace(SCOPE, estate=estate, resolve=resolve))


def runs(command: str, *, cwd: str = "") -> str:
    verdict = at(command, cwd=cwd)
    assert verdict.kind is ALLOW, verdict.reason
    return str((verdict.ran or {})["command"]).replace("'", "")


@pytest.mark.parametrize("directory", ["/repos/media", "/srv/media", "/srv/media/edge", "/opt/stacks/a/b", "/srv/link"])
@pytest.mark.parametrize(
    "command",
    [
        "docker compose --project-directory {} restart web",
        "docker compose -f {}/compose.yml restart web",
        "docker compose -f {}/compose.yml -f {}/more/other.yml up -d web",
        "docker compose -p x --project-directory {} pull web",
        "cd {} && docker compose stop web",
        "cd {} && docker compose -f compose.yml -f ./x/compose.yml up -d web",
        "docker compose --project-directory {} exec web supervisorctl restart worker",
    ],
)
def test_compose_acts_in_directories_that_the_operator_names(command: str, directory: str) -> None:
    assert at(command.replace("{}", directory)).kind is ALLOW


@pytest.mark.parametrize(
    "command",
    [
        "docker compose --project-directory /srv/other restart web",
        "docker compose -f /srv/other/compose.yml restart web",
        "docker compose -f /repos/media/compose.yml -f /srv/other/compose.yml restart web",
        "docker compose -p media -f /srv/other/compose.yml restart web",
        "docker compose --project-directory /srv/media -f /srv/other/compose.yml up -d web",
        "docker compose --project-directory /srv/other -f /srv/media/compose.yml up -d web",
        "cd /srv/other && docker compose restart web",
        "cd /srv/other && docker compose -p media up -d web",
        "cd /srv/other && docker compose -f compose.yml pull web",
        "ssh web1 'cd /srv/other && docker compose restart web'",
    ],
)
def test_elsewhere_a_person_is_asked_where_the_tier_may_ask(command: str) -> None:
    assert at(command).kind is ASK
    assert UNNAMED in at(command).reason
    assert at(command, 2).kind is DENY


@pytest.mark.parametrize("near", ["/srv/media2", "/srv", "/srv/media/../other", "/repos2/media"])
def test_a_directory_is_not_named_by_one_beside_or_below_it(near: str) -> None:
    assert at(f"docker compose --project-directory {near} restart web").kind is ASK


@pytest.mark.parametrize("link", ["/repos/link", "/repos/link/media", "/opt/stacks/link"])
def test_a_link_out_of_a_named_directory_leads_out_of_it(link: str) -> None:
    assert at(f"docker compose -f {link}/compose.yml restart web").kind is ASK


@pytest.mark.parametrize("directory", ["/work/s1", "/tmp/s1", "/tmp/x", "/dev/shm/x"])  # noqa: S108 - nothing is opened
@pytest.mark.parametrize(
    "command", ["cd {} && docker compose restart web", "docker compose -p media -f {}/compose.yml up -d web"]
)
def test_nobody_is_asked_about_a_project_that_a_session_may_have_written(command: str, directory: str) -> None:
    named = Estate(manifests=(Manifest(repository="media", directories=(directory,)),))
    assert at(command.replace("{}", directory), estate=named).kind is DENY


@pytest.mark.parametrize("action", ["restart", "start", "stop"])
def test_by_a_projects_name_its_containers_are_found_wherever_that_runs(action: str) -> None:
    assert runs(f"docker compose -p media {action} web").endswith(f"docker compose --project-name=media {action} web")
    assert at(f"ssh web1 docker compose -p media {action} web").kind is ALLOW


@pytest.mark.parametrize("action", ["up -d", "pull"])
def test_what_reads_a_projects_files_is_judged_by_its_directory(action: str) -> None:
    assert (
        "nothing is run from a directory that others can write to" in at(f"docker compose -p media {action} web").reason
    )
    assert "name the project's file by --file" in at(f"ssh web1 docker compose -p media {action} web").reason


@pytest.mark.parametrize("host", ["web1", "localhost"])
def test_in_a_home_that_is_not_known_there_is_no_project(host: str) -> None:
    verdict = at(f"ssh {host} docker compose restart web")
    assert verdict.kind is DENY
    assert "name the project with -p, or cd to its directory" in verdict.reason
    assert at(f"ssh {host} docker compose -f compose.yml restart web").kind is DENY


def test_on_another_host_the_repositories_are_not_the_ones_here() -> None:
    assert at("ssh web1 'cd /repos/media && docker compose restart web'").kind is ASK
    assert at("ssh web1 'cd /srv/media && docker compose restart web'").kind is ALLOW


def test_in_a_container_of_an_unnamed_project_nothing_is_changed() -> None:
    inside = "exec web supervisorctl restart worker"
    assert "name the project with -p" in at(f"docker compose {inside}").reason
    assert "name the project with -p" in at(f"cd /srv/media && docker compose {inside}").reason
    assert at(f"docker compose -f /srv/other/compose.yml {inside}").kind is DENY
    assert at(f"docker compose -p media {inside}").kind is ALLOW
    assert at("docker compose exec web ls /").kind is ALLOW


@pytest.mark.parametrize(
    ("command", "cwd", "runs_as"),
    [
        ("docker compose restart web", "/srv/media", "--project-directory=/srv/media restart web"),
        ("cd /srv/media/edge && docker compose up -d web", "", "--project-directory=/srv/media/edge up -d web"),
        ("docker compose -p m up -d web", "/srv/media", "--project-name=m --project-directory=/srv/media up -d web"),
        ("docker compose -p media restart web", "/srv/media", "--project-name=media restart web"),
        ("docker compose -f edge/c.yml restart web", "/srv/media", "--file=/srv/media/edge/c.yml restart web"),
        ("docker compose --project-directory . stop web", "/srv/media", "--project-directory=/srv/media stop web"),
        ("docker compose logs --tail 5 web", "/srv/media", "logs --tail=5 web"),
    ],
)
def test_what_runs_does_not_depend_on_where(command: str, cwd: str, runs_as: str) -> None:
    assert runs(command, cwd=cwd).endswith(f"docker compose {runs_as}")


def test_the_project_is_the_one_of_the_directory_that_is_written() -> None:
    assert [action.service for action in at("docker compose restart web", cwd="/srv/media/edge").actions] == [
        "project:edge/web"
    ]


def test_looks_are_taken_wherever_they_are() -> None:
    assert judged("cd /srv/other && docker compose ps", 1).kind is ALLOW
    assert judged("docker compose -f /srv/other/compose.yml logs --tail 5 web", 1).kind is ALLOW
