"""What a manifest forbids is denied at every tier, whatever the service is called, and nobody is asked about it."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.estate.estate import UNREAD, Estate, Manifest, Prohibition, Service, StatementSource
from claudeops.policy.tiers import judge, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, SCOPE, bash, judged

ALLOW, DENY, ASK = VerdictKind.ALLOW, VerdictKind.DENY, VerdictKind.ASK
HERE = StatementSource(path="media/CLAUDE-OPS.md", line=12)


def estate(*prohibitions: Prohibition, repository: str = "media") -> Estate:
    services = (
        Service(name="db", aliases=("postgres-main", "media-pg"), host="nas", source=HERE),
        Service(name="web", source=HERE),
    )
    manifest = Manifest(repository=repository, services=services, prohibitions=prohibitions)
    other = Manifest(repository="shop", services=(Service(name="cart", source=HERE),))
    return Estate(
        manifests=(manifest, other), other_names={"postgres-main": "db", "media-pg": "db"}, hosts=("nas", "web1")
    )


def never(*services: str, text: str = "Never restart the database") -> Prohibition:
    return Prohibition(services=services, text=text, source=HERE)


def said(command: str, *prohibitions: Prohibition, tier: int = 3) -> Verdict:
    return judged(command, tier, replace(SCOPE, estate=estate(*prohibitions)))


@pytest.mark.parametrize(
    "command",
    [
        "docker restart db",
        "docker restart DB",
        "docker restart postgres-main",
        "docker stop media-pg",
        "docker restart media-db-1",
        "docker restart media_db_1",
        "docker start media-pg-2",
        "cd /repos/media && docker compose restart db",
        "docker compose -p other restart db",
        "docker compose -f /repos/media/compose.yml restart web db",
        "systemctl restart db",
        "systemctl restart db.service",
        "sudo systemctl restart db@main.service",
        "systemctl --user restart postgres-main",
        "service db restart",
        "ssh nas docker restart db",
        "ssh web1 docker restart db",
        "ssh -p 2222 root@nas sudo docker restart postgres-main",
        "kubectl rollout restart deploy/db",
        "kubectl -n media rollout restart statefulset/db",
        "kubectl delete pod db-0",
        "kubectl delete pod db-7d4b9c8f6-x7k2p",
        "docker exec db supervisorctl restart worker",
        "docker exec app supervisorctl restart db",
        "docker ps; bash -c 'docker restart db'",
    ],
)
def test_every_name_of_a_forbidden_service_is_denied(command: str) -> None:
    assert said(command).kind is ALLOW
    for forbidden in ("db", "POSTGRES-MAIN", "media-pg"):
        verdict = said(command, never(forbidden))
        assert verdict.kind is DENY
        assert 'is forbidden by media/CLAUDE-OPS.md:12, at any tier: "Never restart the database"' in verdict.reason


@pytest.mark.parametrize(
    "command",
    [
        "docker restart web",
        "docker restart dbx",
        "docker restart my-db",
        "docker restart db-backup",
        "ssh nas docker restart web",
        "cd /srv/media && docker compose -p media restart web",
        "docker logs --tail 5 db",
        "curl -s http://db:5432/",
    ],
)
def test_nothing_else_is(command: str) -> None:
    assert said(command, never("db")).kind is ALLOW


@pytest.mark.parametrize(
    "command",
    ["docker compose up -d db", "docker restart db", "docker stop db", "kubectl scale deploy/db --replicas=0"],
)
def test_a_prohibition_forbids_every_action(command: str) -> None:
    assert said(command, never("db", text="never restart db")).kind is DENY


def test_the_star_stands_for_every_service_of_its_repository() -> None:
    everything = never("*", text="Nothing here is ever touched")
    for command in (
        "docker restart web",
        "docker restart postgres-main",
        "docker compose -p media restart anything",
        "kubectl apply -f /repos/media/app.yml",
    ):
        assert said(command, everything).kind is DENY, command
    assert said("docker restart cart", everything).kind is ALLOW
    assert said("docker restart cart", never("*", "cart", text="all of it, whoever else is called so")).kind is DENY
    assert said("kubectl apply -f /repos/shop/app.yml", everything).kind is ALLOW


@pytest.mark.parametrize("tier", [2, 3])
def test_a_person_cannot_say_yes_to_it(tier: int) -> None:
    scope = replace(SCOPE, estate=estate(never("db")))
    asking = parse_policy(f'extends = "default"\n[tiers.{tier}.ask]\nactions = ["restart"]\n', default=DEFAULT_TEXT)
    for command, expected in (("docker restart web", ASK), ("docker restart db", DENY)):
        assert judge(bash(command), tier=tier_policy(asking, tier), scope=scope).kind is expected


@pytest.mark.parametrize(
    "command",
    [
        "$RUN restart db",
        "python3 -c 'import os; os.system(\"docker restart db\")'",
        "bash /work/s1/restart-it.sh postgres-main",
        "echo 'restart db' | bash",
        "docker restart db; $X",
    ],
)
def test_nor_to_what_cannot_be_understood_and_names_it(command: str) -> None:
    assert said(command).kind is ASK
    assert said(command, never("db")).kind is DENY


def test_what_cannot_be_understood_and_names_something_else_is_asked_about() -> None:
    for command in ("$RUN restart web", "python3 -c 'print(1)'", "$SHOW status of db"):
        assert said(command, never("db")).kind is ASK


def test_a_named_tool_is_held_to_it() -> None:
    policy = parse_policy(
        'extends = "default"\n[[tools]]\nname = "mcp__ops__restart"\ntier = 2\naction = "restart"\nservice = "unit"\n',
        default=DEFAULT_TEXT,
    )
    scope = replace(SCOPE, estate=estate(never("db")))
    for name, expected in (("web", ALLOW), ("db", DENY), ("Postgres-Main", DENY), ("nas/db", DENY)):
        call = ToolCall(tool_use_id="t", tool_name="mcp__ops__restart", input={"unit": name})
        assert judge(call, tier=tier_policy(policy, 2), scope=scope).kind is expected, name


def test_a_long_rule_is_cut_in_the_sentence() -> None:
    reason = said("docker restart db", never("db", text="never\n" * 500)).reason
    assert len(reason) < 400
    assert "\n" not in reason


# --- names of a manifest beside those of the policy ---------------------------------------------------------


def test_actions_count_for_the_service_whatever_it_is_called() -> None:
    for command in ("docker restart postgres-main", "docker restart DB", "ssh nas docker restart media-pg"):
        assert [action.service.lower() for action in said(command).actions] == ["db"]
    assert [action.service for action in said("ssh web1 docker restart db").actions] == ["web1/db"]


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        # a manifest that calls one service by the name of another opens nothing
        ('[tiers.2]\nservices = ["db"]\n', "docker restart media-pg", DENY),
        ('[tiers.2]\nservices = ["db"]\n', "docker restart db", ALLOW),
        ('[services]\ndb = ["media-pg"]\n[tiers.2]\nservices = ["db"]\n', "docker restart media-pg", ALLOW),
        # and hides nothing
        ('[tiers.2]\nservices = ["*", "!postgres-*"]\n', "docker restart media-pg", DENY),
        ('[never]\nservices = ["media-pg"]\n', "docker restart postgres-main", DENY),
        ('[never]\nservices = ["media-pg"]\n', "ssh nas docker restart db", DENY),
        ('[tiers.2.ask]\nservices = ["media-*"]\n', "docker restart media-pg", ASK),
        ('[tiers.2.ask]\nservices = ["media-*"]\n', "docker restart db", ASK),
    ],
)
def test_a_manifest_widens_nothing_by_its_names(text: str, command: str, expected: VerdictKind) -> None:
    policy = parse_policy(f'extends = "default"\n{text}', default=DEFAULT_TEXT)
    scope = replace(SCOPE, estate=estate())
    assert judge(bash(command), tier=tier_policy(policy, 2), scope=scope).kind is expected


@pytest.mark.parametrize("command", ["docker restart web", "ssh nas systemctl restart db", "X=docker; $X restart web"])
def test_nothing_is_done_until_the_manifests_have_been_read_once(command: str) -> None:
    verdict = judged(command, 3, replace(SCOPE, estate=replace(SCOPE.estate, unread=True)))
    assert verdict.kind is DENY
    assert "repositories do not answer" in verdict.reason
    assert judged("docker ps", 3, replace(SCOPE, estate=UNREAD)).kind is ALLOW
