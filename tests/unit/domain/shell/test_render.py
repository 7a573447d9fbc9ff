"""What runs is written from the tree that was judged: nothing in it means more to bash than it did to the judge."""

# ruff: noqa: E501 - what runs is one line
from __future__ import annotations

import pytest

from claudeops.domain.model import VerdictKind
from claudeops.domain.shell import parse
from claudeops.domain.shell.render import render
from claudeops.domain.shell.values import Glob, Run, SimpleCommand, UnclearError, Word, WordKind
from support.command_trees import Programs, TreeMaker, bare
from support.policy_cases import judged, rows

TREES = 1_000


def ran(command: str, tier: int = 1) -> str:
    """Return the text that runs in the place of an allowed command."""
    verdict = judged(command, tier)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    assert verdict.ran is not None
    return str(verdict.ran["command"])


def test_a_tree_that_is_written_down_reads_as_the_same_tree() -> None:
    maker = TreeMaker(17, Programs())
    for _ in range(TREES):
        tree = maker.block()
        text = render(tree, {}, bash=True)
        again = parse(text)
        assert again.problem is None, (again.problem, text)
        assert bare(again.block) == bare(tree), text


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("test ! ! -v 'a[$(id)]'", "/usr/bin/test '!' '!' '-v' 'a[$(id)]'"),
        ("test x = x -a -v 'a[$(id)]'", "/usr/bin/test 'x' '=' 'x' '-a' '-v' 'a[$(id)]'"),
        ("'[' ! ! -v 'a[$(id)]' ]", "'/usr/bin/[' '!' '!' '-v' 'a[$(id)]' ']'"),
        ("printf '%n' PATH; ls", "/usr/bin/printf '%n' 'PATH'\n/usr/bin/ls"),
        ("printf '%d' 'a[$(id)]'", "/usr/bin/printf '%d' 'a[$(id)]'"),
        ("echo -e 'a'", "/usr/bin/echo '-e' 'a'"),
        ("bash -c 'test ! ! -v \"a[\\$(id)]\"'", "/usr/bin/bash '-c' '/usr/bin/test '\\''!'\\'' '\\''!'\\'' '\\''-v'\\'' '\\''a[$(id)]'\\'''"),
        ("ssh host 'test ! ! -v \"a[\\$(id)]\"'", "/usr/bin/ssh 'host' '/usr/bin/env -- '\\''test'\\'' '\\''!'\\'' '\\''!'\\'' '\\''-v'\\'' '\\''a[$(id)]'\\'''"),
        ("echo 'it'\\''s' \"$HOME/x\" ./*.log", "/usr/bin/echo 'it'\\''s' \"${HOME}\"'/x' './'*'.log'"),
        ("command ls; builtin echo x", "/usr/bin/ls\n/usr/bin/echo 'x'"),
        (": > /dev/null", "/usr/bin/true >'/dev/null'"),
        ("df -h 2>&1 | head -3 || true", "/usr/bin/df '-h' 2>&1 | /usr/bin/head '-3' || /usr/bin/true"),
        ("docker exec web ls /", "/usr/bin/docker 'exec' 'web' 'ls' '/'"),
        ("docker exec web sh -c 'ls / | head -1'", "/usr/bin/docker 'exec' 'web' 'sh' '-c' '/usr/bin/env -- '\\''ls'\\'' '\\''/'\\'' | /usr/bin/env -- '\\''head'\\'' '\\''-1'\\'''"),
        ("docker ps -q | xargs docker inspect --format '{{.Name}}'", "/usr/bin/docker 'ps' '-q' | /usr/bin/xargs '/usr/bin/docker' 'inspect' '--format' '{{.Name}}'"),
        ("find /var/log -name '*.log' -exec ls -l {} \\;", "/usr/bin/find '/var/log' '-name' '*.log' '-exec' '/usr/bin/ls' '-l' '{}' ';'"),
        ("find /var/log -name -exec -exec ls -l {} \\;", "/usr/bin/find '/var/log' '-name' '-exec' '-exec' '/usr/bin/ls' '-l' '{}' ';'"),
        ("find /var/log -exec ls {} \\; -exec df {} +", "/usr/bin/find '/var/log' '-exec' '/usr/bin/ls' '{}' ';' '-exec' '/usr/bin/df' '{}' '+'"),
        ("bash -c 'cat; df' <<'E'\nx\nE", "/usr/bin/bash '-c' '/usr/bin/cat\n/usr/bin/df' <<<'x'"),
        ("timeout 5 df -h", "/usr/bin/timeout '5' '/usr/bin/df' '-h'"),
        ("eval 'df -h; free'", "{ /usr/bin/df '-h'\n/usr/bin/free\n}"),
        ("cat <<'E'\na 'b' $c\nE", "/usr/bin/cat <<<'a '\\''b'\\'' $c'"),
        ("bash -s <<'E'\ndf -h\nE", "/usr/bin/bash '-s' <<<'/usr/bin/df '\\''-h'\\'''"),
        ("[[ -f /etc/hosts && $HOSTNAME != web* ]] && df", "/usr/bin/test '-f' '/etc/hosts' && ! ( case \"${HOSTNAME}\" in 'web'*) : ;; *) ! ( : ) ;; esac ) && /usr/bin/df"),
        ("for i in 1 2; do df -h /$i && break; done", "for claudeops_round in 1; do for claudeops_round in 1; do i='1'; /usr/bin/df '-h' '/1' && break 2; done; for claudeops_round in 1; do i='2'; /usr/bin/df '-h' '/2' && break 2; done; done"),
        ("export LC_ALL=C; df", "export LC_ALL='C'\n/usr/bin/df"),
    ],
)  # fmt: skip
def test_what_runs_is_programs_by_their_paths_and_words_in_quotes(command: str, runs: str) -> None:
    assert ran(command, 3) == runs


@pytest.mark.parametrize("command", rows("harmless.txt"))
def test_what_an_operator_would_look_at_is_written_down_once_and_for_all(command: str) -> None:
    """What runs is judged as the command was: nothing is lost on the way, nothing comes in."""
    again = judged(ran(command), 1)
    assert (again.kind, again.reason) == (VerdictKind.ALLOW, "only looks"), ran(command)


@pytest.mark.parametrize(
    "command",
    [
        "break",
        "for i in 1 2; do (break); done",
        "cd $(pwd)",
        "set $(echo -x)",
        'l=(a "$(b)"); for i in "${l[@]}"; do x "$i"; done',
        "ls [[:digit:]]*",
        "ls [!a/b]*",
        "ls a:~/b",
        'f() { a "$1"; }; f "$(b)"',
    ],
)  # fmt: skip
def test_what_cannot_be_written_down_does_not_run(command: str) -> None:
    parsed = parse(command)
    with pytest.raises(UnclearError):
        raise UnclearError(parsed.problem) if parsed.problem else AssertionError(render(parsed.block, {}, bash=True))


def test_a_mark_of_xargs_never_stands_in_a_path_that_was_put_in() -> None:
    assert judged("docker ps -q | xargs -I s ls s", 1).kind is VerdictKind.DENY
    assert judged("docker ps --format '{{.Names}}' | xargs -I{} docker inspect --format '{{.Id}}' {}", 1).ran


def test_a_denied_call_has_nothing_to_run() -> None:
    assert judged("rm -rf /", 3).ran is None
    assert judged("ls $UNKNOWN", 1).ran is None


def test_a_text_that_reads_as_more_than_the_tree_held_does_not_run() -> None:
    """The second net: what the writer should ever let through is seen when its text is read back."""
    smuggled = Word(text="x", kind=WordKind.DYNAMIC, parts=(Glob("* ; id"),))
    tree = (Run(SimpleCommand(argv=(Word(text="/usr/bin/ls"), smuggled))),)
    with pytest.raises(UnclearError, match="reads differently"):
        render(tree, {}, bash=True)
