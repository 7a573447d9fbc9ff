"""What runs is written from what was judged: nothing in it means more to bash than it did to the judge."""

# ruff: noqa: E501 - what runs is one line
from __future__ import annotations

import shutil
import subprocess

import pytest

from claudeops.policy.shell import parse
from claudeops.policy.shell.language import (
    Block,
    Given,
    Glob,
    Literal,
    Redirected,
    Redirection,
    Run,
    SimpleCommand,
    StoredVariable,
    Subshell,
    Text,
    UnclearError,
    Word,
)
from claudeops.policy.shell.lexical import LONGEST_COMMAND
from claudeops.policy.shell.render import render
from claudeops.structs import replace
from support.command_trees import NASTY, Programs, TreeMaker, bare
from support.waiting import PATIENCE_SECONDS

TREES = 300


def runs(text: str, *, bash: bool = True) -> str:
    """Return what runs for a text, with its commands as they are: the judge writes programs by their paths."""
    parsed = parse(text, known={"HOME": "/home/me"})
    assert (parsed.problem, parsed.refusal) == (None, None)
    return render(parsed.block, {}, bash=bash)


def one(*words: Word, **rest: object) -> Block:
    return (Run(SimpleCommand(argv=(Literal("/bin/x"), *words), number=0, **rest)),)  # type: ignore[arg-type]


def printed(text: str, shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([found, "-c", text], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    return done.stdout


def test_steps_that_are_written_down_read_as_the_same_steps() -> None:
    maker = TreeMaker(17, Programs())
    for _ in range(TREES):
        tree = maker.block()
        text = render(tree, {}, bash=True)
        again = parse(text)
        assert again.problem is None, (again.problem, text)
        assert bare(again.block) == bare(tree), text


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/bin/a -v 'a[$(id)]'", "/bin/a '-v' 'a[$(id)]'"),
        ("a b", "/usr/bin/env -- 'a' 'b'"),
        ("'/opt/a b' c", "'/opt/a b' 'c'"),
        ("/a \"it's\" $'x\\ny' \\$z", "/a 'it'\\''s' 'x\ny' '$z'"),
        ("/a ~/b {c,d}", "/a '/home/me/b' 'c' 'd'"),
        ('v=1; /a $v; /b "$v"', "/a '1'\n/b '1'"),
        ('v=$(/a); /b "x $v" "$?"', "text_v=\"$(/a)\"\n/b 'x '\"${text_v}\" \"$?\""),
        ('/a "$(/b | /c)"', '/a "$(/b | /c)"'),
        ("v=$(< /f)", "text_v=\"$(/usr/bin/env -- 'cat' <'/f')\""),
        ("/a <(/b) < /c", "/a <(/b) <'/c'"),
        ("/a >/dev/null 2>&1 &>> f", "/a >'/dev/null' 2>&1 >>'f' 2>&1"),
        ("/a |& /b | /c", "/a 2>&1 | /b | /c"),
        ("! /a | /b", "! /a | /b"),
        ("/a && /b || /c; /d", "/a && /b || /c\n/d"),
        ("(/a; /b) 2>/dev/null", "( /a; /b ) 2>'/dev/null'"),
        ("{ /a; /b; } | /c", "{ /a; /b; } | /c"),
        ("if /a; then /b; elif /c; then /d; else /e; fi", "if /a; then /b; elif /c; then /d; else /e; fi"),
        ("for i in 1 2; do /a $i; done", "{ /a '1'; /a '2'; }"),
        ("e=; for i in $e; do /a; done", "{ :; }"),
        ("for c in $(/a); do /b -x $c; done", "/a | /usr/bin/env -- 'xargs' '-n' '1' '/b' '-x'"),
        ("cd /a; /b && /c; /d", "cd '/a' && { /b && /c; /d; }"),
        ("cd /a && /b || /c", "cd '/a' && { /b || /c; }"),
        ("(cd a && /b); /c", "( cd 'a' && /b )\n/c"),
        ("cd /a", "cd '/a'"),
        ("/a <<'E'\nx 'y' $z\nE", "/a <<<'x '\\''y'\\'' $z'"),
        ("/a <<'E'\nE", "/a <'/dev/null'"),
        ("/a <<< x", "/a <<<'x'"),
        ("/a <<E | /b && /c\nx\nE", "/a <<<'x' | /b && /c"),
        ("if /a; then /b; fi <<E\nx\nE", "if /a; then /b; fi <<<'x'"),
        ("TZ=UTC /a", "TZ='UTC' /a"),
        ("set -e; command -v a; exit 3", "set '-e'\ncommand '-v' 'a'\nexit '3'"),
        ("/a; exit $?", '/a\nexit "$?"'),
        ("a=1", ":"),
    ],
)  # fmt: skip
def test_what_runs_is_programs_and_words_in_quotes(command: str, expected: str) -> None:
    assert runs(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        "cd /a && (cd b; c) | d; e",
        'for i in 1 2; do v=$(a $i); echo "$v"; done | sort',
        "(a; b) <<E | c || d\nx\ny\nE",
        "if a; then { b; }; fi",
    ],
)  # fmt: skip
def test_what_runs_is_written_the_same_way_again(command: str) -> None:
    once = runs(command)
    again = runs(once).replace("text_text_", "text_")
    assert again.replace("env '--'", "env --").replace("/usr/bin/env -- ':'", ":") == once


def test_commands_run_as_the_judge_returns_them() -> None:
    parsed = parse("df | { sort; } < in")
    df, group, sort = parsed.commands
    judged = {
        df.number: replace(df, argv=(Literal("/usr/bin/df"), Literal("-h"))),
        group.number: replace(group, redirections=(Redirection(operator="<", target=Literal("/abs/in")),)),
        sort.number: replace(sort, argv=(Literal("/usr/bin/sort"), Literal("--"), Literal("/abs/x"))),
    }
    expected = "/usr/bin/df '-h' | { /usr/bin/sort '--' '/abs/x'; } <'/abs/in'"
    assert render(parsed.block, judged, bash=True) == expected


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("stdin", ["x\n", "x", "", "\n", "a\n\n", "it's\n", "%s\\n\n"])
def test_what_a_command_is_fed_arrives_as_it_is(shell: str, stdin: str) -> None:
    step = Run(SimpleCommand(argv=(Literal("/bin/cat"), Literal("-A")), stdin=stdin))
    text = render((step,), {}, bash=shell == "bash")
    assert printed(text, shell) == stdin.replace("\n", "$\n")


@pytest.mark.parametrize("stdin", ["x\n", *(f"{each}\n" for each in NASTY if each.isascii() and "\t" not in each)])
def test_what_a_group_is_fed_arrives_as_it_is(stdin: str) -> None:
    cat = Run(SimpleCommand(argv=(Literal("/bin/cat"), Literal("-A"))))
    command = SimpleCommand(
        argv=(), stdin=stdin, redirections=(Redirection(operator=">&", target=Literal("1"), descriptor="2"),)
    )
    text = render((Redirected(Subshell((cat,)), command),), {}, bash=True)
    assert printed(text, "bash") == stdin.replace("\n", "$\n")


def test_words_arrive_as_they_are_in_every_shell() -> None:
    say = Literal("/usr/bin/printf")
    words = [word for word in NASTY if word]
    text = render((Run(SimpleCommand(argv=(say, Literal("%s\\0"), *map(Literal, words)))),), {}, bash=False)
    for shell in ("bash", "dash"):
        assert printed(text, shell).split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (one(Glob("*.log")), "write the names out"),
        (one(Given(())), "write the names out"),
        ((Run(SimpleCommand(argv=(Text((StoredVariable("x"),)),))),), "is not known before it runs"),
        ((Run(SimpleCommand(argv=())),), "is not known before it runs"),
        ((Run(SimpleCommand(argv=(Literal("LD_PRELOAD=x"), Literal("/bin/a")))),), "is not the name of a program"),
        ((Run(SimpleCommand(argv=(Literal(""),))),), "is not the name of a program"),
        ((Run(SimpleCommand(argv=(Literal("cd"), Text((StoredVariable("x"),))))),), "cd takes literal words"),
        ((Run(SimpleCommand(argv=(Literal("cd"), Literal("/a")), environment=(("A", "b"),))),), "cd takes literal words"),
        ((Run(SimpleCommand(argv=(Literal("exit"), Text((StoredVariable("x"),))))),), "exit takes literal words"),
        ((Run(SimpleCommand(argv=(Literal("command"), Literal("id")))),), "write that without command"),
        (one(Literal("a" * LONGEST_COMMAND)), "more than"),
        (one(Literal("\x01")), "reads differently"),
        (one(environment=(("A-B", "c"),)), "reads differently"),
        (one(environment=(("x\ny", "c"),)), "reads differently"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_as_literal_words_does_not_run(block: Block, reason: str) -> None:
    with pytest.raises(UnclearError, match=reason):
        render(block, {}, bash=True)


@pytest.mark.parametrize("command", ["a <(b)", "(cat) <<E\nx\nE"])
def test_what_only_bash_has_is_refused_for_another_shell(command: str) -> None:
    with pytest.raises(UnclearError, match="not something that every shell has"):
        runs(command, bash=False)


def test_a_text_that_reads_as_more_than_the_steps_held_does_not_run() -> None:
    """The second net: what the writer should ever let through is seen when its text is read back."""
    smuggled = Redirection(operator=">", target=Literal("/dev/null"), descriptor="; id; 2")
    with pytest.raises(UnclearError, match="reads differently"):
        render(one(redirections=(smuggled,)), {}, bash=True)
