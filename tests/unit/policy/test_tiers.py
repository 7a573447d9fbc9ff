"""What each tier may do: tables of commands, and the tools beside Bash."""

from __future__ import annotations

import pytest

from claudeops.domain.actions import Action, ActionLimit
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.tiers import judge, narrow, split_patterns, tier_policy
from claudeops.structs import replace
from support.policy_cases import POLICY, SCOPE, TIERS, judged, rows, sections

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY
LETTERS = {ALLOW: "a", DENY: "d", VerdictKind.ASK: "?"}


def tool(name: str, tier: int = 3, /, **given: object) -> Verdict:
    return judge(ToolCall(tool_use_id="t", tool_name=name, input=given), tier=tier_policy(POLICY, tier), scope=SCOPE)


# --- commands -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", sections("tiers.txt"))
def test_each_tier_answers_as_the_table_says(section: str) -> None:
    wrong = []
    for row in sections("tiers.txt")[section]:
        expected, _, command = row.partition("\t")
        verdicts = [judged(command, tier) for tier in TIERS]
        if [LETTERS[verdict.kind] for verdict in verdicts] != expected.split() or not all(v.reason for v in verdicts):
            wrong.append((row, [verdict.reason for verdict in verdicts]))
    assert wrong == []


@pytest.mark.parametrize("tier", TIERS)
def test_an_operators_own_looks_are_allowed(tier: int) -> None:
    verdicts = {command: judged(command, tier) for command in rows("harmless.txt")}
    looks = (ALLOW, "only looks", ())
    others = {c: verdict for c, verdict in verdicts.items() if (verdict.kind, verdict.reason, verdict.actions) != looks}
    assert others == {}


@pytest.mark.parametrize("row", rows("instead.txt"), ids=lambda row: row.partition("\t")[0][:60])
def test_a_refusal_names_a_way_and_the_way_is_allowed(row: str) -> None:
    command, said, way = row.split("\t")
    refused = judged(command, 1)
    assert (refused.kind, said in refused.reason) == (DENY, True), refused.reason
    taken = judged(way, 1)
    assert taken.kind is ALLOW, taken.reason


def test_what_is_not_in_the_language_is_allowed_at_no_tier() -> None:
    commands = [row.partition("\t")[0] for row in rows("instead.txt") if "needs tier" not in row]
    assert [command for command in commands if judged(command, 3).kind is ALLOW] == []


@pytest.mark.parametrize("row", rows("actions.txt"), ids=lambda row: row.partition("\t")[2][:60])
def test_an_action_is_counted_for_the_service_it_is_about(row: str) -> None:
    expected, _, command = row.partition("\t")
    verdict = judged(command, 3)
    assert verdict.kind is ALLOW, verdict.reason
    assert [f"{action.kind}={action.service}" for action in verdict.actions] == expected.split()


@pytest.mark.parametrize("row", rows("actions.txt"), ids=lambda row: row.partition("\t")[2][:60])
def test_a_dry_run_denies_every_action_and_says_what_it_would_be(row: str) -> None:
    services = [pair.partition("=")[2] for pair in row.partition("\t")[0].split()]
    verdict = judged(row.partition("\t")[2], 3, replace(SCOPE, dry_run=True))
    assert verdict.kind is DENY
    assert verdict.reason.startswith("dry run: would ")
    assert all(service in verdict.reason for service in services)
    assert verdict.actions == ()


def test_a_dry_run_lets_looks_pass_and_keeps_files_as_they_are() -> None:
    dry = replace(SCOPE, dry_run=True)
    assert judged("docker ps", 3, dry).kind is ALLOW
    assert judged("df -h > /work/s1/df.txt", 3, dry).reason == "dry run: would write /work/s1/df.txt"


@pytest.mark.parametrize("tier", TIERS)
def test_what_a_lower_tier_may_a_higher_one_may_too(tier: int) -> None:
    commands = [row.partition("\t")[2] for row in rows("tiers.txt")]
    for command in commands:
        if judged(command, tier).kind is ALLOW:
            assert all(judged(command, higher).kind is ALLOW for higher in TIERS if higher > tier), command


def test_no_action_is_granted_of_a_kind_that_the_tier_does_not_name() -> None:
    for tier in TIERS:
        kinds = set(tier_policy(POLICY, tier).action_kinds)
        assert kinds <= set(POLICY.limits)
        for row in rows("actions.txt"):
            assert {action.kind for action in judged(row.partition("\t")[2], tier).actions} <= kinds


def test_a_denial_for_a_higher_tier_tells_the_model_what_to_do() -> None:
    assert judged("ssh host docker restart web", 1).reason == (
        "docker restart needs tier 2: at tier 1 say in the report why it is needed"
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"command": "docker ps", "run_in_background": True}, "run_in_background"),
        ({"command": "docker ps", "dangerouslyDisableSandbox": True}, "dangerouslyDisableSandbox"),
        ({"command": "docker ps", "something_new": "x"}, "something_new"),
        ({"command": 5}, "needs a command"),
        ({"command": "  "}, "needs a command"),
        ({}, "needs a command"),
    ],
    ids=["background", "no sandbox", "unknown switch", "no text", "blank", "nothing"],
)
def test_a_bash_call_with_more_than_a_command_is_denied(given: dict[str, object], word: str) -> None:
    verdict = tool("Bash", **given)
    assert verdict.kind is DENY
    assert word in verdict.reason


def test_a_bash_call_may_carry_its_description_and_timeout() -> None:
    assert tool("Bash", command="df -h", description="disk", timeout=5000, run_in_background=False).kind is ALLOW


# --- other tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_the_report_can_always_be_delivered(tier: int) -> None:
    assert tool("StructuredOutput", tier, summary="x").kind is ALLOW


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "name", ["mcp__db__query", "Task", "Agent", "WebFetch", "Skill", "CronCreate", "NotebookEdit", "", "bash"]
)
def test_tools_that_were_not_asked_for_do_not_exist(name: str, tier: int) -> None:
    assert tool(name, tier, command="ls", file_path="/etc/hosts").kind is DENY
    assert name not in tier_policy(POLICY, tier).tools


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/nginx/../shadow",
        "//etc/./shadow",
        "/proc/self/environ",
        "/proc/self/root/etc/hosts",
        "/root/.ssh/id_rsa",
        "/home/ops/.kube/config",
        "/srv/web/.env",
        "/etc/letsencrypt/live/x/privkey.pem",
        "/run/secrets/db",
        "/state/claudeops.db",
        "/results/session-000001.ndjson",
        "/home/agent/.claude/projects/x.jsonl",
        "/dev/sda",
        "etc/hosts",
        "~/notes",
        "/etc/hosts\0",
        "",
    ],
)
def test_read_never_reaches_a_secret(path: str) -> None:
    assert tool("Read", file_path=path).kind is DENY


@pytest.mark.parametrize(
    "path", ["/etc/hosts", "/repos/media/compose.yml", "/var/log/syslog", "/proc/loadavg", "/work/s1/x"]
)
def test_read_opens_what_holds_no_secret(path: str) -> None:
    assert tool("Read", 1, file_path=path, offset=1, limit=5).kind is ALLOW


@pytest.mark.parametrize("name", ["Write", "Edit"])
def test_files_are_written_only_in_the_sessions_own_directories(name: str) -> None:
    assert tool(name, 3, file_path="/work/s1/notes/today.md").kind is ALLOW
    assert tool(name, 2, file_path=f"{SCOPE.tmpdir}/x").kind is ALLOW
    assert tool(name, 1, file_path="/work/s1/notes.md").kind is DENY
    for path in ("/work/s1", "/work/s2/x", "/work/s1/../x", "/etc/x", "/repos/x", "/work/s1/.bashrc", "x", "/state/x"):
        assert tool(name, 3, file_path=path).kind is DENY, path


def test_a_link_is_judged_by_where_it_leads() -> None:
    links = {"/work/s1/a": "/etc/shadow", "/work/s1/b": "/etc/cron.d", "/repos/x.yml": "/work/s1/x.yml"}

    def resolve(path: str) -> str:
        for link, target in links.items():
            if path == link or path.startswith(f"{link}/"):
                return target + path[len(link) :]
        return path

    scope = replace(SCOPE, resolve=resolve)
    for given in ({"file_path": "/work/s1/a"}, {"file_path": "/work/s1/b/x"}):
        for name in ("Read", "Write"):
            verdict = judge(
                ToolCall(tool_use_id="t", tool_name=name, input=given), tier=tier_policy(POLICY, 3), scope=scope
            )
            assert (verdict.kind is DENY) == (name == "Write" or given["file_path"] == "/work/s1/a")
    for command in (
        "cat /work/s1/a",
        "cat < /work/s1/a",
        "ls > /work/s1/b/x",
        "kubectl apply -f /repos/x.yml",
        "cat a",
    ):
        assert judged(command, 3, scope).kind is DENY, command
    assert judged("cd /work/s1 && cat a", 3, scope).kind is DENY


def test_the_sessions_own_directories_may_lie_in_the_supervisors() -> None:
    scope = replace(SCOPE, workdir="/state/work/7", tmpdir="/state/tmp/7")
    assert judged("df -h > /state/work/7/df.txt && cat /state/work/7/df.txt", 2, scope).kind is ALLOW
    assert judged("cat /state/work/8/df.txt", 2, scope).kind is DENY
    assert judged("cat /state/work/7/../../claudeops.db", 2, scope).kind is DENY


# --- tiers and what the operator narrows --------------------------------------------------------------


def test_the_limits_are_those_of_the_contract() -> None:
    assert dict(POLICY.limits) == {
        "restart": ActionLimit(count=2, window_seconds=14400.0),
        "redeployment": ActionLimit(count=1, window_seconds=86400.0),
    }


@pytest.mark.parametrize(
    ("number", "highest", "kinds"),
    [(1, 3, 0), (2, 3, 1), (3, 3, 2), (3, 2, 1), (3, 1, 0), (5, 9, 2)],
)
def test_a_tier_above_the_highest_gets_no_more(number: int, highest: int, kinds: int) -> None:
    policy = tier_policy(POLICY, number, highest=highest)
    assert (policy.number, len(policy.action_kinds)) == (number, kinds)


@pytest.mark.parametrize(("number", "highest"), [(0, 3), (-1, 3), (1, 0)])
def test_a_tier_below_the_first_is_refused(number: int, highest: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        tier_policy(POLICY, number, highest=highest)


def test_no_patterns_change_nothing() -> None:
    assert narrow(tier_policy(POLICY, 2)) == tier_policy(POLICY, 2)


@pytest.mark.parametrize(
    ("allowed", "disallowed", "tools"),
    [
        ("Bash,Read,LS,Task,WebFetch", "", ("Bash", "Read")),
        ("Read", "", ("Read",)),
        ("Bash(docker ps:*)", "", ("Bash",)),
        ("", "Bash", ("Read", "Grep", "Glob", "Write", "Edit")),
        ("", "Bash(docker restart:*)", ("Bash", "Read", "Grep", "Glob", "Write", "Edit")),
        ("mcp__x, Task", "", ()),
        ("B(ash", "", ()),
    ],
)
def test_names_narrow_the_tools_and_never_add_any(allowed: str, disallowed: str, tools: tuple[str, ...]) -> None:
    assert narrow(tier_policy(POLICY, 2), split_patterns(allowed), split_patterns(disallowed)).tools == tools


@pytest.mark.parametrize(
    ("allowed", "disallowed", "command", "kind"),
    [
        ("Bash(docker ps:*)", "", "docker  ps -a", ALLOW),
        ("Bash(docker ps:*)", "", "docker psx", DENY),
        ("Bash(docker ps:*)", "", "docker logs --tail 5 x", DENY),
        ("Bash(docker ps:*)", "", "docker ps; df -h", DENY),
        ("Bash(docker ps:*)", "", "docker ps | grep x", DENY),
        ("Bash(docker:*) Bash(grep:*)", "", "docker ps | grep x", ALLOW),
        ("Bash(docker:*)", "", "ssh host docker ps", DENY),
        ("Bash(docker *)", "", "docker ps", ALLOW),
        ("Bash(df -h)", "", "df -h /", DENY),
        ("Bash(rm:*)", "", "rm -rf /", DENY),
        ("Bash, Bash(docker:*)", "", "df -h", ALLOW),
        ("", "Bash(docker restart:*)", "docker restart x", DENY),
        ("", "Bash(docker restart:*)", "sudo docker restart x", DENY),
        ("", "Bash(docker restart:*)", "ssh host 'cd /x; /usr/bin/docker  restart x'", DENY),
        ("", "Bash(docker restart:*)", "bash -c 'docker restart x'", DENY),
        ("", "Bash(docker restart:*)", "docker start x", ALLOW),
    ],
)
def test_patterns_are_conditions_on_every_command(
    allowed: str, disallowed: str, command: str, kind: VerdictKind
) -> None:
    policy = narrow(tier_policy(POLICY, 2), split_patterns(allowed), split_patterns(disallowed))
    assert judged(command, policy).kind is kind


def test_patterns_for_all_tiers_and_for_one_add_up() -> None:
    policy = narrow(narrow(tier_policy(POLICY, 2), ["Bash(docker:*)"]), ["Bash(docker ps:*)", "Bash(df:*)"])
    assert judged("docker ps", policy).kind is ALLOW
    assert judged("docker images", policy).kind is DENY
    assert judged("df", policy).kind is DENY


def test_patterns_on_paths_narrow_the_file_tools() -> None:
    policy = narrow(tier_policy(POLICY, 2), ["Read(//etc/**)", "Write"], ["Read(/etc/nginx/*)"])
    for path, kind in (("/etc/hosts", ALLOW), ("/var/log/syslog", DENY), ("/etc/nginx/nginx.conf", DENY)):
        call = ToolCall(tool_use_id="t", tool_name="Read", input={"file_path": path})
        assert judge(call, tier=policy, scope=SCOPE).kind is kind


def test_an_action_is_a_value_that_the_ledger_can_keep() -> None:
    assert judged("docker restart web", 2).actions == (Action(kind="restart", service="web"),)
