"""What a call looks at, by what it asks; and where its success does not say that the look worked."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.shell import Certainty, parse
from claudeops.policy.tiers import judge, parse_policy, tier_policy
from support.policy_cases import DEFAULT_TEXT, SCOPE, judged

EVERY_TOOL = parse_policy(
    """
extends = "default"
[tiers.2]
tools = ["Bash", "Read", "Grep", "Glob", "WebFetch", "WebSearch", "TodoWrite"]
[[tools]]
name = "mcp__ops__state"
changes = false
[[tools]]
name = "mcp__ops__note"
[[tools]]
name = "mcp__ops__restart"
tier = 2
action = "restart"
service = "unit"
""",
    default=DEFAULT_TEXT,
)
AROUND = (frozenset[str](), frozenset[tuple[str, int, str]]())


def seen(verdict: Verdict) -> tuple[frozenset[str], frozenset[tuple[str, int, str]]] | None:
    """Return names and addresses of what an allowed call looks at, or None."""
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    look = verdict.look
    if look is None:
        return None
    return look.names, frozenset((address.host, address.port, address.path) for address in look.addresses)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("docker inspect --format '{{.State.Status}}' shop photos", {"shop", "photos"}),
        ("docker logs --tail 5 shop", {"shop"}),
        ("docker ps --filter name=^/shop$", {"shop"}),
        ("docker compose -f /repos/a/compose.yml ps shop", {"project:a/shop"}),
        ("docker exec shop df -h /data", {"shop"}),
        ("docker exec shop true", {"shop"}),
        ("kubectl get deployment shop -n web", {"namespace:web/shop"}),
        ("kubectl get deployment/shop", {"shop"}),
        ("kubectl logs shop-7d9f8b6c5d-x7k2p --tail=3", {"shop", "shop-7d9f8b6c5d-x7k2p"}),
        ("kubectl get pods -l app=shop", {"shop"}),
        ("kubectl rollout status deployment/shop --timeout=60s", {"shop"}),
        ("kubectl exec shop-7d9f8b6c5d-x7k2p -- ls /", {"shop", "shop-7d9f8b6c5d-x7k2p"}),
        ("systemctl is-active shop.service", {"shop"}),
        ("systemctl status shop --no-pager", {"shop"}),
        ("journalctl -u shop -n 5 --no-pager", {"shop"}),
        ("sudo systemctl is-active shop", {"shop"}),
        ("ssh web1 systemctl is-active shop", {"web1/shop"}),
        ("timeout 5 bash -c 'docker logs --tail 1 shop'", {"shop"}),
        ("sleep 5 && docker logs --tail 1 shop", {"shop"}),
        ("docker ps -a; docker logs --tail 1 shop", {"shop"}),
        ("for name in shop photos; do docker logs --tail 1 $name; done", {"photos"}),
    ],
)
def test_a_command_that_shows_something_names_it(command: str, names: set[str]) -> None:
    assert seen(judged(command, 2)) == (frozenset(names), frozenset())


@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("curl -sS -o /dev/null --max-time 5 http://127.0.0.1:3000/", ("localhost", 3000, "")),
        ("curl -sf 'https://shop.example.com/health?x=1'", ("shop.example.com", 443, "/health")),
        ("wget -qO- --max-redirect=0 http://shop/", ("shop", 80, "")),
        ("URL=http://shop:81/a; curl -sf $URL", ("shop", 81, "/a")),
        ("nc -z -w 3 db 5432", ("db", 5432, "")),
        ("pg_isready -h db", ("db", 5432, "")),
        ("redis-cli -h cache -p 7000 ping", ("cache", 7000, "")),
        ("openssl s_client -connect shop:443", ("shop", 443, "")),
    ],
)
def test_a_command_that_asks_an_address_looks_at_that(command: str, address: tuple[str, int, str]) -> None:
    assert seen(judged(command, 2)) == (frozenset(), frozenset({address}))


@pytest.mark.parametrize(
    "command",
    [
        "df -h",
        "uptime",
        "docker ps -a",
        "kubectl get pods -A",
        "systemctl --failed",
        "cat /var/log/syslog",
        "ssh web1 uptime",
        "docker ps -q -f name=shop | xargs -n 1 docker logs --tail 1",
        "systemctl is-active shop photos",  # succeeds when one of them is active
        "curl -sf http://shop/ http://photos/",  # its status is that of the last one
        "curl -sf -H 'Host: shop' http://127.0.0.1/",
        "ssh web1 curl -sf http://localhost:3000/",  # somebody else's localhost
        "docker logs --tail 1 shop | tail -1",
        "curl -sf http://shop/ | head -c 100",
        "curl -sf http://shop/; echo done",
    ],
)
def test_what_names_nobody_for_certain_is_a_look_around(command: str) -> None:
    assert seen(judged(command, 2)) == AROUND


@pytest.mark.parametrize(
    "command",
    [
        "echo shop is fine",
        "printf 'shop %s' up",
        "true",
        "test -f /repos/shop",
        "date",
        "sleep 1",
        "cat /repos/estate/CLAUDE-OPS.md",
        "grep -rn shop /repos --include='*.md'",
        "git -C /repos/shop log -n 3",
        "cat /work/s1/notes",
        "echo shop | grep shop",
        "curl -sf http://shop/ || true",
        "curl -sf http://shop/ || echo down",
        "! systemctl is-active shop",
        "if docker logs --tail 1 shop; then echo up; fi",
        "for i in 1 2; do curl -sf http://shop/ || sleep 1; done",
        "ssh web1 'docker logs --tail 1 shop || true'",
        "bash -c '! docker logs --tail 1 shop'",
        "exit 0; docker logs --tail 1 shop",
        "$'\\x65xit'; docker logs --tail 1 shop",
        "true && exit; docker logs --tail 1 shop",
        "systemctl is-failed shop",  # succeeds when it has failed
        "kubectl wait --for=delete pod/shop --timeout=5s",
        'echo "$(docker logs --tail 1 shop)"',
        "docker version",
        "find /var/log -name shop.log -exec cat {} +",
        "docker restart shop",
        "docker restart shop && curl -sf http://shop/",
        "docker restart shop; docker logs --tail 1 photos",
    ],
)
def test_what_only_talks_acts_reads_what_is_ours_or_hides_its_failure_looks_at_nothing(command: str) -> None:
    assert seen(judged(command, 2)) is None


@pytest.mark.parametrize("command", ["docker rm -f shop", "cat /etc/shadow", "docker logs $(cat x)"])
def test_what_is_denied_looks_at_nothing(command: str) -> None:
    verdict = judged(command, 2)

    assert (verdict.kind, verdict.look) == (VerdictKind.DENY, None)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("Read", {"file_path": "/repos/estate/CLAUDE-OPS.md"}, None),
        ("Read", {"file_path": "/work/s1/notes.md"}, None),
        ("Read", {"file_path": "/var/log/syslog"}, AROUND),
        ("Grep", {"path": "/repos/estate/a.yml", "pattern": "shop"}, None),
        ("TodoWrite", {"todos": []}, None),
        ("WebSearch", {"query": "is shop up"}, None),
        ("WebFetch", {"url": "http://shop:81/x", "prompt": "up?"}, (frozenset(), frozenset({("shop", 81, "/x")}))),
        ("StructuredOutput", {}, None),
        ("mcp__ops__state", {"unit": "shop", "lines": 3}, (frozenset({"shop"}), frozenset())),
        ("mcp__ops__state", {}, AROUND),
        ("mcp__ops__note", {"unit": "shop"}, None),
        ("mcp__ops__restart", {"unit": "shop"}, None),
    ],
)
def test_other_tools_look_at_what_they_ask(name: str, given: dict[str, object], expected: object) -> None:
    call = ToolCall(tool_use_id="a", tool_name=name, input=given)

    assert seen(judge(call, tier=tier_policy(EVERY_TOOL, 2), scope=SCOPE)) == expected


# --- what a status says -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "worked", "ran"),
    [
        ("a", "a", ""),
        ("a && b", "a b", ""),
        ("a; b", "b", "a"),
        ("a | b", "b", "a"),
        ("a | b && c", "b c", "a"),
        ("(a && b) | c", "c", "a"),
        ("{ a; b; } 2>&1", "b", "a"),
        ("a || b", "", ""),
        ("a || b && c", "c", ""),
        ("a && b || c", "", ""),
        ("! a", "", ""),
        ("a <<< x", "a", ""),
        ("a <<EOF | b\nx\nEOF", "b", "a"),
        ("if a; then b; fi", "", ""),
        ("while a; do b; done", "", ""),
        ("for i in 1; do a; b; done", "b", "a"),
        ("for i in 1; do a && b; done", "a b", ""),
        ("for i in 1 2; do a; done", "a", "a"),
        ("a; exit 0", "", ""),
    ],
)
def test_a_status_speaks_for_what_could_not_have_failed_unseen(text: str, worked: str, ran: str) -> None:
    commands = parse(text).commands

    def those(says: Certainty) -> list[str]:
        return [command.line for command in commands if command.argv and command.certainty is says]

    assert (those(Certainty.WORKED), those(Certainty.RAN)) == (worked.split(), ran.split())


@pytest.mark.parametrize(
    ("action", "look"),
    [
        ("docker restart shop", "docker inspect --format '{{.State.Status}}' shop"),
        ("ssh web1 docker restart shop", "ssh web1 docker logs --tail 3 shop"),
        ("ssh web1 sudo systemctl restart shop", "ssh web1 systemctl is-active shop"),
        ("kubectl -n web rollout restart deployment/shop", "kubectl get deployment shop --namespace=web"),
        ("docker compose -f /repos/a/compose.yml restart shop", "docker compose -f /repos/a/compose.yml ps shop"),
    ],
)
def test_a_look_is_at_what_the_action_was_on_there_and_nowhere_else(action: str, look: str) -> None:
    """What counts the action and what counts the look must call the service the same, host and project included."""
    (acted,) = judged(action, 3).actions
    seen = judged(look, 3).look
    assert seen is not None
    assert acted.service in seen.names
    elsewhere = judged(f"ssh other {look}", 3).look
    assert elsewhere is not None
    assert acted.service not in elsewhere.names


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("ssh nas df -h", {"nas"}),
        ("ssh admin@NAS -p 2222 uptime", {"nas"}),
        ("ssh nas docker logs --tail 3 web", {"nas"}),
        ("ssh nas 'uptime; df -h'", {"nas"}),
        ("ssh nas df -h && ssh web1 uptime", {"nas", "web1"}),
        ("df -h", set()),
        ("ssh localhost df -h", set()),
        ("ssh nas df -h | head", set()),
        ("ssh nas 'df -h | head'", set()),
        ("docker exec nas df -h", set()),
        ("curl -sf http://nas/", set()),
    ],
)
def test_a_look_says_on_which_host_it_ran_where_it_worked(command: str, hosts: set[str]) -> None:
    look = judged(command, 2).look
    assert look is not None
    assert look.hosts == hosts


def test_what_looks_at_nothing_on_a_host_is_no_look_there() -> None:
    assert judged("ssh nas echo ok", 2).look is None
