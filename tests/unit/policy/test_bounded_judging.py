"""No command that an agent can write keeps its verdict waiting, or fills the memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.formats.report.markers import read_markers
from claudeops.policy.commands import MOST_JUDGED
from claudeops.policy.never import refuse_line, refuse_text
from claudeops.policy.shell import parse
from claudeops.policy.shell.lexical import LONGEST_COMMAND
from claudeops.policy.shell.syntax import MOST_SIGNS
from claudeops.policy.tiers import explain, tier_policy
from claudeops.wording.prompt import template_fault
from support.doses import drawn
from support.policy_cases import POLICY, SCOPE, bash, judged

HIGHEST = tier_policy(POLICY, 3)

# Made for twice the length twice as often; what stands in <> is repeated.
GROWING = [
    "sed -n 'p<\n>X' /var/log/syslog",
    "sed -n 's/<[>X' /var/log/syslog",
    "awk '<print|| >' /var/log/syslog",
    "awk '<print>=>' /var/log/syslog",
    "jq '<.env >' /repos/x.json",
    "docker inspect -f '<{{.State.Status}}>' web",
    "docker inspect -f '{{<.State.Status >}}' web",
    "docker inspect -f '<{{>' web",
    "echo <'\"'\"'>",
    'echo "<\\">"',
    "echo $'<\\n>'",
    "echo <\\a>",
    'echo "<$ >"',
    "echo <a >",
    "echo <a>",
    "ls -<l>",
    "docker ps <-a >",
    "ls <*a>",
    "cat /var/log/<*a>",
    "cat /var/log/<[ab]>",
    "cat /<a/>",
    "cat /<../>",
    "cat /a</.>",
    "cat </*>",
    "a=1; echo <$a>",
    "a=xxxxxxxx; echo <$a >",
    'a=(<b >); echo "${a[@]}"',
    "cat <<E\n<$a\n>\nE",
    "cat <<'E'\n<aaa\n>\nE",
    "ls | xargs <-0 > cat",
    "ls | xargs -I% echo <% >",
    "find / <-name a -o >",
    "find / <-exec ls {} + >",
    "find / -name '<*a>'",
    "<nice -n 5 >ls",
    "env <A=1 >ls",
    "curl -s http://<a.>",
    "curl -s http://<a/?#>",
    "ping -c 1 <a->",
    "ls <\\\n>",
    "docker <volume x >rm",
    "psql -c '<drop >'",
    "kill <-0 >",
    "ls <~>",
    "test <! >",
    "echo $((<1+>1))",
    "echo {<a,>}",
    "git -C /repos/a log <HEAD~>",
    "<a>",
    "<(>",
    "$(<",
]
TOOLS = [
    ("Read", "file_path", "/<a/>"),
    ("Read", "file_path", "/<../>"),
    ("Read", "file_path", "/<*a>"),
    ("Glob", "pattern", "/<*a/>"),
    ("Grep", "glob", "<*a>"),
    ("Write", "file_path", "/work/s1/<a/>"),
    ("WebFetch", "url", "http://<a.>"),
]


def grown(pattern: str, length: int) -> str:
    """Return the text with what is repeated at the length that is wanted."""
    before, _, rest = pattern.partition("<")
    if pattern.startswith("cat <<"):
        before, rest = pattern.split("\n", 1)
        before, rest = f"{before}\n", rest[1:]
    repeated, _, after = rest.rpartition(">")
    return before + (repeated or "x") * (length // len(repeated or "x")) + after


def work(run: Callable[[], object]) -> int:
    """Return how many instructions of Python were run: a measure that no other load changes."""
    count = 0

    def traced(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def judge_at(tool: str, key: str, pattern: str, length: int) -> int:
    """Return the work of one verdict."""
    call = ToolCall(tool_use_id="toolu_1", tool_name=tool, input={key: grown(pattern, length), "path": "/var/log"})
    if tool == "Bash":
        call = bash(grown(pattern, length))
    return work(lambda: explain(call, tier=HIGHEST, scope=SCOPE))


@pytest.mark.parametrize(
    ("tool", "key", "pattern"),
    drawn([*(("Bash", "command", pattern) for pattern in GROWING), *TOOLS], count=15),
    ids=repr,
)
def test_twice_the_command_is_at_most_twice_the_work(tool: str, key: str, pattern: str) -> None:
    judge_at(tool, key, pattern, 500)  # what is compiled and kept at the first time
    once, twice = judge_at(tool, key, pattern, 1_500), judge_at(tool, key, pattern, 3_000)
    assert twice <= 2.2 * once + 20_000


def test_a_sed_script_of_newlines_keeps_nobody_waiting() -> None:
    script = "p" + "\n" * (LONGEST_COMMAND - 100) + "X"
    assert judged(f"sed -n '{script[:900]}X' /var/log/syslog", 1).kind is VerdictKind.DENY
    assert judged(f"sed -n '{script}' /var/log/syslog", 1).kind is VerdictKind.DENY
    assert judged(f"sed -n '{script[:900]}p' /var/log/syslog", 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (")" * 512, "cannot be parsed"),
        ("a=(" * 512, "cannot be parsed"),
        ("((?" * 256, "cannot be parsed"),
        ("))$(($a " + "|:" * 1_000, "cannot be parsed"),
        ("#a\\\n" + "a?" * 7_000, "cannot be parsed"),
        ("ls | " * 1_100 + "ls", "more than 1024 times '|'"),
        (">x `" * 200, "more than 128 times '`'"),
        ("(" * 600, "more than 512 times '('"),
    ],
)
def test_what_the_parser_reads_over_and_over_is_given_up(text: str, why: str) -> None:
    problems = []
    assert work(lambda: problems.append(parse(text).refusal)) < 500_000
    assert why in str(problems[0])


def test_a_text_of_the_greatest_length_and_of_many_signs_is_parsed() -> None:
    text = "echo '" + "|&;<>()\n" * 500 + "'" + " a" * 6_000
    assert len(text) < LONGEST_COMMAND
    assert parse(text).problem is None
    assert set("|&;<>()\n") <= {chr(sign) for sign in MOST_SIGNS}


@pytest.mark.parametrize(
    "command",
    [
        "v0=aaaaaaaa; " + " ".join(f'v{i}="$v{i - 1}$v{i - 1}";' for i in range(1, 40)) + " echo $v39",
        'v0="a b"; ' + " ".join(f'v{i}="$v{i - 1} $v{i - 1}";' for i in range(1, 40)) + " echo $v39",
        "a='" + "x" * 8_000 + "'; echo " + "$a" * 2_000,
        "echo " + "{1..128} " * 1_000,
    ],
    ids=["text", "words", "one word", "braces"],
)
def test_a_value_made_of_itself_over_and_over_fills_no_memory(command: str) -> None:
    problems = []
    assert work(lambda: problems.append(parse(command).problem)) < 20_000_000
    assert "is too long" in str(problems[0])


def test_find_runs_no_more_commands_than_can_be_judged() -> None:
    roots = " ".join(f"/var/log/{number}" for number in range(32))
    assert judged(f"find {roots} -name '*.log' -exec head -n 5 {{}} +", 1).kind is VerdictKind.ALLOW
    for command, why in (
        (f"find {roots} -name x " + "-exec cat {} + " * 10, "write one -exec at the end"),
        (f"find {roots} /srv -name x -exec cat {{}} +", "more than 32 directories"),
    ):
        verdict = judged(command, 1)
        assert (verdict.kind, why in verdict.reason) == (VerdictKind.DENY, True), verdict.reason


def test_wrappers_within_wrappers_run_no_more_commands_than_can_be_judged() -> None:
    inner = "; ".join(["uptime"] * 200)
    verdict = judged(f"for i in {{1..6}}; do bash -c '{inner}'; done", 1)
    assert verdict.kind is VerdictKind.DENY
    assert f"more than {MOST_JUDGED} commands" in verdict.reason


@pytest.mark.parametrize("path", ["/var/log/" + "*a" * 400, "/var/log/" + "a" * 256, "/" + "a/" * 100])
def test_a_name_that_no_file_can_have_is_no_path(path: str) -> None:
    verdict = judged(f"cat {path}", 1)
    assert verdict.kind is VerdictKind.DENY
    assert "is not a path" in verdict.reason
    call = ToolCall(tool_use_id="toolu_1", tool_name="Read", input={"file_path": path})
    assert explain(call, tier=HIGHEST, scope=SCOPE).verdict.kind is VerdictKind.DENY


@pytest.mark.parametrize("unit", ["[EVENT:", "[EVENT:a:b] ", "- ", "```\n", "\n \n", "[MEMORY:" + "a" * 290])
def test_markers_of_any_text_are_read_in_work_that_grows_with_it(unit: str) -> None:
    once = work(lambda: read_markers([unit * 200]))
    assert work(lambda: read_markers([unit * 400])) <= 2.3 * once + 1_000


def test_a_template_of_spaces_and_signs_is_looked_through_at_once() -> None:
    assert template_fault("<" + " " * 200_000 + "@" * 100_000 + " ") is not None
    assert template_fault("<" + " " * 200_000) is None


@pytest.mark.parametrize(
    "line",
    [
        "psql -c select 1;\ndrop table users",
        "kill 1\n2",
        "mysql -e x\n\ntruncate t",
        "kubectl delete pvc/data\nx",
        "rm a\n /",
    ],
)
def test_a_line_break_hides_nothing_that_is_never_allowed(line: str) -> None:
    assert refuse_line(line) is not None


@pytest.mark.parametrize(
    "line", ["kill -0 1", "kill -l", "kill -L", "kubectl delete pod/pvc-1 x", "rm /var/x", "killer 1"]
)
def test_what_only_resembles_it_is_not_on_the_never_list(line: str) -> None:
    assert refuse_line(line) is None


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("x=$(rm -rf /)", True),
        ("rm -rf /etc", True),
        ("rm -rf /etc/", True),
        ("rm -rf /etc/a", False),
        ("rm -rf //etc/a", True),
        ("echo a;kill 12", True),
        ("echo a;kill -0 12", False),
        ("skillful 12", False),
        ("eval docker volume rm x", True),
        ("kubectl delete pvc", True),
        ("TRUNCATE t", True),
    ],
)
def test_in_text_that_cannot_be_taken_apart_the_same_is_found(text: str, never: bool) -> None:
    assert (refuse_text(text) is not None) is never


def test_a_directory_between_a_name_and_what_leads_out_of_it_hides_nothing() -> None:
    for path in ("/work/s1/link/../x", "/work/s1/link/./../x", "/work/s1/link//../x"):
        call = ToolCall(tool_use_id="toolu_1", tool_name="Write", input={"file_path": path, "content": ""})
        assert explain(call, tier=HIGHEST, scope=SCOPE).verdict.kind is VerdictKind.DENY
