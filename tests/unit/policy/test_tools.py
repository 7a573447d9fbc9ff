"""The tools beside Bash: what may be read, searched, listed, written and fetched."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.tiers import JudgeScope, Policy, TierPolicy, judge, narrow, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, POLICY, SCOPE, bash

ALLOW, DENY = VerdictKind.ALLOW, VerdictKind.DENY

EVERY_TOOL = parse_policy(
    'extends = "default"\n[tiers.3]\ntools = ["Bash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Grep",'
    ' "Glob", "LS", "WebFetch", "WebSearch", "TodoWrite", "Task", "Agent"]\n',
    default=DEFAULT_TEXT,
)


def said(name: str, given: Mapping[str, object], tier: TierPolicy, scope: JudgeScope = SCOPE) -> Verdict:
    return judge(ToolCall(tool_use_id="t", tool_name=name, input=given), tier=tier, scope=scope)


def asked(
    name: str, tier: int = 3, /, *, policy: Policy = EVERY_TOOL, scope: JudgeScope = SCOPE, **given: str
) -> Verdict:
    return said(name, given, tier_policy(policy, tier), scope)


def kind(name: str, tier: int = 3, /, **given: object) -> VerdictKind:
    return said(name, given, tier_policy(EVERY_TOOL, tier)).kind


# --- searching ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"path": "/repos", "glob": "compose*.yml"},
        {"path": "/repos", "glob": "*.service"},
        {"path": "/repos/media/compose.yml"},
        {"path": "/var/log"},
        {"path": "/var/log/syslog.log", "output_mode": "content", "-n": True},
        {"path": "/work/s1"},
    ],
)
def test_grep_searches_what_may_be_read_whole(given: dict[str, object]) -> None:
    assert said("Grep", {"pattern": "x", **given}, tier_policy(POLICY, 1)).kind is ALLOW


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": "repos"},
        {"path": "/"},
        {"path": "/etc"},
        {"path": "/repos"},
        {"path": "/repos", "type": "yaml"},
        {"path": "/repos", "glob": "*.yml"},
        {"path": "/repos", "glob": "*.json"},
        {"path": "/repos", "glob": "*"},
        {"path": "/repos", "glob": "*.pem"},
        {"path": "/repos", "glob": "!*.yml"},
        {"path": "/repos", "glob": "*.{yml,env}"},
        {"path": "/repos", "glob": "../*.yml"},
        {"path": "/repos", "glob": "*.yml", "type": "x --no-ignore"},
        {"path": "/etc/shadow"},
        {"path": "/repos/.env"},
        {"path": "/root/.ssh"},
        {"path": "/proc/self/environ"},
        {"path": "/state/claudeops.db"},
        {"path": "/var/log/../../etc/shadow"},
        {"path": 5},
    ],
)
def test_grep_finds_no_secret(given: dict[str, object]) -> None:
    assert kind("Grep", pattern="x", **given) is DENY


def test_a_directory_is_no_file_because_a_link_to_it_is_called_like_one() -> None:
    links = {"/repos/x.yml": "/etc", "/work/s1/y.log": "/root"}
    scope = replace(SCOPE, resolve=lambda path: links.get(path, path))
    for path in links:
        assert asked("Grep", pattern="x", path=path, scope=scope).kind is DENY


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pattern": "**/*.yml", "path": "/repos"}, ALLOW),
        ({"pattern": "/repos/**/compose*.yml"}, ALLOW),
        ({"pattern": "*.log", "path": "/var/log"}, ALLOW),
        ({"pattern": "*.yml"}, DENY),
        ({"pattern": "../*", "path": "/repos"}, DENY),
        ({"pattern": "{..,x}/*", "path": "/repos"}, DENY),
        ({"pattern": "/proc/*/environ"}, DENY),
        ({"pattern": "*", "path": "/proc/1"}, DENY),
        ({"pattern": "*", "path": "/state"}, DENY),
        ({"pattern": "/state/*"}, DENY),
        ({"pattern": "", "path": "/repos"}, DENY),
        ({"path": "/repos"}, DENY),
    ],
)
def test_glob_lists_names_outside_of_processes_and_our_own_files(
    given: dict[str, object], expected: VerdictKind
) -> None:
    assert kind("Glob", **given) is expected


def test_ls_lists_by_absolute_path() -> None:
    assert kind("LS", path="/repos") is ALLOW
    assert kind("LS", path="/results") is DENY
    assert kind("LS", path="x") is DENY


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Write", "Edit", "MultiEdit", "NotebookEdit"])
def test_every_tool_that_writes_keeps_to_the_sessions_directories(name: str) -> None:
    key = "notebook_path" if name == "NotebookEdit" else "file_path"
    assert kind(name, **{key: "/work/s1/notes.md"}) is ALLOW
    for path in ("/etc/hosts", "/work/s1/../x", "/work/s1/.bashrc", "/proc/self/root/etc/x", "/repos/x.yml", "x", ""):
        assert kind(name, **{key: path}) is DENY, path
    other = "file_path" if key == "notebook_path" else "notebook_path"
    assert kind(name, **{other: "/work/s1/notes.md"}) is DENY


def test_a_link_out_of_the_sessions_directory_is_not_written_through() -> None:
    scope = replace(SCOPE, resolve=lambda path: path.replace("/work/s1/out", "/etc"))
    assert asked("Write", file_path="/work/s1/out/cron.d/x", scope=scope).kind is DENY
    assert asked("Read", file_path="/work/s1/out/shadow", scope=scope).kind is DENY
    assert asked("Read", file_path="/proc/loadavg", scope=replace(SCOPE, resolve=lambda _: "/proc/7/x")).kind is ALLOW


# --- the handoff file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "expected"), [(1, ALLOW), (2, ALLOW), (3, DENY)])
def test_below_the_top_a_session_may_leave_a_handoff(tier: int, expected: VerdictKind) -> None:
    for command in (
        f"echo '{{}}' > {SCOPE.handoff}",
        'cat > "$CLAUDEOPS_STATE_DIR/handoff.json" <<\'EOF\'\n{"schema_version": 1}\nEOF',
        "echo '{}' > ${CLAUDEOPS_STATE_DIR}/handoff.json",
    ):
        verdict = judge(bash(command), tier=tier_policy(POLICY, tier), scope=SCOPE)
        assert (verdict.kind is ALLOW) == (expected is ALLOW), command
    if tier > 1:
        assert asked("Write", tier, policy=POLICY, file_path=SCOPE.handoff).kind is expected


def test_the_handoff_is_a_report_and_no_change() -> None:
    dry = replace(SCOPE, dry_run=True)
    call = bash(f"echo x > {SCOPE.handoff}")
    verdict = judge(call, tier=tier_policy(POLICY, 1), scope=dry)
    assert (verdict.kind, verdict.reason) == (ALLOW, "only looks")
    assert tier_policy(POLICY, 1).read_only
    assert not tier_policy(POLICY, 2).read_only


@pytest.mark.parametrize(
    "path",
    [
        "$CLAUDEOPS_STATE_DIR/other.json",
        "$CLAUDEOPS_STATE_DIR/../handoff.json",
        "/state/handoff.json",
        "/state/claudeops.db",
        "$HOME/handoff.json",
    ],
)
def test_nothing_else_is_written_beside_it(path: str) -> None:
    for tier in (1, 2):
        assert judge(bash(f'echo x > "{path}"'), tier=tier_policy(POLICY, tier), scope=SCOPE).kind is DENY


def test_a_handoff_that_is_a_link_is_not_written() -> None:
    scope = replace(SCOPE, resolve=lambda path: "/etc/passwd" if path == SCOPE.handoff else path)
    assert judge(bash(f"echo x > {SCOPE.handoff}"), tier=tier_policy(POLICY, 2), scope=scope).kind is DENY


# --- the web ------------------------------------------------------------------------------------------

URLS = {
    "http://example.org/": ALLOW,
    "https://web.internal:8443/health?x=1": ALLOW,
    "http://169.254.169.254/latest/meta-data/": DENY,
    "http://2852039166/": DENY,
    "http://0xA9FEA9FE/": DENY,
    "http://0251.0376.0251.0376/": DENY,
    "http://169.254.43518/": DENY,
    "http://[::ffff:169.254.169.254]/": DENY,
    "http://[::ffff:a9fe:a9fe]/": DENY,
    "http://[fe80::1]/": DENY,
    "http://[fd00:ec2::254]/": DENY,
    "http://metadata.google.internal/": DENY,
    "http://METADATA.google.internal./": DENY,
    "http://instance-data/": DENY,
    "http://169.254.169.254.nip.io/": DENY,
    "http://user:pass@example.org/": DENY,
    "http://example.org@169.254.169.254/": DENY,
    "file:///etc/shadow": DENY,
    "gopher://example.org/": DENY,
    "": DENY,
}


@pytest.mark.parametrize(("url", "expected"), URLS.items())
def test_a_url_is_judged_the_same_by_whatever_it_is_fetched(url: str, expected: VerdictKind) -> None:
    assert kind("WebFetch", url=url, prompt="x") is expected
    if url:
        verdict = judge(bash(f"curl -s '{url}'"), tier=tier_policy(EVERY_TOOL, 1), scope=SCOPE)
        assert verdict.kind is expected


# --- the rest -----------------------------------------------------------------------------------------


def test_subagents_run_only_where_named_and_in_the_foreground() -> None:
    for name in ("Task", "Agent"):
        assert kind(name, prompt="x") is ALLOW
        assert kind(name, prompt="x", run_in_background=True) is DENY
        assert asked(name, policy=POLICY, prompt="x").kind is DENY


@pytest.mark.parametrize("name", ["Task", "Agent"])
def test_either_name_of_the_tool_for_subagents_means_both(name: str) -> None:
    """The CLI lists it by one name and asks by the other: a tier with one of them was stopped, or denied, each time."""
    text = f'extends = "default"\n[tiers.1]\ntools = ["Bash", "{name}"]\n'
    tier = tier_policy(parse_policy(text, default=DEFAULT_TEXT), 1)
    assert tier.tools[0] == "Bash"
    assert {"Task", "Agent"} == set(tier.tools[1:])
    assert set(narrow(tier, ["Bash", name]).tools) == set(tier.tools)
    assert narrow(tier, [], [name]).tools == ("Bash",)


def test_the_operators_patterns_hold_for_every_tool() -> None:
    policy = narrow(tier_policy(EVERY_TOOL, 3), ["WebFetch(https://*)", "Grep"], ["Grep(/var/*)"])
    for name, given, expected in (
        ("WebFetch", {"url": "https://example.org/"}, ALLOW),
        ("WebFetch", {"url": "http://example.org/"}, DENY),
        ("Grep", {"pattern": "x", "path": "/repos/a.yml"}, ALLOW),
        ("Grep", {"pattern": "x", "path": "/var/log"}, DENY),
        ("Read", {"file_path": "/etc/hosts"}, DENY),
        ("mcp__a__b", {}, DENY),
    ):
        call = ToolCall(tool_use_id="t", tool_name=name, input=given)
        assert judge(call, tier=policy, scope=SCOPE).kind is expected, (name, given)
